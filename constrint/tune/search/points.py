"""Configurations as the regression sees them: where they lie among the parameters, and what the model makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.select.candidates import Candidates, KernelCandidates, Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Points:
    """Some configurations, of this workload or of others.

    Args:
        workload: The number of each one's workload; 0 is the workload that is tuned.
        kernel: The number of its implementation.
        at: Its parameters on a logarithmic scale, a column for each.
        shares: The parts of its predicted time, as shares of it, a column for each.
    """

    workload: Rows
    kernel: Rows
    at: Floats
    shares: Floats

    def __len__(self) -> int:
        return len(self.kernel)

    def take(self, rows: Any) -> Points:
        """Some of them."""
        return Points(self.workload[rows], self.kernel[rows], self.at[rows], self.shares[rows])

    @staticmethod
    def joined(several: Iterable[Points]) -> Points:
        """All of several."""
        each = [(p.workload, p.kernel, p.at, p.shares) for p in several]
        workload, kernel, at, shares = (np.concatenate(column) for column in zip(*each, strict=True))
        return Points(workload, kernel, at, shares)


class Describer:
    """Turns rows of candidates into points: it knows all parameters and parts of an operation's kernels.

    Args:
        candidates: The configurations of the workload that is tuned.
    """

    def __init__(self, candidates: Candidates) -> None:
        kernels = [kernel for kernel in candidates.kernels if kernel.num_rows]
        first = np.zeros(1, dtype=np.int64)
        self.params = _names(kernel.columns for kernel in kernels)
        self.parts = _names(kernel.parts_s(first) for kernel in kernels)
        self.places = candidates.by_name

    def points(self, kernel: KernelCandidates, rows: Rows, workload: int = 0) -> Points:
        """Rows of one kernel as points."""
        at = np.zeros((len(rows), len(self.params)))
        for place, name in enumerate(self.params):
            if name in kernel.columns:
                at[:, place] = _logarithm(kernel.columns[name][rows])
        seconds = kernel.seconds[rows]
        parts_s = kernel.parts_s(rows)
        shares = np.zeros((len(rows), len(self.parts)))
        for place, name in enumerate(self.parts):
            if name in parts_s:
                shares[:, place] = np.nan_to_num(parts_s[name] / seconds, nan=0.0, posinf=0.0, neginf=0.0)
        number = np.full(len(rows), self.places[kernel.spec.full_name])
        return Points(np.full(len(rows), workload), number, at, np.clip(shares, 0.0, 2.0))


def _names(several: Iterable[Mapping[str, Any]]) -> Sequence[str]:
    return tuple(dict.fromkeys(name for names in several for name in names))


def _logarithm(values: NDArray[Any]) -> Floats:
    """Logarithms to base 2 of positive numbers, and smaller ones in their order below."""
    sizes = np.abs(values).astype(np.float64)
    return np.where(values > 0, np.log2(np.maximum(sizes, 1.0)), -1.0 - np.log2(1.0 + sizes))
