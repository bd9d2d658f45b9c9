"""`constrint occupancy`: the number of blocks that an SM holds at once, and its limits."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from constrint.answers.table import Column, Page, Table
from constrint.cli.completion import complete_gpu
from constrint.cli.output import Output, printing
from constrint.hwmodels import LIMIT_NAMES, UNLIMITED, GpuModel, Occupancy, load_gpu
from constrint.hwmodels import occupancy as compute
from constrint.hwmodels.occupancy import broken_limits, sentence
from constrint.hwmodels.vendors.interface import BlockLimit

SCHEMA = "constrint.occupancy/1"


@printing
def occupancy(
    gpu: Annotated[
        str,
        typer.Option(
            "--gpu", help="GPU name (see `constrint gpus`) or path to a YAML file.", autocompletion=complete_gpu
        ),
    ],
    threads: Annotated[int, typer.Option("--threads", help="Threads per block.")],
    registers: Annotated[int, typer.Option("--registers", help="Registers (AMD: arch VGPRs) per thread.")],
    smem: Annotated[int, typer.Option("--smem", help="Shared memory (LDS) per block in bytes.")] = 0,
    accumulators: Annotated[int, typer.Option("--acc-vgprs", help="AMD CDNA: accumulation VGPRs.")] = 0,
    sgprs: Annotated[int | None, typer.Option("--sgprs", help="AMD CDNA: scalar registers per wave.")] = None,
    wave: Annotated[int | None, typer.Option("--wave", help="AMD RDNA: 32 or 64.")] = None,
    wgp: Annotated[bool, typer.Option("--wgp", help="AMD RDNA: WGP mode.")] = False,
    no_opt_in: Annotated[bool, typer.Option("--no-opt-in", help="NVIDIA: at most 48 KiB per block.")] = False,
    carveout: Annotated[int, typer.Option("--carveout", help="NVIDIA: carve-out in percent, -1: default.")] = -1,
    barriers: Annotated[int, typer.Option("--barriers", help="NVIDIA: named barriers per block.")] = 0,
    *,
    output: Output,
) -> None:
    """Compute how many blocks one SM (CU, WGP) holds at once, and why no more.

    Ends with exit code 1 where a block of that size cannot be launched.
    """
    model = load_gpu(gpu)
    block: dict[str, Any] = {
        "threads_per_block": threads,
        "registers_per_thread": registers,
        "smem_bytes_per_block": smem,
        "accumulator_registers_per_thread": accumulators,
        "sgprs_per_wave": sgprs,
        "wave_size": wave,
        "wgp_mode": wgp,
        "smem_opt_in": not no_opt_in,
        "carveout_percent": carveout,
        "barriers_per_block": barriers,
    }
    result = compute(model, **block)
    broken = broken_limits(model, result, **block)
    output.show(_page(model, result, broken, "WGP" if wgp else model.terms.sm))
    if broken:
        raise typer.Exit(1)


def as_document(result: Occupancy[int]) -> dict[str, Any]:
    """The result as `constrint docs json` describes it; a resource without a limit is null."""
    return {
        "blocks_per_sm": result.blocks_per_sm,
        "warps_per_sm": result.warps_per_sm,
        "occupancy": result.occupancy,
        "limited_by": result.limited_by.split("+"),
        "limits": _limits(result),
        "registers_per_block": result.registers_per_block,
        "smem_bytes_per_block": result.smem_bytes_per_block,
        "waves_per_simd": result.waves_per_simd,
    }


def _limits(result: Occupancy[int]) -> dict[str, int | None]:
    limits = {name: getattr(result, f"limit_{name}") for name in LIMIT_NAMES}
    return {name: None if limit == UNLIMITED else limit for name, limit in limits.items()}


def _page(model: GpuModel, result: Occupancy[int], broken: list[BlockLimit], unit: str) -> Page:
    terms = model.terms
    rows = [list(limit) for limit in _limits(result).items() if limit[1] is not None]
    columns = (
        Column("limit", meaning="what limits the number of blocks", is_text=True),
        Column("blocks_per_sm", f"{terms.blocks} per {unit}", meaning="how many it allows"),
    )
    waves = result.waves_per_simd
    impossible = [{"limit": limit.name, "asked": limit.asked, "most": limit.most} for limit in broken]
    document = {"schema": SCHEMA, "gpu": model.name, **as_document(result), "impossible": impossible}
    return Page(
        Table(columns, rows),
        lambda _: document,
        above=[
            f"{model.name} ({model.arch.target}): {terms.blocks} per {unit}: {result.blocks_per_sm}",
            f"limited by: {result.limited_by.replace('+', ', ')}",
            f"{terms.warps} per {unit}: {result.warps_per_sm} ({result.occupancy:.1%} of what it holds)",
            *([] if waves is None else [f"waves per SIMD as LLVM counts them: {waves}"]),
            f"each takes: {result.registers_per_block:,} registers, {result.smem_bytes_per_block:,} B of {terms.smem}",
        ],
        below=[f"a {terms.block} of that size cannot be launched: {sentence(limit)}" for limit in broken],
    )
