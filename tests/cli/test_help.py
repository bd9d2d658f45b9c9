"""The help of commands: examples that can be typed, options in groups, nothing left out."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import typer

from constrint.cli.app import COMMANDS, _command, application
from constrint.cli.help import EXAMPLES, GROUPS
from constrint.cli.options import KernelCommand
from tests.cli.conftest import Call

CASES = [(command, words) for command, examples in EXAMPLES.items() for words, _ in examples]


def parsed(arguments: list[str]) -> Any:
    """The context of a sub-command with these words, which are parsed and not run."""
    called = _command(arguments[0])
    if isinstance(called, KernelCommand):
        arguments = [arguments[0], *called.reads(arguments[1:])]
    group: Any = typer.main.get_command(application(arguments)[0])
    outer = group.make_context("constrint", list(arguments))
    name, command, rest = group.resolve_command(outer, arguments)
    return command.make_context(name, rest, parent=outer)


@pytest.mark.parametrize(("command", "words"), CASES)
def test_examples_are_understood(command: str, words: str) -> None:
    assert parsed([command, *shlex.split(words)]).info_name == command


QUICK = ("why-not", "count", "sample", "limits", "kernels", "gpus", "gpu", "occupancy", "docs")


@pytest.mark.parametrize(("command", "words"), [case for case in CASES if case[0] in QUICK and case[1] != "--detect"])
def test_examples_answer(run: Call, command: str, words: str) -> None:
    code, out, err = run(command, *shlex.split(words))
    assert code in (0, 1), err
    assert out


def test_commands_have_examples() -> None:
    assert {*COMMANDS} - {"records"} == EXAMPLES.keys()


def test_the_help_has_every_option_once_and_the_sizes_apart(run: Call) -> None:
    context = parsed(["solve", "--kernel", "lstm"])
    code, text, _ = run("solve", "--kernel", "lstm", "--help")
    assert code == 0
    titles = [line[:-1] for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Examples", "Options", *(title for title, _ in GROUPS)]
    options = text[: text.index("are sizes of lstm")].rpartition("\n")[0]
    listed = [line.split()[0].rstrip(",") for line in options.splitlines() if line.startswith("  -")]
    assert sorted(listed) == sorted(["-h", *(param.opts[0] for param in context.command.params)])
    sizes = text[text.index("\nSizes:") : text.index("\nOutput:")]
    assert "--head-dim" in sizes
    assert "--top" not in sizes
