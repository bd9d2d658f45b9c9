"""Fit the cost model of the kernels for many sequences to measured loops, and judge it on layers that were left out.

    python -m benchmarks.rnn.fit_wgmma benchmarks/results/h200/rnn_wgmma.csv --gpu h200
    python -m benchmarks.rnn.fit_wgmma benchmarks/results/h200/rnn_wgmma.csv --gpu h200 --write
    python -m benchmarks.rnn.fit_wgmma benchmarks/results/h200/rnn_wgmma_backward.csv --gpu h200 --direction backward

Fits the figures of `constrint/kernels/rnn/wgmma/step.json`, backward those of `step_backward.json`, which `--write`
replaces, by least squares over the logarithms of the times of loops, of which those near the fastest of their layer
count most. The forward table is by a program of commit befc2ab (`benchmarks/results/README.md`), the backward one by
`python -m benchmarks.rnn.measure_wgmma`. That one has few loops, so that leaving the forward figures costs something
(`PULL`): without it two figures are fitted to nothing at all. Then each layer is judged by figures that are fitted
without it: the median error of its times, and how fast the loop is that would be chosen. What these layers are off by
is written with the figures; `auto` adds the median to what it predicts backward. At last each layer's choice stands
beside the loop of `cuda` that was timed with it: which of both is predicted to be faster, and which was. Needs scipy.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.loops import Judgement, fitted_figures, print_judged
from benchmarks.harness.table import read_rows
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.spec import SUFFIX, after_s, predict_s, workload_of
from constrint.kernels.rnn.wgmma import spec
from constrint.kernels.rnn.wgmma.spec import HARMLESS_SPILL_BYTES
from constrint.select import Workload
from constrint.select.cost import LAUNCH_S

Row = Mapping[str, str]
#: What a figure starts at; parts that the counts are good for begin at one.
START = {"fixed": 2000.0, "chunks": 100.0, "later_chunks": 300.0, "refill": 300.0, "together": 100.0}
#: Weight of the logarithm of a backward figure over the forward one, beside those of the loops' errors.
PULL = 0.03
#: Bytes that a thread spills, from and to.
SPILLED = ((0, 0), (1, HARMLESS_SPILL_BYTES), (HARMLESS_SPILL_BYTES + 1, 9999))


@dataclass(frozen=True)
class Loops:
    """Measured loops of one layer.

    Args:
        workload: The layer.
        parts: The counted parts of the steps of each loop.
        steps: Steps of all rounds.
        other_s: Seconds beside them.
        seconds: Measured seconds.
    """

    workload: Workload
    parts: dict[str, NDArray[np.float64]]
    steps: NDArray[np.float64]
    other_s: NDArray[np.float64]
    seconds: NDArray[np.float64]
    clock_hz: float

    @staticmethod
    def of(gpu: GpuModel, workload: Workload, rows: Sequence[Row]) -> Loops:
        """Build from a table's rows."""
        configs = [config_of(row["config"]) for row in rows]
        columns = {name: np.array([config[name] for config in configs]) for name in configs[0]}
        cell = CELLS[workload.operation.removesuffix(SUFFIX["backward"])]
        rounds = spec.rounds_of(gpu, cell, workload, columns)
        return Loops(
            workload,
            spec.part_columns(gpu, cell, workload, columns),
            rounds * workload.sizes["time"],
            LAUNCH_S * rounds + spec.filled_s(gpu, cell, workload, columns),
            np.array([1e-3 * float(row["ms"]) for row in rows]),
            spec.clock_hz(gpu),
        )

    def predicted(self, figures: Mapping[str, float]) -> NDArray[np.float64]:
        """Seconds of the whole loops."""
        return np.asarray(self.steps * spec.step_clk(self.parts, figures)["step"] / self.clock_hz + self.other_s)

    def judged(self, figures: Mapping[str, float]) -> Judgement:
        """Quality of figures on these loops."""
        return Judgement.of(str(self.workload), self.predicted(figures), self.seconds)

    def errors(self, figures: Mapping[str, float]) -> NDArray[np.float64]:
        """Logarithms of predicted over measured times; fast loops count most."""
        weights = self.seconds.min() / self.seconds
        return np.asarray(weights * np.log(self.predicted(figures) / self.seconds))


def config_of(text: str) -> dict[str, int]:
    """The configuration in a cell of the table."""
    return {name: int(value) for name, _, value in (part.partition("=") for part in text.split())}


def workload_of_row(row: Row, direction: str) -> Workload:
    """One direction of the layer of a row."""
    batch, time, heads, dim = (int(row[name]) for name in ("batch", "time", "heads", "dim"))
    return workload_of(row["cell"], (batch, time, heads, dim), row["dtype"], direction)


def spilled(row: Row) -> int:
    """Bytes that a thread of a row's kernel spills."""
    return int(json.loads(row["more"])["spill_bytes"])


def loops_of(
    gpu: GpuModel,
    rows: Sequence[Row],
    least: int = 0,
    most: int = HARMLESS_SPILL_BYTES,
    direction: str = "forward",
) -> list[Loops]:
    """Return the layers of a table, with the loops that spill `least` to `most` bytes."""
    by_layer: dict[str, list[Row]] = {}
    for row in rows:
        if (row["kind"], row["outcome"]) == ("loop", "ok") and least <= spilled(row) <= most:
            by_layer.setdefault(str(workload_of_row(row, direction)), []).append(row)
    return [Loops.of(gpu, workload_of_row(alike[0], direction), alike) for alike in by_layer.values()]


def fit(loops: Sequence[Loops], direction: str = "forward") -> dict[str, float]:
    """Figures, none below zero; backward they stay near the forward ones as long as loops do not say otherwise."""

    def errors(figures: Mapping[str, float]) -> NDArray[np.float64]:
        return np.concatenate([each.errors(figures) for each in loops])

    if direction == "forward":
        return fitted_figures(spec.FIGURES, START, errors)
    start = spec.fitted("forward").figures

    def pulled(figures: Mapping[str, float]) -> NDArray[np.float64]:
        away = [PULL * np.log(max(figures[name], 1e-9) / start[name]) for name in spec.FIGURES]
        return np.concatenate([errors(figures), away])

    return fitted_figures(spec.FIGURES, start, pulled)


def fits_without(loops: Sequence[Loops], direction: str) -> list[dict[str, float]]:
    """For each layer the figures that are fitted to the others."""
    return [fit([other for other in loops if other is not each], direction) for each in loops]


def left_out(loops: Sequence[Loops], figures: Sequence[Mapping[str, float]]) -> spec.OutsideFit:
    """Errors of the times of loops, each by the figures fitted without its layer."""
    pairs = zip(loops, figures, strict=True)
    errors = [np.abs(each.predicted(found) / each.seconds - 1.0) for each, found in pairs]
    median = float(np.median([np.median(of_layer) for of_layer in errors]))
    return spec.OutsideFit(round(median, 3), round(float(np.quantile(np.concatenate(errors), 0.9)), 3))


def print_spilled(gpu: GpuModel, rows: Sequence[Row], figures: Mapping[str, float], direction: str) -> None:
    """Print measured over predicted times of loops by the bytes that they spill."""
    print("# loops by bytes that a thread spills: how many, measured / predicted (median and most)")
    for least, most in SPILLED:
        loops = loops_of(gpu, rows, least, most, direction)
        if not loops:
            continue
        ratios = np.concatenate([each.seconds / each.predicted(figures) for each in loops])
        print(f"  {least:3} to {most:4}: {len(ratios):4} {np.median(ratios):6.3f} {ratios.max():6.3f}")


def print_beside_cuda(
    gpu: GpuModel, rows: Sequence[Row], loops: Sequence[Loops], figures: Mapping[str, float], direction: str
) -> None:
    """The choice of each layer beside the loop of `cuda`: milliseconds as predicted and as measured."""
    print(
        "# beside `cuda`, ms: predicted of both, measured of the choice, of the fastest, and of `cuda`; who is faster"
    )
    timed = {
        str(workload_of_row(row, direction)): row for row in rows if (row["kind"], row["outcome"]) == ("cuda", "ok")
    }
    for each in loops:
        row = timed.get(str(each.workload))
        if row is None:
            continue
        config = config_of(json.loads(row["more"])["note"])
        theirs = predict_s(load_spec(f"{each.workload.operation}.cuda"), gpu, each.workload, config)
        if direction == "backward":  # loops were timed alone
            columns = {name: np.array([value]) for name, value in config.items()}
            theirs -= float(after_s(gpu, CELLS[row["cell"]], each.workload, columns)[0])
        predicted = each.predicted(figures)
        first, measured = int(np.argmin(predicted)), 1e-3 * float(row["ms"])
        said = "wgmma" if predicted[first] < theirs else "cuda"
        was = "wgmma" if each.seconds[first] < measured else "cuda"
        shown = (predicted[first], theirs, each.seconds[first], each.seconds.min(), measured)
        told = " ".join(f"{1e3 * seconds:7.2f}" for seconds in shown)
        print(f"  {each.workload!s:52} {told}  predicted {said}, measured {was}")


def main() -> None:
    """Fit and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--direction", choices=tuple(SUFFIX), default="forward")
    parser.add_argument("--write", action="store_true", help="replace the figures in use")
    args = parser.parse_args()
    gpu, rows = load_gpu(args.gpu), read_rows(args.table)
    direction = args.direction
    loops = loops_of(gpu, rows, direction=direction)
    figures = fit(loops, direction)
    without = fits_without(loops, direction)
    print(json.dumps(figures, indent=1))
    print_judged("fitted to all", [each.judged(figures) for each in loops])
    print_judged(
        "each by a fit to the others",
        [each.judged(found) for each, found in zip(loops, without, strict=True)],
    )
    band = left_out(loops, without)
    print(f"# a layer that is left out: off by {band.median:.1%} (median); nine in ten loops: {band.nine_in_ten:.1%}")
    print_spilled(gpu, rows, figures, direction)
    print_beside_cuda(gpu, rows, loops, figures, direction)
    if args.write:
        named = "" if direction == "forward" else f" --direction {direction}"
        source = f"fitted: `python -m benchmarks.rnn.fit_wgmma {args.table} --gpu {args.gpu}{named} --write`"
        spec.write_fitted(spec.FittedWgmma(source, figures, band), direction)
        print(f"wrote the {direction} figures beside {spec.__file__}", file=sys.stderr)


if __name__ == "__main__":
    main()
