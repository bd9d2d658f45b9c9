"""The roofline of the dtype, with the candidates at their modelled traffic and rate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.answers.facts import CandidateFacts, GpuFacts, RooflineFacts
from constrint.answers.table import pairs_text
from constrint.report.drawing import (
    COLOURS,
    DASHES,
    MICRO,
    SYMBOLS,
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_gpu,
    lines,
    percent,
    rate_text,
)
from constrint.report.hardware import LEVELS

#: Factor by which the axis exceeds the outermost marks.
MARGIN = 2.5
TERA = 1e12


@draws_gpu(20)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """The roofline; none without counted operations or a known peak."""
    roofline = gpu.roofline
    marked = [c for c in gpu.candidates if c.op_per_byte is not None and c.op_per_s is not None]
    if roofline is None or not marked:
        return
    best = marked[0]
    low, high = _range(roofline, marked)
    unit = "TOP/s" if gpu.dtype.startswith("int") else "TFLOP/s"
    data = [*_roofs(roofline, low, high, unit, [c.op_per_s or 0.0 for c in marked]), *_candidates(marked, unit)]
    share = (best.op_per_s or 0.0) / roofline.peak_op_per_s
    layout = {
        "xaxis": axis("operations per byte of DRAM traffic", type="log", dtick="D2", tickformat=","),
        "yaxis": axis(unit, type="log", dtick="D2", tickformat=","),
        "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
    }
    ridge = roofline.peak_op_per_s / roofline.bandwidths_bytes_per_s["dram"]
    is_right = (best.op_per_byte or 0.0) >= ridge
    side = f"{'right' if is_right else 'left'} of the ridge at {ridge:,.0f} operations a byte: the roof over it is "
    side += "the peak" if is_right else "the DRAM's bandwidth"
    yield Drawing(
        name="roofline",
        title="Roofline",
        says=f"The best configuration reaches {rate_text((best.op_per_s or 0.0) / TERA)} of "
        f"{roofline.peak_op_per_s / TERA:,.0f} {unit} ({percent(share)} of the data sheet's dense peak), "
        f"{side}.",
        alt=f"Rate over operations per byte, both logarithmic: roofs of {gpu.gpu} for {gpu.dtype} "
        f"and {len(marked)} candidates below them.",
        data=data,
        layout=layout,
        height=420,
        table=_table(marked, unit),
        note=_note(roofline),
    )


def _range(roofline: RooflineFacts, marked: list[CandidateFacts]) -> tuple[float, float]:
    """The range of operations per byte of the roofs."""
    points = [c.op_per_byte for c in marked if c.op_per_byte]
    points += [roofline.peak_op_per_s / roofline.bandwidths_bytes_per_s["dram"]]
    points += [roofline.least_op_per_byte] if roofline.least_op_per_byte else []
    return min(points) / MARGIN, max(points) * MARGIN


def _roofs(roofline: RooflineFacts, low: float, high: float, unit: str, rates: list[float]) -> Iterator[dict[str, Any]]:
    """Lines of the DRAM's roof, of the sustained peak, and of the least traffic."""
    bandwidth, peak = roofline.bandwidths_bytes_per_s["dram"], roofline.peak_op_per_s
    yield _line(
        [low, peak / bandwidth, high], [low * bandwidth / TERA, peak / TERA, peak / TERA], 0,
        f"{bandwidth / TERA:.1f} TB/s of DRAM, then {peak / TERA:,.0f} {unit}",
    )  # fmt: skip
    if roofline.sustained_op_per_s is not None:
        sustained = roofline.sustained_op_per_s
        how = "sustained (assumed)" if roofline.is_sustained_assumed else "sustained, as its file states"
        yield _line([sustained / bandwidth, high], [sustained / TERA] * 2, 1, f"{sustained / TERA:,.0f} {unit} {how}")
    least = roofline.least_op_per_byte
    if least is not None:
        floor = min(low * bandwidth, peak, *rates) / TERA
        top = min(least * bandwidth, peak) / TERA
        yield _line([least, least], [floor, top], 2, f"{least:,.0f} a byte: each is moved once")


def _line(x: list[float], y: list[float], at: int, name: str) -> dict[str, Any]:
    """A line in the style of its number."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "name": name,
        "line": {"color": "--ink" if at == 0 else COLOURS[at], "dash": DASHES[at], "width": 2},
        "hoverinfo": "text",
        "hovertext": name,
    }


def _candidates(marked: list[CandidateFacts], unit: str) -> Iterator[dict[str, Any]]:
    """Markers by kernel; the best candidate is larger and carries its place."""
    for at, kernel in enumerate(dict.fromkeys(c.kernel for c in marked)):
        some = [c for c in marked if c.kernel == kernel]
        yield {
            "type": "scatter",
            "mode": "markers+text",
            "x": [c.op_per_byte for c in some],
            "y": [(c.op_per_s or 0.0) / TERA for c in some],
            "text": ["1" if c.place == 1 else "" for c in some],
            "textposition": "top center",
            "name": kernel,
            "marker": {
                "symbol": SYMBOLS[at % len(SYMBOLS)],
                "size": [14 if c.place == 1 else 9 for c in some],
                "color": COLOURS[(at + 3) % len(COLOURS)],
                "line": {"color": "--paper", "width": 1},
            },
            "hoverinfo": "text",
            "hovertext": [
                lines(
                    f"#{c.place} {c.kernel}: {(c.op_per_s or 0.0) / TERA:,.0f} {unit}, "
                    f"{c.figures.seconds * MICRO:,.1f} us",
                    pairs_text(c.config),
                )
                for c in some
            ],
        }


def _table(marked: list[CandidateFacts], unit: str) -> FigureTable:
    columns = (
        FigureColumn("#"),
        FigureColumn("kernel", is_text=True),
        FigureColumn("operations a byte", places=1),
        FigureColumn(unit, places=1),
        FigureColumn("bound", is_text=True),
    )
    rows = tuple((c.place, c.kernel, c.op_per_byte, (c.op_per_s or 0.0) / TERA, c.figures.bound_by) for c in marked)
    return FigureTable("Candidates on the roofline", columns, rows)


def _note(roofline: RooflineFacts) -> str:
    rates = roofline.bandwidths_bytes_per_s
    bandwidths = ", ".join(f"{LEVELS.get(n, n)} {rate / TERA:,.1f} TB/s" for n, rate in rates.items())
    return f"Traffic and times are modelled. Bandwidths that a source states: {bandwidths}."
