"""`python -m constrint`, the version, the help, and what a mistake in the arguments is answered with."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from constrint import __version__
from constrint.cli import app

ROOT = Path(__file__).parents[2]


def test_the_module_is_the_command() -> None:
    # A process of its own: the command takes over the standard streams and signals.
    ended = subprocess.run(
        [sys.executable, "-m", "constrint", "gpus", "--json"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert '"constrint.gpus/1"' in ended.stdout


def test_the_version_says_what_was_found(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, _ = run("--version")
    lines = out.splitlines()
    assert (code, lines[0]) == (0, f"constrint {__version__}")
    assert lines[1].startswith(f"python {platform.python_version()} ")
    assert lines[2].startswith("core: ")
    monkeypatch.setattr("constrint.core.compiled", None)
    monkeypatch.setattr(app, "OPTIONAL", ("no_such_package",))
    assert run("--version")[1].splitlines()[2:] == [
        "core: numpy, which is slower: no compiled core of this version is here",
        "no_such_package not installed",
    ]


def test_the_help_says_what_every_command_does_whole(run: Any) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert "..." not in out.partition("Commands:")[2]
    assert all(f"\n  {name} " in out for name in app.COMMANDS)
    assert run()[2].startswith("Usage: constrint [OPTIONS] COMMAND")


@pytest.mark.parametrize(("columns", "most"), [(60, 60), (80, 80), (110, 110), (200, 120)])
def test_the_help_is_as_wide_as_the_terminal(
    run: Any, monkeypatch: pytest.MonkeyPatch, columns: int, most: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    widest = max(map(len, run("solve", "--help")[1].splitlines()))
    assert most - 15 <= widest <= most


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve", "--gpu"), "Option '--gpu' requires an argument. See `constrint solve --help`."),
        (("compare", "--kernel"), "See `constrint compare --help`."),
        (("solv",), "Did you mean 'solve'. See `constrint --help`."),
        (("",), "No such command ''"),
        (("x" * 10_000,), "No such command 'xxx"),
        (("\x1b]0;title\x07",), r"No such command '\x1b]0;title\x07'"),
        (("größe",), "No such command 'größe'"),
        (("solve", "--gpu", "h200", "--" + "x" * 10_000), "No such option: --xxx"),
        (("solve", "--gpu", "h200", "--m", "9" * 10_000), "is not a valid int"),
        (("solve", "--gpu", "h200", "--kernel", ""), "unknown kernel ''"),
        (("solve", "--gpu", "h200", "--kernel", "gemm", "--kernel", "lstm"), "--kernel is given twice"),
        (("solve", "--gpu", "h200", "--n", 1, "--n", 1), "--n is given twice; give it one value"),
    ],
)
def test_mistakes_are_one_short_line(run: Any, arguments: tuple[object, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err) < 500
    assert not {"\x1b", "\x07"} & set(err)


def test_how_it_is_printed_may_be_said_twice_and_the_last_counts(run: Any) -> None:
    asked = ("solve", "--gpu", "h200", "--kernel", "gemm.pointer", "--format", "csv")
    assert len(run(*asked, "--top", 5, "--top", 2)[1].splitlines()) == 3


def test_flags_and_repeatable_options_may_stand_twice(run: Any) -> None:
    settings = ("--set", "tile_m=128", "--set", "tile_n=128", "--where", "tile_k <= 64", "--where", "num_stages >= 3")
    code, out, _ = run("count", "--gpu", "h200", *settings, "--json", "--json")
    assert code == 0
    assert out.count("constrint.count/1") == 1
