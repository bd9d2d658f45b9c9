"""Compile a random sample of GEMM configurations for 13 GPU targets without a GPU, and record what they take.

Writes the table that the resource rules of `constrint/kernels/gemm/resources.py` are checked against and that
`fit_gemm_registers.py` fits: shared memory, registers, spills and the matrix instruction, as compiled.

    python benchmarks/compile_gemm.py --per-pair 28 --out tests/data/triton_gemm_resources.csv
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

#: A GPU of every target.
GPUS = {
    "sm_75": "t4",
    "sm_80": "a100",
    "sm_86": "rtx-3090",
    "sm_89": "rtx-4090",
    "sm_90": "h200",
    "sm_100": "b200",
    "sm_120": "rtx-5090",
    "gfx908": "mi100",
    "gfx90a": "mi210",
    "gfx942": "mi300x",
    "gfx950": "mi355x",
    "gfx1100": "rx-7900-xtx",
    "gfx1201": "rx-9070-xt",
}
DTYPES = {
    "sm_75": ("fp16",),
    "sm_80": ("fp16", "bf16", "tf32", "int8"),
    "sm_86": ("fp16",),
    "sm_89": ("bf16", "fp8"),
    "sm_90": ("fp16", "bf16", "fp8", "tf32", "int8"),
    "sm_100": ("bf16", "fp8", "tf32", "int8"),
    "sm_120": ("bf16", "fp8", "tf32", "int8"),
    "gfx908": ("fp16", "bf16", "int8"),
    "gfx90a": ("fp16", "bf16", "int8"),
    "gfx942": ("fp16", "bf16", "fp8", "tf32", "int8"),
    "gfx950": ("bf16", "fp8", "int8"),
    "gfx1100": ("fp16", "bf16", "int8"),
    "gfx1201": ("bf16", "fp8", "int8"),
}
#: Shared memory limits in KiB, only to keep the sample near what could fit.
LIMIT_KIB = {"sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_120": 99, "gfx950": 160}
ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "tf32": 4}
CONFIG_KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
KNOB_KEYS = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
RESULT_KEYS = ("smem_bytes", "registers", "agprs", "spill_bytes", "instruction", "error")


def plan(per_pair: int, seed: int) -> list[dict[str, Any]]:
    """A random sample of distinct configurations per (target, dtype), rejecting those far from fitting."""
    rng = random.Random(seed)
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for target, dtypes in DTYPES.items():
        for dtype in dtypes:
            wanted = len(rows) + per_pair
            while len(rows) < wanted:
                row = {"target": target, "dtype": dtype, **_draw(rng, target)}
                threads = row["num_warps"] * (64 if target.startswith("gfx9") else 32)
                bytes_ = row["num_stages"] * (row["tile_m"] + row["tile_n"]) * row["tile_k"] * ELEMENT_BYTES[dtype]
                fits = bytes_ <= 1.25 * 1024 * LIMIT_KIB.get(target, 64)
                if 2 <= row["tile_m"] * row["tile_n"] / threads <= 260 and fits:
                    rows.setdefault(tuple(row.values()), row)
    return list(rows.values())


def _draw(rng: random.Random, target: str) -> dict[str, int]:
    row = {
        "tile_m": rng.choice([16, 32, 64, 64, 128, 128, 256]),
        "tile_n": rng.choice([16, 32, 64, 128, 128, 256]),
        "tile_k": rng.choice([16, 32, 64, 128]),
        "num_warps": rng.choice([1, 2, 4, 4, 8, 8] + ([16] if target.startswith("gfx") else [])),
        "num_stages": rng.choice([1, 2, 2, 3, 3, 4, 5]),
        "persistent": rng.choice([0, 0, 0, 1]),
        "split_k": rng.choice([1, 1, 1, 4]),
        "matrix_instr_nonkdim": 0,
        "waves_per_eu": 0,
        "kpack": 1,
    }
    if row["persistent"]:
        row["split_k"] = 1
    if target.startswith("gfx9"):
        row["matrix_instr_nonkdim"] = rng.choice([0, 0, 16, 32])
        row["waves_per_eu"] = rng.choice([0, 0, 0, 1, 2, 3, 4])
        row["kpack"] = rng.choice([1, 1, 2]) if target != "gfx950" else 1
    return row


def compile_row(row: dict[str, Any]) -> dict[str, Any]:
    """Compile one configuration for a 4096 x 4096 x 4096 workload and read its resources from the binary."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.gemm.build import compile_config
    from constrint.select import Workload

    workload = Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, row["dtype"])
    config = {key: row[key] for key in (*CONFIG_KEYS, *KNOB_KEYS)} | {"group_m": 8, "xcd_chunk": 0}
    compiled = compile_config(load_gpu(GPUS[row["target"]]), workload, config)
    return {
        "smem_bytes": compiled.smem_bytes,
        "registers": compiled.registers_per_thread,
        "agprs": compiled.accumulator_registers,
        "spill_bytes": compiled.spill_bytes,
        "instruction": compiled.instruction,
    }


def main() -> None:
    """Compile the sample; progress goes to stderr, one line per row to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-pair", type=int, default=28, help="configurations per target and dtype")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rows = plan(args.per_pair, args.seed)
    with tempfile.TemporaryDirectory() as cache, args.out.open("w", newline="") as file:
        os.environ["TRITON_CACHE_DIR"] = cache
        import triton

        file.write(
            f"# compiled, not measured: triton {triton.__version__}, by benchmarks/compile_gemm.py, seed {args.seed}\n"
        )
        writer = csv.DictWriter(file, ["target", "dtype", *CONFIG_KEYS, *KNOB_KEYS, *RESULT_KEYS])
        writer.writeheader()
        for done, row in enumerate(rows, 1):
            result: dict[str, Any] = dict.fromkeys(RESULT_KEYS, "")
            try:
                result |= compile_row(row)
            except Exception as error:  # noqa: BLE001 - a compiler failure is a row of the table
                cause = str(error.__cause__ or error).strip().splitlines()
                result["error"] = (cause[-1] if cause else type(error).__name__)[-120:]
            writer.writerow(row | result)
            file.flush()
            print(f"\r{done}/{len(rows)} {row['target']} {row['dtype']}    ", end="", file=sys.stderr)
    print(file=sys.stderr)


if __name__ == "__main__":
    main()
