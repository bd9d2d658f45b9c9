"""Fit the cost model of the backward loop by partial sums to measured loops, and judge it on layers that were left out.

    python -m benchmarks.rnn.fit_partial benchmarks/results/h200/rnn_wgmma_partial.csv --gpu h200
    python -m benchmarks.rnn.fit_partial benchmarks/results/h200/rnn_wgmma_partial.csv --gpu h200 --write

Fits the figures of `constrint/kernels/rnn/wgmma_partial/step.json`, which `--write` replaces, by least squares over the
logarithms of the times of loops, of which those near the fastest of their layer count most. A pull to what is counted
keeps figures that few loops tell of near it. Then each layer is judged by figures that are fitted without it. The table
is by `python -m benchmarks.rnn.measure_wgmma --kernels cuda wgmma_both wgmma_partial --layers 4 --exact`. Needs scipy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.spec import workload_of
from constrint.kernels.rnn.wgmma.spec import (
    HARMLESS_SPILL_BYTES,
    FittedWgmma,
    OutsideFit,
    clock_hz,
    rounds_of,
    write_fitted,
)
from constrint.kernels.rnn.wgmma_partial.shape import PartialLoop
from constrint.kernels.rnn.wgmma_partial.spec import FIGURES, part_columns
from constrint.model import Var

Array = NDArray[np.float64]
#: What figures are pulled to, the weight of the pull, and the least weight of a loop beside the fastest of its layer.
START = dict(zip(FIGURES, (2500.0, 1.5, 1.0, 1.0, 3.0, 300.0, 100.0, 60.0, 50.0), strict=True))
PULL, LEAST_WEIGHT = 0.05, 0.15
KIND = "wgmma_partial"


def measured(gpu: GpuModel, row: Mapping[str, str]) -> tuple[Array, float]:
    """The parts of a loop's step, and its measured clocks."""
    config = {name: int(value) for name, value in (pair.split("=") for pair in row["config"].split())}
    columns: dict[str, Any] = {name: np.array([value]) for name, value in config.items()}
    sizes = int(row["batch"]), int(row["time"]), int(row["heads"]), int(row["dim"])
    workload, cell = workload_of(row["cell"], sizes, row["dtype"], "backward"), CELLS[row["cell"]]
    shape = PartialLoop(cell, workload.sizes["head_dim"], {name: Var(name) for name in columns})
    parts = part_columns(gpu, shape, workload, columns)
    steps = float(rounds_of(gpu, cell, workload, columns)[0]) * workload.sizes["time"]
    return np.array([float(parts[name][0]) for name in FIGURES]), 1e-3 * float(row["ms"]) * clock_hz(gpu) / steps


def fit(parts: Array, clks: Array, weights: Array) -> Array:
    """The figures."""
    from scipy.optimize import least_squares

    start = np.log([START[name] for name in FIGURES])

    def errors(x: Array) -> Array:
        off = np.log(parts @ np.exp(x)) - np.log(clks)
        return np.concatenate([off * weights, PULL * (x - start)])

    return np.asarray(np.exp(least_squares(errors, start).x))


def main() -> None:
    """Fit, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--write", action="store_true", help="replace the figures")
    args = parser.parse_args()
    gpu = load_gpu(args.gpu)
    rows = [row for row in read_rows(args.table) if row["kind"] == KIND and row["outcome"] == "ok"]
    rows = [row for row in rows if json.loads(row["more"])["spill_bytes"] <= HARMLESS_SPILL_BYTES]
    found = [measured(gpu, row) for row in rows]
    parts, clks = np.array([of for of, _ in found]), np.array([clk for _, clk in found])
    layers = np.array([f"{row['cell']} {row['dim']} x {row['batch']}" for row in rows])
    weights = np.array(
        [max(LEAST_WEIGHT, clks[layers == layer].min() / clk) for layer, clk in zip(layers, clks, strict=True)]
    )
    figures = fit(parts, clks, weights)
    print(f"{len(rows)} loops, median error {np.median(np.abs(parts @ figures / clks - 1)):.3f}")
    outside: list[float] = []
    for layer in dict.fromkeys(layers):
        own = layers == layer
        errors = np.abs(parts[own] @ fit(parts[~own], clks[~own], weights[~own]) / clks[own] - 1)
        chosen = int(np.argmin(parts[own] @ figures))
        print(f"{layer}: left out {np.median(errors):.3f}, chosen {clks[own].min() / clks[own][chosen]:.3f}")
        outside += errors.tolist()
    left_out = OutsideFit(round(float(np.median(outside)), 3), round(float(np.quantile(outside, 0.9)), 3))
    print(f"layers that were left out: median error {left_out.median}, nine in ten below {left_out.nine_in_ten}")
    rounded = {name: float(f"{figure:.3g}") for name, figure in zip(FIGURES, figures, strict=True)}
    print(json.dumps(rounded))
    if args.write:
        source = f"fitted: `python -m benchmarks.rnn.fit_partial {args.table} --gpu {args.gpu} --write`"
        write_fitted(FittedWgmma(source, rounded, left_out), "partial")


if __name__ == "__main__":
    main()
