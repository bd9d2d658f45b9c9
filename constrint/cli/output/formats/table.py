"""A table for people: fitted to the terminal, or plain text in a pipe, with what has to be said about it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial

from constrint.cli.output.draw import draw, legend, notes_below
from constrint.cli.output.formats import Format
from constrint.cli.output.layout import lay_out
from constrint.cli.output.page import Shown, Wanted
from constrint.cli.output.table import Table
from constrint.cli.output.terminal import command_text, terminal_width, wrap


def write(shown: Shown) -> Iterator[str]:
    """The page: what stands above, the table, and what stands below."""
    page, wanted = shown.page, shown.wanted
    for line in page.above:
        yield wrap(line) + "\n"
    if page.draw is not None:
        page.draw(partial(_print, wanted=wanted, main=page.table))
    elif page.table.rows:
        yield "\n" if page.above else ""
        yield from _drawn(page.table, wanted, page.answer)
        yield "" if page.answer else "\n"
    for line in (*page.below, *(page.legend if wanted.has_legend else ())):
        yield wrap(line) + "\n"
    for before, words in page.hints:
        yield command_text(words, f"{before} ") + "\n"
    if wanted.has_legend:
        yield "\n" + wrap("columns, with the names that --columns and --sort take:") + "\n"
        for line in legend(page.table.columns):
            yield wrap(line, "  ") + "\n"


def _drawn(table: Table, wanted: Wanted, answer: Sequence[str] = ()) -> Iterator[str]:
    width = terminal_width()
    layout = lay_out(table, width, is_wide=wanted.is_wide, chosen=wanted.columns)
    for line in draw(table, layout, width):
        yield line + "\n"
    notes = [*answer, *notes_below(table, layout)]
    yield "\n" if notes else ""
    for line in notes:
        yield wrap(line) + "\n"


def _print(table: Table, *, wanted: Wanted, main: Table) -> None:
    """One of the tables of a page; the columns that the user named are those of the main one."""
    heeded = wanted if table.columns == main.columns else Wanted(is_wide=wanted.is_wide)
    sys.stdout.write("".join(_drawn(table, heeded)))


FORMAT = Format("a table that fits the terminal, or plain text in a pipe", write)
