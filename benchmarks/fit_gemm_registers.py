"""Fit the register estimate of the GEMM to compiled kernels, per instruction kind or AMD target.

registers = base + accumulators * acc + words of A and B per thread * weights + operand fragment * weight
+ persistent * weight, with weights >= 0, least squares on the relative error. Kernels that spill or sit at the
register limit are left out: their count says what was allowed, not what was needed.

    python benchmarks/fit_gemm_registers.py tests/data/triton_gemm_resources.csv \\
        > constrint/kernels/gemm/register_weights.py
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from constrint.kernels.gemm.registers import FRAGMENT_BYTES, RegisterModel
from constrint.kernels.gemm.resources import ELEMENT_BYTES

HEADER = '''"""Weights of the register estimate, written by `benchmarks/fit_gemm_registers.py`.

Do not edit: compile a new sample and fit again.
"""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.gemm.registers import RegisterModel

REGISTER_MODELS: Mapping[str, RegisterModel] = {
'''


def key_of(row: dict[str, str]) -> str:
    """The kind of instruction on NVIDIA, the target on AMD; empty where no matrix instruction was used."""
    if not row["target"].startswith("sm_"):
        return row["target"] if row["instruction"] else ""
    if row["target"] == "sm_75":
        return "fma"
    return row["instruction"].partition(".")[0]


def features(row: dict[str, str]) -> list[float]:
    """The terms of the estimate for one compiled kernel."""
    tile_m, tile_n, tile_k, warps = (int(row[k]) for k in ("tile_m", "tile_n", "tile_k", "num_warps"))
    warp_size = 64 if row["target"].startswith("gfx9") else 32
    threads, element = warps * warp_size, ELEMENT_BYTES[row["dtype"]]
    accumulators = -(-tile_m * tile_n // threads)
    if row["target"] == "sm_75":
        return [1, accumulators, 0, 0, tile_k * (16 + accumulators), 0]
    words = [-(-t * tile_k * element // (4 * threads)) for t in (tile_m, tile_n)]
    depth = min(tile_k, FRAGMENT_BYTES // element)
    fragment = -(-min(tile_m, tile_n) * depth * element // (4 * warp_size))
    return [1, accumulators, *words, fragment, int(row["persistent"])]


def non_negative_fit(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Least squares on the relative error with weights >= 0 (terms with negative weights are dropped in turn)."""
    active = [i for i in range(x.shape[1]) if np.any(x[:, i])]
    weights = np.zeros(x.shape[1])
    while active:
        scaled = x[:, active] / y[:, None]
        found, *_ = np.linalg.lstsq(scaled, np.ones(len(y)), rcond=None)
        if found.min() >= 0:
            weights[active] = found
            break
        del active[int(found.argmin())]
    return weights


def main() -> None:
    """Print the module with the weights, and how well they fit as comments."""
    with Path(sys.argv[1]).open() as file:
        version = file.readline().split("triton ")[1].split(",")[0]
        rows = list(csv.DictReader(file))
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        limit = 512 if row["target"] in ("gfx90a", "gfx942", "gfx950") else 255
        if row["error"] or not key_of(row) or int(row["spill_bytes"]) or int(row["waves_per_eu"]) > 1:
            continue
        if int(row["registers"]) < limit - 3:
            groups[key_of(row)].append(row)
    print(HEADER, end="")
    print(f"    # Fitted to kernels compiled by Triton {version}; median and 90th percentile of the relative error.")
    for key in sorted(groups):
        x = np.array([features(r) for r in groups[key]], dtype=float)
        y = np.array([float(r["registers"]) for r in groups[key]])
        weights = non_negative_fit(x, y)
        error = np.abs(x @ weights - y) / y
        numbers = ", ".join(f"{name}={round(100 * w)}" for name, w in zip(RegisterModel._fields, weights, strict=True))
        print(f"    # {len(y)} kernels, error {np.median(error):.1%}, {np.quantile(error, 0.9):.1%}")
        print(f'    "{key}": RegisterModel({numbers}),')
    print("}")


if __name__ == "__main__":
    main()
