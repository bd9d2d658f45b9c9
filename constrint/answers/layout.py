"""Decides what a terminal of some width shows of a table: which columns, on how many lines, and what is said below.

Nothing is ever cut. Where the columns do not fit side by side, in this order: they move closer; what is the same in
all rows is said below; titles are broken over lines; columns of little importance are left out, and named below; the
others stand on further lines of each row; and a table of very many columns becomes `name=value` pairs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from constrint.answers.table import EXTRA, STAYS, Column, Table, is_missing
from constrint.answers.terminal import break_text, is_styled, kept_together, printable, width_of

#: Spaces between columns, and what they shrink to.
GAP, TIGHT = 2, 1
#: Columns of text that may be broken get so much room at least, or lines of their own.
LEAST_TEXT = 28
#: Rows of more lines than this are printed as pairs.
MAX_LINES = 4
#: How far further lines of a row are set in.
INDENT = 4


@dataclass(frozen=True)
class Strip:
    """One column as it is drawn; it may be several columns joined.

    Args:
        columns: The columns of the table in it.
        title: Its title.
        texts: What its cells show.
        width: Columns of the terminal.
    """

    columns: tuple[Column, ...]
    title: str
    texts: tuple[str, ...]
    width: int = 0

    @property
    def importance(self) -> int:
        """That of the most important of its columns."""
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
        """The width at which nothing in it is broken."""
        return max(map(width_of, (*self.title_lines, *self.texts)))

    @property
    def least(self) -> int:
        """The width that it has to have beside others."""
        return min(self.natural, LEAST_TEXT) if self.wraps else self.natural

    @property
    def is_constant(self) -> bool:
        """Whether all of several rows show the same value."""
        return len(self.texts) > 1 and len(set(self.texts)) == 1 and self.texts[0] not in ("-", "")

    def folded(self) -> Strip:
        """The same with its title broken, as far as its cells are narrower."""
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

    @property
    def title_lines(self) -> list[str]:
        """Its title, line by line."""
        return self.title.split("\n")


@dataclass(frozen=True)
class Layout:
    """How a table is drawn.

    Args:
        lines: The strips of each line of a row; none where the table has no columns.
        gap: Spaces between columns.
        shared: Names and values that are the same in all rows that have them.
        is_shared_by_all: Whether all rows have them.
        hidden: Columns that were left out for want of room.
        shown: Columns that are drawn, or are said below.
        as_pairs: Whether rows are drawn as `name=value` pairs.
    """

    lines: tuple[tuple[Strip, ...], ...]
    gap: int = GAP
    shared: Mapping[str, str] = field(default_factory=dict)
    is_shared_by_all: bool = True
    hidden: tuple[Column, ...] = ()
    shown: tuple[Column, ...] = ()
    as_pairs: bool = False


def lay_out(table: Table, width: int | None, *, is_wide: bool = False, chosen: Sequence[str] = ()) -> Layout:
    """Decide how a table is drawn.

    Args:
        table: The table.
        width: Columns of the terminal; None where lines may have any length.
        is_wide: Whether every column is wanted, whatever its importance.
        chosen: Names of the columns that are wanted, in this order; those that the table finds best if empty.

    Raises:
        UnknownNameError: When a name is none of a column.
    """
    if chosen:
        wanted = table.named(chosen)
    else:
        wanted = tuple(c for c in table.columns if is_wide or c.importance > EXTRA)
        wanted = tuple(c for c in wanted if not all(map(is_missing, table.cells(c)))) or wanted
    wanted = tuple(c for c in wanted if c.key != table.group) or wanted
    strips = _strips(table, wanted)
    moved = () if chosen or is_wide else tuple(s for s in strips if all(_is_shared(table, c) for c in s.columns))
    rest = [strip for strip in strips if strip not in moved]
    if not rest:
        rest, moved = strips, ()
    shown = Layout((), shown=wanted)
    found = _side_by_side(rest, width, shown)
    if found is None and not chosen and not is_wide:
        found, moved = _with_less(rest, moved, width or 0, shown)
    if found is None:
        found = _stacked([strip for strip in strips if strip not in moved], width or 0, shown, keeps_all=True)
    columns = [column for strip in moved for column in strip.columns]
    shared = {c.key: c.text(next(x for x in table.cells(c) if not is_missing(x))) for c in columns}
    has_all = not any(is_missing(cell) for column in columns for cell in table.cells(column))
    return replace(found, shared=shared, is_shared_by_all=has_all)


def _strips(table: Table, columns: Sequence[Column]) -> list[Strip]:
    """The columns as they are drawn; those that are joined stand where the first of them does."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        groups.setdefault(f"joined {column.joined}" if column.joined else column.key, []).append(column)
    return [_strip(table, tuple(group)) for group in groups.values()]


def _strip(table: Table, columns: tuple[Column, ...]) -> Strip:
    if len(columns) == 1:
        (column,) = columns
        title = f"{column.joined} {column.name}".strip()
        return Strip(columns, printable(title), tuple(column.text(cell) for cell in table.cells(column)))
    joined_title = f"{columns[0].joined} {'x'.join(column.name for column in columns)}"
    rows = zip(*(table.cells(column) for column in columns), strict=True)
    texts = []
    for row in rows:
        parts = [c.text(cell) for c, cell in zip(columns, row, strict=True) if not is_missing(cell)]
        texts.append("x".join(parts) or "-")
    return Strip(columns, printable(joined_title), tuple(texts))


def _is_shared(table: Table, column: Column) -> bool:
    """Whether a column says the same in all of several rows, as far as they have it, and need not stand in each."""
    texts = {column.text(cell) for cell in table.cells(column) if not is_missing(cell)}
    return column.is_shared and len(table.rows) > 1 and len(texts) == 1


def _fits(strips: Sequence[Strip], gap: int, width: int) -> bool:
    return sum(strip.least for strip in strips) + gap * (len(strips) - 1) <= width


def _side_by_side(strips: Sequence[Strip], width: int | None, base: Layout) -> Layout | None:
    """All on one line, or nothing where that is too narrow."""
    if width is None:
        return replace(base, lines=(tuple(replace(s, width=s.natural) for s in strips),))
    for gap in (GAP, TIGHT):
        if _fits(strips, gap, width):
            return replace(base, lines=(_widened(strips, gap, width),), gap=gap)
    return None


def _widened(strips: Sequence[Strip], gap: int, width: int) -> tuple[Strip, ...]:
    """The widths: what is over goes to the text that is broken."""
    room = width - sum(strip.least for strip in strips) - gap * (len(strips) - 1)
    widened: list[Strip] = []
    for place, strip in enumerate(strips):
        wanting = sum(other.natural - other.least for other in strips[place:])
        wish = strip.natural - strip.least
        more = wish if wanting <= room else room * wish // max(wanting, 1)
        room -= more
        widened.append(replace(strip, width=strip.least + more))
    return tuple(widened)


def _with_less(
    strips: Sequence[Strip], moved: tuple[Strip, ...], width: int, base: Layout
) -> tuple[Layout | None, tuple[Strip, ...]]:
    """What fits where some columns are said below or left out, or what stands on further lines; and what is below."""
    constant = [strip for strip in strips if strip.is_constant and len(strip.columns) == 1]
    constant = sorted(constant, key=lambda strip: strip.importance)[: len(strips) - 1]
    for number in range(len(constant) + 1):
        below = constant[:number]
        found = _close_together([strip for strip in strips if strip not in below], width, base)
        if found is not None:
            return found, (*moved, *below)
    left, moved = [strip for strip in strips if strip not in constant], (*moved, *constant)
    for spare in _spared(left):
        found = _close_together([strip for strip in left if strip not in spare], width, base)
        if found is not None:
            return _without(found, spare), moved
    return _stacked(left, width, base), moved


def _close_together(strips: Sequence[Strip], width: int, base: Layout) -> Layout | None:
    """All on one line, if need be with titles on several; or nothing where that is too narrow."""
    return _side_by_side(strips, width, base) or _side_by_side([strip.folded() for strip in strips], width, base)


def _spared(strips: Sequence[Strip]) -> Iterator[list[Strip]]:
    """What may be left out: more and more, the least important first; never all."""
    spare = sorted((strip for strip in strips if strip.importance < STAYS), key=lambda strip: strip.importance)
    for number in range(1, len(spare) + 1):
        if number < len(strips):
            yield spare[:number]


def _without(layout: Layout, hidden: Sequence[Strip]) -> Layout:
    columns = {column.key for strip in hidden for column in strip.columns}
    shown = tuple(column for column in layout.shown if column.key not in columns)
    return replace(layout, shown=shown, hidden=tuple(c for c in layout.shown if c.key in columns))


def _stacked(strips: Sequence[Strip], width: int, base: Layout, *, keeps_all: bool = False) -> Layout:
    """Rows of several lines: all columns where two lines hold them, else those that are important."""
    folded = [strip.folded() for strip in strips]
    packed = _packed(folded, width)
    if len(packed) > 2 and not keeps_all:
        spare = [strip for strip in folded if strip.importance < STAYS]
        if spare and len(spare) < len(folded):
            packed = _packed([strip for strip in folded if strip not in spare], width)
            base = _without(base, spare)
    if len(packed) > MAX_LINES:
        return replace(base, lines=(tuple(strip for line in packed for strip in line),), gap=TIGHT, as_pairs=True)
    lines: list[tuple[Strip, ...]] = []
    for number, line in enumerate(packed):
        room = max(1, width - (INDENT if number else 0))
        gap = GAP if _fits(line, GAP, room) else TIGHT
        if len(line) == 1:
            lines.append((replace(line[0], width=min(line[0].natural, room)),))
        else:
            lines.append(_widened(line, gap, room))
    return replace(base, lines=tuple(lines), gap=TIGHT)


def _packed(strips: Sequence[Strip], width: int) -> list[list[Strip]]:
    """The strips in lines that fit: the most important ones in the first line, each line in the table's order."""
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
        lines += _beside(strips, stacked, layout.gap, INDENT if number else 0)
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
        yield from _beside(strips, texts, layout.gap, INDENT if number else 0)


def _beside(strips: Sequence[Strip], texts: Sequence[list[str]], gap: int, indent: int) -> Iterator[str]:
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
