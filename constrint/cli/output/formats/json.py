"""The JSON document of a command (`constrint docs json`); JSON lines where a command prints rows without end."""

from __future__ import annotations

from collections.abc import Iterator

from constrint.cli.output.formats import Format
from constrint.cli.output.formats.jsonl import write as write_lines
from constrint.cli.output.page import Shown
from constrint.cli.output.terminal import json_text


def write(shown: Shown) -> Iterator[str]:
    """One document."""
    if shown.page.document is None:
        yield from write_lines(shown)
    else:
        yield json_text(shown.page.document(shown.page.table.items))


FORMAT = Format("one JSON document (`constrint docs json`)", write)
