"""The banks of shared memory: which lane each serves in each clock when a matrix unit reads the best tile of A."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.answers.facts import BankFacts, BankLayoutFacts, GpuFacts
from constrint.report.drawing import Drawing, FigureColumn, FigureTable, axis, draws_gpu

#: The text of a layout that changes no address.
PLAIN = "none"


@draws_gpu(45)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """The worst phase of the read, row by row and in the solved layout; none where nothing tells."""
    if gpu.banks is not None:
        yield _drawing(gpu.banks)


def _drawing(banks: BankFacts) -> Drawing:
    rows = [(each, clock) for each in banks.layouts for clock in range(each.degree)]
    served = [
        (bank, at, cell[clock])
        for at, (each, clock) in enumerate(rows)
        for bank, cell in zip(each.banks, each.served, strict=True)
        if clock < len(cell)
    ]
    names = [f"{'' if each.layout == PLAIN else 'solved, '}clock {clock + 1}" for each, clock in rows]
    first, *others = banks.layouts[0].banks
    return Drawing(
        name="banks",
        title="Banks",
        says=_says(banks),
        alt="Lanes by bank and clock.",
        data=[_lanes(served)],
        layout={
            "xaxis": axis("bank", dtick=others[0] - first if others else 1),
            "yaxis": axis("", autorange="reversed", tickvals=list(range(len(names))), ticktext=names),
        },
        height=150 + 34 * len(rows),
        table=_table(banks.layouts),
        is_open=False,
    )


def _name(facts: BankLayoutFacts) -> str:
    return "row by row" if facts.layout == PLAIN else facts.layout


def _says(banks: BankFacts) -> str:
    plain, *solved = banks.layouts
    read = f"{banks.access} of A's {banks.tile} row by row"
    if plain.degree == 1:
        return f"{read}: no conflicts."
    solution = f"none in {solved[0].layout}" if solved else "no flips avoid them"
    return f"{read}: {plain.degree}-way conflicts; {solution}."


def _lanes(served: list[tuple[int, int, str]]) -> dict[str, Any]:
    banks, clocks, lanes = zip(*served, strict=True)
    return {
        "type": "scatter",
        "mode": "text",
        "x": list(banks),
        "y": list(clocks),
        "text": list(lanes),
        "hoverinfo": "skip",
    }


def _table(layouts: tuple[BankLayoutFacts, ...]) -> FigureTable:
    columns = (FigureColumn("layout", is_text=True, is_code=True), FigureColumn("clocks"))
    rows = tuple((_name(each), each.degree) for each in layouts)
    return FigureTable("Clocks of the worst phase", columns, rows, is_sortable=False)
