"""Fit the constants of the descriptor GEMM's cost to measured configurations; say how they carry to unseen shapes.

    cd benchmarks/results/h200
    python ../../fit_descriptor_cost.py gemm_parts_bf16.csv --unsplit gemm_choices_bf16.csv --gpu h200 --rounds 3000

Prints the fitted constants (they stand, rounded, in `constrint/kernels/gemm/cost_descriptor.py`) and best/first and
best/first-8 per shape; with --loo-rounds also for each shape left out of the fit. Fitted to these two tables, less the
last twelve shapes of the first; they and `gemm_exhaustive_bf16.csv.gz` were measured afterwards.
Configurations that differ in the order of tiles alone count once, by the order that `choose` takes. Needs scipy.
"""

from __future__ import annotations

import argparse
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_gemm_space import KEYS, load_table
from scipy.optimize import minimize

from constrint.hwmodels import load_gpu, occupancy
from constrint.kernels.gemm.cost_descriptor import MEASURED, DescriptorConstants, descriptor_cost
from constrint.kernels.gemm.spec import SPEC
from constrint.select import Workload

#: Known or measured on their own.
NOT_FITTED = ("line_bytes", "pack_s", "pack_share", "split_sectors", "split_lines")
#: For rows of the kernel with a producer and for fp8, which the tables lack.
NOT_FITTED += ("promoted_share", "producer_s", "producer_read_columns", "producer_share", "producer_bytes_per_clk")
FITTED = tuple(f.name for f in fields(DescriptorConstants) if f.name not in NOT_FITTED)
#: Fast configurations count most: a row weighs (best / its time) to this power.
POWER = 5
#: Relative difference of predicted times that decides a choice, for the time lost by choosing.
DECISIVE = 0.01


class Shape(NamedTuple):
    """One shape's workload, columns, blocks per SM and measured seconds."""

    workload: Workload
    columns: dict[str, Any]
    blocks_per_sm: Any
    seconds: Any


def read(path: Path, gpu: Any) -> list[Shape]:
    """The descriptor kernel's rows of a table, one per configuration."""
    dtype, tables = load_table(path)
    shapes = []
    for (m, n, k), rows in tables.items():
        kept: dict[tuple[int, ...], dict[str, str]] = {}
        for row in rows:
            if row["descriptor"] == "1":
                key = tuple(int(row[name]) for name in KEYS if name != "group_m")
                if key not in kept or int(row["group_m"]) == 8:
                    kept[key] = row
        workload = Workload("gemm", {"m": m, "n": n, "k": k}, dtype)
        columns = {name: np.array([int(row[name]) for row in kept.values()]) for name in KEYS}
        use = SPEC.use(gpu, workload, SPEC.problem(gpu, workload))
        fits = occupancy(
            gpu,
            threads_per_block=columns["num_warps"] * gpu.sm.warp_size,
            registers_per_thread=use.registers_per_thread.columns(columns),
            smem_bytes_per_block=use.smem_bytes.columns(columns),
        )
        seconds = np.array([1e-6 * float(row["cold_us"]) for row in kept.values()])
        shapes.append(Shape(workload, columns, np.asarray(fits.blocks_per_sm), seconds))
    return shapes


def unsplit(shape: Shape) -> Shape:
    """The rows whose K is whole."""
    kept = shape.columns["split_k"] == 1
    columns = {name: column[kept] for name, column in shape.columns.items()}
    return Shape(shape.workload, columns, shape.blocks_per_sm[kept], shape.seconds[kept])


def constants_of(logs: Any) -> DescriptorConstants:
    """Constants from the logarithms that are searched over."""
    return replace(MEASURED, **dict(zip(FITTED, np.exp(logs).tolist(), strict=True)))


def predicted(shape: Shape, gpu: Any, constants: DescriptorConstants) -> Any:
    """Seconds of every row."""
    return descriptor_cost(gpu, shape.workload, shape.columns, shape.blocks_per_sm, constants=constants).seconds


def loss(logs: Any, shapes: list[Shape], gpu: Any) -> float:
    """Mean absolute log error about each shape's own mean, a quarter of that mean, and what choosing loses."""
    constants = constants_of(logs)
    total = 0.0
    for shape in shapes:
        weight = (shape.seconds.min() / shape.seconds) ** POWER
        seconds = predicted(shape, gpu, constants)
        error = np.log(seconds / shape.seconds)
        chosen = np.exp((1 - seconds / seconds.min()) / DECISIVE)
        total += float(np.sum(chosen * (shape.seconds / shape.seconds.min() - 1)) / np.sum(chosen))
        mean = float(np.sum(weight * error) / np.sum(weight))
        total += float(np.sum(weight * np.abs(error - mean)) / np.sum(weight)) + 0.25 * abs(mean)
    return total / len(shapes)


def fit(shapes: list[Shape], gpu: Any, start: Any, rounds: int) -> Any:
    """Nelder-Mead in log space."""
    options = {"maxfev": rounds, "adaptive": True, "xatol": 1e-3, "fatol": 1e-5}
    return minimize(loss, start, args=(shapes, gpu), method="Nelder-Mead", options=options).x if rounds else start


def choice(shape: Shape, gpu: Any, logs: Any) -> tuple[float, float]:
    """best/first and best/first-8."""
    order = np.argsort(predicted(shape, gpu, constants_of(logs)), kind="stable")
    best = shape.seconds.min()
    return float(best / shape.seconds[order[0]]), float(best / shape.seconds[order[:8]].min())


def summary(pairs: list[tuple[float, float]]) -> str:
    """Geometric means and the worst."""
    first, eight = (float(np.exp(np.mean(np.log(column)))) for column in zip(*pairs, strict=True))
    return f"best/first {first:.3f} (worst {min(p[0] for p in pairs):.3f}), best/first-8 {eight:.3f}"


def main() -> None:
    """Fit on all shapes, then leave one out at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument(
        "--unsplit",
        type=Path,
        nargs="*",
        default=[],
        help="without split-K: a memset was timed with each of those rows",
    )
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--rounds", type=int, default=0, help="0: only score the constants as they stand")
    parser.add_argument("--loo-rounds", type=int, default=0, help="0: skip leave-one-shape-out")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    shapes = [shape for path in args.results for shape in read(path, gpu)]
    shapes += [unsplit(shape) for path in args.unsplit for shape in read(path, gpu)]
    start = np.log([getattr(MEASURED, name) for name in FITTED])
    print(f"as they stand: {summary([choice(s, gpu, start) for s in shapes])}")
    found = fit(shapes, gpu, start, args.rounds)
    if args.rounds:
        print(f"loss {loss(start, shapes, gpu):.4f} -> {loss(found, shapes, gpu):.4f}")
        for name in FITTED:
            print(f"  {name} = {getattr(constants_of(found), name):.4g}")
    pairs = [choice(shape, gpu, found) for shape in shapes]
    for shape, (first, eight) in zip(shapes, pairs, strict=True):
        print(f"  {shape.workload}: {first:.3f} {eight:.3f}")
    print(summary(pairs))
    if args.loo_rounds:
        left = []
        for name in dict.fromkeys(str(shape.workload) for shape in shapes):
            without = fit([s for s in shapes if str(s.workload) != name], gpu, found, args.loo_rounds)
            left += [choice(shape, gpu, without) for shape in shapes if str(shape.workload) == name]
        print(f"left out: {summary(left)}")


if __name__ == "__main__":
    main()
