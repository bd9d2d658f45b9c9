"""The cost model of the recurrent kernels against a measured table: fit its weights, and score its choices."""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from typing import Any

import numpy as np

KEYS = ("tile_batch", "tile_out", "row_split", "num_warps", "num_stages", "split_depth", "recompute")
TIME = 1024
#: Steps beyond this are no candidates.
SLOWEST_S = 10e-6


def nonnegative_least_squares(a: Any, y: Any, sweeps: int = 4000) -> Any:
    """argmin |a x - y| over x >= 0, one coordinate at a time."""
    gram, right = a.T @ a, a.T @ y
    x = np.zeros(a.shape[1])
    for _ in range(sweeps):
        for j in range(len(x)):
            if gram[j, j] > 0:
                x[j] = max(0.0, x[j] + (right[j] - gram[j] @ x) / gram[j, j])
    return x


def layer_of(row: dict[str, Any]) -> Any:
    """The layer of a row."""
    from constrint.kernels.rnn.cells import CELLS
    from constrint.kernels.rnn.spec import workload_of
    from constrint.kernels.rnn.triton.layer import Layer

    sizes = (row["batch"], TIME, row["heads"], row["head_dim"])
    workload = workload_of(row["cell"], sizes, row["dtype"], row["direction"])
    return Layer.of(CELLS[row["cell"]], row["direction"], workload)


def columns_of(row: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a row as columns of one entry."""
    return {key: np.array([row[key]]) for key in KEYS}


def fit(args: argparse.Namespace) -> None:
    """Print the weights that fit the loops' times best, relative errors squared."""
    from bench_rnn_space import read_rows

    from constrint.hwmodels import load_gpu
    from constrint.kernels.rnn.triton import cost

    gpu = load_gpu(args.gpu)
    clock = float(gpu.device.max_clock_hz or gpu.device.boost_clock_hz or cost.ASSUMED_CLOCK_HZ)
    for side, split in cost.WEIGHTS:
        design, target = [], []
        for row in read_rows(args.results):
            layer, columns = layer_of(row), columns_of(row)
            if row["direction"] != side or (row["row_split"] > 1) != split or rounds_of(gpu, row) > 1:
                continue
            barrier_s, loads_s = cost.waits_s(gpu, layer, columns)
            step_s = float(row["loop_ms"]) * 1e-3 / TIME
            if (loads_s[0] > 0 and (row["num_stages"] < 3 or step_s < 1.15 * loads_s[0])) or step_s > SLOWEST_S:
                continue  # waits for its loads, or is so slow that it spills
            features = cost.step_features(gpu, layer, columns)
            design.append([float(features[name][0]) for name in cost.FEATURES])
            target.append((step_s - float(barrier_s[0])) * clock)
        scale = 1.0 / np.array(target)
        x = nonnegative_least_squares(np.array(design) * scale[:, None], np.ones(len(target)))
        error = np.abs(np.array(design) @ x * scale - 1.0)
        print(
            f"# {len(target)} rows, error {np.median(error):.1%} (median), {np.quantile(error, 0.9):.1%} (nine in ten)"
        )
        print(f'    ("{side}", {split}): ({", ".join(f"{v:.3g}" for v in x)}),')


def rounds_of(gpu: Any, row: dict[str, Any]) -> float:
    """Launches, or waves of programs, one after the other."""
    groups = row["heads"] * -(-row["batch"] // row["tile_batch"])
    return max(1.0, float(np.ceil(groups / max(1, gpu.device.sm_count // row["row_split"]))))


def score(args: argparse.Namespace) -> None:
    """Print, per layer and direction, how the model orders the valid configurations, beside the measured times."""
    from bench_rnn_space import read_rows

    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import load_spec
    from constrint.kernels.rnn.spec import workload_of
    from constrint.select.rank import predict

    gpu = load_gpu(args.gpu)
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in read_rows(args.results):
        groups[tuple(row[k] for k in ("cell", "heads", "head_dim", "dtype", "batch", "direction"))].append(row)
    shares, ratios = [], []
    print(
        "cell heads x dim dtype batch direction     configs  valid  best ms  first ms  best/first  predicted/measured"
    )
    for (cell, heads, dim, dtype, batch, direction), rows in groups.items():
        workload = workload_of(cell, (batch, TIME, heads, dim), dtype, direction)
        spec = load_spec(f"{workload.operation}.triton")
        columns = {key: np.array([r[key] for r in rows]) for key in KEYS}
        problem = spec.problem(gpu, workload)
        predicted = predict(spec, gpu, workload, columns).seconds * 1e3
        measured = np.array([float(r["whole_ms"]) for r in rows])
        is_valid = np.array([all(c.holds({key: r[key] for key in KEYS}) for c in problem.constraints) for r in rows])
        first = measured[int(np.argmin(np.where(is_valid, predicted, np.inf)))]
        shares.append(measured.min() / first)
        ratios.append(float(np.median(predicted / measured)))
        print(
            f"{cell:6s} {heads:2d}x{dim:<4d} {dtype:5s} {batch:3d} {direction:9s} {len(rows):10d} {is_valid.sum():6d} "
            f"{measured.min():8.2f} {first:9.2f} {shares[-1]:11.2f} {ratios[-1]:14.2f}"
        )
    print(
        f"geometric mean best/first: {statistics.geometric_mean(shares):.3f}, worst {min(shares):.2f}; "
        f"predicted/measured: {min(ratios):.2f} to {max(ratios):.2f}"
    )
