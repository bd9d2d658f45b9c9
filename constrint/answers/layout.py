"""Tables on a terminal of any width: which columns stand where, the lines of text, and the notes below.

Nothing is ever cut. `lay_out` takes the first arrangement that fits, in this order: all columns side by side, at last
closer together; with values that are the same in all rows printed below; with titles on several lines; with columns of
little importance named below instead. Otherwise the rows take several lines, or become `name=value` pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from constrint.answers.table import EXTRA, STAYS, Column, Table, is_missing
from constrint.answers.terminal import BOLD, PLAIN, break_text, is_styled, kept_together, printable, width_of

#: Spaces between columns, and the least that they shrink to.
GAP, TIGHT = 2, 1
#: Least width of a text column that may be broken; with less room it gets a line of its own.
LEAST_TEXT = 28
#: Most lines of a row; rows with more become pairs.
MAX_LINES = 4
#: Indent of further lines of a row, and of further lines of pairs.
INDENT, PAIRS_INDENT = 4, 2


@dataclass(frozen=True)
class Strip:
    """A column as it is drawn; it may join several columns of the table.

    Args:
        columns: The columns of the table.
        title: The title, with a newline between its lines.
        texts: The text of each row's cell.
        width: Columns of the terminal.
    """

    columns: tuple[Column, ...]
    title: str
    texts: tuple[str, ...]
    width: int = 0

    @property
    def importance(self) -> int:
        """The importance of its most important column."""
        return max(column.importance for column in self.columns)

    @property
    def is_text(self) -> bool:
        """Whether it is aligned to the left."""
        return any(column.is_text or column.joined for column in self.columns)

    @property
    def wraps(self) -> bool:
        """Whether its text may be broken between words."""
        return any(column.wraps for column in self.columns)

    @property
    def natural(self) -> int:
        """The width at which no text is broken."""
        return max(map(width_of, (*self.title.split("\n"), *self.texts)))

    @property
    def least(self) -> int:
        """The least width beside other columns."""
        return min(self.natural, LEAST_TEXT) if self.wraps else self.natural

    @property
    def is_constant(self) -> bool:
        """Whether all of several rows show the same value."""
        return len(self.texts) > 1 and len(set(self.texts)) == 1 and self.texts[0] not in ("-", "")

    def folded(self) -> Strip:
        """The strip with its title broken over lines, down to the width of the cells."""
        cells = max(map(width_of, self.texts), default=0)
        parts = self.title.replace("_", "_ ").split()
        widest = max(map(width_of, parts), default=0)
        lines: list[str] = []
        for part in parts:
            # `row_` and `split` are one word in two lines; of two words, the space between them is gone.
            gap = "" if not lines or lines[-1].endswith("_") else " "
            if lines and width_of(lines[-1] + gap + part) <= max(cells, widest):
                lines[-1] += gap + part
            else:
                lines.append(part)
        return replace(self, title="\n".join(lines))


@dataclass(frozen=True)
class Layout:
    """The arrangement of a table.

    Args:
        lines: The strips of each line of a row; empty for a table without columns.
        gap: Spaces between columns.
        shared: Names and values, printed below, that are the same in all rows that have them.
        is_shared_by_all: Whether all rows have them.
        hidden: Columns left out for lack of room.
        as_pairs: Whether rows are drawn as `name=value` pairs.
    """

    lines: tuple[tuple[Strip, ...], ...]
    gap: int = GAP
    shared: Mapping[str, str] = field(default_factory=dict)
    is_shared_by_all: bool = True
    hidden: tuple[Column, ...] = ()
    as_pairs: bool = False


def lay_out(table: Table, width: int | None, *, is_wide: bool = False, chosen: Sequence[str] = ()) -> Layout:
    """Arrange a table.

    Args:
        table: The table.
        width: Columns of the terminal; None for lines of any length.
        is_wide: Whether to show every column, whatever its importance.
        chosen: Names of the columns to show, in this order; empty leaves the choice to the table.

    Raises:
        UnknownNameError: When a name is not a column's.
    """
    if chosen:
        columns_shown = table.named(chosen)
    else:
        columns_shown = tuple(c for c in table.columns if is_wide or c.importance > EXTRA)
        columns_shown = tuple(c for c in columns_shown if not all(map(is_missing, table.cells(c)))) or columns_shown
    columns_shown = tuple(c for c in columns_shown if c.key != table.group) or columns_shown
    strips, is_fixed = _strips(table, columns_shown), bool(chosen) or is_wide
    below = [] if is_fixed else [strip for strip in strips if all(_is_shared(table, c) for c in strip.columns)]
    rest = [strip for strip in strips if strip not in below]
    if not rest:
        rest, below = strips, []
    layout, more, left_out = _arranged(rest, width, is_fixed=is_fixed)
    columns = [column for strip in (*below, *more) for column in strip.columns]
    hidden = {column.key for strip in left_out for column in strip.columns}
    return replace(
        layout,
        shared={c.key: c.text(next(x for x in table.cells(c) if not is_missing(x))) for c in columns},
        is_shared_by_all=not any(is_missing(cell) for column in columns for cell in table.cells(column)),
        hidden=tuple(column for column in columns_shown if column.key in hidden),
    )


def _strips(table: Table, columns: Sequence[Column]) -> list[Strip]:
    """The strips of some columns; joined columns stand in the place of the first one."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        groups.setdefault(f"joined {column.joined}" if column.joined else column.key, []).append(column)
    return [_strip(table, tuple(group)) for group in groups.values()]


def _strip(table: Table, columns: tuple[Column, ...]) -> Strip:
    title = f"{columns[0].joined} {'x'.join(column.name for column in columns)}".strip()
    if len(columns) == 1:
        return Strip(columns, printable(title), tuple(columns[0].text(cell) for cell in table.cells(columns[0])))
    texts = []
    for row in zip(*(table.cells(column) for column in columns), strict=True):
        parts = [c.text(cell) for c, cell in zip(columns, row, strict=True) if not is_missing(cell)]
        texts.append("x".join(parts) or "-")
    return Strip(columns, printable(title), tuple(texts))


def _is_shared(table: Table, column: Column) -> bool:
    """Whether a parameter has the same value in all of several rows that have it."""
    texts = {column.text(cell) for cell in table.cells(column) if not is_missing(cell)}
    return column.is_shared and len(table.rows) > 1 and len(texts) == 1


#: A layout, the strips printed below it, and the strips left out.
_Arranged = tuple[Layout, Sequence[Strip], Sequence[Strip]]


def _arranged(strips: list[Strip], width: int | None, *, is_fixed: bool) -> _Arranged:
    """The first arrangement that fits; fixed columns are neither printed below nor left out."""
    if width is None:
        return Layout((tuple(replace(strip, width=strip.natural) for strip in strips),)), (), ()
    for shown, below, left_out in _selections(strips, is_fixed=is_fixed):
        for titled in (shown,) if is_fixed else (shown, [strip.folded() for strip in shown]):
            for gap in (GAP, TIGHT):
                if _fits(titled, gap, width):
                    return Layout((_widened(titled, gap, width),), gap), below, left_out
    constant = [] if is_fixed else _constant(strips)
    layout, left_out = _stacked([strip for strip in strips if strip not in constant], width, keeps_all=is_fixed)
    return layout, constant, left_out


def _selections(
    strips: list[Strip], *, is_fixed: bool
) -> Iterator[tuple[list[Strip], Sequence[Strip], Sequence[Strip]]]:
    """The strips to show, to print below and to leave out, from all strips to the fewest."""
    yield strips, (), ()
    if is_fixed:
        return
    constant = _constant(strips)
    for number in range(1, len(constant) + 1):
        yield [strip for strip in strips if strip not in constant[:number]], constant[:number], ()
    varying = [strip for strip in strips if strip not in constant]
    spare = sorted((s for s in varying if s.importance < STAYS), key=lambda strip: strip.importance)
    for number in range(1, min(len(spare), len(varying) - 1) + 1):
        yield [strip for strip in varying if strip not in spare[:number]], constant, spare[:number]


def _constant(strips: Sequence[Strip]) -> list[Strip]:
    """Strips with one value in all rows, the least important first; never all strips."""
    constant = [strip for strip in strips if strip.is_constant and len(strip.columns) == 1]
    return sorted(constant, key=lambda strip: strip.importance)[: len(strips) - 1]


def _fits(strips: Sequence[Strip], gap: int, width: int) -> bool:
    return sum(strip.least for strip in strips) + gap * (len(strips) - 1) <= width


def _widened(strips: Sequence[Strip], gap: int, width: int) -> tuple[Strip, ...]:
    """The strips with their widths; text that is broken shares the spare room."""
    room = width - sum(strip.least for strip in strips) - gap * (len(strips) - 1)
    widened: list[Strip] = []
    for place, strip in enumerate(strips):
        wanting = sum(other.natural - other.least for other in strips[place:])
        wish = strip.natural - strip.least
        more = wish if wanting <= room else room * wish // max(wanting, 1)
        room -= more
        widened.append(replace(strip, width=strip.least + more))
    return tuple(widened)


def _stacked(strips: Sequence[Strip], width: int, *, keeps_all: bool) -> tuple[Layout, Sequence[Strip]]:
    """Rows of several lines: all strips if two lines hold them or `keeps_all`, else the important ones.

    Returns:
        The layout, and the strips left out.
    """
    folded = [strip.folded() for strip in strips]
    packed, left_out = _packed(folded, width), []
    if len(packed) > 2 and not keeps_all:
        spare = [strip for strip in folded if strip.importance < STAYS]
        if spare and len(spare) < len(folded):
            packed, left_out = _packed([strip for strip in folded if strip not in spare], width), spare
    if len(packed) > MAX_LINES:
        whole = tuple(strip for line in packed for strip in line)
        return Layout((whole,), TIGHT, as_pairs=True), left_out
    lines: list[tuple[Strip, ...]] = []
    for number, line in enumerate(packed):
        room = max(1, width - (INDENT if number else 0))
        if len(line) == 1:
            lines.append((replace(line[0], width=min(line[0].natural, room)),))
        else:
            lines.append(_widened(line, GAP if _fits(line, GAP, room) else TIGHT, room))
    return Layout(tuple(lines), TIGHT), left_out


def _packed(strips: Sequence[Strip], width: int) -> list[list[Strip]]:
    """The strips in lines that fit: the most important strips first, each line in the table's order."""
    first: list[Strip] = []
    for strip in sorted(strips, key=lambda strip: -strip.importance):
        if not first or _fits([*first, strip], TIGHT, width):
            first.append(strip)
    lines = [[strip for strip in strips if strip in first]]
    for strip in strips:
        if strip in first:
            continue
        is_alone = strip.wraps and strip.natural > LEAST_TEXT
        if len(lines) == 1 or is_alone or not _fits([*lines[-1], strip], TIGHT, width - INDENT):
            lines.append([])
        lines[-1].append(strip)
    return lines


def draw(table: Table, layout: Layout, width: int | None) -> Iterator[str]:
    """The lines of a table; none for a table without columns or rows.

    Args:
        table: The table.
        layout: Its arrangement.
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
            lines = _pairs(table, layout, place, width) if layout.as_pairs else _row(layout, place)
            yield from _bold(lines) if place in table.best and width else lines


def _bold(lines: Iterable[str]) -> Iterator[str]:
    """The lines in bold, where the terminal shows bold text."""
    before, after = (BOLD, PLAIN) if is_styled() else ("", "")
    return (f"{before}{line}{after}" if line else "" for line in lines)


def _head(layout: Layout, width: int | None) -> Iterator[str]:
    lines: list[str] = []
    for number, strips in enumerate(layout.lines):
        # Titles of several lines end at the same line, just above the cells.
        titles = [[part for line in s.title.split("\n") for part in break_text(line, s.width)] for s in strips]
        height = max(map(len, titles), default=0)
        stacked = [[""] * (height - len(title)) + title for title in titles]
        lines += _beside(strips, stacked, layout.gap, INDENT if number else 0)
    if width is None:
        yield from lines
        return
    yield from _bold(lines)
    yield "─" * max(
        (INDENT if number else 0) + sum(s.width for s in strips) + layout.gap * (len(strips) - 1)
        for number, strips in enumerate(layout.lines)
    )


def _row(layout: Layout, place: int) -> Iterator[str]:
    for number, strips in enumerate(layout.lines):
        texts = [break_text(strip.texts[place], strip.width) for strip in strips]
        yield from _beside(strips, texts, layout.gap, INDENT if number else 0)


def _beside(strips: Sequence[Strip], texts: Sequence[list[str]], gap: int, indent: int) -> Iterator[str]:
    """Lines of cells side by side; a cell with fewer lines is filled up with empty ones."""
    for line in zip_longest(*texts, fillvalue=""):
        cells = [_aligned(strip, text) for strip, text in zip(strips, line, strict=True)]
        yield (" " * indent + (" " * gap).join(cells)).rstrip()


def _aligned(strip: Strip, text: str) -> str:
    space = " " * max(0, strip.width - width_of(text))
    return text + space if strip.is_text else space + text


def _pairs(table: Table, layout: Layout, place: int, width: int | None) -> Iterator[str]:
    """A row as `name=value` pairs with full names, without missing values."""
    columns = [column for strips in layout.lines for strip in strips for column in strip.columns]
    row = table.rows[place]
    cells = [(column, row[table.columns.index(column)]) for column in columns]
    yield from pair_lines((f"{c.key}={c.text(cell)}" for c, cell in cells if not is_missing(cell)), width)


def pair_lines(words: Iterable[str], width: int | None) -> Iterator[str]:
    """Words such as `name=value` in lines of a width; all but the first line are indented."""
    pairs = " ".join(words)
    first, *rest = [pairs] if width is None else break_text(pairs, max(1, width - PAIRS_INDENT))
    yield first
    yield from (" " * PAIRS_INDENT + line for line in rest)


def notes_below(table: Table, layout: Layout) -> list[str]:
    """The notes below a table: shared values, columns left out, and the meanings of short titles."""
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
        explained = [kept_together(f"{title} = {text}") for title, text in briefs.items()]
        notes += ["columns: " + ", ".join(explained)] if explained else []
    return notes


def legend(columns: Sequence[Column]) -> Iterator[str]:
    """A line per column: its title, its full name, and its meaning."""
    for column in columns:
        named = column.key if column.name == column.key else f"{column.name} ({column.key})"
        meaning = column.meaning or column.brief
        yield f"{named}: {meaning}" if meaning else named
