"""What a terminal of any width shows of any table: all of it, in lines that fit."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.answers.layout import Layout, draw, lay_out, notes_below
from constrint.answers.table import Cell, Column, Table
from constrint.answers.terminal import width_of

#: What texts are made of: words, wide characters and such without width, and what a terminal would act on.
PIECES = (
    "word",
    "a_b_c",
    " ",
    "  ",
    "漢字",
    "é",
    "e\u0301",
    "\x1b[31m",
    "\n",
    "\t",
    "\u202e",
    "👩\u200d🔬",
    "-",
    "x" * 90,
)


def text(source: random.Random) -> str:
    return "".join(source.choices(PIECES, k=source.randrange(5)))


def value(source: random.Random) -> Any:
    kinds = (None, True, 0, -7, 10 ** source.randrange(300), source.gauss(0, 1e9), float("nan"), text(source))
    one = source.choice(kinds)
    return Cell(one, text(source)) if source.random() < 0.2 else one


def table_of(seed: int) -> Table:
    """A table of a few columns and rows, some of whose columns are constant."""
    source = random.Random(seed)
    columns = tuple(
        Column(
            "_".join(source.choices(("us", "tile", "registers"), k=source.randint(1, 4))) + f"_{place}",
            source.choice(("", "t", "two words", "漢字")),
            brief=source.choice(("", "what it is")),
            is_text=source.random() < 0.5,
            importance=source.randint(1, 100),
            wraps=source.random() < 0.3,
            is_shared=source.random() < 0.3,
            joined=source.choice(("", "", "tile")),
        )
        for place in range(source.randrange(10))
    )
    constant = [value(source) if source.random() < 0.3 else ... for _ in columns]
    rows = [[value(source) if one is ... else one for one in constant] for _ in range(source.randrange(5))]
    return Table(columns, rows)


def drawn(table: Table, layout: Layout, width: int | None) -> list[str]:
    return list(draw(table, layout, width))


def check(table: Table, layout: Layout, lines: list[str], wanted: tuple[Column, ...]) -> None:
    """Every cell of every column is drawn, or its column is named as the same in all rows or as left out."""
    placed = [column for strips in layout.lines for strip in strips for column in strip.columns]
    assert len(placed) == len(set(placed)), "no column is drawn twice"
    told = {*placed, *layout.hidden, *(column for column in table.columns if column.key in layout.shared)}
    empty = {column for column in wanted if all(column.text(cell) == "-" for cell in table.cells(column))}
    if table.rows:
        assert set(wanted) <= told | empty
    seen = Counter("".join("".join(lines).split()))
    for column in placed:
        text = "".join(column.text(cell) for cell in table.cells(column) if column.text(cell) != "-")
        assert Counter("".join(text.split())) <= seen
    for key, text in layout.shared.items():
        column = next(column for column in table.columns if column.key == key)
        assert {column.text(cell) for cell in table.cells(column)} - {"-"} <= {text}


@settings(max_examples=200)
@given(st.integers(0, 2**32), st.integers(20, 200), st.booleans())
def test_nothing_is_cut_and_no_line_is_too_long(seed: int, width: int, is_wide: bool) -> None:
    table = table_of(seed)
    layout = lay_out(table, width, is_wide=is_wide)
    lines = drawn(table, layout, width)
    assert [line for line in lines if width_of(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) > width] == []
    assert all(line.isprintable() for line in lines), "nothing that a terminal would act on"
    check(table, layout, lines, table.columns)
    if is_wide:
        assert not layout.hidden
        assert not layout.shared
    else:
        assert all(column.importance < 50 for column in layout.hidden), "what is important is never left out"
        assert all(column.key in " ".join(notes_below(table, layout)) for column in layout.hidden)


@given(st.integers(0, 2**32))
def test_a_pipe_gets_one_line_for_each_row(seed: int) -> None:
    table = table_of(seed)
    layout = lay_out(table, None)
    lines = drawn(table, layout, None)
    assert not layout.hidden
    assert len(lines) in (0, 1 + len(table.rows))
    check(table, layout, lines, table.columns)


@pytest.mark.parametrize(("width", "number", "is_chosen"), [(20, 100, False), (80, 300, True), (200, 400, False)])
def test_hundreds_of_columns_become_pairs_of_names_and_values(width: int, number: int, is_chosen: bool) -> None:
    names = tuple(f"column_{place}" for place in range(number))
    table = Table(tuple(map(Column, names)), [list(range(number)), list(range(1, number + 1))])
    chosen = names if is_chosen else ()
    layout = lay_out(table, width, is_wide=not chosen, chosen=chosen)
    text = "\n".join(drawn(table, layout, width))
    assert max(map(width_of, text.split("\n"))) <= width
    assert f"column_{number - 1}={number - 1}" in "".join(text.split("\n"))
    assert "".join(text.split()).count("=") == 2 * number


def test_what_is_wider_than_the_terminal_is_broken_over_lines() -> None:
    table = Table((Column("n", "漢" * 40), Column("m")), [[10**400, "漢" * 100]])
    lines = drawn(table, lay_out(table, 21), 21)
    assert max(map(width_of, lines)) <= 21
    assert str(10**400) in "".join(lines).replace(" ", "")
    assert "漢" * 100 in "".join(lines[lines.index("─" * 21) :]).replace(" ", "")


def ranked(importance: int, **more: Any) -> Column:
    return Column(f"column_of_{importance}", importance=importance, **more)


def test_what_matters_least_is_left_out_first_and_what_matters_stands_on_further_lines() -> None:
    table = Table(tuple(ranked(i) for i in (100, 90, 60, 40, 20)), [[1234567] * 5, [7654321] * 5])
    # Titles are broken at underscores before anything is left out; every column takes 7 then, and a space.
    assert [column.importance for column in lay_out(table, 39).hidden] == []
    assert [column.importance for column in lay_out(table, 32).hidden] == [20]
    narrow = lay_out(table, 20)
    assert [[strip.importance for strip in line] for line in narrow.lines] == [[100, 90], [60]]
    assert [column.importance for column in narrow.hidden] == [40, 20]


def test_chosen_columns_stand_in_the_order_given_and_none_is_left_out() -> None:
    table = Table(tuple(ranked(i) for i in (100, 90, 20)), [[1, 2, 3], [1, 2, 4]])
    layout = lay_out(table, 20, chosen=("column_of_20", "column_of_100"))
    assert [column.importance for line in layout.lines for strip in line for column in strip.columns] == [20, 100]
    assert not layout.shared


def test_joined_columns_are_one_and_constants_are_said_once() -> None:
    columns = (
        Column("tile_m", "m", joined="tile"),
        Column("tile_n", "n", joined="tile"),
        Column("num_warps", "w", "num_warps", is_shared=True),
        Column("us"),
    )
    table = Table(columns, [[128, 64, 8, 1], [256, None, 8, 2], [None, None, None, 3]])
    layout = lay_out(table, 80)
    lines = drawn(table, layout, None)
    assert [line.split() for line in lines] == [["tile", "mxn", "us"], ["128x64", "1"], ["256", "2"], ["-", "3"]]
    assert notes_below(table, layout) == ["the same in all rows that have it: num_warps=8"]


def test_headings_stand_above_the_rows_that_have_them() -> None:
    table = Table((Column("part", is_text=True), Column("n")), [["a", 1], ["a", 2], ["b", 3]], group="part")
    assert drawn(table, lay_out(table, None), None) == ["n", "a", "1", "2", "", "b", "3"]


def test_the_best_row_is_bold_where_it_stands_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("constrint.answers.layout.is_styled", lambda: True)
    table = Table((Column("name", is_text=True), Column("us")), [["one", 2], ["two", 1]], best=(1,)).sorted_by(["us"])
    assert [line for line in draw(table, lay_out(table, 80), 80) if "\x1b[1m" in line][1:] == ["\x1b[1mtwo    1\x1b[0m"]
    assert not [line for line in draw(table, lay_out(table, None), None) if "\x1b" in line]
