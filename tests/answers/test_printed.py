"""The formats of tables: what machines read is whole, typed and escaped; a package may bring another."""

from __future__ import annotations

import csv
import importlib.metadata
import io
import json
import re
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from constrint.answers.registry import PAGES, PageFormat
from constrint.answers.table import Cell, Column, Page, PageOptions, Shown, Table
from constrint.cli.output import Output
from constrint.errors import UnknownNameError

TEXTS = st.text(max_size=20) | st.text('a,"|\n\t\\<&\x1b\ud800', max_size=10)
ROWS = st.lists(st.tuples(TEXTS, st.none() | st.integers() | st.floats(allow_nan=False)), max_size=4)
COLUMNS = (Column("name", is_text=True), Column("n_bytes", "n", importance=0))


def text_in(form: str, rows: Any, *columns: str, is_raw: bool = False) -> str:
    page = Page(Table(COLUMNS, [list(row) for row in rows]))
    return "".join(PAGES.named(form).write(Shown(page, PageOptions(columns, is_raw=is_raw))))


def safe(text: str) -> str:
    """The text as a terminal may get it."""
    escaped = {c: re.sub("(....)", r"\\u\1", c.encode("utf-16-be", "surrogatepass").hex()) for c in text}
    return "".join(c if c.isprintable() or c in "\n\t" else "\\r" if c == "\r" else escaped[c] for c in text)


@given(ROWS)
def test_csv_is_read_back(rows: list[tuple[str, float | None]]) -> None:
    head, *read = csv.reader(io.StringIO(text_in("csv", rows, is_raw=True), newline=""))
    assert head == ["name", "n_bytes"]
    assert read == [[safe(name), "" if n is None else repr(n)] for name, n in rows]


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "@SUM(A1)", "-a", "- 1", "\t=1", "\rx", "\n=1", "  =1", "\uff1d1", "-1+1"]
)
def test_no_spreadsheet_computes_a_cell_of_csv(text: str) -> None:
    cell = next(csv.reader(io.StringIO(text_in("csv", [(text, -1.5)]).split("\n", 1)[1], newline="")))
    assert cell[1] == "-1.5"
    assert cell[0].startswith(("'", "\\r"))
    raw = next(csv.reader(io.StringIO(text_in("csv", [(text, 1)], is_raw=True).split("\n", 1)[1], newline="")))
    assert raw[0] == safe(text)


@pytest.mark.parametrize("text", ["-1", "-1.5e-05", "128x64", "a-b", "a=b", "", "'"])
def test_a_cell_of_csv_that_no_spreadsheet_computes_stays(text: str) -> None:
    assert text_in("csv", [(text, 1)]) == text_in("csv", [(text, 1)], is_raw=True)


@given(st.lists(st.tuples(st.text(max_size=20), st.none() | st.integers(-(2**63), 2**64 - 1)), max_size=4))
def test_json_lines_are_read_back(rows: list[tuple[str, int | None]]) -> None:
    clean = [(name.encode(errors="replace").decode(), n) for name, n in rows]
    lines = text_in("jsonl", clean).split("\n")[:-1]
    assert [json.loads(line) for line in lines] == [{"name": name, "n_bytes": n} for name, n in clean]


@given(ROWS)
def test_markdown_has_a_line_for_each_row_and_a_bar_for_each_cell(rows: list[tuple[str, float | None]]) -> None:
    head, rule, *lines = text_in("markdown", rows).split("\n")[:-1]
    assert (head, rule) == ("| name | n_bytes |", "| :--- | ---: |")
    assert len(lines) == len(rows)
    for line in lines:
        bare = line.replace("\\\\", "").replace("\\|", "")
        assert bare.count("|") == 3
        assert line.isprintable()
        assert "<" not in bare.replace("\\<", "").replace("<br>", "")


def test_chosen_columns_are_those_that_machines_get() -> None:
    assert text_in("csv", [("a", 1)], "n_bytes") == "n_bytes\n1\n"
    cells = Page(Table((Column("n"),), [[Cell(0.1, "10 %")], [True], [[1, 2]]]))
    assert "".join(PAGES.named("csv").write(Shown(cells))) == 'n\n0.1\ntrue\n"[1,2]"\n'


def shout(shown: Shown) -> Iterator[str]:
    yield from (f"{row}\n" for row in shown.values())


def test_a_package_brings_a_format(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    point = EntryPoint("shout", f"{__name__}:SHOUT", "constrint.formats")
    monkeypatch.setattr(EntryPoint, "load", lambda self: PageFormat("rows as Python writes them", shout))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    Output("shout").show(Page(Table(COLUMNS, [["a", 1]])))
    assert capsys.readouterr().out == "['a', 1]\n"
    with pytest.raises(UnknownNameError, match=r"Known: .*shout"):
        PAGES.named("whisper")
