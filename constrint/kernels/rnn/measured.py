"""Measured times of whole layers, by implementation, and times interpolated between them.

`<implementation>/measured/<gpu>.csv` holds one row per measured layer of one head: its cell, dtype, batch, units
(`dim`) and steps (`time`), and the milliseconds of a forward pass and of a forward and a backward pass on projected
inputs, with everything that runs before and after the time loops. `benchmarks/rnn/cudnn_table.py` writes these tables
in the same runs as cuDNN's, so that measured times are compared with measured times. cuDNN's own table has more columns
(`cudnn/spec.py`).
"""

from __future__ import annotations

import csv
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from functools import lru_cache
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.spec import RnnSpec
from constrint.select.workload import Workload

IMPLEMENTATIONS = Path(__file__).parent
#: Seconds by steps, batch and units.
Points = dict[int, dict[int, dict[int, float]]]


class Between(NamedTuple):
    """Time of a layer by interpolation between measured ones.

    Args:
        seconds: Time of `steps` steps.
        steps: The layer's steps, or the most that were measured where it has more.
    """

    seconds: float
    steps: int


def measured_layer(implementation: str, spec: RnnSpec, gpu: GpuModel, workload: Workload) -> Between | None:
    """Measured time of one direction of a layer; None where no measured layers surround it.

    The backward pass of an implementation of the forward pass alone is another implementation's: that one's own table
    comes first. A library's table is not read here: it holds other times (`cudnn/spec.py`).

    Args:
        implementation: The implementation that runs the layer.
        spec: Its spec of this direction.
        gpu: The hardware model.
        workload: The layer, in the terms of this direction.
    """
    batch, time, heads, dim = (workload.sizes[name] for name in spec.size_names)
    if heads != 1 or spec.projects:
        return None
    for name in dict.fromkeys((spec.name, implementation)):
        layers = _layers(table_of(name, gpu.name))
        measurement = between(layers.get((spec.cell.name, workload.dtype, spec.direction), {}), time, batch, dim)
        if measurement is not None:
            return measurement
    return None


def table_of(implementation: str, gpu: str) -> Path:
    """Path of an implementation's measured layers on a GPU, by both names; the file may not exist."""
    return IMPLEMENTATIONS / implementation / "measured" / f"{gpu.lower()}.csv"


@lru_cache(maxsize=64)
def _layers(table: Path) -> dict[tuple[str, str, str], Points]:
    """Measured seconds by cell, dtype and direction; empty without a table."""
    layers = dict[tuple[str, str, str], Points]()
    for row in rows_of(table):
        forward, both = (1e-3 * float(row[f"{name}_ms"]) for name in ("forward", "both"))
        time, batch, dim = (int(row[name]) for name in ("time", "batch", "dim"))
        for direction, seconds in (("forward", forward), ("backward", both - forward)):
            points = layers.setdefault((row["cell"], row["dtype"], direction), {})
            add_point(points, time, batch, dim, seconds)
    return layers


def rows_of(table: Path) -> Iterator[Mapping[str, str]]:
    """Rows of a table without its comments; none where there is no file."""
    if table.is_file():
        with table.open(newline="") as file:
            yield from csv.DictReader(line for line in file if not line.startswith("#"))


def forget() -> None:
    """Read the tables again at the next look-up."""
    _layers.cache_clear()


def add_point(points: Points, time: int, batch: int, dim: int, seconds: float) -> None:
    """Add a measured layer."""
    points.setdefault(time, {}).setdefault(batch, {})[dim] = seconds


def between(points: Points, time: int, batch: int, dim: int) -> Between | None:
    """Time of a layer among measured ones, along the logarithms of units, batch and steps.

    None outside of the measured units and batches, and below the fewest steps.
    """
    by_time = dict(_defined((t, _at(by_batch, batch, dim)) for t, by_batch in points.items()))
    if not by_time:
        return None
    steps = min(time, max(by_time))
    seconds = along(by_time, steps)
    return None if seconds is None else Between(seconds, steps)


def _at(by_batch: dict[int, dict[int, float]], batch: int, dim: int) -> float | None:
    return along(dict(_defined((b, along(by_dim, dim)) for b, by_dim in by_batch.items())), batch)


def _defined(pairs: Iterator[tuple[int, float | None]]) -> Iterator[tuple[int, float]]:
    return ((size, seconds) for size, seconds in pairs if seconds is not None)


def along(points: Mapping[int, float], at: int) -> float | None:
    """The value at one size, between the logarithms of its neighbours' sizes and values; None outside of them."""
    if at in points:
        return points[at]
    sizes = sorted(points)
    place = bisect_left(sizes, at)
    if place in (0, len(sizes)):
        return None
    low, high = sizes[place - 1], sizes[place]
    share = log(at / low) / log(high / low)
    return exp((1 - share) * log(points[low]) + share * log(points[high]))
