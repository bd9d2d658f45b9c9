"""Compile a random sample of the descriptor GEMM's configurations without a GPU, and record what they take.

Writes the table that the rules of `constrint/kernels/gemm/descriptor.py` are checked against.

    python benchmarks/compile_gemm_descriptor.py --per-pair 20 --out tests/data/triton_gemm_descriptor.csv
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

from constrint.kernels.gemm.descriptor import TWO_PART_COLUMNS, rest_columns

GPUS = {"sm_90": "h200", "sm_100": "b200", "sm_120": "rtx-5090"}
DTYPES = ("bf16", "fp8", "tf32", "int8")
KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent", "epilogue_subtile")
RESULTS = ("smem_bytes", "registers", "spill_bytes", "instruction", "error")
#: Warps with which wgmma and tcgen05 work.
DIRECT_WARPS = {"sm_90": (4, 8, 16), "sm_100": (4, 8)}
ELEMENT_BYTES = {"bf16": 2, "fp8": 1, "tf32": 4, "int8": 1}


def draw(rng: random.Random, target: str, dtype: str) -> dict[str, int]:
    """One configuration whose operand pipeline is not far beyond the largest shared memory."""
    while True:
        row = {
            "tile_m": rng.choice([16, 32, 64, 64, 128, 128, 256]),
            "tile_n": rng.choice([16, 32, 64, 128, 128, 256, *TWO_PART_COLUMNS]),
            "tile_k": rng.choice([32, 64, 64, 128, 256]),
            "num_warps": rng.choice([2, 4, 4, 8, 8, 16]),
            "num_stages": rng.choice([2, 3, 3, 4, 5, 6]),
            "split_k": 1,
            "persistent": rng.choice([0, 1, 1]),
            "epilogue_subtile": 1,
        }
        if rest_columns(row["tile_n"]):
            if target not in DIRECT_WARPS or row["tile_m"] < 64 or row["num_warps"] not in DIRECT_WARPS[target]:
                continue
            row["persistent"] = 0
        if not row["persistent"]:
            row["split_k"] = rng.choice([1, 1, 4])
        is_wide = dtype in ("tf32", "int8")
        may_halve = row["persistent"] or (is_wide and row["split_k"] == 1 and not rest_columns(row["tile_n"]))
        if may_halve and 16 * row["num_warps"] <= row["tile_m"] and row["tile_n"] >= 32:
            row["epilogue_subtile"] = rng.choice([1, 2])
        operands = row["num_stages"] * (row["tile_m"] + row["tile_n"]) * row["tile_k"] * ELEMENT_BYTES[dtype]
        sums = row["tile_m"] * row["tile_n"] // (32 * row["num_warps"])
        if operands <= 240_000 and 2 <= sums <= 128:
            return row


def main() -> None:
    """Compile the sample; progress goes to stderr, one line per row to the CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-pair", type=int, default=20, help="configurations per target and dtype")
    parser.add_argument("--targets", nargs="+", default=list(GPUS), choices=list(GPUS))
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as cache, args.out.open("w", newline="") as file:
        os.environ["TRITON_CACHE_DIR"] = cache
        import triton
        from constrint.kernels.gemm.build import compile_config

        from constrint.errors import UnsupportedError
        from constrint.hwmodels import load_gpu
        from constrint.select import Workload

        file.write(
            f"# compiled, not measured: triton {triton.__version__}, by {Path(__file__).name}, seed {args.seed}\n"
        )
        writer = csv.writer(file)
        writer.writerow(["target", "dtype", *KEYS, *RESULTS])
        for target in args.targets:
            for dtype in DTYPES:
                workload = Workload("gemm", {"m": 4096, "n": 4096, "k": 4096}, dtype)
                for _ in range(args.per_pair):
                    row = draw(rng, target, dtype)
                    config = row | {"group_m": 8, "descriptor": 1}
                    result: list[Any] = ["", "", "", ""]
                    try:
                        compiled = compile_config(load_gpu(GPUS[target]), workload, config)
                    except UnsupportedError as error:
                        result.append(str(error)[-100:])
                    else:
                        found = (compiled.smem_bytes, compiled.registers_per_thread, compiled.spill_bytes)
                        result = [*found, compiled.instruction, ""]
                    writer.writerow([target, dtype, *(row[key] for key in KEYS), *result])
                    file.flush()
                print(target, dtype, file=sys.stderr)


if __name__ == "__main__":
    main()
