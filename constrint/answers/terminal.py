"""Text on stdout: the width of the terminal, wrapped prose, commands to copy, a JSON document."""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec

#: Least width to which prose is wrapped.
LEAST_PROSE = 20
#: Assumed width of a terminal that does not state it.
USUAL_WIDTH = 80
#: A space at which `wrap` breaks no line.
_NO_BREAK = "\xa0"


def terminal_width() -> int | None:
    """The width of the terminal at stdout in columns; None for a pipe or a file, where no line is broken."""
    if not sys.stdout.isatty():
        return None
    stated = os.environ.get("COLUMNS", "")
    if stated.isdecimal() and int(stated) > 0:
        return int(stated)
    try:
        width = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        width = 0
    return width or USUAL_WIDTH


def is_styled() -> bool:
    """Whether stdout is a terminal that shows bold text, and the user did not ask for plain text."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM", "dumb") != "dumb"


def say(text: str = "") -> None:
    """Print a line of the result."""
    sys.stdout.write(text + "\n")


def print_json(value: Any) -> None:
    """Print one JSON document, indented, with keys in their given order."""
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """One JSON document as text."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def wrap(text: str, indent: str = "") -> str:
    """Wrap prose to the width of the terminal, but not at hyphens; a pipe gets it unchanged."""
    width = terminal_width()
    if width is None:
        return indent + text.replace(_NO_BREAK, " ")
    lines = textwrap.wrap(
        text,
        max(LEAST_PROSE, width),
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace(_NO_BREAK, " ")


def kept_together(text: str) -> str:
    """Words that `wrap` keeps on one line."""
    return text.replace(" ", _NO_BREAK)


def command_text(words: Sequence[str], before: str = "") -> str:
    r"""A command to copy and paste; a command wider than the terminal is continued with the shell's `\`.

    Args:
        words: The command and its arguments.
        before: The words in front of it; on a line of their own if both together are too wide.
    """
    width, quoted = terminal_width(), [shlex.quote(word) for word in words]
    whole = " ".join(quoted)
    if width is None or width_of(before + whole) <= width:
        return before + whole
    lines = [before.rstrip()] if before else []
    line = ""
    for place, word in enumerate(quoted):
        # An option stays beside its value.
        piece = f"{word} {quoted[place + 1]}" if word.startswith("--") and place + 1 < len(quoted) else word
        if line and width_of(f"{line} {piece} \\") > width:
            lines.append(f"{line} \\")
            line = f"    {word}"
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])


def width_of(text: str) -> int:
    """The width of a text on a terminal; some characters take two columns, or none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def printable(text: str) -> str:
    r"""A text in one line, with control characters escaped as in `\x1b`."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def break_text(text: str, width: int) -> list[str]:
    """The lines of a text in a column: broken between words, or within a word that is wider than the column."""
    if width_of(text) <= width:
        return [text]
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width_of(f"{line} {word}") <= width:
            line = f"{line} {word}"
            continue
        lines += [line] if line else []
        *full, line = _chopped(word, width)
        lines += full
    return [*lines, line] if line else lines or [""]


def _chopped(word: str, width: int) -> list[str]:
    """Pieces of a word that are at most as wide as the column; a single wide character may exceed it."""
    pieces = [""]
    for character in word:
        if pieces[-1] and width_of(pieces[-1] + character) > width:
            pieces.append("")
        pieces[-1] += character
    return pieces
