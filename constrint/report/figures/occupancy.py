"""Occupancy over registers and over shared memory: the steps, their cliffs, and the candidates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.answers.facts import CandidateFacts, CurveFacts, GpuFacts
from constrint.answers.table import counted, pairs_text
from constrint.report.drawing import (
    COLOURS,
    DASHES,
    SYMBOLS,
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_gpu,
    limits_text,
    lines,
)


@draws_gpu(50)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """A figure for registers and one for shared memory; none without a single-kernel candidate."""
    for resource in ("registers", "smem"):
        curves = [curve for curve in gpu.curves if curve.resource == resource]
        shown = [c for c in gpu.candidates if _amount(c, resource) is not None]
        if curves and shown:
            yield _of_resource(gpu, resource, curves, shown)


def _amount(candidate: CandidateFacts, resource: str) -> int | None:
    figures = candidate.figures
    return figures.registers_per_thread if resource == "registers" else figures.smem_bytes


def _of_resource(gpu: GpuFacts, resource: str, curves: list[CurveFacts], shown: list[CandidateFacts]) -> Drawing:
    terms = gpu.terms
    what = "registers" if resource == "registers" else terms.smem
    unit = "registers a thread" if resource == "registers" else f"bytes of {terms.smem} a block"
    best = shown[0]
    sizes = ", ".join(str(curve.threads_per_block) for curve in curves)
    most = gpu.max_registers_per_thread if resource == "registers" else gpu.max_smem_bytes_per_block
    used = [_amount(c, resource) or 0 for c in shown]
    return Drawing(
        name=f"occupancy-{resource}",
        title=f"Occupancy against {what}",
        says=f"The best configuration takes {_amount(best, resource):,} {unit} and keeps "
        f"{best.figures.warps_per_sm} of {gpu.max_warps_per_sm} {terms.warps} on {terms.a_sm}"
        f"{_limited(best, terms.smem)}. {_next_cliff(curves, best, resource, what)}",
        alt=f"Steps that fall as {unit} grow, one line for blocks of {sizes} threads, "
        f"with {len(shown)} candidates on or below them.",
        data=[*_lines(curves), *_markers(shown, resource, unit, terms.warps)],
        layout={
            "xaxis": axis(unit, range=[0, min(most, max(64, 1.5 * max(used))) * 1.02]),
            "yaxis": axis(
                f"resident {terms.warps} ({gpu.max_warps_per_sm} at most)",
                range=[-0.02 * gpu.max_warps_per_sm, 1.08 * gpu.max_warps_per_sm],
            ),
            "legend": {"orientation": "h", "y": -0.22, "yanchor": "top"},
        },
        height=400,
        table=_table(curves, unit, terms.warps),
        note=f"A line is what {what} alone would leave; a candidate below its line is limited by something else. "
        + (
            "The bar at the best one is the error of its estimate: one in ten is further off."
            if resource == "registers" and best.figures.registers_error_percent
            else ""
        ),
    )


def _limited(best: CandidateFacts, smem: str) -> str:
    return f", limited by {limits_text(best.figures.limited_by, smem)}" if best.figures.limited_by else ""


def _next_cliff(curves: list[CurveFacts], best: CandidateFacts, resource: str, what: str) -> str:
    """The end of the best configuration's step."""
    amount = _amount(best, resource) or 0
    for curve in curves:
        if curve.threads_per_block == best.threads_per_block:
            step = next((step for step in curve.steps if amount <= step.up_to), curve.steps[-1])
            at = curve.steps.index(step)
            after = curve.steps[at + 1].blocks_per_sm if at + 1 < len(curve.steps) else 0
            fewer = f"{after} beyond" if after else "none beyond"
            blocks = counted(step.blocks_per_sm, "block")
            return f"The next cliff of {what} is at {step.up_to:,}: {blocks} up to there, {fewer}."
    return ""


def _lines(curves: list[CurveFacts]) -> Iterator[dict[str, Any]]:
    """A step line per block size; the last step falls to 0."""
    for at, curve in enumerate(curves):
        x: list[int] = [0]
        y: list[int] = [curve.steps[0].warps_per_sm]
        for place, step in enumerate(curve.steps):
            following = curve.steps[place + 1].warps_per_sm if place + 1 < len(curve.steps) else 0
            x += [step.up_to, step.up_to]
            y += [step.warps_per_sm, following]
        yield {
            "type": "scatter",
            "mode": "lines",
            "x": x,
            "y": y,
            "name": f"{curve.threads_per_block} threads",
            "line": {"color": COLOURS[at % len(COLOURS)], "dash": DASHES[at % len(DASHES)], "width": 2},
            "hoverinfo": "text",
            "hovertext": [
                lines(f"{curve.threads_per_block} threads: up to {amount:,} {warps} resident")
                for amount, warps in zip(x, y, strict=True)
            ],
        }


def _markers(shown: list[CandidateFacts], resource: str, unit: str, warps: str) -> Iterator[dict[str, Any]]:
    """The candidates by block size; the best one is larger."""
    for at, threads in enumerate(sorted({c.threads_per_block or 0 for c in shown})):
        some = [c for c in shown if (c.threads_per_block or 0) == threads]
        amounts = [_amount(c, resource) or 0 for c in some]
        trace: dict[str, Any] = {
            "type": "scatter",
            "mode": "markers+text",
            "x": amounts,
            "y": [c.figures.warps_per_sm for c in some],
            "text": ["1" if c.place == 1 else "" for c in some],
            "textposition": "top center",
            "name": f"candidates, {threads}",
            "marker": {
                "symbol": SYMBOLS[at % len(SYMBOLS)],
                "size": [14 if c.place == 1 else 9 for c in some],
                "color": COLOURS[at % len(COLOURS)],
                "line": {"color": "--ink", "width": 1},
            },
            "hoverinfo": "text",
            "hovertext": [
                lines(
                    f"#{c.place} {c.kernel}: {amount:,} {unit}, {c.figures.warps_per_sm} {warps}",
                    pairs_text(c.config),
                )
                for c, amount in zip(some, amounts, strict=True)
            ],
        }
        best = [c.place == 1 for c in some]
        if resource == "registers" and any(best):
            # Only for the best candidate: error bars of all would hide the markers.
            percent = max(c.figures.registers_error_percent for c in some if c.place == 1)
            errors = [amount * percent / 100 if is_best else 0 for amount, is_best in zip(amounts, best, strict=True)]
            trace["error_x"] = {"type": "data", "array": errors, "color": "--ink", "thickness": 1.5, "width": 4}
        yield trace


def _table(curves: list[CurveFacts], unit: str, warps: str) -> FigureTable:
    columns = (
        FigureColumn("threads a block"),
        FigureColumn(f"up to: {unit}"),
        FigureColumn("blocks"),
        FigureColumn(warps),
    )
    rows = tuple(
        (curve.threads_per_block, step.up_to, step.blocks_per_sm, step.warps_per_sm)
        for curve in curves
        for step in curve.steps
    )
    return FigureTable("Every step; its end is a cliff", columns, rows)
