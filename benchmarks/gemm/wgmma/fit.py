"""Fit the constants of the CUDA GEMM's cost model to random products, and judge them on products that they never saw.

    python -m benchmarks.gemm.wgmma.fit benchmarks/results/h200/gemm_cuda_explored.csv.gz --gpu h200
    python -m benchmarks.gemm.wgmma.fit benchmarks/results/h200/gemm_cuda_explored.csv.gz --gpu h200 --write

The table is what `benchmarks.gemm.wgmma.run explore` wrote. Shapes that the project names are judged and never fitted:
what `--write` puts into `constrint/kernels/gemm/cuda/constants.json` is fitted to random products alone, and each of
these is judged by a fit without it. A first choice is the measured time of the configuration that is predicted to be
the fastest of those that were timed; its share is the fastest time over that.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchmarks.gemm.wgmma.run import SHAPES
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.cuda import constants as files
from constrint.kernels.gemm.cuda.constants import CONSTANTS, Constants, ConstantsFile
from constrint.kernels.gemm.cuda.cost import CudaModel
from constrint.kernels.gemm.cuda.rules import size_rules
from constrint.kernels.gemm.grid_rules import COLUMNS
from constrint.kernels.gemm.product import Operand, Product
from constrint.kernels.gemm.units import LINE_BYTES

#: Columns of a table that are parameters of the same meaning, whichever way the tile lies.
SAME = {"num_stages": "stages", "group_m": "group", "split_k": "parts"}
SAME |= {name: name for name in ("consumers", "by_columns", "in_turns", "turned", "only_last")}
#: Clusters of four that are resident at once, of the 33 that `explore` launched.
RESIDENT_FOURS = 30
#: Relative error from which on a configuration counts less than its square.
OUTLIER = 0.1
#: A constant that times say nothing of stays where it was: what a change by a factor of e costs, in rows.
PRIOR = 0.3
#: Iterations of a fit, the smallest step that is taken, and by how much a constant is moved to see what it does.
ITERATIONS, LEAST_STEP, NUDGE = 40, 1e-4, 1e-3


@dataclass(frozen=True)
class Measured:
    """Timed configurations of one product.

    Args:
        product: The product.
        layout: How A and B lie, by rows or columns.
        columns: Parameters of the kernel, per configuration.
        seconds: Times of its kernel alone, with a cold L2.
        library_s: The time of torch's own product.
    """

    product: Product
    layout: str
    columns: Mapping[str, NDArray[np.int64]]
    seconds: NDArray[np.float64]
    library_s: float

    @property
    def name(self) -> str:
        """Sizes and layout."""
        return f"{self.product.m}x{self.product.n}x{self.product.k} {self.layout}"

    @property
    def is_named(self) -> bool:
        """Whether it is one of the shapes that the project names."""
        return (self.product.m, self.product.n, self.product.k) in SHAPES

    @property
    def weights(self) -> NDArray[np.float64]:
        """How much each configuration counts: fast ones most, and every product the same."""
        return np.asarray((self.seconds.min() / self.seconds) / len(self.seconds) ** 0.5)

    def predicted(self, gpu: GpuModel, constants: Constants) -> NDArray[np.float64]:
        """Predicted seconds."""
        return CudaModel(gpu, self.product, self.columns, constants).cost(self.product).seconds


@dataclass(frozen=True)
class Judgement:
    """How constants do on one product: errors of times, and how fast the first choice is.

    Args:
        name: The product's.
        errors: Relative errors of predicted times.
        share: The fastest time over that of the first choice.
        bias: Predicted over measured time of the fastest, less one.
        chosen, best: What is chosen, and what was fastest.
    """

    name: str
    errors: NDArray[np.float64]
    share: float
    bias: float
    chosen: str
    best: str

    @staticmethod
    def of(measured: Measured, predicted: NDArray[np.float64]) -> Judgement:
        """Of one product."""
        first, best = int(np.argmin(predicted)), int(np.argmin(measured.seconds))
        return Judgement(
            measured.name,
            np.abs(predicted / measured.seconds - 1),
            float(measured.seconds[best] / measured.seconds[first]),
            float(predicted[best] / measured.seconds[best] - 1),
            *(described(measured, row, predicted[row]) for row in (first, best)),
        )


def described(measured: Measured, row: int, predicted_s: float) -> str:
    """A configuration in words."""
    c = {name: int(column[row]) for name, column in measured.columns.items()}
    schedule = "turns" if c["in_turns"] else f"{c['consumers'] // c['by_columns']}x{c['by_columns']}"
    cluster = f"{c['cluster_m']}x{c['cluster_n']}"
    text = f"{c['tile_m']}x{c['tile_n']}x{c['num_stages']} {schedule} cluster {cluster}" + " turned" * c["turned"]
    parts = f" {c['split_k']} parts" if c["split_k"] > 1 else ""
    return f"{text}{parts}: {measured.seconds[row] * 1e6:.1f} us, predicted {predicted_s * 1e6:.1f}"


def read_measured(path: Path, gpu: GpuModel) -> list[Measured]:
    """Every product of a table, with those of its configurations that the kernel's space has, timed as it launches."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    with opened as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    by_product: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        if row["us"] and row["resident"] == "1":
            by_product[tuple(row[name] for name in ("m", "n", "k", "dtype", "layout"))].append(row)
    return [_kept(gpu, _measured(rows)) for rows in by_product.values()]


def _kept(gpu: GpuModel, measured: Measured) -> Measured:
    """Without tiles of nothing but padding, and without clusters of four of which some waited for others to end."""
    p, c = measured.product, measured.columns
    cluster = c["cluster_m"] * c["cluster_n"]
    tiles = -(-p.m // (c["tile_m"] * c["cluster_m"])) * -(-p.n // (c["tile_n"] * c["cluster_n"]))
    holds = (cluster < 4) | (tiles * c["split_k"] <= RESIDENT_FOURS)
    for rule in size_rules(gpu, p, {name: column for name, column in c.items() if name != "group_m"}, COLUMNS):
        holds = holds & rule.condition
    return replace(measured, columns={name: column[holds] for name, column in c.items()}, seconds=measured.seconds[holds])


def _measured(rows: Sequence[Mapping[str, str]]) -> Measured:
    def column(name: str) -> NDArray[np.int64]:
        return np.array([int(row[name]) if row[name].isdigit() else row[name] == "True" for row in rows], np.int64)

    first, turned = rows[0], column("turned") > 0
    columns = {name: column(other) for name, other in SAME.items()}
    for name, sides in {"tile_{}": ("rows", "columns"), "cluster_{}": ("cluster_rows", "cluster_columns")}.items():
        of_rows, of_columns = (column(side) for side in sides)
        columns[name.format("m")] = np.where(turned, of_columns, of_rows)
        columns[name.format("n")] = np.where(turned, of_rows, of_columns)
    m, n, k = (int(first[name]) for name in "mnk")
    by_rows = [letter == "r" for letter in first["layout"]]
    a = Operand(step_bytes=_step_bytes(k if by_rows[0] else m), is_k_major=by_rows[0])
    b = Operand(step_bytes=_step_bytes(n if by_rows[1] else k), is_k_major=not by_rows[1])
    product = Product(m, n, k, first["dtype"], a, b, output_bytes=2)
    seconds = np.array([float(row["us"]) for row in rows]) * 1e-6
    return Measured(product, first["layout"], columns, seconds, float(first["cublas_us"]) * 1e-6)


def _step_bytes(length: int) -> int:
    """What addresses of rows of 16-bit elements are multiples of, up to a line, as `run.operands` lays them out."""
    return math.gcd(-(-length // 16) * 32, LINE_BYTES)


def fit(gpu: GpuModel, measured: Sequence[Measured], names: Sequence[str], start: Constants) -> Constants:
    """Constants by robust least squares over the logarithms of times, in steps of the constants' logarithms."""
    weights = np.concatenate([each.weights for each in measured])
    truth = np.log(np.concatenate([each.seconds for each in measured]))
    begin = np.log([getattr(start, name) for name in names])

    def made(at: NDArray[np.float64]) -> Constants:
        return replace(start, **dict(zip(names, np.exp(at).tolist(), strict=True)))

    def errors(at: NDArray[np.float64]) -> NDArray[np.float64]:
        constants = made(at)
        return np.asarray(np.log(np.concatenate([each.predicted(gpu, constants) for each in measured])) - truth)

    prior = PRIOR * OUTLIER * float(np.sqrt(np.mean(weights**2)))

    def loss(error: NDArray[np.float64], at: NDArray[np.float64]) -> float:
        each = 2 * OUTLIER**2 * (np.sqrt(1 + (error / OUTLIER) ** 2) - 1)
        return float(np.sum(weights**2 * each) + np.sum((prior * (at - begin)) ** 2))

    at, damping = begin.copy(), 1e-2
    error = errors(at)
    for _ in range(ITERATIONS):
        slopes = np.stack([(errors(at + NUDGE * unit) - error) / NUDGE for unit in np.eye(len(names))], axis=1)
        counts = weights**2 / np.sqrt(1 + (error / OUTLIER) ** 2)
        normal = slopes.T @ (counts[:, None] * slopes) + prior**2 * np.eye(len(names))
        downhill = -(slopes.T @ (counts * error) + prior**2 * (at - begin))
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), downhill)
            step = np.clip(step, -0.5, 0.5)
            tried = errors(at + step)
            if loss(tried, at + step) < loss(error, at):
                break
            damping *= 4
        else:
            break
        at, error, damping = at + step, tried, max(damping / 4, 1e-6)
        if np.abs(step).max() < LEAST_STEP:
            break
    return made(at)
