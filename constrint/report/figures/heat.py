"""The heat map of every kernel: the best modelled time over two parameters, and the reasons of empty cells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from constrint.answers.facts import BrokenFacts, CellFacts, GpuFacts, HeatFacts, KernelFacts
from constrint.answers.table import pairs_text
from constrint.report.drawing import (
    MICRO,
    Cell,
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_gpu,
    escaped,
    lines,
    microseconds,
    percent,
)

#: Most cells with numbers in them.
MAX_WRITTEN = 120
#: Longest rule in a hover label; the table has all.
MAX_RULE = 80
#: The mark of an excluded cell.
EXCLUDED = "×"


@draws_gpu(30)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """A map per kernel, the best candidate's kernel first."""
    best = gpu.candidates[0].kernel if gpu.candidates else ""
    for kernel in sorted(gpu.kernels, key=lambda kernel: kernel.kernel != best):
        if kernel.heat is not None:
            yield _of_kernel(kernel, kernel.heat, is_open=kernel.kernel == best)


def _of_kernel(kernel: KernelFacts, heat: HeatFacts, *, is_open: bool) -> Drawing:
    excluded = [cell for cell in heat.cells if cell.seconds is None]
    best = heat.cells[heat.best]
    excluded_note = f"{EXCLUDED} marks {len(excluded)} of {len(heat.cells)} cells in which no configuration is valid. "
    chosen = "as asked" if heat.is_asked else "the most telling pair for this kernel"
    return Drawing(
        name=f"heat-{kernel.kernel}",
        title=f"Best time over {heat.y} and {heat.x}: {kernel.kernel}",
        short=f"{heat.y} and {heat.x}",
        says=f"Best at {heat.y} = {best.y}, {heat.x} = {best.x}: {microseconds(best.seconds or 0.0)}. "
        + (excluded_note if excluded else "Every cell has valid configurations. ")
        + f"The two parameters explain {percent(heat.share)} of the differences in (the logarithm of) time; {chosen}.",
        alt=f"A grid of {heat.y} by {heat.x}: the stronger the colour, the faster; {EXCLUDED} marks what is excluded.",
        data=[_map(heat), *([_crosses(heat, excluded)] if excluded else [])],
        layout=_layout(heat, best),
        height=180 + 44 * len(heat.y_values),
        table=_table(heat),
        note="Each cell has the least modelled time, in microseconds, of all valid configurations with its two values."
        + (" A parameter has more values than are shown." if heat.is_thinned else ""),
        is_open=is_open,
    )


def _layout(heat: HeatFacts, best: CellFacts) -> dict[str, Any]:
    x, y = [escaped(v) for v in heat.x_values], [escaped(v) for v in heat.y_values]
    at_x, at_y = x.index(escaped(best.x)), y.index(escaped(best.y))
    frame = {
        "type": "rect", "x0": at_x - 0.5, "x1": at_x + 0.5, "y0": at_y - 0.5, "y1": at_y + 0.5,
        "line": {"color": "--ink", "width": 3},
    }  # fmt: skip
    return {
        "xaxis": axis(heat.x, type="category", categoryorder="array", categoryarray=x, showgrid=False),
        "yaxis": axis(heat.y, type="category", categoryorder="array", categoryarray=y, showgrid=False),
        "shapes": [frame],
    }


def _map(heat: HeatFacts) -> dict[str, Any]:
    rows = _rows(heat)
    is_written = len(heat.cells) <= MAX_WRITTEN
    logs = [[None if c.seconds is None else math.log10(c.seconds * MICRO) for c in row] for row in rows]
    finite = [value for row in logs for value in row if value is not None]
    low, high = min(finite), max(finite)
    steps = [low + (high - low) * part / 4 for part in range(5)] if high > low else [low]
    return {
        "type": "heatmap",
        "x": [escaped(value) for value in heat.x_values],
        "y": [escaped(value) for value in heat.y_values],
        "z": logs,
        "text": [["" if c.seconds is None else _short(c.seconds) for c in row] for row in rows] if is_written else None,
        "texttemplate": "%{text}" if is_written else "",
        "hovertext": [[_hover(heat, cell) for cell in row] for row in rows],
        "hoverinfo": "text",
        "hoverongaps": True,
        "xgap": 2,
        "ygap": 2,
        "colorscale": [[0, "--h0"], [0.5, "--h1"], [1, "--h2"]],
        "colorbar": {
            "title": {"text": "us"},
            "tickvals": steps,
            "ticktext": [_short(10**step / MICRO) for step in steps],
            "thickness": 12,
            "outlinewidth": 0,
        },
    }


def _short(seconds: float) -> str:
    """Microseconds in few letters, for cells of 40 pixels."""
    us = seconds * MICRO
    if us >= 99_500:
        return f"{us / 1000:,.0f}k"
    return f"{us:,.0f}" if us >= 100 else f"{us:.1f}"


def _crosses(heat: HeatFacts, excluded: list[CellFacts]) -> dict[str, Any]:
    """A cross in every excluded cell, which also shows its hover label."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": [escaped(cell.x) for cell in excluded],
        "y": [escaped(cell.y) for cell in excluded],
        "marker": {"symbol": "x-thin", "size": 16, "line": {"color": "--ink", "width": 2}},
        "hovertext": [_hover(heat, cell) for cell in excluded],
        "hoverinfo": "text",
        "showlegend": False,
    }


def _hover(heat: HeatFacts, cell: CellFacts) -> str:
    head = f"{heat.y} = {cell.y}, {heat.x} = {cell.x}"
    if cell.seconds is None:
        return lines(f"{head}: nothing is valid", *(part for broken in cell.broken for part in _reason(broken)))
    return lines(
        f"{head}: {microseconds(cell.seconds)}, bound by {cell.bound_by}",
        pairs_text(cell.config),
        f"{cell.num_valid:,} valid configurations",
    )


def _reason(broken: BrokenFacts) -> Iterator[str]:
    """A broken rule in lines: its name with the numbers, its text if it is short, its reason."""
    yield f"{broken.name or 'values'}: {broken.seen or broken.rule}"
    if broken.seen and len(broken.rule) <= MAX_RULE:
        yield broken.rule
    yield f"because {broken.because}"


def _rows(heat: HeatFacts) -> list[list[CellFacts]]:
    width = len(heat.x_values)
    return [list(heat.cells[at : at + width]) for at in range(0, len(heat.cells), width)]


def _table(heat: HeatFacts) -> FigureTable:
    columns = (
        FigureColumn(heat.y, is_text=not isinstance(heat.y_values[0], int)),
        FigureColumn(heat.x, is_text=not isinstance(heat.x_values[0], int)),
        FigureColumn("us", places=1),
        FigureColumn("valid"),
        FigureColumn("bound, or the rules that exclude it", is_text=True),
        FigureColumn("best configuration, or the numbers", is_text=True, is_code=True),
    )
    rows: list[tuple[Cell, ...]] = []
    for cell in heat.cells:
        values = tuple(value if isinstance(value, int) else str(value) for value in (cell.y, cell.x))
        if cell.seconds is None:
            why = (
                "; ".join(f"{b.name or 'values'}: {b.rule}, because {b.because}" for b in cell.broken)
                or "no rule could be singled out"
            )
            numbers = "; ".join(b.seen for b in cell.broken if b.seen)
            rows.append((*values, None, cell.num_valid, why, numbers or None))
        else:
            shown = (cell.seconds * MICRO, cell.num_valid, cell.bound_by, pairs_text(cell.config))
            rows.append((*values, *shown))
    marked = frozenset(at for at, cell in enumerate(heat.cells) if cell.seconds is None)
    return FigureTable("Every cell of the heat map", columns, tuple(rows), marked)
