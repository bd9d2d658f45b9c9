"""The parts of each candidate's time: the time of each resource alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.answers.facts import CandidateFacts, GpuFacts
from constrint.answers.table import pairs_text
from constrint.report.drawing import (
    MICRO,
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_gpu,
    filled,
    lines,
)

#: Most candidates in the figure; the table has all.
MAX_BARS = 8
#: Least share of a time that a part needs to be drawn.
LEAST_SHARE = 0.002


@draws_gpu(60)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """Bars side by side, since the parts overlap in time, with the predicted time as a mark."""
    if not gpu.candidates:
        return
    best, drawn = gpu.candidates[0], gpu.candidates[:MAX_BARS]
    names = list(dict.fromkeys(name for c in gpu.candidates for name in c.figures.parts_s))
    shown = [n for n in names if any(c.figures.parts_s.get(n, 0) > LEAST_SHARE * c.figures.seconds for c in drawn)]
    order = sorted(shown, key=lambda name: -max(c.figures.parts_s.get(name, 0.0) for c in drawn))
    parts = sorted(best.figures.parts_s.items(), key=lambda part: -part[1])
    second = next((f", then {name} ({value * MICRO:,.1f} us)" for name, value in parts[1:2] if value > 0), "")
    bound = best.figures.bound_by
    yield Drawing(
        name="parts",
        title="Parts of each candidate's time",
        short="Parts of the time",
        says=f"The best configuration is bound by {bound} ({best.figures.parts_s.get(bound, 0.0) * MICRO:,.1f} us "
        f"of {best.figures.seconds * MICRO:,.1f} us){second}.",
        alt=f"Bars of {len(shown)} parts side by side for {len(drawn)} candidates, with a mark at each predicted time.",
        data=[*(_bar(drawn, name, at) for at, name in enumerate(order)), _marks(drawn)],
        layout={
            "barmode": "group",
            "bargap": 0.35,
            "xaxis": axis("microseconds", rangemode="tozero"),
            "yaxis": axis("", type="category", autorange="reversed", showgrid=False),
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        },
        height=150 + (16 + 9 * len(order)) * len(drawn),
        table=_table(gpu, names),
        note="Resources work at the same time, so the predicted time (diamond) is not the sum of the parts; the "
        "longest one binds. All of it is modelled.",
    )


def _label(candidate: CandidateFacts) -> str:
    return f"#{candidate.place}"


def _bar(drawn: tuple[CandidateFacts, ...], name: str, at: int) -> dict[str, Any]:
    values = [c.figures.parts_s.get(name, 0.0) * MICRO for c in drawn]
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [_label(c) for c in drawn],
        "x": values,
        "marker": filled(at),
        "hoverinfo": "text",
        "hovertext": [
            lines(f"#{c.place} {name}: {value:,.1f} us", pairs_text(c.config))
            for c, value in zip(drawn, values, strict=True)
        ],
    }


def _marks(drawn: tuple[CandidateFacts, ...]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "predicted time",
        "y": [_label(c) for c in drawn],
        "x": [c.figures.seconds * MICRO for c in drawn],
        "marker": {"symbol": "diamond", "size": 11, "color": "--ink", "line": {"color": "--paper", "width": 1.5}},
        "hoverinfo": "text",
        "hovertext": [lines(f"#{c.place}: {c.figures.seconds * MICRO:,.1f} us predicted") for c in drawn],
    }


def _table(gpu: GpuFacts, names: list[str]) -> FigureTable:
    some = [name for name in names if any(c.figures.parts_s.get(name, 0.0) > 0 for c in gpu.candidates)]
    columns = (
        FigureColumn("#"),
        FigureColumn("predicted us", places=1),
        *(FigureColumn(name, places=1) for name in some),
    )
    rows = tuple(
        (c.place, c.figures.seconds * MICRO, *(c.figures.parts_s.get(name, 0.0) * MICRO for name in some))
        for c in gpu.candidates
    )
    return FigureTable("Parts in microseconds", columns, rows)
