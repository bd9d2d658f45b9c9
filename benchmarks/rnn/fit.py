"""Fit the weights of the recurrent kernels' cost model to measured loops; say how they carry to layers left out.

    python -m benchmarks.rnn.fit benchmarks/results/h200/rnn_space.csv --gpu h200
    python -m benchmarks.rnn.fit benchmarks/results/h200/rnn_space.csv --gpu h200 --leave-out

Prints `WEIGHTS` of `constrint/kernels/rnn/triton/cost.py`, fitted by least squares over the logarithms of loops that do
not spill; slow configurations and how slow a layer is as a whole count less. Layers of `HELD_OUT`
(`benchmarks/harness/workloads.py`) are in no fit. `--leave-out` also judges each layer by weights that are fitted to
the others. `python -m benchmarks.rnn.loops` of commit befc2ab timed the loops. Needs scipy.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.harness.loops import LAYER, OUTLIER, TIME, by_layer, workload_of_row
from benchmarks.harness.workloads import HELD_OUT
from benchmarks.resources.rnn import KEYS
from constrint.hwmodels import GpuModel, assumed, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.triton import cost
from constrint.model import Var
from constrint.select.limits import BlockColumns

DIRECTIONS = ("forward", "backward")
#: Configurations beyond this multiple of the fastest are not fitted; weight of a layer's own level.
NEAR, LEVEL = 2.0, 0.5
NUM = len(cost.FEATURES)


@dataclass(frozen=True)
class Loops:
    """Measured loops of one layer and direction that do not spill."""

    name: str
    direction: str
    is_held_out: bool
    gpu: GpuModel
    layer: Any
    columns: dict[str, NDArray[np.int64]]
    features: dict[str, NDArray[np.float64]]
    rounds: NDArray[np.float64]
    sharing: NDArray[np.float64]
    seconds: NDArray[np.float64]

    @staticmethod
    def of(gpu: GpuModel, values: tuple[str, ...], rows: list[dict[str, str]]) -> Loops:
        """Build from a table's rows."""
        layer = dict(zip(LAYER, values, strict=True))
        workload = workload_of_row(layer)
        spec = load_spec(f"{workload.operation}.triton")
        columns = {key: np.array([int(row[key]) for row in rows]) for key in KEYS}
        which = spec.layer(workload)  # type: ignore[attr-defined]
        blocks = BlockColumns.of(gpu, spec.use(gpu, workload, {key: Var(key) for key in KEYS}), columns).blocks_per_sm
        rounds, sharing = cost.rounds_and_sharing(gpu, workload, columns, blocks)
        held = (layer["cell"], int(layer["batch"]), int(layer["heads"]), int(layer["head_dim"]), layer["dtype"])
        seconds = np.array([float(row["loop_ms"]) for row in rows]) * 1e-3 / TIME
        features = cost.step_features(gpu, which, columns)
        name = " ".join(values[:-1])
        return Loops(name, values[-1], held in HELD_OUT, gpu, which, columns, features, rounds, sharing, seconds)

    def predicted(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Seconds of a step by weights of whole heads, then of split ones."""
        clock = assumed.most_clock_hz(self.gpu).value
        clks = cost.weighted(
            self.features, self.columns["row_split"] > 1, weights[:NUM].tolist(), weights[NUM:].tolist()
        )
        _, own_s, barrier_s = cost.step_s(self.gpu, self.layer, self.columns, clks, self.sharing, clock)
        return np.asarray(self.rounds * (own_s + barrier_s))

    def errors(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weighted logarithmic errors of what is fast, about their mean, and the mean."""
        best = self.seconds.min()
        near = self.seconds < NEAR * best
        error = np.log(self.predicted(weights)[near] / self.seconds[near])
        weight = best / self.seconds[near]
        mean = np.average(error, weights=weight)
        return np.append(np.sqrt(weight) * (error - mean), LEVEL * np.sqrt(weight.sum()) * mean)

    def share(self, weights: NDArray[np.float64]) -> float:
        """Fastest over first choice."""
        return float(self.seconds.min() / self.seconds[np.argmin(self.predicted(weights))])


def read_loops(path: Path, gpu: GpuModel) -> list[Loops]:
    """Every layer and direction of a table."""
    rows = by_layer(path, lambda row: row["outcome"] == "ok" and int(row["spill_bytes"]) == 0)
    return [Loops.of(gpu, values, of_layer) for values, of_layer in rows.items()]


def fit(loops: Sequence[Loops]) -> NDArray[np.float64]:
    """Weights of one direction, none below zero."""
    start = np.full(2 * NUM, 0.5)
    start[[0, NUM]] = 400.0, 1500.0

    def errors(weights: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.concatenate([each.errors(weights) for each in loops])

    scale = np.maximum(start, 0.1)
    found = least_squares(errors, start, bounds=(0, np.inf), loss="soft_l1", f_scale=OUTLIER, x_scale=scale)
    # What no feature of these kernels has keeps its start; what is next to nothing is nothing.
    is_there = [any(_is_there(each, index) for each in loops) for index in range(2 * NUM)]
    return np.where(np.array(is_there) & (found.x > 1e-3 * scale), found.x, 0.0)


def _is_there(loops: Loops, index: int) -> bool:
    is_split = loops.columns["row_split"] > 1
    return bool(np.any(loops.features[cost.FEATURES[index % NUM]][is_split if index >= NUM else ~is_split]))


def fitted(loops: Iterable[Loops]) -> dict[str, NDArray[np.float64]]:
    """Weights of both directions."""
    known = [each for each in loops if not each.is_held_out]
    return {side: fit([each for each in known if each.direction == side]) for side in DIRECTIONS}


def said(what: str, shares: Sequence[float]) -> str:
    """Geometric mean and worst."""
    mean = statistics.geometric_mean(shares)
    return f"# {what}: fastest / first choice {mean:.4f}, worst {min(shares):.3f} of {len(shares)}"


def main() -> None:
    """Fit and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--leave-out", action="store_true", help="judge each layer by a fit without it, too")
    args = parser.parse_args()
    loops = read_loops(args.table, load_gpu(args.gpu))
    weights = fitted(loops)
    for side in DIRECTIONS:
        for is_split, part in ((False, weights[side][:NUM]), (True, weights[side][NUM:])):
            print(f'    ("{side}", {is_split}): ({", ".join(f"{value:.3g}" for value in part)}),')
    for what, is_held_out in (("fitted layers", False), ("held out", True)):
        print(said(what, [e.share(weights[e.direction]) for e in loops if e.is_held_out == is_held_out]))
    if args.leave_out:
        shares = []
        for name in dict.fromkeys(each.name for each in loops if not each.is_held_out):
            others = fitted(each for each in loops if each.name != name)
            shares += [each.share(others[each.direction]) for each in loops if each.name == name]
        print(said("each by a fit without it", shares))


if __name__ == "__main__":
    main()
