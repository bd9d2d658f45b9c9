"""Print how the GEMM's resource rules do against tables of compiled kernels, per target.

    python benchmarks/check_gemm_resources.py tests/data/triton_gemm_space.csv tests/data/triton_gemm_space_3_6.csv

Columns: kernels; shared memory stated exactly, and below what was compiled; median error of the register estimate
where registers were not short; kernels that spill, and those of them within the bound; kernels that do not spill, and
those of them beyond it. Kernels that promise several waves to a SIMD count for shared memory alone.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from compile_gemm_space import GPUS, workload_of
from fit_gemm_registers import is_refused, is_spilling, is_used, limit_of

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.spec import SPEC
from constrint.model import Problem
from constrint.select import BlockUse

TITLES = ("target", "kernels", "exact", "under", "reg err", "spill", "kept", "clean", "excluded")


@cache
def rules(target: str, dtype: str, sizes: tuple[int, int, int]) -> tuple[Problem, BlockUse]:
    """The space and what a block of it takes."""
    gpu, workload = load_gpu(GPUS[target]), workload_of(dtype, sizes)
    problem = SPEC.problem(gpu, workload)
    return problem, SPEC.use(gpu, workload, problem)


def check(rows: list[dict[str, str]]) -> list[str]:
    """The figures of one target."""
    compiled = exact = under = spilling = kept = clean = excluded = 0
    errors = []
    for row in rows:
        gpu = load_gpu(GPUS[row["target"]])
        problem, use = rules(row["target"], row["dtype"], (int(row["m"]), int(row["n"]), int(row["k"])))
        config = {name: int(row.get(name) or 0) for name in problem.variables}
        if row["smem_bytes"] and (row["instruction"] or row["target"] == "sm_75"):
            stated = (use.smem_bytes if use.smem_bytes_exact is None else use.smem_bytes_exact).value(config)
            compiled += 1
            exact += stated == int(row["smem_bytes"])
            under += stated < int(row["smem_bytes"])
        if not is_used(gpu, row):
            continue
        bound, registers, limit = use.registers_needed.value(config), int(row["registers"] or 255), limit_of(gpu, row)
        if is_refused(row) or is_spilling(int(row["spill_bytes"] or 0), registers, limit):
            spilling += 1
            kept += bound <= limit
            continue
        clean += 1
        excluded += bound > limit
        if registers < limit - 3:
            errors.append(abs(use.registers_per_thread.value(config) / registers - 1))
    error = f"{statistics.median(errors):.1%}" if errors else "-"
    return [str(value) for value in (compiled, exact, under, error, spilling, kept, clean, excluded)]


def main() -> None:
    """Check every table named on the command line."""
    for path in map(Path, sys.argv[1:]):
        groups: dict[str, list[dict[str, str]]] = defaultdict(list)
        with path.open() as file:
            print(f"{path.name}: {file.readline()[2:].strip()}")
            for row in csv.DictReader(file):
                groups[row["target"]].append(row)
        print("".join(title.rjust(10) for title in TITLES))
        for target, rows in groups.items():
            print("".join(cell.rjust(10) for cell in [target, *check(rows)]))


if __name__ == "__main__":
    main()
