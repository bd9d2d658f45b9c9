"""Fit the constants of a kernel's cost model to measured configurations; say how they carry to workloads left out.

    R=benchmarks/results/h200
    python -m benchmarks.fit gemm.descriptor $R/gemm_parts_bf16.csv --unsplit $R/gemm_choices_bf16.csv --gpu h200
    python -m benchmarks.fit gemm.pointer $R/gemm_space_bf16.csv --gpu h200 --rounds 500 --leave-out 150

`gemm.*`: what is fitted are the figures of `constrint/kernels/gemm/measured.json` whose source says so (of the pointer
kernel those of `constrint/select/cost.py`), by Nelder-Mead over their logarithms. Without `--rounds` (the descriptor
kernel took 3,000) the constants are only scored as they stand; `--leave-out ROUNDS` also judges each shape by constants
fitted to the others. Needs scipy. What recurrent kernels are fitted by is `benchmarks.rnn.fit`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from benchmarks.harness.space import Measured, read_space
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.descriptor.cost import descriptor_cost
from constrint.kernels.gemm.measured import FILE, MEASURED, MeasuredFile
from constrint.kernels.gemm.pointer.cost import pointer_cost
from constrint.kernels.gemm.product import Product
from constrint.kernels.registry import load_spec
from constrint.model import Var
from constrint.select import cost as general
from constrint.select.limits import BlockColumns

COSTS: dict[str, Callable[..., general.CostColumns]] = {
    "gemm.pointer": pointer_cost,
    "gemm.descriptor": descriptor_cost,
}
#: What the pointer kernel's model takes from `select/cost.py`, and the vendor's figure.
GENERAL = ("LAUNCH_S", "ITERATION_CLK", "CLK_PER_LOAD", "L2_PORT_BYTES_PER_CLK", "BLOCK_START_S")
FIGURE = "dram_latency_s"
#: Fast configurations count most: a row weighs (best / its time) to this power.
POWER = {"gemm.pointer": 2}
USUAL_POWER = 5
#: Relative difference of predicted times that decides a choice, for the time lost by choosing.
DECISIVE = 0.01


@dataclass(frozen=True)
class Shape:
    """One product's configurations of a kernel, with their blocks per SM and measured seconds."""

    product: Product
    columns: dict[str, NDArray[np.int64]]
    blocks_per_sm: NDArray[Any]
    seconds: NDArray[np.float64]


@dataclass(frozen=True)
class Model:
    """A kernel's cost on one GPU as a function of the logarithms of its constants."""

    kernel: str
    gpu: GpuModel
    names: tuple[str, ...]

    @staticmethod
    def of(kernel: str, gpu: GpuModel) -> Model:
        """With the constants that are fitted."""
        if kernel == "gemm.pointer":
            return Model(kernel, gpu, (*GENERAL, FIGURE, "split_finish_s"))
        entries = msgspec.json.decode(FILE.read_bytes(), type=MeasuredFile).constants
        own = kernel.removeprefix("gemm.")
        is_fitted = {name: own in e.kernels and e.source.startswith("fitted") for name, e in entries.items()}
        return Model(kernel, gpu, tuple(name for name, fitted in is_fitted.items() if fitted))

    def start(self) -> NDArray[np.float64]:
        """The constants as they stand."""
        values = {name: getattr(general, name) for name in GENERAL} | {FIGURE: self.gpu.figure(FIGURE)}
        return np.log([values.get(name) or getattr(MEASURED, name) for name in self.names])

    def constants(self, logs: NDArray[np.float64]) -> dict[str, float]:
        """The constants by name."""
        return dict(zip(self.names, np.exp(logs).tolist(), strict=True))

    def seconds(self, shape: Shape, logs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted time of every row."""
        values = self.constants(logs)
        own = replace(MEASURED, **{name: value for name, value in values.items() if hasattr(MEASURED, name)})
        with _installed(self.gpu, values):
            cost = COSTS[self.kernel](self.gpu, shape.product, shape.columns, shape.blocks_per_sm, constants=own)
        return cost.seconds

    def read(self, path: Path, *, is_unsplit: bool) -> list[Shape]:
        """The kernel's rows of a table; those that differ in the order of tiles alone count once."""
        shapes = []
        for measured in read_space(path):
            for kernel, rows in measured.by_kernel():
                if kernel == self.kernel:
                    rows = rows[_one_order(measured, rows)]
                    if is_unsplit and "split_k" in measured.columns:
                        rows = rows[measured.columns["split_k"][rows] == 1]
                    shapes.append(self._shape(measured, rows))
        return shapes

    def _shape(self, measured: Measured, rows: NDArray[np.int64]) -> Shape:
        columns = measured.of_rows(rows)
        use = load_spec(self.kernel).use(self.gpu, measured.workload, {name: Var(name) for name in columns})
        blocks = BlockColumns.of(self.gpu, use, columns).blocks_per_sm
        return Shape(Product.of(measured.workload), columns, blocks, 1e-6 * measured.time_us()[rows])


@contextmanager
def _installed(gpu: GpuModel, values: dict[str, float]) -> Iterator[None]:
    """The model with other general constants, for as long as the block lasts."""
    with ExitStack() as stack:
        for name in GENERAL:
            if name in values:
                stack.enter_context(mock.patch.object(general, name, values[name]))
        if FIGURE in values:
            known = gpu.figure
            ours = lambda _, name: values[FIGURE] if name == FIGURE else known(name)  # noqa: E731
            stack.enter_context(mock.patch.object(type(gpu), "figure", ours))
        yield


def _one_order(measured: Measured, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Among rows that differ in the order of tiles alone, take the order of most grids, else the first."""
    columns = measured.of_rows(rows)
    order = np.argsort(columns["group_m"] != 8, kind="stable")
    points = np.stack([column[order] for name, column in columns.items() if name != "group_m"], axis=1)
    _, first = np.unique(points, axis=0, return_index=True)
    return np.sort(order[first])


def loss(logs: NDArray[np.float64], model: Model, shapes: list[Shape]) -> float:
    """Mean absolute log error; but for the pointer kernel about each shape's own mean, with what choosing loses."""
    total = 0.0
    for shape in shapes:
        seconds, best = model.seconds(shape, logs), shape.seconds.min()
        weight = (best / shape.seconds) ** POWER.get(model.kernel, USUAL_POWER)
        error = np.log(seconds / shape.seconds)
        mean = 0.0
        if model.kernel not in POWER:
            chosen = np.exp((1 - seconds / seconds.min()) / DECISIVE)
            mean = float(np.average(error, weights=weight))
            total += float(np.average(shape.seconds / best - 1, weights=chosen)) + 0.25 * abs(mean)
        total += float(np.average(np.abs(error - mean), weights=weight))
    return total / len(shapes)


def fit(model: Model, shapes: list[Shape], start: NDArray[np.float64], rounds: int) -> NDArray[np.float64]:
    """Nelder-Mead in log space."""
    options = {"maxfev": rounds, "adaptive": True, "xatol": 1e-3, "fatol": 1e-5}
    return np.asarray(
        minimize(partial(loss, model=model, shapes=shapes), start, method="Nelder-Mead", options=options).x
    )


def choice(model: Model, shape: Shape, logs: NDArray[np.float64]) -> tuple[float, float]:
    """best/first and best/first-8."""
    order = np.argsort(model.seconds(shape, logs), kind="stable")
    best = shape.seconds.min()
    return float(best / shape.seconds[order[0]]), float(best / shape.seconds[order[:8]].min())


def summary(pairs: list[tuple[float, float]]) -> str:
    """Geometric means and the worst."""
    first, eight = (float(np.exp(np.mean(np.log(column)))) for column in zip(*pairs, strict=True))
    return f"best/first {first:.3f} (worst {min(p[0] for p in pairs):.3f}), best/first-8 {eight:.3f}"


def fit_gemm(args: argparse.Namespace, gpu: GpuModel) -> None:
    """Fit on all shapes, then leave one out at a time."""
    model = Model.of(args.kernel, gpu)
    shapes = [shape for path in args.results for shape in model.read(path, is_unsplit=False)]
    shapes += [shape for path in args.unsplit for shape in model.read(path, is_unsplit=True)]
    logs = start = model.start()
    print(f"as they stand: {summary([choice(model, shape, start) for shape in shapes])}")
    if args.rounds:
        logs = fit(model, shapes, start, args.rounds)
        print(f"loss {loss(start, model, shapes):.4f} -> {loss(logs, model, shapes):.4f}")
        for name, value in model.constants(logs).items():
            print(f"  {name} = {value:.4g}")
    for shape in shapes:
        first, eight = choice(model, shape, logs)
        print(f"  {shape.product.workload}: {first:.3f} {eight:.3f}")
    print(summary([choice(model, shape, logs) for shape in shapes]))
    if args.leave_out:
        left = []
        for product in dict.fromkeys(shape.product for shape in shapes):
            others = fit(model, [s for s in shapes if s.product != product], logs, args.leave_out)
            left += [choice(model, shape, others) for shape in shapes if shape.product == product]
        print(f"left out: {summary(left)}")


def main() -> None:
    """Fit one kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", choices=list(COSTS))
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--unsplit", type=Path, nargs="*", default=[], help="tables of which split K is left out")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--rounds", type=int, default=0, help="0: only score the constants as they stand")
    parser.add_argument("--leave-out", type=int, default=0, help="rounds of the fits without one shape; 0: none")
    args = parser.parse_args()
    fit_gemm(args, load_gpu(args.gpu))


if __name__ == "__main__":
    main()
