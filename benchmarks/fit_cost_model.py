"""Fit the constants of the pointer kernel's cost model to measured configurations; say how they carry to new shapes.

    python benchmarks/fit_cost_model.py benchmarks/results/h200/gemm_space_bf16.csv --gpu h200 --column median_us
    python benchmarks/fit_cost_model.py benchmarks/results/h200/gemm_choices_bf16.csv --gpu h200 --rounds 0

Fits to the rows of the pointer kernel (`descriptor` 0, or a table without that column), all shapes at once, and prints
the constants; they stand in `constrint/select/cost.py` and `constrint/kernels/gemm/cost.py`, rounded, as the first
table gave them (the exponent of `overlap` is chosen). Then best/first and best/first-8 over the rows of both kernels,
before and after, so that with --rounds 0 a table judges constants that were not fitted to it; and, leaving one shape
out at a time, over the pointer kernel's rows of the shape left out. Needs scipy.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from constrint.hwmodels import GpuModel, get_vendor, load_gpu
from constrint.hwmodels.vendors.interface import Figure
from constrint.kernels.gemm import cost as gemm_cost
from constrint.kernels.registry import load_kernel
from constrint.model import Problem
from constrint.select import KernelSpec, Workload
from constrint.select import cost as cost_model
from constrint.select.rank import predict

KEYS = ("tile_m", "tile_n", "tile_k", "num_warps", "num_stages", "split_k", "persistent", "group_m")
BOTH_KEYS = (*KEYS, "descriptor", "epilogue_subtile", "producer")
CONSTANTS = (
    "LAUNCH_S",
    "DRAM_LATENCY_S",
    "ITERATION_CLK",
    "CLK_PER_LOAD",
    "L2_PORT_BYTES_PER_CLK",
    "BLOCK_START_S",
    "SPLIT_FINISH_S",
)


@dataclass(frozen=True)
class Shape:
    """Measured rows of one shape."""

    workload: Workload
    problem: Problem
    columns: dict[str, np.ndarray]
    measured_us: np.ndarray

    def rows(self, chosen: np.ndarray) -> Shape:
        """Some of the rows."""
        columns = {name: column[chosen] for name, column in self.columns.items()}
        return Shape(self.workload, self.problem, columns, self.measured_us[chosen])


class Fitter:
    """A kernel's cost model on one GPU, with the constants that are fitted."""

    def __init__(self, gpu: GpuModel, spec: KernelSpec) -> None:
        self.gpu, self.spec = gpu, spec

    def load(self, path: Path, column: str) -> list[Shape]:
        """Rows that ran, per shape."""
        with path.open() as file:
            dtype = next(word for word in file.readline().split(", ") if word in ("bf16", "fp16"))
            rows = [r for r in csv.DictReader(file) if r["outcome"] == "ok" and float(r[column]) > 0]
        shapes = []
        for sizes in dict.fromkeys((r["m"], r["n"], r["k"]) for r in rows):
            here = [r for r in rows if (r["m"], r["n"], r["k"]) == sizes]
            workload = Workload("gemm", dict(zip("mnk", map(int, sizes), strict=True)), dtype)
            columns = {key: np.array([int(r.get(key) or key == "epilogue_subtile") for r in here]) for key in BOTH_KEYS}
            measured = np.array([float(r[column]) for r in here])
            shapes.append(Shape(workload, self.spec.problem(self.gpu, workload), columns, measured))
        return shapes

    def predicted_us(self, shape: Shape) -> np.ndarray:
        """What the model says with the constants installed."""
        return predict(self.spec, self.gpu, shape.workload, shape.problem, shape.columns).seconds * 1e6

    def loss(self, values: np.ndarray, shapes: list[Shape]) -> float:
        """Mean absolute log error per shape, fast configurations counting most."""
        if np.any(values <= 0):
            return 1e9
        install(values)
        total = 0.0
        for shape in shapes:
            weight = (shape.measured_us.min() / shape.measured_us) ** 2
            error = np.abs(np.log(self.predicted_us(shape) / shape.measured_us))
            total += float(np.sum(weight * error) / np.sum(weight))
        return total / len(shapes)

    def fit(self, shapes: list[Shape], start: np.ndarray, rounds: int) -> np.ndarray:
        """Nelder-Mead in log space."""
        found = minimize(
            lambda x: self.loss(np.exp(x), shapes), np.log(start), method="Nelder-Mead", options={"maxfev": rounds}
        )
        return np.asarray(np.exp(found.x))

    def choice(self, shape: Shape) -> tuple[float, float]:
        """best/first and best/first-8 with the installed constants."""
        order = np.argsort(self.predicted_us(shape), kind="stable")
        best = shape.measured_us.min()
        return best / shape.measured_us[order[0]], best / shape.measured_us[order[:8]].min()


def current() -> np.ndarray:
    """The constants as they stand."""
    return np.array(
        [
            cost_model.LAUNCH_S,
            load_gpu("h200").figure("dram_latency_s"),
            cost_model.ITERATION_CLK,
            cost_model.CLK_PER_LOAD,
            cost_model.L2_PORT_BYTES_PER_CLK,
            cost_model.BLOCK_START_S,
            gemm_cost.SPLIT_FINISH_S,
        ]
    )


def install(values: np.ndarray) -> None:
    """Put constants into the model."""
    modules: list[Any] = [cost_model, None, *[cost_model] * 4, gemm_cost]
    for module, name, value in zip(modules, CONSTANTS, values, strict=True):
        if module is None:
            figures: Any = get_vendor("nvidia").figures()
            figures["dram_latency_s"] = Figure(float(value), "fitted just now")
        else:
            setattr(module, name, float(value))


def summary(shares: list[tuple[float, float]]) -> str:
    """Geometric means and the worst shape."""
    first, eight = np.array(shares).T
    means = np.exp(np.mean(np.log([first, eight]), axis=1))
    return f"best/first {means[0]:.3f} (worst {first.min():.3f}), best/first-8 {means[1]:.3f}"


def main() -> None:
    """Fit on all shapes, then leave one out at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--column", default="cold_us", help="measured times to fit to")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--leave-one-out", action="store_true")
    args = parser.parse_args()
    fitter = Fitter(load_gpu(args.gpu), load_kernel("gemm"))
    shapes = fitter.load(args.results, args.column)
    pointer = [s.rows(s.columns["descriptor"] == 0) for s in shapes if np.sum(s.columns["descriptor"] == 0) >= 8]
    start = current()
    print(f"as it stands: {summary([fitter.choice(shape) for shape in shapes])}")
    print(f"pointer kernel: {summary([fitter.choice(shape) for shape in pointer])}")
    if not args.rounds:
        return
    best = fitter.fit(pointer, start, args.rounds)
    before, after = fitter.loss(start, pointer), fitter.loss(best, pointer)
    print(f"pointer kernel, {len(pointer)} shapes: loss {before:.3f} -> {after:.3f}")
    for name, value in zip(CONSTANTS, best, strict=True):
        print(f"  {name} = {value:.4g}")
    print(f"pointer kernel, fitted on all: {summary([fitter.choice(shape) for shape in pointer])}")
    print(f"both kernels, fitted on all: {summary([fitter.choice(shape) for shape in shapes])}")
    for shape in shapes:
        print(f"  {shape.workload}: {fitter.choice(shape)[0]:.3f}")
    if args.leave_one_out:
        left = []
        for i, shape in enumerate(pointer):
            install(fitter.fit(pointer[:i] + pointer[i + 1 :], best, args.rounds // 2))
            left.append(fitter.choice(shape))
        print(f"pointer kernel, shape left out: {summary(left)}")


if __name__ == "__main__":
    main()
