"""What a table is, whatever it is printed as: columns with full names, rows of values, and how rows are ordered.

A column's key is its full name: `--columns` and `--sort` take it, and CSV, JSON lines and Markdown print it. On a
terminal it has a short title, and its importance says whether it is left out where there is little room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from constrint.answers.terminal import printable
from constrint.errors import UnknownNameError

#: Columns of less importance than this are left out of a narrow terminal; others stand on further lines of a row.
STAYS = 50
#: Columns of this importance are printed with `--wide`, by `--columns`, and in every format but the table.
EXTRA = 0


class Cell(NamedTuple):
    """A value that a table shows otherwise than its column's other values: `135` as `~135`, as it is an estimate."""

    value: Any
    text: str


def text_of(value: Any) -> str:
    """A value as tables show it unless the column says otherwise."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


@dataclass(frozen=True)
class Column:
    """One column.

    Args:
        key: Its full name, with the unit of its values: `predicted_s`.
        title: Its title in a table, a few letters; the key if empty.
        brief: What the title stands for, in a few words: printed below each table. Titles that explain themselves
            have none.
        meaning: What the values mean, in a sentence: printed with `--legend`.
        is_text: Whether values are text, aligned to the left.
        importance: Up to 100; see `STAYS` and `EXTRA`.
        wraps: Whether the text may be broken between words, as prose may.
        is_shared: Whether a value that is the same in all rows is said once below the table (a kernel's parameter).
        joined: Name of the group whose columns a table shows as one: `tile` joins `tile_m` and `tile_n` as `128x64`.
        show: How a value is shown; None for a value that is missing never comes here.
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
        """Its title in a table."""
        return self.title or self.key

    def text(self, cell: Any) -> str:
        """A cell as a table shows it; `-` for what is missing."""
        if isinstance(cell, Cell):
            return printable(cell.text)
        return "-" if is_missing(cell) else printable(self.show(cell))


def value_of(cell: Any) -> Any:
    """The value of a cell, as programs read it; None for what is missing."""
    value = cell.value if isinstance(cell, Cell) else cell
    return None if value is msgspec.UNSET else value


def is_missing(cell: Any) -> bool:
    """Whether a row has nothing to show there; a `Cell` without a value still has its text."""
    return cell is None or cell is msgspec.UNSET


@dataclass(frozen=True)
class Table:
    """A table.

    Args:
        columns: From left to right; no two have the same key.
        rows: Cells in the order of the columns: values, None for what is missing, or a `Cell`.
        items: What each row was made of, in the same order, for JSON documents; none if left out.
        group: Key of the column whose value is a heading above the rows that have it; "" for none.
    """

    columns: tuple[Column, ...]
    rows: Sequence[Sequence[Any]]
    items: Sequence[Any] = field(default=())
    group: str = ""

    def place(self, name: str) -> int:
        """Where a column stands that is named by its key, or by a title that only one has.

        Raises:
            UnknownNameError: When there is none.
        """
        for names in ([c.key for c in self.columns], [c.name for c in self.columns]):
            if names.count(name) == 1:
                return names.index(name)
        keys = [column.key for column in self.columns]
        known = {*keys, *(column.name for column in self.columns)}
        raise UnknownNameError("column", name, known, "--legend says what there is.")

    def named(self, names: Sequence[str]) -> tuple[Column, ...]:
        """The columns of these names, in their order; the name of a group of joined columns names them all.

        Raises:
            UnknownNameError: When there is no such column.
        """
        chosen: dict[str, Column] = {}
        for name in names:
            joined = [column for column in self.columns if column.joined == name and name]
            for column in joined or [self.columns[self.place(name)]]:
                chosen[column.key] = column
        return tuple(chosen.values())

    def cells(self, column: Column) -> list[Any]:
        """The cells of one of its columns."""
        at = self.columns.index(column)
        return [row[at] for row in self.rows]

    def sorted_by(self, names: Sequence[str]) -> Table:
        """The rows in the order of some columns, the first one first; `-NAME` is from the largest to the smallest.

        Rows without a value come last, either way; rows that are equal keep their order.

        Raises:
            UnknownNameError: When there is no such column.
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
        return replace(self, rows=[self.rows[row] for row in order], items=items)

    def groups(self) -> Iterator[tuple[str, list[int]]]:
        """The headings, and which rows stand below each; one without a heading where there is no such column."""
        if not self.group:
            yield "", list(range(len(self.rows)))
            return
        places: dict[str, list[int]] = {}
        at = self.place(self.group)
        for number, row in enumerate(self.rows):
            places.setdefault(self.columns[at].text(row[at]), []).append(number)
        yield from places.items()


def _sort_key(cell: Any) -> tuple[int, float, str]:
    """Numbers by size before text by alphabet."""
    value = value_of(cell)
    if isinstance(value, int | float):
        return (0, value, "")
    return (1, 0, str(value).casefold())


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
