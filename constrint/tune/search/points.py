"""Configurations as points of the regression: parameters on a logarithmic scale, and shares of the predicted time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.select.candidates import Candidates, KernelCandidates, Rows

Floats = NDArray[np.float64]
Numbers = NDArray[np.uint64]


#: Scale of the order of blocks and the compiler's knobs relative to other parameters.
SLOW = 0.02


@dataclass(frozen=True)
class ConfigPoints:
    """Some configurations, of this workload or of others.

    Args:
        workload: Number of the workload of each point; 0 is the workload that is tuned.
        kernel: Number of the implementation.
        at: Parameters on a logarithmic scale, a column each.
        shares: Parts of the predicted time as shares, a column each.
        core: Hash without the order of blocks and the compiler's knobs.
        whole: Hash of all parameters.
    """

    workload: Rows
    kernel: Rows
    at: Floats
    shares: Floats
    core: Numbers
    whole: Numbers

    def __len__(self) -> int:
        return len(self.kernel)

    @cached_property
    def squares(self) -> Floats:
        """The squared length of each row of `at`."""
        return np.asarray(np.square(self.at).sum(axis=1), dtype=np.float64)

    def take(self, rows: Any) -> ConfigPoints:
        """The points of some rows."""
        return ConfigPoints(*(column[rows] for column in self._columns))

    @staticmethod
    def joined(several: Iterable[ConfigPoints]) -> ConfigPoints:
        """The points of several objects."""
        return ConfigPoints(*(np.concatenate(columns) for columns in zip(*(p._columns for p in several), strict=True)))

    @property
    def _columns(self) -> tuple[NDArray[Any], ...]:
        return self.workload, self.kernel, self.at, self.shares, self.core, self.whole


class Describer:
    """Turns rows of candidates into points, over all parameters and cost parts of an operation's kernels.

    Args:
        candidates: The configurations of the workload that is tuned.
    """

    def __init__(self, candidates: Candidates) -> None:
        kernels = [kernel for kernel in candidates.kernels if kernel.num_rows]
        first = np.zeros(1, dtype=np.int64)
        self.params = _names(kernel.columns for kernel in kernels)
        self.parts = _names(kernel.parts_s(first) for kernel in kernels)
        self.places = candidates.by_name
        slow = {name for kernel in kernels for name in (*kernel.spec.order_params, *kernel.spec.free_params)}
        self._scales = np.array([SLOW if name in slow else 1.0 for name in self.params])

    def points(self, kernel: KernelCandidates, rows: Rows, workload: int = 0) -> ConfigPoints:
        """Rows of one kernel as points."""
        at = np.zeros((len(rows), len(self.params)))
        number = np.full(len(rows), self.places[kernel.spec.full_name])
        core, whole = number.astype(np.uint64), number.astype(np.uint64)
        for place, name in enumerate(self.params):
            if name in kernel.columns:
                values = kernel.columns[name][rows].astype(np.int64)
                at[:, place] = _logarithm(values)
                whole = _mixed(whole, values, place)
                core = core if self._scales[place] < 1.0 else _mixed(core, values, place)
        seconds = kernel.seconds[rows]
        parts_s = kernel.parts_s(rows)
        shares = np.zeros((len(rows), len(self.parts)))
        for place, name in enumerate(self.parts):
            if name in parts_s:
                shares[:, place] = np.nan_to_num(parts_s[name] / seconds, nan=0.0, posinf=0.0, neginf=0.0)
        of_workload = np.full(len(rows), workload)
        return ConfigPoints(of_workload, number, at * self._scales, np.clip(shares, 0.0, 2.0), core, whole)


def _names(several: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    return tuple(dict.fromkeys(name for names in several for name in names))


def _mixed(numbers: Numbers, values: NDArray[Any], place: int) -> Numbers:
    """Hashes of rows with the values of one more parameter mixed in; they wrap around."""
    step = np.uint64(0x9E3779B97F4A7C15)
    mixed = (numbers ^ (values.astype(np.uint64) + np.uint64(place + 1) * np.uint64(0x100000001B3))) * step
    return np.asarray(mixed ^ (mixed >> np.uint64(29)), dtype=np.uint64)


def _logarithm(values: NDArray[Any]) -> Floats:
    """Logarithms to base 2 of positive numbers, and smaller ones in their order below."""
    sizes = np.abs(values).astype(np.float64)
    lower = -1.0 - np.log2(1.0 + sizes)
    return np.asarray(np.where(values > 0, np.log2(np.maximum(sizes, 1.0)), lower), dtype=np.float64)
