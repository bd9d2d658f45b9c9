"""Fit the constants of the cost model to measured configurations, and say how well they carry to unseen shapes.

    python benchmarks/fit_cost_model.py benchmarks/results/h200/gemm_space_bf16.csv --gpu h200

Prints the fitted constants (they stand in `constrint/select/cost.py`, rounded; the exponent OVERLAP is chosen, not
fitted), and, leaving one shape out at a time, best/first and best/first-8 on the shape left out. Needs scipy.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel
from constrint.select import Workload
from constrint.select import cost as cost_model
from constrint.select.rank import predict

KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent", "group_m")
CONSTANTS = ("LAUNCH_S", "DRAM_LATENCY_S", "ITERATION_CLK", "CLK_PER_LOAD", "L2_PORT_BYTES_PER_CLK", "BLOCK_START_S")


def current() -> np.ndarray:
    """The constants as they stand."""
    return np.array(
        [
            cost_model.LAUNCH_S,
            cost_model.DRAM_LATENCY_S["nvidia"],
            cost_model.ITERATION_CLK,
            cost_model.CLK_PER_LOAD,
            cost_model.L2_PORT_BYTES_PER_CLK,
            cost_model.BLOCK_START_S,
        ]
    )


def install(values: np.ndarray) -> None:
    """Put constants into the model."""
    cost_model.LAUNCH_S = float(values[0])
    cost_model.DRAM_LATENCY_S["nvidia"] = float(values[1])
    cost_model.ITERATION_CLK = float(values[2])
    cost_model.CLK_PER_LOAD = float(values[3])
    cost_model.L2_PORT_BYTES_PER_CLK = float(values[4])
    cost_model.BLOCK_START_S = float(values[5])


def load(path: Path, gpu: Any, spec: Any) -> list[tuple[Any, ...]]:
    """Per shape: workload, problem, columns, measured microseconds."""
    with path.open() as file:
        dtype = file.readline().split(", ")[4]
        rows = [r for r in csv.DictReader(file) if r["outcome"] == "ok"]
    tables = []
    for shape in dict.fromkeys((r["m"], r["n"], r["k"]) for r in rows):
        here = [r for r in rows if (r["m"], r["n"], r["k"]) == shape]
        workload = Workload("gemm", dict(zip("mnk", map(int, shape), strict=True)), dtype)
        columns = {key: np.array([int(r[key]) for r in here]) for key in KEYS}
        measured = np.array([float(r["median_us"]) for r in here])
        tables.append((workload, spec.problem(gpu, workload), columns, measured))
    return tables


def loss(values: np.ndarray, tables: list[tuple[Any, ...]], gpu: Any, spec: Any) -> float:
    """Mean absolute log error per shape, fast configurations counting most."""
    if np.any(values <= 0):
        return 1e9
    install(values)
    total = 0.0
    for workload, problem, columns, measured in tables:
        predicted = predict(spec, gpu, workload, problem, columns).seconds * 1e6
        weight = (measured.min() / measured) ** 2
        total += float(np.sum(weight * np.abs(np.log(predicted / measured))) / np.sum(weight))
    return total / len(tables)


def fit(tables: list[tuple[Any, ...]], gpu: Any, spec: Any, start: np.ndarray, rounds: int) -> np.ndarray:
    """Nelder-Mead in log space."""
    found = minimize(
        lambda x: loss(np.exp(x), tables, gpu, spec), np.log(start), method="Nelder-Mead", options={"maxfev": rounds}
    )
    return np.exp(found.x)


def choice(table: tuple[Any, ...], gpu: Any, spec: Any) -> tuple[float, float]:
    """best/first and best/first-8 with the installed constants."""
    workload, problem, columns, measured = table
    order = np.argsort(predict(spec, gpu, workload, problem, columns).seconds, kind="stable")
    return measured.min() / measured[order[0]], measured.min() / measured[order[:8]].min()


def geomean(values: list[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def main() -> None:
    """Fit on all shapes, then leave one out at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--loo-rounds", type=int, default=0, help="0: skip leave-one-shape-out")
    args = parser.parse_args()
    gpu, spec = load_gpu(args.gpu), load_kernel("gemm")
    tables = load(args.results, gpu, spec)
    start = current()
    best = fit(tables, gpu, spec, start, args.rounds)
    print(f"loss {loss(start, tables, gpu, spec):.3f} -> {loss(best, tables, gpu, spec):.3f}")
    for name, value in zip(CONSTANTS, best, strict=True):
        print(f"  {name} = {value:.4g}")
    first, eight = zip(*(choice(t, gpu, spec) for t in tables), strict=True)
    print(f"fitted on all: best/first {geomean(first):.3f}, best/first-8 {geomean(eight):.3f}")
    for table, share in zip(tables, first, strict=True):
        print(f"  {table[0]}: {share:.3f}")
    if args.loo_rounds:
        left = []
        for i, table in enumerate(tables):
            install(fit(tables[:i] + tables[i + 1 :], gpu, spec, best, args.loo_rounds))
            left.append(choice(table, gpu, spec))
        first, eight = zip(*left, strict=True)
        print(f"left out: best/first {geomean(first):.3f} (worst {min(first):.3f}), best/first-8 {geomean(eight):.3f}")


if __name__ == "__main__":
    main()
