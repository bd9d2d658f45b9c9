"""Values as machines read them: numbers in full, and text that no terminal acts on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import msgspec

#: Rows that are written at once.
BATCH = 4096
#: Characters that are no text but that quoted text may hold.
_KEPT = "\n\t"


def batched(rows: Iterable[list[Any]]) -> Iterator[list[list[Any]]]:
    """The rows in lists that are written at once."""
    rest = iter(rows)
    while batch := list(islice(rest, BATCH)):
        yield batch


def plain_text(value: Any) -> str:
    """A value as text: nothing for what is missing, `true` and `false`, numbers with all digits, lists as JSON."""
    if isinstance(value, str):
        return safe_text(value)
    if value is None or value is msgspec.UNSET:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return msgspec.json.encode(value).decode()


def safe_text(text: str) -> str:
    r"""Text whose control characters and broken surrogates are escaped, as in `\x1b`; new lines and tabs are kept."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else c.encode("unicode_escape").decode() for c in text)
