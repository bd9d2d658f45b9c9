"""A Markdown table, as GitHub and most sites show it: full names, numbers in full."""

from __future__ import annotations

import re
from collections.abc import Iterator

from constrint.cli.output.formats import Format
from constrint.cli.output.page import Shown
from constrint.cli.output.values import batched, plain_text

#: What Markdown would act on; underscores only where a word begins or ends.
_MARKS = re.compile(r"[\\|`*\[\]<>~&]|(?<!\w)_|_(?!\w)")


def write(shown: Shown) -> Iterator[str]:
    """The names, the alignment, and the rows."""
    columns = shown.columns
    yield _line([_escaped(column.key) for column in columns])
    yield _line([":---" if column.is_text else "---:" for column in columns])
    for rows in batched(shown.values()):
        yield "".join(_line([_escaped(plain_text(value)) for value in row]) for row in rows)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, in one line."""
    return _MARKS.sub(r"\\\g<0>", text).replace("\n", "<br>").replace("\t", " ")


FORMAT = Format("a Markdown table", write)
