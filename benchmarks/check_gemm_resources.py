"""Print how the GEMM's resource rules do against tables of compiled kernels, per target.

    python benchmarks/check_gemm_resources.py tests/data/triton_gemm_resources.csv tests/data/triton_gemm_space.csv

Columns: kernels; shared memory stated exactly, and below what was compiled; median error of the register estimate
where registers were not short; kernels that spill, and those of them within the bound; kernels that do not spill, and
those of them beyond it. Kernels that promise several waves to a SIMD count for shared memory alone.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fit_gemm_registers import GPUS, is_spilling, limit_of

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import resources
from constrint.model import Expr, Var
from constrint.select import Workload

PARAMS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent")
TITLES = ("target", "kernels", "exact", "under", "reg err", "spill", "kept", "clean", "excluded")


@cache
def rules(target: str, dtype: str, aligned: resources.Aligned, has_rows: bool) -> tuple[Expr, Expr, Expr]:
    """Shared memory, registers and their bound as expressions."""
    gpu = load_gpu(GPUS[target])
    variables = {name: Var(name) for name in (*PARAMS, *(("matrix_instr_nonkdim",) if has_rows else ()))}
    return (
        resources.smem_bytes(gpu, dtype, variables, aligned),
        resources.registers_per_thread(gpu, dtype, variables, aligned),
        resources.registers_bound(gpu, dtype, variables, aligned),
    )


def figures(row: Mapping[str, str]) -> tuple[int, int, int]:
    """What the rules say about one row."""
    sizes = {name: int(row.get(name) or 4096) for name in "mnk"}
    aligned = resources.aligned_operands(Workload("gemm", sizes, row["dtype"]))
    rows = int(row.get("matrix_instr_nonkdim") or 0)
    config = {name: int(row.get(name) or name == "split_k") for name in PARAMS} | {"matrix_instr_nonkdim": rows}
    smem, registers, bound = (e.value(config) for e in rules(row["target"], row["dtype"], aligned, rows > 0))
    return smem, registers, bound


def check(rows: list[dict[str, str]]) -> list[str]:
    """The figures of one target."""
    exact = under = spilling = kept = clean = excluded = 0
    errors = []
    for row in rows:
        gpu = load_gpu(GPUS[row["target"]])
        smem, estimate, bound = figures(row)
        exact += smem == int(row["smem_bytes"])
        under += smem < int(row["smem_bytes"])
        if int(row.get("waves_per_eu") or 0) > 1:
            continue
        registers, limit = int(row["registers"]), limit_of(gpu, row)
        if is_spilling(int(row.get("spill_bytes") or row.get("spills") or 0), registers, limit):
            spilling += 1
            kept += bound <= limit
            continue
        clean += 1
        excluded += bound > limit
        if registers < limit - 3:
            errors.append(abs(estimate / registers - 1))
    shown = (len(rows), exact, under, f"{statistics.median(errors):.1%}", spilling, kept, clean, excluded)
    return [str(value) for value in shown]


def main() -> None:
    """Check every table named on the command line."""
    for path in map(Path, sys.argv[1:]):
        groups: dict[str, list[dict[str, str]]] = defaultdict(list)
        with path.open() as file:
            print(f"{path.name}: {file.readline()[2:].strip()}")
            for row in csv.DictReader(file):
                uses_unit = "instruction" not in row or row["instruction"] or row["target"] == "sm_75"
                if not row.get("error") and uses_unit and not int(row.get("descriptor") or 0):
                    groups[row["target"]].append(row)
        print("".join(title.rjust(10) for title in TITLES))
        for target, rows in groups.items():
            print("".join(cell.rjust(10) for cell in [target, *check(rows)]))


if __name__ == "__main__":
    main()
