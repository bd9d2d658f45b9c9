"""Text on stdout: the width of the terminal, wrapped prose, commands to copy, a JSON document."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, TextIO, cast

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


def styled(style: str, text: str) -> str:
    """Text in a style of `BOLD` or `SHADES`; plain where stdout shows none."""
    return f"{style}{text}{PLAIN}" if is_styled() else text


def say(text: str = "") -> None:
    """Print a line of the result."""
    sys.stdout.write(text + "\n")


def say_all(lines: Iterable[str]) -> None:
    """Print lines of the result."""
    for line in lines:
        say(line)


def print_json(value: Any) -> None:
    """Print one JSON document, indented, with keys in their given order."""
    sys.stdout.write(json_text(value))


def json_text(value: Any) -> str:
    """One JSON document as text."""
    return msgspec.json.format(json_line(value), indent=2) + "\n"


def json_line(value: Any) -> str:
    """A value as JSON in one line; surrogates, which UTF-8 lacks, are escaped."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value))


def wrap(text: str, indent: str = "", *, has_lines: bool = False) -> str:
    """Wrap prose to the width of the terminal, but not at hyphens; a pipe gets one line.

    Args:
        text: The prose.
        indent: The beginning of each line.
        has_lines: Whether a pipe gets line breaks of the text as they are.
    """
    width = terminal_width()
    text = printable(text if has_lines else " ".join(text.splitlines()), f"{_NO_BREAK}\n")
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


def printable(text: str, kept: str = "") -> str:
    r"""Text in which a terminal finds nothing to act on: one line, with other characters escaped as in `\u001b`.

    Control characters, marks that change the direction of text, surrogates, and characters without a meaning are
    escaped as JSON does it, so that a JSON document stays one with the same values.

    Args:
        text: Any text.
        kept: Characters that stay although they are not printable, such as newlines.
    """
    if text.isprintable() or (kept and text.translate(dict.fromkeys(map(ord, kept))).isprintable()):
        return text
    return "".join(one if one.isprintable() or one in kept else _escape(one) for one in text)


def _escape(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{high:02x}{low:02x}" for high, low in zip(units[::2], units[1::2], strict=True))


_SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
#: Characters that a page may hold besides printable ones.
LAID_OUT = "\n\t"
#: Sequences that make a terminal's text bold, and plain again.
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
#: Black on backgrounds from strong to faint, readable on dark and on light terminals.
SHADES = tuple(f"\x1b[30;48;5;{colour}m" for colour in (40, 77, 114, 151, 188))
_STYLE = re.compile("|".join(map(re.escape, (BOLD, PLAIN, *SHADES))))
#: What stands for a character of this package's own texts that a terminal lacks.
_PLAINER = {"─": "-", "…": "..."}


class CleanStream:
    """A text stream that passes on what is `printable`, and escapes what its encoding lacks.

    All that a command prints goes through one (`clean_streams`). The consoles of rich, which move the cursor, write to
    `rich_proxied_file`; their texts are made printable before.
    """

    encoding = "utf-8"

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream
        self._encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        """Write the text without what a terminal would act on; bold and shaded text stay so on a terminal."""
        if PLAIN in text and is_styled():
            styles = [*_STYLE.findall(text), ""]
            clean = "".join(self._clean(part) + style for part, style in zip(_STYLE.split(text), styles, strict=True))
        else:
            clean = self._clean(text)
        self.rich_proxied_file.write(clean)
        return len(text)

    def writelines(self, texts: Iterable[str]) -> None:
        """Write several texts."""
        for text in texts:
            self.write(text)

    def _clean(self, text: str) -> str:
        clean = printable(text, LAID_OUT)
        if clean.isascii() or self._has(clean):
            return clean
        return "".join(one if self._has(one) else _PLAINER.get(one) or _escape(one) for one in clean)

    def _has(self, text: str) -> bool:
        """Whether the encoding of the terminal has all characters of a text."""
        try:
            text.encode(self._encoding)
        except UnicodeEncodeError:
            return False
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rich_proxied_file, name)


@contextmanager
def clean_streams() -> Iterator[None]:
    """Let stdout and stderr take printable text alone."""
    out, err = (cast("TextIO", CleanStream(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


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
