"""Fit the cost model of the recurrent CUDA kernels to measured loops, and judge it on sizes that were left out.

    python -m benchmarks.rnn.fit_cuda benchmarks/results/h200/rnn_cuda_space.csv --gpu h200
    python -m benchmarks.rnn.fit_cuda benchmarks/results/h200/rnn_cuda_space.csv --gpu h200 --write

Fits the figures of `constrint/kernels/rnn/cuda/step.json`, which `--write` replaces, by least squares over the
logarithms of the times of loops; slow configurations count less. Then each layer is judged by figures that are fitted
without it and a sixth of the others: the median error of its times, and how fast the configuration is that would be
chosen, as a share of the fastest. `python -m benchmarks.rnn.measure_cuda` makes the table. Needs scipy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.loops import LAYER, TIME, Judgement, by_layer, fitted_figures, print_judged, workload_of_row
from constrint.hwmodels import GpuModel, assumed, load_gpu
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda import cost
from constrint.kernels.rnn.cuda.spec import HARMLESS_SPILL_BYTES, SPECS
from constrint.model import Var
from constrint.select.cost import LAUNCH_S
from constrint.select.limits import BlockColumns

#: Parameters of a kernel, as columns of the table.
KEYS = (
    *("placement", "units", "tile_batch", "num_tiles", "warps_rows", "warps_depth"),
    *("register_pairs", "streamed_pairs", "prefetch", "recompute"),
)
RESULTS = ("registers", "spill_bytes", "smem_bytes", "loop_ms")
#: What a figure starts at; parts that the counts are good for begin at one.
START = {"fixed": 150.0, "cluster": 400.0, "grid": 900.0, "grid_blocks": 1.0, "poll_chain": 30.0, "loads": 1500.0}
#: Parts of the layers, each of which is judged by a fit to the others.
FOLDS = 6
#: Bytes that a thread spills, from and to.
SPILLED = ((0, 0), (1, 32), (33, 64), (65, 128), (129, 256), (257, 999))


@dataclass(frozen=True)
class Loops:
    """Measured loops of one layer and direction."""

    name: str
    direction: str
    parts: dict[str, NDArray[np.float64]]
    columns: dict[str, NDArray[np.int64]]
    rounds: NDArray[np.float64]
    sharing: NDArray[np.float64]
    other_s: NDArray[np.float64]
    seconds: NDArray[np.float64]
    clock_hz: float

    @staticmethod
    def of(gpu: GpuModel, values: tuple[str, ...], rows: list[dict[str, str]]) -> Loops:
        """Of a table's rows."""
        layer = dict(zip(LAYER, values, strict=True))
        workload = workload_of_row(layer)
        (spec,) = (spec for spec in SPECS if spec.operation == workload.operation)
        columns = {key: np.array([int(row[key]) for row in rows]) for key in KEYS}
        cell, direction = CELLS[layer["cell"]], layer["direction"]
        use = spec.use(gpu, workload, {key: Var(key) for key in KEYS})
        blocks = BlockColumns.of(gpu, use, columns).blocks_per_sm
        rounds, sharing = cost.rounds_and_sharing(gpu, cell, direction, workload, columns, blocks)
        filled = cost.filled_bytes(cell, direction, workload, columns)
        return Loops(
            name=" ".join(values[:-1]),
            direction=direction,
            parts=cost.part_columns(gpu, cell, direction, workload, columns),
            columns=columns,
            rounds=rounds,
            sharing=sharing,
            other_s=LAUNCH_S + filled / gpu.memory.dram.bandwidth_bytes_per_s,
            seconds=np.array([float(row["loop_ms"]) for row in rows]) * 1e-3,
            clock_hz=assumed.most_clock_hz(gpu).value,
        )

    def predicted(self, figures: Mapping[str, float]) -> NDArray[np.float64]:
        """Seconds of the whole loop."""
        step = cost.step_clk(self.parts, figures, self.columns, self.sharing)["step"]
        return np.asarray(self.rounds * TIME * step / self.clock_hz + self.other_s)

    def judged(self, figures: Mapping[str, Mapping[str, float]]) -> Judgement:
        """Quality of the figures of both directions on these loops."""
        return Judgement.of(f"{self.name} {self.direction}", self.predicted(figures[self.direction]), self.seconds)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weight of each loop: fast ones count most, those of a layer with many loops less."""
        return np.asarray(np.sqrt(self.seconds.min() / self.seconds / len(self.seconds) ** 0.5))

    @staticmethod
    def joined(loops: Sequence[Loops]) -> Loops:
        """Those of several layers of one direction."""

        def join(of: Callable[[Loops], NDArray[Any]]) -> NDArray[Any]:
            return np.concatenate([np.broadcast_to(of(each), each.seconds.shape) for each in loops])

        first = loops[0]
        return replace(
            first,
            parts={name: join(lambda each, name=name: each.parts[name]) for name in first.parts},  # type: ignore[misc]
            columns={name: join(lambda each, name=name: each.columns[name]) for name in KEYS},  # type: ignore[misc]
            rounds=join(lambda each: each.rounds),
            sharing=join(lambda each: each.sharing),
            other_s=join(lambda each: each.other_s),
            seconds=join(lambda each: each.seconds),
        )


def read_loops(path: Path, gpu: GpuModel, takes: Callable[[Mapping[str, str]], bool] | None = None) -> list[Loops]:
    """Every layer and direction of a table, of the loops that are taken; by default of those that are fitted to."""
    rows = by_layer(path, takes or is_fitted)
    return [Loops.of(gpu, values, of_layer) for values, of_layer in rows.items()]


def is_fitted(row: Mapping[str, str]) -> bool:
    """Whether a loop spills nothing; few that stream weights do not, so of these also what spills harmlessly."""
    return int(row["spill_bytes"]) <= (HARMLESS_SPILL_BYTES if int(row["streamed_pairs"]) else 0)


def print_spilled(path: Path, gpu: GpuModel, figures: Mapping[str, Mapping[str, float]]) -> None:
    """Print measured over predicted times of loops by the bytes that they spill."""
    print("# loops by bytes that a thread spills: how many, measured / predicted (median)")
    for least, most in SPILLED:
        loops = read_loops(path, gpu, lambda row, of=(least, most): of[0] <= int(row["spill_bytes"]) <= of[1])  # type: ignore[misc]
        if loops:
            ratios = np.concatenate([each.seconds / each.predicted(figures[each.direction]) for each in loops])
            print(f"  {least:3} to {most:3}: {len(ratios):5} {np.median(ratios):6.3f}")


def fit(loops: Sequence[Loops]) -> dict[str, float]:
    """Figures of one direction, none below zero."""
    every, weights = Loops.joined(loops), np.concatenate([each.weights for each in loops])

    def errors(figures: Mapping[str, float]) -> NDArray[np.float64]:
        return np.asarray(weights * np.log(every.predicted(figures) / every.seconds))

    return fitted_figures(cost.FIGURES, START, errors, least=1e-3)


def fitted(loops: Iterable[Loops]) -> dict[str, dict[str, float]]:
    """Figures of both directions."""
    every = list(loops)
    return {side: fit([each for each in every if each.direction == side]) for side in ("forward", "backward")}


def left_out(loops: Sequence[Loops]) -> list[Judgement]:
    """Each layer, judged by figures that are fitted without it and a few others."""
    names, judged = list(dict.fromkeys(each.name for each in loops)), []
    for first in range(FOLDS):
        away = set(names[first::FOLDS])
        others = fitted(each for each in loops if each.name not in away)
        judged += [each.judged(others) for each in loops if each.name in away]
    return judged


def main() -> None:
    """Fit and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--write", action="store_true", help="replace the figures in use")
    args = parser.parse_args()
    loops = read_loops(args.table, load_gpu(args.gpu))
    figures = fitted(loops)
    print(json.dumps(figures, indent=1))
    print_judged("fitted to all", [each.judged(figures) for each in loops])
    print_spilled(args.table, load_gpu(args.gpu), figures)
    print_judged("each by a fit without it and some others", left_out(loops))
    if args.write:
        source = f"fitted: `python -m benchmarks.rnn.fit_cuda {args.table} --gpu {args.gpu} --write`"
        cost.write_fitted(cost.FittedCuda(source, figures))
        print(f"wrote {cost.__file__}'s step.json", file=sys.stderr)


if __name__ == "__main__":
    main()
