"""Figures in the terminal: every candidate and cell has its place, nothing is wider than told, letters say all."""

from __future__ import annotations

import re

import pytest

from constrint.answers.facts import CellFacts, HeatFacts
from constrint.answers.plots import BEST, EXCLUDED, LogAxis, heat_lines, ticks


def _heat(seconds: list[float | None], x: tuple[int, ...], y: tuple[int, ...]) -> HeatFacts:
    places = [(a, b) for b in y for a in x]
    cells = tuple(CellFacts(x=a, y=b, seconds=s) for (a, b), s in zip(places, seconds, strict=True))
    best = min(range(len(cells)), key=lambda at: cells[at].seconds or 1.0)
    return HeatFacts(
        x="across",
        y="down",
        x_values=x,
        y_values=y,
        is_thinned=False,
        is_asked=False,
        share=1.0,
        best=best,
        cells=cells,
    )


def test_each_cell_has_its_time_and_its_mark() -> None:
    lines = list(heat_lines("gemm.x", _heat([1e-4, 1.2e-4, None, 12e-3], (16, 32), (8, 128)), 80))
    assert lines[0].startswith("Heat map of gemm.x: the best modelled time in us over down (down)")
    assert lines[2].split() == ["128", EXCLUDED, "12k"]
    assert lines[3].split() == ["8", "100", BEST, "120", "+"]
    assert lines[4].split() == ["16", "32"]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_map_of_many_values_is_never_wider_than_told(width: int) -> None:
    values = tuple(2**power for power in range(16))
    heat = _heat([1e-4 * (1 + at) for at in range(256)], values, values)
    lines = list(heat_lines("gemm.x", heat, width))
    assert max(map(len, lines)) <= min(width, 80)
    assert sum(line.count(BEST) for line in lines) == 2  # the cell, and the legend
    assert "".join(lines).isascii()


def test_axes_are_logarithmic_and_have_round_ticks() -> None:
    axis = LogAxis(1.0, 1000.0, 31)
    assert [axis.place(value) for value in (0.1, 1.0, 10.0, 100.0, 1e9)] == [0, 0, 10, 20, 30]
    assert axis.value(20) == pytest.approx(100.0)
    assert ticks(3.0, 70.0, 5) == [5.0, 10.0, 20.0, 50.0]
    assert ticks(1.0, 1e12, 5) == [1.0, 1e3, 1e6, 1e9, 1e12]


def test_a_map_of_one_time_has_one_mark() -> None:
    lines = list(heat_lines("k", _heat([1e-6, 1e-6], (1, 2), (3,)), 80))
    assert re.search(r"^3 +1\.0 \* +1\.0 #$", "\n".join(lines), re.MULTILINE)
