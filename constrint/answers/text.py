"""Text that is safe in source code: one-line comments, parts of names, and literals of C."""

from __future__ import annotations

import re

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
