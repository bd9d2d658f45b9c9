"""Fit the cost model of the recurrent CUDA kernels to measured loops, and judge it on sizes that were left out.

    python -m benchmarks.rnn.fit_cuda benchmarks/results/h200/rnn_cuda_space.csv --gpu h200
    python -m benchmarks.rnn.fit_cuda benchmarks/results/h200/rnn_cuda_space.csv --gpu h200 --rows new.jsonl --write

Fits the figures of `constrint/kernels/rnn/cuda/step.json`, which `--write` replaces, by least squares over the
logarithms of the times of loops; slow configurations count less. Then each layer is judged by figures that are fitted
without it and a sixth of the others: the median error of its times, and how fast the configuration is that would be
chosen, as a share of the fastest. `--rows` first makes the table anew of lines of JSON with the macros of a kernel
(`c`), `B`, `N`, `save` and `ms`. Needs scipy.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel, load_gpu, nulls
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.cuda import cost
from constrint.kernels.rnn.cuda.shape import (
    DTYPE_NUMBERS,
    FENCE,
    GRID,
    RING,
    STREAMING_WINDOW,
    VECTOR_BYTES,
    VECTORS_OF_PAIR,
    WINDOW,
)
from constrint.kernels.rnn.cuda.spec import HARMLESS_SPILL_BYTES, SPECS
from constrint.kernels.rnn.spec import workload_of
from constrint.model import Var
from constrint.select import Workload
from constrint.select.core_space import BlockColumns
from constrint.select.cost import LAUNCH_S
from constrint.select.workload import ELEMENT_BYTES

TIME = 1024
DTYPES = {number: name for name, number in DTYPE_NUMBERS.items()}
LAYER = ("cell", "batch", "heads", "head_dim", "dtype", "direction")
#: Macro of the device code -> column of the table.
MACROS = {
    "PLACEMENT": "placement",
    "UNITS": "units",
    "TILE_BATCH": "tile_batch",
    "TILES": "num_tiles",
    "WARPS_ROWS": "warps_rows",
    "WARPS_DEPTH": "warps_depth",
    "REGISTER_PAIRS": "register_pairs",
    "STREAMED_PAIRS": "streamed_pairs",
    "PREFETCH": "prefetch",
}
KEYS = (*MACROS.values(), "recompute")
#: Macros that no configuration changes: loops that were timed with other values are left out.
USUAL = {"WINDOW": WINDOW, "RING": RING, "FENCE": FENCE}
RESULTS = ("registers", "spill_bytes", "smem_bytes", "loop_ms")
#: What a figure starts at; parts that the counts are good for begin at one.
START = {"fixed": 150.0, "cluster": 400.0, "grid": 900.0, "grid_blocks": 1.0, "poll_chain": 30.0, "loads": 1500.0}
#: Parts of the layers, each of which is judged by a fit to the others.
FOLDS = 6
#: Bytes that a thread spills, from and to.
SPILLED = ((0, 0), (1, 32), (33, 64), (65, 128), (129, 256), (257, 999))
#: Relative error from which on a configuration counts less than its square.
OUTLIER = 0.1


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
            clock_hz=nulls.most_clock_hz(gpu).value,
        )

    def predicted(self, figures: Mapping[str, float]) -> NDArray[np.float64]:
        """Seconds of the whole loop."""
        step = cost.step_clk(self.parts, figures, self.columns, self.sharing)["step"]
        return np.asarray(self.rounds * TIME * step / self.clock_hz + self.other_s)

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


@dataclass(frozen=True)
class Judgement:
    """Quality of figures on one layer and direction: errors of the times, and fastest over chosen."""

    name: str
    median_error: float
    worst_error: float
    share: float

    @staticmethod
    def of(loops: Loops, figures: Mapping[str, float]) -> Judgement:
        """Of measured loops."""
        predicted = loops.predicted(figures)
        error = np.abs(predicted / loops.seconds - 1.0)
        share = float(loops.seconds.min() / loops.seconds[int(np.argmin(predicted))])
        name = f"{loops.name} {loops.direction}"
        return Judgement(name, float(np.median(error)), float(error.max()), share)


def workload_of_row(row: Mapping[str, str]) -> Workload:
    """The layer and direction of a row."""
    sizes = (int(row["batch"]), TIME, int(row["heads"]), int(row["head_dim"]))
    return workload_of(row["cell"], sizes, row["dtype"], row["direction"])


def read_loops(path: Path, gpu: GpuModel, takes: Callable[[Mapping[str, str]], bool] | None = None) -> list[Loops]:
    """Every layer and direction of a table, of the loops that are taken; by default of those that are fitted to."""
    by_layer: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in read_rows(path):
        if (takes or is_fitted)(row):
            by_layer[tuple(row[name] for name in LAYER)].append(row)
    return [Loops.of(gpu, values, rows) for values, rows in by_layer.items()]


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
    start = np.array([START.get(name, 1.0) for name in cost.FIGURES])
    every, weights = Loops.joined(loops), np.concatenate([each.weights for each in loops])

    def errors(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        figures = dict(zip(cost.FIGURES, scaled * start, strict=True))
        return np.asarray(weights * np.log(every.predicted(figures) / every.seconds))

    found = least_squares(errors, np.ones(len(start)), bounds=(0, np.inf), loss="soft_l1", f_scale=OUTLIER)
    return {
        n: float(f"{value:.3g}") if value > 1e-3 else 0.0
        for n, value in zip(cost.FIGURES, found.x * start, strict=True)
    }


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
        judged += [Judgement.of(each, others[each.direction]) for each in loops if each.name in away]
    return judged


def print_judged(what: str, judged: Sequence[Judgement]) -> None:
    """A line for each, and a summary."""
    print(f"# {what}: median and largest error of times, fastest / chosen")
    for each in judged:
        print(f"  {each.name:40} {each.median_error:6.1%} {each.worst_error:6.1%} {each.share:6.3f}")
    shares = [each.share for each in judged]
    errors = statistics.median(each.median_error for each in judged)
    print(f"  all: median error {errors:.1%}, chosen {statistics.geometric_mean(shares):.3f}, worst {min(shares):.3f}")


def write_table(lines: Iterable[str], path: Path, note: str) -> None:
    """Make the table of lines of JSON; of loops that were timed several times the last counts."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for line in lines:
        read = json.loads(line)
        if "c" not in read or not read.get("ms") or not _is_usual(read["c"]):
            continue
        row = _row(read)
        rows[tuple(row[name] for name in (*LAYER, *KEYS))] = row
    with path.open("w", newline="") as file:
        file.write(f"# {note}\n")
        writer = csv.DictWriter(file, (*LAYER, *KEYS, *RESULTS), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows.values())


def _is_usual(macros: Mapping[str, int]) -> bool:
    """Whether nothing but what a configuration says was changed; these macros count on the grid alone."""
    usual = USUAL | ({"WINDOW": STREAMING_WINDOW} if macros["STREAMED_PAIRS"] else {})
    return macros["PLACEMENT"] != GRID or all(macros.get(name, value) == value for name, value in usual.items())


def _row(read: Mapping[str, Any]) -> dict[str, Any]:
    c = read["c"]
    direction = "backward" if c["IS_BACKWARD"] else "forward"
    dtype = DTYPES[c["DTYPE"]] if "DTYPE" in c else "bf16" if c["IS_BF16"] else "fp16"
    layer = (tuple(CELLS)[c["CELL"]], read["B"], read["N"], c["HEAD_DIM"], dtype, direction)
    values = {column: c[macro] for macro, column in MACROS.items()}
    depth = c["HEAD_DIM"] * (CELLS[layer[0]].num_gates if c["IS_BACKWARD"] else 1)
    pairs = depth // (VECTORS_OF_PAIR * VECTOR_BYTES // ELEMENT_BYTES[dtype])
    values["register_pairs"] = min(values["register_pairs"], -(-pairs // c["WARPS_DEPTH"]))
    row = dict(zip(LAYER, layer, strict=True)) | values | {"recompute": int(not read.get("save"))}
    taken = (read["regs"], read["spill"], read["smem"], f"{read['ms']:.4f}")
    return row | dict(zip(RESULTS, taken, strict=True))


def main() -> None:
    """Fit and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--rows", type=Path, nargs="*", help="lines of JSON of which the table is made anew")
    parser.add_argument("--note", default="measured: one H200, 1980 MHz; kernels alone, T=1024", help="of the table")
    parser.add_argument("--write", action="store_true", help="replace the figures in use")
    args = parser.parse_args()
    if args.rows:
        write_table((line for path in args.rows for line in path.read_text().splitlines()), args.table, args.note)
    loops = read_loops(args.table, load_gpu(args.gpu))
    figures = fitted(loops)
    print(json.dumps(figures, indent=1))
    print_judged("fitted to all", [Judgement.of(each, figures[each.direction]) for each in loops])
    print_spilled(args.table, load_gpu(args.gpu), figures)
    print_judged("each by a fit without it and some others", left_out(loops))
    if args.write:
        source = f"fitted: `python -m benchmarks.rnn.fit_cuda {args.table} --gpu {args.gpu} --write`"
        cost.write_fitted(cost.FittedCuda(source, figures))
        print(f"wrote {cost.__file__}'s step.json", file=sys.stderr)


if __name__ == "__main__":
    main()
