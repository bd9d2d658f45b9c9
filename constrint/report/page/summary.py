"""What stands at the top of a GPU's part of the page: the answer, the table of candidates, and what to do next."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from constrint.answers.facts import CandidateFacts, FigureFacts, GpuFacts, Value
from constrint.report.drawing import MICRO, Cell, Column, Table, config_text, counted, limits_text, rate_text


@dataclass(frozen=True)
class Command:
    """A command to copy, and what it does."""

    does: str
    text: str


def tiles(gpu: GpuFacts) -> list[tuple[str, str, str]]:
    """The answer in numbers: title, value and what is to be added."""
    best = gpu.candidates[0]
    figures, terms = best.figures, gpu.terms
    shown = [
        (
            "time",
            f"{figures.seconds * MICRO:,.1f} us",
            "modelled" if best.compiled is None else "modelled, as compiled",
        ),
        ("rate", f"{rate_text(gpu.rate_of(best))} {gpu.rate_unit}", f"{figures.roofline_share:.0%} of the roofline"),
        ("bound by", figures.bound_by, ""),
    ]
    if figures.warps_per_sm is not None:
        resident = f"{figures.warps_per_sm} of {gpu.max_warps_per_sm} {terms.warps}"
        limit = limits_text(figures.limited_by, terms.smem)
        blocks = f"{counted(figures.blocks_per_sm or 0, 'block')} {terms.a_sm}, limited by {limit}"
        shown.append(("occupancy", resident, blocks))
    if best.measured is not None:
        of_model = figures.seconds / best.measured.median_s - 1
        shown.append(("measured", f"{best.measured.median_s * MICRO:,.1f} us", f"the model is off by {of_model:+.0%}"))
    shown.append(("valid", f"{gpu.num_valid:,}", f"of {counted(gpu.num_product, 'configuration')}"))
    return shown


def commands(gpu: GpuFacts) -> list[Command]:
    """What a reader does next."""
    found = []
    if gpu.candidates:
        found.append(Command("rank them again", shlex.join(("constrint", "solve", *gpu.arguments))))
        best = gpu.candidates[0]
        kernel = _without_kernel(gpu.arguments)
        settings = [word for name, value in best.config.items() for word in ("--set", f"{name}={value}")]
        asked = ("--kernel", _named(gpu, best), *settings) if settings else ("--kernel", _named(gpu, best))
        found.append(
            Command("compile the best one (no GPU needed)", shlex.join(("constrint", "verify", *kernel, *asked)))
        )
    found.append(Command("say what every rule removes", shlex.join(("constrint", "explain", *gpu.arguments))))
    return found


def _named(gpu: GpuFacts, best: CandidateFacts) -> str:
    """What `--kernel` takes for an implementation: the file of a kernel from outside, else its full name."""
    asked = _value_of(gpu.arguments, "--kernel")
    return asked if ":" in asked else best.kernel


def _value_of(arguments: tuple[str, ...], option: str) -> str:
    return dict(pairwise(arguments)).get(option, "")


def _without_kernel(arguments: tuple[str, ...]) -> list[str]:
    """The arguments without the kernel and what the user fixed, which the best configuration has."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in ("--kernel", "--set", "--where", "--dialect"):
            next(words, None)
        else:
            kept.append(word)
    return kept


def candidates_table(gpu: GpuFacts) -> tuple[Table, dict[str, Value], list[str]]:
    """The table of candidates, the parameters that are the same in all rows, and every row's configuration."""
    names = list(dict.fromkeys(name for c in gpu.candidates for name in c.config))
    values = {name: {repr(c.config.get(name)) for c in gpu.candidates} for name in names}
    varying = [name for name in names if len(values[name]) > 1]
    same = {name: gpu.candidates[0].config[name] for name in names if name not in varying}
    kernels = {c.kernel for c in gpu.candidates}
    columns = [Column("#", meaning="place in the ranking"), *_time_columns(gpu)]
    columns += [Column("kernel", is_text=True)] if len(kernels) > 1 else []
    columns += [Column(name, is_text=_is_text(gpu, name), meaning=_meaning(gpu, name)) for name in varying]
    columns += _block_columns(gpu)
    rows = tuple(_row(gpu, candidate, len(kernels) > 1, varying) for candidate in gpu.candidates)
    copies = [config_text(c.config) or c.kernel for c in gpu.candidates]
    caption = f"The best {counted(len(gpu.candidates), 'configuration')}, by modelled time"
    return Table(caption, tuple(columns), rows), same, copies


def _is_text(gpu: GpuFacts, name: str) -> bool:
    return any(type(c.config.get(name, 0)) not in (int, float) for c in gpu.candidates)


def _meaning(gpu: GpuFacts, name: str) -> str:
    return next((p.meaning for kernel in gpu.kernels for p in kernel.params if p.name == name), "")


def _time_columns(gpu: GpuFacts) -> list[Column]:
    return [
        Column("us", places=1, meaning="modelled time in microseconds"),
        Column(gpu.rate_unit, places=1, meaning="rate that follows from the time"),
        Column("roof %", places=0, meaning="share of the roofline"),
        Column("bound", is_text=True, meaning="what binds the time"),
    ]


def _block_columns(gpu: GpuFacts) -> list[Column]:
    terms = gpu.terms
    return [
        Column(terms.smem if len(terms.smem) < 6 else "smem", meaning=f"bytes of {terms.smem} a block"),
        Column("regs", meaning="registers a thread"),
        Column("spill %", places=0, meaning="the chance that registers go to memory"),
        Column("blocks", meaning=f"blocks resident {terms.a_sm}"),
        Column(terms.warps, meaning=f"resident {terms.a_sm}"),
        Column("limit", is_text=True, meaning="what limits the blocks"),
        Column("variants", meaning="configurations that the model cannot tell apart"),
    ]


def _row(gpu: GpuFacts, candidate: CandidateFacts, is_named: bool, varying: list[str]) -> tuple[Cell, ...]:
    figures: FigureFacts = candidate.figures
    values: list[Any] = [candidate.config.get(name) for name in varying]
    is_kernel = figures.blocks_per_sm is not None
    return (
        candidate.place,
        figures.seconds * MICRO,
        gpu.rate_of(candidate),
        100.0 * figures.roofline_share,
        figures.bound_by,
        *([candidate.kernel] if is_named else []),
        *(value if value is None or type(value) in (int, float, str) else str(value) for value in values),
        figures.smem_bytes,
        figures.registers_per_thread,
        100.0 * figures.spill_chance if is_kernel else None,
        figures.blocks_per_sm,
        figures.warps_per_sm,
        limits_text(figures.limited_by, gpu.terms.smem) or None,
        candidate.num_variants,
    )
