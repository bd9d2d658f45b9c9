"""Modelled, compiled and measured times side by side, with the source of each figure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

from constrint.answers.facts import CandidateFacts, GpuFacts, MeasuredFacts
from constrint.answers.table import pairs_text
from constrint.report.drawing import (
    MICRO,
    Cell,
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_gpu,
    lines,
)

#: Most rows in the figure; the table has all.
MAX_ROWS = 20
#: Most problems of compiled candidates in the sentence.
MAX_TOLD = 3


@draws_gpu(70)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """A row per candidate, and per other measured configuration."""
    if not gpu.candidates:
        return
    others = [one for one in gpu.measured if not any(c.measured == one for c in gpu.candidates)]
    checked = [c for c in gpu.candidates if c.compiled is not None or c.measured is not None]
    is_known = bool(checked or others)
    labels = [*map(_label, gpu.candidates), *(f"measured {at}" for at in range(1, len(others) + 1))]
    yield Drawing(
        name="checked",
        title="Modelled, compiled, measured",
        says=_says(gpu),
        alt=f"Times of {len(gpu.candidates)} candidates: circles are modelled, squares follow from what was compiled, "
        "diamonds were measured.",
        data=list(_points(gpu, others)) if is_known else [],
        layout={
            "xaxis": axis("microseconds", rangemode="tozero"),
            "yaxis": axis("", type="category", autorange="reversed", categoryorder="array", categoryarray=labels),
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
        height=150 + 24 * min(MAX_ROWS, len(gpu.candidates) + len(others)),
        table=_table(gpu, others) if is_known else None,
        note="A time from a compiled kernel is still modelled: with the registers, the spills and the shared memory "
        "that the compiler says."
        if checked and any(c.compiled for c in checked)
        else "",
    )


def _says(gpu: GpuFacts) -> str:
    """The comparisons made, and the commands for the others."""
    compiled = [c for c in gpu.candidates if c.compiled is not None]
    parts = []
    if compiled:
        wrong = [f"#{c.place} {c.compiled.problem}" for c in compiled if c.compiled and c.compiled.problem]
        more = f"; {len(wrong) - MAX_TOLD} more in the table" if len(wrong) > MAX_TOLD else ""
        problems = (
            f"{len(wrong)} with a problem: {'; '.join(wrong[:MAX_TOLD])}{more}" if wrong else "none with a problem"
        )
        parts.append(f"{len(compiled)} of {len(gpu.candidates)} candidates were compiled, {problems}.")
    else:
        parts.append(f"Nothing was compiled: add --compile, or run {_command('verify', gpu)} (no GPU needed).")
    if gpu.measured:
        parts.append(_best_measured(gpu, gpu.measured[0]))
    else:
        parts.append(f"Nothing is known to be measured of this workload on {gpu.gpu}: on one, run {_tuning(gpu)}.")
    return " ".join(parts)


def _best_measured(gpu: GpuFacts, one: MeasuredFacts) -> str:
    of_it = next((c for c in gpu.candidates if c.measured == one), None)
    place = "it is not among the candidates shown" if of_it is None else f"the model has it at place {of_it.place}"
    off = ""
    if of_it is not None:
        off = f" and is off by {of_it.figures.seconds / one.median_s - 1:+.0%}"
    stale = "; the kernel's code has changed since" if one.is_stale else ""
    return f"The fastest measurement is {one.median_s * MICRO:,.1f} us: {place}{off}{stale}."


def _command(name: str, gpu: GpuFacts) -> str:
    return shlex.join(("constrint", name, *gpu.arguments))


def _tuning(gpu: GpuFacts) -> str:
    words = [word for word in gpu.arguments if word != "--strict"]
    return shlex.join(("constrint", "tune", *words))


def _label(candidate: CandidateFacts) -> str:
    return f"#{candidate.place}"


def _points(gpu: GpuFacts, others: list[MeasuredFacts]) -> Iterator[dict[str, Any]]:
    drawn = gpu.candidates[:MAX_ROWS]
    compiled = [(c, c.compiled) for c in drawn if c.compiled is not None]
    measured = [(_label(c), c.measured) for c in drawn if c.measured is not None]
    measured += [(f"measured {at}", one) for at, one in enumerate(others[: MAX_ROWS - len(drawn)] or others[:3], 1)]
    if compiled:
        rows = [
            (_label(c), compiled_facts.figures.seconds, compiled_facts.problem or compiled_facts.compiler)
            for c, compiled_facts in compiled
        ]
        yield _trace("modelled with what was compiled", "square", "--c2", rows)
    if measured:
        trace = _trace("measured", "diamond", "--c3", [(at, one.median_s, _source_text(one)) for at, one in measured])
        spreads = [(one.spread_s or 0.0) * MICRO / 2 for _, one in measured]
        trace["error_x"] = {"type": "data", "array": spreads, "color": "--c3", "thickness": 1.5}
        yield trace
    # Last, so that the open circles are visible around other marks.
    rows = [(_label(c), c.modelled.seconds, pairs_text(c.config)) for c in drawn]
    yield _trace("modelled", "circle-open", "--c1", rows, size=15)


def _trace(name: str, symbol: str, colour: str, rows: list[tuple[str, float, str]], size: int = 9) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "y": [label for label, _, _ in rows],
        "x": [seconds * MICRO for _, seconds, _ in rows],
        "marker": {"symbol": symbol, "size": size, "color": colour, "line": {"color": colour, "width": 2}},
        "hoverinfo": "text",
        "hovertext": [lines(f"{label} {name}: {s * MICRO:,.1f} us", text) for label, s, text in rows],
    }


def _source_text(one: MeasuredFacts) -> str:
    """The source of a measurement in a sentence."""
    day = datetime.fromtimestamp(one.created, timezone.utc).strftime("%Y-%m-%d") if one.created > 0 else "some day"
    tools = ", ".join(f"{name} {version}" for name, version in sorted(one.toolchain.items()))
    named = f"record {one.id[:8]}, " if one.id else ""
    stale = "; the code has changed since" if one.is_stale else ""
    return f"{named}{one.source}, run {one.run}, {day}, {one.how}{', ' + tools if tools else ''}{stale}"


def _table(gpu: GpuFacts, others: list[MeasuredFacts]) -> FigureTable:
    columns = (
        FigureColumn("#", is_text=True),
        FigureColumn("modelled us", places=1),
        FigureColumn("compiled us", places=1, meaning="modelled with what the compiler says"),
        FigureColumn("measured us", places=1),
        FigureColumn("regs modelled"),
        FigureColumn("regs compiled"),
        FigureColumn("spill bytes"),
        FigureColumn("problem, or where it is from", is_text=True),
        FigureColumn("configuration", is_text=True, is_code=True),
    )
    rows: list[tuple[Cell, ...]] = []
    for c in gpu.candidates:
        compiled, one = c.compiled, c.measured
        texts = (
            [
                compiled.problem
                or f"compiled by {compiled.compiler} to {compiled.instruction or 'no matrix instruction'}"
            ]
            if compiled
            else []
        )
        texts += [_source_text(one)] if one else []
        rows.append((
            _label(c),
            c.modelled.seconds * MICRO,
            compiled.figures.seconds * MICRO if compiled else None,
            one.median_s * MICRO if one else None,
            c.modelled.registers_per_thread,
            compiled.figures.registers_per_thread if compiled and compiled.compiler else None,
            compiled.spill_bytes if compiled and compiled.compiler else None,
            "; ".join(texts) or None,
            f"{c.kernel} {pairs_text(c.config)}",
        ))  # fmt: skip
    for at, one in enumerate(others, 1):
        text = f"{one.kernel} {pairs_text(one.config)}"
        rows.append((f"measured {at}", None, None, one.median_s * MICRO, None, None, None, _source_text(one), text))
    return FigureTable("What is known of each, and where it is from", columns, tuple(rows))
