"""JSON lines: one object for each row, with full names and numbers in full."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from constrint.cli.output.formats import Format
from constrint.cli.output.page import Shown
from constrint.cli.output.values import batched


def write(shown: Shown) -> Iterator[str]:
    """The rows; what is missing is null, or left out of rows that are printed as they are found."""
    names = [column.key for column in shown.columns]
    encode = msgspec.json.Encoder().encode_lines
    for rows in batched(shown.values()):
        lines = [dict(zip(names, row, strict=True)) for row in rows]
        if shown.page.rows is not None and any(msgspec.UNSET in row for row in rows):
            lines = [{name: value for name, value in line.items() if value is not msgspec.UNSET} for line in lines]
        yield encode(lines).decode()


FORMAT = Format("one JSON object a line", write)
