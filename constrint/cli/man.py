"""The manual page of the command, in the form that `man` reads, made of the same help as `--help`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.cli.help import EXAMPLES, group_of


def man_page(group: Any, version: str) -> str:
    """The page of the whole command.

    Args:
        group: The command line library's group of all sub-commands.
        version: The version that the page names.
    """
    lines = [
        f'.TH CONSTRINT 1 "" "constrint {version}" "User Commands"',
        ".SH NAME",
        f"constrint \\- {_text(_sentence(group.help))}",
        ".SH SYNOPSIS",
        ".B constrint",
        ".I COMMAND",
        "[options]",
        ".SH COMMANDS",
    ]
    for name, command in group.commands.items():
        lines += _section(f"constrint {name}", command)
    lines += [
        ".SH EXIT STATUS",
        "0 done, 1 infeasible or failed, 2 usage, 130 interrupted.",
        "Results go to stdout, everything else to stderr.",
        ".SH SEE ALSO",
        "constrint docs lists the pages of the documentation, and prints them.",
    ]
    return "\n".join(lines) + "\n"


def _section(title: str, command: Any) -> Iterator[str]:
    """A sub-command: what it does, its examples, its options by groups; each command of a group of commands."""
    yield f".SS {_text(title)}"
    yield from _paragraphs(command.help or "")
    nested = getattr(command, "commands", None)
    if nested:
        for name, inner in nested.items():
            yield from _section(f"{title} {name}", inner)
        return
    for words, meaning in EXAMPLES.get(title.removeprefix("constrint "), ()):
        yield ".PP"
        yield f"{_text(meaning[0].upper() + meaning[1:])}:"
        yield from (".RS", ".nf", _text(f"{title} {words}".rstrip()), ".fi", ".RE")
    context = command.context_class(command, info_name=title)
    for param in sorted(command.get_params(context), key=group_of):
        record = param.get_help_record(context)
        if record is not None:
            yield from (".TP", f".B {_text(record[0])}", _text(" ".join(record[1].split())))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _sentence(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def _text(text: str) -> str:
    """Text in which nothing is a request of the page's language."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped
