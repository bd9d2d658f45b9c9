"""Comma-separated values (RFC 4180): a line of full names, then one for each row, with numbers in full."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from constrint.cli.output.formats import Format
from constrint.cli.output.page import Shown
from constrint.cli.output.values import batched, plain_text


def write(shown: Shown) -> Iterator[str]:
    """The names and the rows; what is missing is empty."""
    yield _lines([[column.key for column in shown.columns]])
    for rows in batched(shown.values()):
        yield _lines(rows)


def _lines(rows: list[list[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([plain_text(value) for value in row] for row in rows)
    return text.getvalue()


FORMAT = Format("comma-separated values", write)
