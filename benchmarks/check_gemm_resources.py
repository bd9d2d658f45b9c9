"""Print how the GEMM's resource rules do against tables of compiled kernels, per target.

    python benchmarks/check_gemm_resources.py tests/data/triton_gemm_resources.csv tests/data/triton_gemm_plain.csv

Columns: kernels, shared memory exact / under-predicted, median register error of kernels that do not spill, kernels
that fit by the estimate and spill, kernels that do not fit by the estimate and do not spill.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from compile_gemm import CONFIG_KEYS, GPUS

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm import resources
from constrint.model import Var

VARIABLES = {name: Var(name) for name in CONFIG_KEYS}


def check(rows: list[dict[str, str]]) -> list[str]:
    """The figures of one target."""
    exact = under = spills = refused = 0
    errors = []
    for row in rows:
        gpu = load_gpu(GPUS[row["target"]])
        config = {name: int(row.get(name) or name == "split_k") for name in CONFIG_KEYS}
        smem = resources.smem_bytes(gpu, row["dtype"], VARIABLES).value(config)
        registers = resources.registers_per_thread(gpu, row["dtype"], VARIABLES).value(config)
        exact += smem == int(row["smem_bytes"])
        under += smem < int(row["smem_bytes"])
        has_spilled = int(row.get("spill_bytes") or row.get("spills") or 0) > 0
        fits = registers <= gpu.sm.max_registers_per_thread
        spills += fits and has_spilled
        refused += not fits and not has_spilled
        if not has_spilled:
            errors.append(abs(registers / int(row["registers"]) - 1))
    return [*map(str, (len(rows), exact, under)), f"{statistics.median(errors):.1%}", str(spills), str(refused)]


def main() -> None:
    """Check every table named on the command line."""
    for path in map(Path, sys.argv[1:]):
        groups: dict[str, list[dict[str, str]]] = defaultdict(list)
        with path.open() as file:
            print(f"{path.name}: {file.readline()[2:].strip()}")
            for row in csv.DictReader(file):
                uses_unit = "instruction" not in row or row["instruction"] or row["target"] == "sm_75"
                # Registers under a promise of waves are capped, not needed.
                if not row.get("error") and uses_unit and int(row.get("waves_per_eu") or 0) <= 1:
                    groups[row["target"]].append(row)
        titles = ("target", "kernels", "exact", "under", "reg err", "fit+spill", "no fit, clean")
        print("".join(title.rjust(14) for title in titles))
        for target, rows in groups.items():
            print("".join(cell.rjust(14) for cell in [target, *check(rows)]))


if __name__ == "__main__":
    main()
