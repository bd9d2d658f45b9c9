"""Text that is safe where it is read as code: comments, parts of names, literals of C, cells of spreadsheets."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from typing import Any

from constrint.answers.terminal import LAID_OUT, printable
from constrint.errors import UsageError


def comment(text: str) -> str:
    """Any text as a comment line of Python, in ASCII."""
    plain = "".join(ch if ch.isprintable() else " " for ch in text)
    return f"# {plain.encode('ascii', 'backslashreplace').decode()}"


def one_line(text: str) -> str:
    """Text for a comment of any language: one line, without quotes or ends of comments."""
    return re.sub(r"[^\w =.,:;<>%+()-]", "?", text, flags=re.ASCII)


def identifier(text: str) -> str:
    """Text as part of a name in source code."""
    return re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_")


def c_literal(value: object) -> str:
    """A value as a C literal: a number, a string, 0 or 1 for a bool, empty for None.

    Raises:
        UsageError: For an integer of more than 64 bits, and for a value without a literal in C.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, str):
        # A question mark could begin a trigraph.
        plain = (
            chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in value.encode()
        )
        return f'"{"".join(plain)}"'
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UsageError(f"{value} has more than the 64 bits of a C integer.")
    if not isinstance(value, (int, float)) or value - value != 0:
        raise UsageError(f"{value!r} cannot be written in C; numbers, text, bools and None can.")
    if value == -(2**63) and isinstance(value, int):
        return f"({value + 1} - 1)"  # C reads the digits before the sign, and they alone do not fit
    return f"({value!r})" if value < 0 else repr(value)


#: The beginning of a text that a spreadsheet computes, or whose first character it drops, and numbers, which it reads.
_COMPUTED = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")
_NEGATIVE = re.compile(r"-(\d+(\.\d+)?([eE][+-]?\d+)?|inf)")


def csv_lines(rows: Iterable[Iterable[Any]], *, is_raw: bool = False) -> str:
    """Rows as lines of comma-separated values.

    Args:
        rows: The cells of each row; text is made printable, other values are written by `str`.
        is_raw: Whether a text that a spreadsheet would compute goes without the `'` that makes it text there.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([_csv_cell(value, is_raw) for value in row] for row in rows)
    return text.getvalue()


def _csv_cell(value: Any, is_raw: bool) -> Any:
    if not isinstance(value, str):
        return value
    cell = printable(value, LAID_OUT)
    return f"'{cell}" if not is_raw and _COMPUTED.match(cell) and not _NEGATIVE.fullmatch(cell) else cell
