"""What a command answers, in a form that every output format can print: a table, a JSON document, and words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from constrint.cli.output.table import Column, Table, value_of


@dataclass(frozen=True)
class Page:
    """A command's whole answer.

    Args:
        table: The table. CSV, JSON lines and Markdown print it and nothing else.
        document: Makes the JSON document of the table's items in the order in which they are printed; None where JSON
            is one line for each row.
        above: Lines above the table on a terminal.
        answer: Lines just below it.
        below: Lines below what is said of the table itself.
        hints: Commands that come next, each with the words before it; they are printed so that they can be copied.
        legend: Further lines, printed with `--legend`.
        draw: Prints a page that holds more than one table, in place of all this: it gets what prints one of them.
        rows: The rows in place of the table's, where they are too many to be kept: values as they are printed, and
            `msgspec.UNSET` for what is missing.
    """

    table: Table
    document: Callable[[Sequence[Any]], Any] | None = None
    above: Sequence[str] = ()
    answer: Sequence[str] = ()
    below: Sequence[str] = ()
    hints: Sequence[tuple[str, Sequence[str]]] = ()
    legend: Sequence[str] = ()
    draw: Callable[[Callable[[Table], None]], None] | None = None
    rows: Callable[[], Iterable[Sequence[Any]]] | None = None


@dataclass(frozen=True)
class Wanted:
    """How a user wants a page: what the options say.

    Args:
        columns: Names of the columns; those that the format finds best if empty.
        is_wide: Whether a terminal shows every column.
        has_legend: Whether what the columns mean is printed in full.
    """

    columns: tuple[str, ...] = ()
    is_wide: bool = False
    has_legend: bool = False


@dataclass(frozen=True)
class Shown:
    """A page as a format gets it, its rows in order."""

    page: Page
    wanted: Wanted = field(default_factory=Wanted)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that machines read: those that the user named, or all of them."""
        table = self.page.table
        return table.named(self.wanted.columns) if self.wanted.columns else table.columns

    def values(self) -> Iterator[list[Any]]:
        """The rows as values, in the order of the columns; None (UNSET if they are not kept) for what is missing."""
        table = self.page.table
        places = [table.columns.index(column) for column in self.columns]
        if self.page.rows is None:
            yield from ([value_of(row[place]) for place in places] for row in table.rows)
        elif places == list(range(len(table.columns))):
            yield from map(list, self.page.rows())
        else:
            yield from ([row[place] for place in places] for row in self.page.rows())
