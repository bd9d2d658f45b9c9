"""Fits of a cost model's figures to measured loops of recurrent layers, and how good the choices by them are."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from benchmarks.harness.table import read_rows
from constrint.kernels.rnn.spec import workload_of
from constrint.select import Workload

#: Relative error from which on a loop counts less than its square.
OUTLIER = 0.1
#: Columns that identify a layer and a direction in a table of loops, and the steps of all layers.
LAYER, TIME = ("cell", "batch", "heads", "head_dim", "dtype", "direction"), 1024


def workload_of_row(row: Mapping[str, str]) -> Workload:
    """The layer and direction of a row."""
    sizes = (int(row["batch"]), TIME, int(row["heads"]), int(row["head_dim"]))
    return workload_of(row["cell"], sizes, row["dtype"], row["direction"])


def by_layer(path: Path, takes: Callable[[dict[str, str]], bool]) -> dict[tuple[str, ...], list[dict[str, str]]]:
    """The rows of a table that are taken, by the columns of `LAYER`."""
    rows: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in read_rows(path):
        if takes(row):
            rows[tuple(row[name] for name in LAYER)].append(row)
    return rows


class Judgement(NamedTuple):
    """Quality of figures on one layer.

    Args:
        name: The layer.
        median_error, worst_error: Relative errors of the times.
        share: The fastest time over that of the first choice.
        first: The predicted time of the first choice over the fastest time.
    """

    name: str
    median_error: float
    worst_error: float
    share: float
    first: float

    @staticmethod
    def of(name: str, predicted: NDArray[np.float64], seconds: NDArray[np.float64]) -> Judgement:
        """Build from the predicted and the measured seconds of a layer's loops."""
        error = np.abs(predicted / seconds - 1.0)
        share = float(seconds.min() / seconds[int(np.argmin(predicted))])
        first = float(predicted.min() / seconds.min())
        return Judgement(name, float(np.median(error)), float(error.max()), share, first)


def fitted_figures(
    names: Sequence[str],
    start: Mapping[str, float],
    errors: Callable[[Mapping[str, float]], NDArray[np.float64]],
    least: float = 0.0,
) -> dict[str, float]:
    """Figures by robust least squares, three digits of each, none below zero; those up to `least` are 0.

    Args:
        names: The figures.
        start: Where the fit begins, and the scale of a figure; 1 for those that it lacks.
        errors: Weighted logarithmic errors of all loops by figures.
        least: The largest figure that counts as nothing.
    """
    begin = np.array([start.get(name, 1.0) for name in names])

    def scaled_errors(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        return errors(dict(zip(names, scaled * begin, strict=True)))

    found = least_squares(scaled_errors, np.ones(len(begin)), bounds=(0, np.inf), loss="soft_l1", f_scale=OUTLIER)
    values = zip(names, found.x * begin, strict=True)
    return {name: float(f"{value:.3g}") if value > least else 0.0 for name, value in values}


def print_judged(what: str, judged: Sequence[Judgement]) -> None:
    """A line for each layer, and a summary."""
    print(f"# {what}: median and largest error of times, fastest / chosen, predicted of the first choice / fastest")
    for each in judged:
        print(f"  {each.name:52} {each.median_error:6.1%} {each.worst_error:6.1%} {each.share:6.3f} {each.first:6.3f}")
    shares = [each.share for each in judged]
    errors = statistics.median(each.median_error for each in judged)
    print(f"  all: median error {errors:.1%}, chosen {statistics.geometric_mean(shares):.3f}, worst {min(shares):.3f}")
