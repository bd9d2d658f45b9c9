"""Draws a table as lines of text, and says below it what was left out and what its titles mean."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from constrint.cli.output.layout import INDENT, Layout, Strip
from constrint.cli.output.table import Column, Table, is_missing
from constrint.cli.output.terminal import break_text, is_styled, kept_together, width_of

#: How far further lines of `name=value` pairs are set in.
PAIRS_INDENT = 2
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"


def draw(table: Table, layout: Layout, width: int | None) -> Iterator[str]:
    """The lines of a table; a table without columns or rows has none.

    Args:
        table: The table.
        layout: How it is laid out.
        width: Columns of the terminal; None for a pipe, which gets neither bold text nor a rule.
    """
    if not table.rows or not layout.lines:
        return
    if not layout.as_pairs:
        yield from _head(layout, width)
    for number, (heading, places) in enumerate(table.groups()):
        if heading:
            if number or layout.as_pairs:
                yield ""
            yield from break_text(heading, width) if width else [heading]
        for place in places:
            yield from _pairs(table, layout, place, width) if layout.as_pairs else _row(layout, place)


def _head(layout: Layout, width: int | None) -> Iterator[str]:
    lines: list[str] = []
    for number, strips in enumerate(layout.lines):
        # Titles of several lines end at the same one, just above the cells.
        titles = [[piece for line in strip.title_lines for piece in break_text(line, strip.width)] for strip in strips]
        height = max(map(len, titles), default=0)
        stacked = [[""] * (height - len(title)) + title for title in titles]
        lines += _side_by_side(strips, stacked, layout.gap, INDENT if number else 0)
    if width is None:
        yield from lines
        return
    before, after = (BOLD, PLAIN) if is_styled() else ("", "")
    yield from (f"{before}{line}{after}" if line else "" for line in lines)
    yield _rule() * max(
        (INDENT if number else 0) + sum(s.width for s in strips) + layout.gap * (len(strips) - 1)
        for number, strips in enumerate(layout.lines)
    )


def _rule() -> str:
    try:
        "─".encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "-"
    return "─"


def _row(layout: Layout, place: int) -> Iterator[str]:
    for number, strips in enumerate(layout.lines):
        texts = [break_text(strip.texts[place], strip.width) for strip in strips]
        yield from _side_by_side(strips, texts, layout.gap, INDENT if number else 0)


def _side_by_side(strips: Sequence[Strip], texts: Sequence[list[str]], gap: int, indent: int) -> Iterator[str]:
    """Lines of cells, those with fewer lines filled up with empty ones."""
    for line in zip_longest(*texts, fillvalue=""):
        cells = [_aligned(strip, text) for strip, text in zip(strips, line, strict=True)]
        yield (" " * indent + (" " * gap).join(cells)).rstrip()


def _aligned(strip: Strip, text: str) -> str:
    space = " " * max(0, strip.width - width_of(text))
    return text + space if strip.is_text else space + text


def _pairs(table: Table, layout: Layout, place: int, width: int | None) -> Iterator[str]:
    """A row as `name=value` with full names; what is missing is left out."""
    columns = [column for strips in layout.lines for strip in strips for column in strip.columns]
    row = table.rows[place]
    cells = [(column, row[table.columns.index(column)]) for column in columns]
    yield from pair_lines((f"{c.key}={c.text(cell)}" for c, cell in cells if not is_missing(cell)), width)


def pair_lines(words: Iterable[str], width: int | None) -> Iterator[str]:
    """Words such as `name=value` on as many lines as they need; all but the first line are set in."""
    pairs = " ".join(words)
    first, *rest = [pairs] if width is None else break_text(pairs, max(1, width - PAIRS_INDENT))
    yield first
    yield from (" " * PAIRS_INDENT + line for line in rest)


def notes_below(table: Table, layout: Layout) -> list[str]:
    """What has to be said of a table as it was laid out: constants, what is left out, and what short titles mean."""
    notes = []
    if layout.shared:
        which = "in all rows" if layout.is_shared_by_all else "in all rows that have it"
        pairs = " ".join(f"{name}={value}" for name, value in layout.shared.items())
        notes.append(f"the same {which}: {pairs}")
    if layout.hidden:
        names = ", ".join(column.key for column in layout.hidden)
        notes.append(f"not shown here: {names} (--wide shows all, --columns NAME,NAME chooses)")
    if not layout.as_pairs:
        drawn = {column for strips in layout.lines for strip in strips for column in strip.columns}
        briefs = {column.name: column.brief for column in table.columns if column in drawn and column.brief}
        told = [f"{title} = {text}" for title, text in briefs.items()]
        notes += ["columns: " + ", ".join(map(kept_together, told))] if briefs else []
    return notes


def legend(columns: Sequence[Column]) -> Iterator[str]:
    """A line for each column: its title, the full name that options take, and what it means."""
    for column in columns:
        named = column.key if column.name == column.key else f"{column.name} ({column.key})"
        meaning = column.meaning or column.brief
        yield f"{named}: {meaning}" if meaning else named
