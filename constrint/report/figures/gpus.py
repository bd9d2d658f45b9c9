"""GPUs side by side: the best configuration of each, its time and what binds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.answers.facts import GpuFacts, Report
from constrint.answers.table import counted, pairs_text
from constrint.report.drawing import (
    MICRO,
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_report,
    escaped,
    filled,
    limits_text,
    lines,
    percent,
)


@draws_report(10)
def draw(report: Report) -> Iterator[Drawing]:
    """Bars of the best times of several GPUs."""
    if len(report.gpus) < 2:
        return
    timed = [gpu for gpu in report.gpus if gpu.candidates]
    fastest = min(timed, key=lambda gpu: gpu.candidates[0].figures.seconds, default=None)
    yield Drawing(
        name="gpus",
        title="Best configurations",
        says=_says(report, timed, fastest),
        alt=f"Bars of the least modelled time on {', '.join(gpu.gpu for gpu in report.gpus)}, "
        "each with the time that its roofline allows.",
        data=list(_bars(timed)) if timed else [],
        layout={
            "barmode": "group",
            "bargap": 0.35,
            "xaxis": axis(
                "microseconds",
                range=[0, 1.12 * max((g.candidates[0].figures.seconds for g in timed), default=0.0) * MICRO],
            ),
            "yaxis": axis("", type="category", autorange="reversed", showgrid=False),
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
        height=140 + 60 * len(timed),
        table=_table(report),
        is_table_open=True,
        note=""
        if not timed
        else "All times are modelled. The roofline is the time that no implementation can beat on that GPU.",
    )


def _says(report: Report, timed: list[GpuFacts], fastest: GpuFacts | None) -> str:
    none = [gpu.gpu for gpu in report.gpus if not gpu.candidates]
    parts = []
    if fastest is not None:
        seconds = fastest.candidates[0].figures.seconds
        parts.append(f"{fastest.gpu} is the fastest: {seconds * MICRO:,.1f} us.")
        for gpu in timed:
            if gpu is not fastest:
                ratio = gpu.candidates[0].figures.seconds / seconds
                parts.append(f"{gpu.gpu} takes {ratio:.2f} times as long.")
    if none:
        parts.append(f"Nothing fits {', '.join(none)}: the section says why.")
    if len({(gpu.dtype, repr(gpu.sizes)) for gpu in timed}) > 1:
        parts.append("They were asked different things: each GPU's first dtype was taken, since none was named.")
    return " ".join(parts)


def _bars(timed: list[GpuFacts]) -> Iterator[dict[str, Any]]:
    names = [escaped(gpu.gpu) for gpu in timed]
    best = [gpu.candidates[0] for gpu in timed]
    rows = (
        ("best configuration", [c.figures.seconds for c in best], 0),
        ("roofline", [gpu.roofline_s or 0.0 for gpu in timed], 1),
    )
    for name, seconds, at in rows:
        yield {
            "type": "bar",
            "orientation": "h",
            "name": name,
            "y": names,
            "x": [value * MICRO for value in seconds],
            "text": [f"{value * MICRO:,.1f}" for value in seconds],
            "textposition": "outside",
            "cliponaxis": False,
            "marker": filled(at),
            "hoverinfo": "text",
            "hovertext": [
                lines(f"{gpu.gpu}, {name}: {value * MICRO:,.1f} us", c.kernel, pairs_text(c.config))
                for gpu, c, value in zip(timed, best, seconds, strict=True)
            ],
        }


def _table(report: Report) -> FigureTable:
    """A column per GPU, so that compared values stand in one row."""
    columns = (FigureColumn("", is_text=True), *(FigureColumn(gpu.gpu, is_text=True) for gpu in report.gpus))
    texts = [_values_of(gpu) for gpu in report.gpus]
    rows = tuple(
        (title, *(one.get(title, "-") for one in texts)) for title in dict.fromkeys(t for one in texts for t in one)
    )
    return FigureTable("The best configuration of each GPU", columns, rows, is_sortable=False)


def _conflicts(gpu: GpuFacts) -> str:
    """The rules in conflict, kernel by kernel."""
    reasons = [f"{k.kernel}: {'; '.join(b.rule for b in k.conflict) or k.reason}" for k in gpu.kernels if k.reason]
    return "cannot hold together: " + ". ".join(reasons)


def _values_of(gpu: GpuFacts) -> dict[str, str]:
    """The values of one GPU by their titles."""
    workload = " ".join(f"{name}={value}" for name, value in (*gpu.sizes.items(), *gpu.options.items()))
    shown = {"asked": f"{workload} {gpu.dtype}".strip() or "-"}
    if not gpu.candidates:
        return {
            **shown,
            "valid configurations": f"{gpu.num_valid:,}",
            "why there is none": gpu.refusal or _conflicts(gpu),
        }
    best = gpu.candidates[0]
    figures, terms = best.figures, gpu.terms
    shown |= {
        "time": f"{figures.seconds * MICRO:,.1f} us",
        "rate": f"{gpu.rate_of(best):,.1f} {gpu.rate_unit}",
        "share of the roofline": percent(figures.roofline_share),
        "bound by": figures.bound_by,
        "best configuration": f"{best.kernel} {pairs_text(best.config)}",
        "valid configurations": f"{gpu.num_valid:,} of {gpu.num_product:,}",
    }
    if figures.blocks_per_sm is not None:
        shown |= {
            "occupancy": f"{figures.warps_per_sm} of {gpu.max_warps_per_sm} {terms.warps} {terms.a_sm}, "
            f"{counted(figures.blocks_per_sm, 'block')}",
            "limited by": limits_text(figures.limited_by, terms.smem),
            "registers a thread": f"{figures.registers_per_thread:,} of {gpu.max_registers_per_thread:,}",
            "shared memory a block": f"{figures.smem_bytes:,} of {gpu.max_smem_bytes_per_block:,} bytes",
        }
    if gpu.measured:
        shown["fastest measurement"] = f"{gpu.measured[0].median_s * MICRO:,.1f} us"
    return shown
