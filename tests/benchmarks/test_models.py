"""What `benchmarks.models` says of a file, and its blocks by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.harness.table import Table, read_whole
from benchmarks.models.__main__ import COLUMNS, KINDS, summary_of, table_lines
from tests.support.needs import missing_packages


@pytest.fixture
def rows(tmp_path: Path) -> list[dict[str, str]]:
    """Two blocks, one of which did not compile."""
    path = tmp_path / "models.csv"
    with Table(path, COLUMNS, "a machine") as table:
        for model, what, ratio in (("Llama", "forward", 1.25), ("Llama", "step", 1.1), ("BERT", "forward", 0.5)):
            times = {"before_us": 1000.0 * ratio, "after_us": 1000.0, "ratio": ratio}
            table.add(model=model, how="eager", what=what, outcome="ok", **times)
        table.add(model="BERT", how="compile", outcome="RuntimeError: no")
    note, rows = read_whole(path)
    assert note == "a machine"
    return rows


def test_a_summary_names_what_is_slower_and_what_failed(rows: list[dict[str, str]]) -> None:
    lines = summary_of(rows).splitlines()
    assert len(lines) == 3
    assert "mean 0.791, worst 0.500; slower: BERT 0.5" in lines[0]
    assert "slower: -" in lines[1]
    assert lines[2] == "BERT compile : RuntimeError: no"


def test_a_table_has_a_line_for_each_block_and_empty_cells_where_nothing_was_timed(rows: list[dict[str, str]]) -> None:
    assert table_lines(rows) == [
        "| block | forward, eager | step, eager |",
        "|---|---|---|",
        "| Llama | 1.25 / 1.00 = 1.25 | 1.10 / 1.00 = 1.10 |",
        "| BERT | 0.50 / 1.00 = 0.50 |  |",
    ]


def test_every_kind_is_a_block() -> None:
    if missing_packages("torch"):
        pytest.skip("needs the extra [torch]: torch is not installed")
    from benchmarks.models.blocks import BLOCKS

    assert tuple(BLOCKS) == KINDS
