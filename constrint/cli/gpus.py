"""`constrint gpus`: every GPU model that ships with constrint, one line each."""

from __future__ import annotations

from typing import Any

from constrint.cli.kernel_options import Json
from constrint.cli.output import print_json, print_table, say
from constrint.hwmodels import GpuModel, load_all

SCHEMA = "constrint.gpus/1"


def gpus(json: Json = False) -> None:
    """List the GPU models; `constrint gpu NAME` shows one with its sources."""
    models = load_all()
    if json:
        print_json({"schema": SCHEMA, "gpus": [as_row(model) for model in models]})
        return
    headers = ["GPU", "target", "SM/CU", "smem KiB", "L2 MiB", "mem GB", "GB/s", "fp16 TF", "unsure"]
    rows = [
        [
            m.name,
            m.arch.target,
            m.device.sm_count,
            m.sm.max_smem_bytes_per_block // 1024,
            _scaled(m.memory.l2.size_bytes, 2**20),
            m.memory.dram.size_bytes // 10**9,
            _scaled(m.memory.dram.bandwidth_bytes_per_s, 1e9),
            _scaled(m.peak_flop_per_s("fp16"), 1e12),
            len(m.unconfirmed),
        ]
        for m in models
    ]
    print_table(headers, rows, left=("GPU", "target"))
    say()
    say("smem: shared memory (LDS) per block. fp16 TF: dense peak. -: unknown.")
    say("unsure: values that no good source confirms; `constrint gpu NAME` lists them.")


def as_row(model: GpuModel) -> dict[str, Any]:
    """One GPU in the form that docs/json.md describes."""
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


def _scaled(value: float | None, unit: float) -> str | None:
    return None if value is None else f"{value / unit:,.4g}" if value / unit < 1000 else f"{value / unit:,.0f}"
