"""`constrint gpus`: the GPU models that ship with constrint, one line each."""

from __future__ import annotations

from typing import Any

from constrint.answers.table import Column, Page, Table
from constrint.cli.output import Output, printing
from constrint.hwmodels import GpuModel, load_all

SCHEMA = "constrint.gpus/1"


def _scaled(unit: float) -> Any:
    """A function that shows a value in a larger unit with four digits."""
    return lambda value: f"{value / unit:,.4g}" if value / unit < 1000 else f"{value / unit:,.0f}"


#: The keys are those of the JSON document.
COLUMNS = (
    Column("name", "GPU", is_text=True, importance=100),
    Column("vendor", importance=0, is_text=True),
    Column("target", meaning="what compilers call its architecture", is_text=True, importance=80),
    Column("family", importance=0, is_text=True, meaning="the vendor's name of the architecture"),
    Column("sm_count", "SM/CU", meaning="streaming multiprocessors, or compute units", importance=70),
    Column(
        "max_smem_bytes_per_block", "smem KiB", "shared memory (LDS) per block", importance=70, show=_scaled(2**10)
    ),
    Column("l2_bytes", "L2 MiB", meaning="all of the level 2 cache", importance=40, show=_scaled(2**20)),
    Column("dram_bytes", "mem GB", meaning="device memory", importance=60, show=_scaled(1e9)),
    Column(
        "dram_bandwidth_bytes_per_s", "GB/s", meaning="bandwidth of device memory", importance=60, show=_scaled(1e9)
    ),
    Column("fp16_flop_per_s", "fp16 TF", "dense peak", importance=50, show=_scaled(1e12)),
    Column(
        "num_unconfirmed", "unsure", "values that no good source confirms (`constrint gpu NAME` lists them)",
        importance=20,
    ),
)  # fmt: skip


@printing
def gpus(output: Output) -> None:
    """List the GPU models; `constrint gpu NAME` shows one with its sources."""
    models = load_all()
    rows = [[as_row(model)[column.key] for column in COLUMNS] for model in models]
    table = Table(COLUMNS, rows, items=[as_row(model) for model in models])
    output.show(Page(table, lambda items: {"schema": SCHEMA, "gpus": list(items)}))


def as_row(model: GpuModel) -> dict[str, Any]:
    """One GPU in the form that `constrint docs json` describes."""
    return {
        "name": model.name,
        "vendor": model.vendor,
        "aliases": list(model.aliases),
        "target": model.arch.target,
        "family": model.arch.family,
        "sm_count": model.device.sm_count,
        "max_smem_bytes_per_block": model.sm.max_smem_bytes_per_block,
        "l2_bytes": model.memory.l2.size_bytes,
        "dram_bytes": model.memory.dram.size_bytes,
        "dram_bandwidth_bytes_per_s": model.memory.dram.bandwidth_bytes_per_s,
        "fp16_flop_per_s": model.peak_flop_per_s("fp16"),
        "num_unconfirmed": len(model.unconfirmed),
    }
