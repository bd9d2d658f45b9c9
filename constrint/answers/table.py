"""Tables and pages: columns with full names, rows of values, and the lines around a table.

The key of a column is its full name: `--columns` and `--sort` take it, and CSV, JSON lines and Markdown print it. On a
terminal the column has a short title, and its importance decides whether a narrow terminal leaves it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from constrint.answers.terminal import LAID_OUT, json_line, printable
from constrint.errors import UnknownNameError

#: Least importance of columns that a narrow terminal keeps, on further lines of a row if need be.
STAYS = 50
#: Importance of columns that a terminal prints only with `--wide` or `--columns`; other formats always print them.
EXTRA = 0


class Cell(NamedTuple):
    """A value with a text of its own: the estimate 135 is shown as `~135`."""

    value: Any
    text: str


def text_of(value: Any) -> str:
    """The default text of a value in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def pairs_text(pairs: Mapping[str, Any]) -> str:
    """`tile_m=128 tile_n=64`."""
    return " ".join(f"{name}={value}" for name, value in pairs.items())


def counted(number: int, noun: str) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        key: The full name, with the unit of the values: `predicted_s`.
        title: The title on a terminal, a few letters; the key if empty.
        brief: The meaning of the title in a few words, printed below each table; empty for a plain title.
        meaning: The meaning of the values in a sentence, printed with `--legend`.
        is_text: Whether values are text, aligned to the left.
        importance: From 0 to 100; see `STAYS` and `EXTRA`.
        wraps: Whether the text may be broken between words.
        is_shared: Whether a value that is the same in all rows is printed once below the table (a kernel's parameter).
        joined: The group whose columns a terminal shows as one: `tile` joins `tile_m` and `tile_n` as `128x64`.
        show: Makes the text of a value; never called for a missing value.
    """

    key: str
    title: str = ""
    brief: str = ""
    meaning: str = ""
    is_text: bool = False
    importance: int = 60
    wraps: bool = False
    is_shared: bool = False
    joined: str = ""
    show: Callable[[Any], str] = text_of

    @property
    def name(self) -> str:
        """The title on a terminal."""
        return self.title or self.key

    def text(self, cell: Any) -> str:
        """The text of a cell; `-` for a missing value."""
        if isinstance(cell, Cell):
            return printable(cell.text)
        return "-" if is_missing(cell) else printable(self.show(cell))


def value_of(cell: Any) -> Any:
    """The value of a cell for programs; None if it is missing."""
    value = cell.value if isinstance(cell, Cell) else cell
    return None if value is msgspec.UNSET else value


def is_missing(cell: Any) -> bool:
    """Whether a cell is empty; a `Cell` without a value is not, since it has a text."""
    return cell is None or cell is msgspec.UNSET


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        columns: The columns from left to right, with different keys.
        rows: Cells in the order of the columns: values, None for a missing value, or a `Cell`.
        items: The object behind each row, in the same order, for JSON documents.
        group: Key of the column whose values are headings above their rows; empty for none.
        best: Indices of the rows that a terminal shows in bold.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    items: Sequence[Any] = field(default=())
    group: str = ""
    best: tuple[int, ...] = ()

    def place(self, name: str) -> int:
        """The index of the column with a key, or with a unique title.

        Raises:
            UnknownNameError: When no column has the name.
        """
        for names in ([c.key for c in self.columns], [c.name for c in self.columns]):
            if names.count(name) == 1:
                return names.index(name)
        keys = [column.key for column in self.columns]
        names_known = {*keys, *(column.name for column in self.columns)}
        raise UnknownNameError("column", name, names_known, "--legend says what there is.")

    def named(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The columns with these names, in their order; the name of a group stands for all its columns.

        Raises:
            UnknownNameError: When no column has a name.
        """
        chosen: dict[str, Column] = {}
        for name in names:
            joined = [column for column in self.columns if column.joined == name and name]
            for column in joined or [self.columns[self.place(name)]]:
                chosen[column.key] = column
        return tuple(chosen.values())

    def cells(self, column: Column) -> list[Any]:
        """The cells of a column."""
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def sorted_by(self, names: Sequence[str]) -> Table:
        """The table with its rows sorted by columns, the first name first; `-NAME` sorts from the largest value down.

        Rows without a value come last in both directions; equal rows keep their order.

        Raises:
            UnknownNameError: When no column has a name.
        """
        order = list(range(len(self.rows)))
        keys = [
            (self.columns.index(column), name.startswith("-"))
            for name in names
            for column in self.named([name.removeprefix("-")])
        ]
        for at, is_descending in reversed(keys):
            order.sort(key=lambda row, at=at: _sort_key(self.rows[row][at]), reverse=is_descending)  # type: ignore[misc]
            order.sort(key=lambda row, at=at: value_of(self.rows[row][at]) is None)  # type: ignore[misc]
        items = [self.items[row] for row in order] if self.items else self.items
        best = tuple(order.index(row) for row in self.best)
        return replace(self, rows=[self.rows[row] for row in order], items=items, best=best)

    def groups(self) -> Iterator[tuple[str, list[int]]]:
        """The headings with the indices of their rows; a single empty heading for a table without groups."""
        if not self.group:
            yield "", list(range(len(self.rows)))
            return
        places: dict[str, list[int]] = {}
        at = self.place(self.group)
        for number, row in enumerate(self.rows):
            places.setdefault(self.columns[at].text(row[at]), []).append(number)
        yield from places.items()


def _sort_key(cell: Any) -> tuple[int, float, str]:
    """Numbers by size, before text by alphabet."""
    value = value_of(cell)
    if isinstance(value, int | float):
        return (0, value, "")
    return (1, 0, str(value).casefold())


@dataclass(frozen=True)
class Page:
    """The whole answer of a command, in a form that every output format can print.

    Args:
        table: The table. CSV, JSON lines and Markdown print the table alone.
        document: Makes the JSON document of the table's items in their printed order; None prints a JSON line per row.
        above: Lines above the table on a terminal.
        answer: Lines just below the table.
        below: Lines below the notes about the table.
        hints: Commands to copy, each with the words in front of it.
        legend: Further lines with `--legend`.
        draw: Prints a page with several tables in place of all this; it receives the function that prints a table.
        rows: Streams the rows in place of the table's, as printed values, with `msgspec.UNSET` for a missing value.
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
class PageOptions:
    """The options about a page.

    Args:
        columns: Names of the columns of `--columns`; empty leaves the choice to the format.
        is_wide: Whether a terminal shows every column.
        has_legend: Whether the meanings of all columns are printed.
        is_raw: Whether CSV has text as it is, even where a spreadsheet would compute it.
    """

    columns: tuple[str, ...] = ()
    is_wide: bool = False
    has_legend: bool = False
    is_raw: bool = False


@dataclass(frozen=True)
class Shown:
    """A page with the options about it, as a format receives it; its rows are sorted."""

    page: Page
    options: PageOptions = field(default_factory=PageOptions)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns for programs: those of `--columns`, or all."""
        table = self.page.table
        return table.named(self.options.columns) if self.options.columns else table.columns

    def values(self) -> Iterator[list[Any]]:
        """The rows as values, in the order of `columns`; a missing value is None, or UNSET in streamed rows."""
        table = self.page.table
        places = [table.columns.index(column) for column in self.columns]
        if self.page.rows is None:
            yield from ([value_of(row[place]) for place in places] for row in table.rows)
        elif places == list(range(len(table.columns))):
            yield from map(list, self.page.rows())
        else:
            yield from ([row[place] for place in places] for row in self.page.rows())


#: Rows per written piece.
BATCH = 4096


def batched(rows: Iterable[list[Any]]) -> Iterator[list[list[Any]]]:
    """The rows in lists of `BATCH`."""
    rest = iter(rows)
    while batch := list(islice(rest, BATCH)):
        yield batch


def plain_text(value: Any) -> str:
    """A value for programs: empty if missing, `true` or `false`, numbers with all digits, lists as JSON."""
    if isinstance(value, str):
        return printable(value, LAID_OUT)
    if value is None or value is msgspec.UNSET:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return json_line(value)
