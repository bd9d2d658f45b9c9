"""A recorded table as what searches choose from: only rows that were measured, each with the figures it has.

A trial is answered with the row's first reliable figure: `cold_us`, or `quick_us` brought to its scale. What is found
is judged by the best figure of the row, `again_us` where it was measured once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness.space import Measured, read_space
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel
from constrint.select import Operation, Workload
from constrint.select.candidates import Candidates, KernelCandidates
from constrint.tune.search.interface import Proposal
from constrint.tune.store.record import Figures, TuningRecord

FOLDER = Path(__file__).parents[1] / "results"


class Space(Protocol):
    """Configurations of one workload, numbered as rows, that searches and proposers choose from."""

    @property
    def gpu(self) -> GpuModel:
        """The hardware model."""

    @property
    def workload(self) -> Workload:
        """What is asked."""

    @property
    def operation(self) -> Operation:
        """What is tuned."""

    @property
    def candidates(self) -> Candidates:
        """What may be proposed."""

    @property
    def rows(self) -> Mapping[str, NDArray[np.int64]]:
        """Of every kernel its rows, in the order of its candidates."""

    def row_of(self, proposal: Proposal) -> int:
        """The row of a proposal."""


class Answers(Protocol):
    """What trials of rows are answered with: microseconds, infinite where one failed."""

    def __getitem__(self, rows: list[int], /) -> NDArray[np.float64]:
        """The answers of some rows, in their order."""


@dataclass(frozen=True)
class Recorded:
    """One workload's recorded rows.

    Args:
        gpu: The hardware model.
        measured: The rows of a table.
    """

    gpu: GpuModel
    measured: Measured

    @property
    def workload(self) -> Workload:
        """What was asked."""
        return self.measured.workload

    @property
    def operation(self) -> Operation:
        """What was measured."""
        return load_kernel(self.workload.operation)

    @cached_property
    def rows(self) -> dict[str, NDArray[np.int64]]:
        """Of every kernel its rows, in the order of preference."""
        found: dict[str, NDArray[np.int64]] = {}
        for spec in self.operation.implementations:
            rows = np.flatnonzero(self.measured.kernels == spec.full_name)
            if not len(rows):
                continue
            places = []
            for param in spec.params(self.gpu, self.measured.workload):
                by_value = np.argsort(param.values)
                at = np.searchsorted(np.asarray(param.values)[by_value], self.measured.columns[param.name][rows])
                places.append(by_value[np.minimum(at, len(by_value) - 1)])
            found[spec.full_name] = rows[np.lexsort(places[::-1])]
        return found

    @cached_property
    def candidates(self) -> Candidates:
        """What a search may propose: every recorded row, and nothing else."""
        workload = self.measured.workload
        kernels = []
        for name, rows in self.rows.items():
            spec = self.operation.spec(name)
            columns = {p.name: self.measured.columns[p.name][rows] for p in spec.params(self.gpu, workload)}
            kernels.append(KernelCandidates(spec, self.gpu, workload, columns))
        return Candidates(kernels)

    @cached_property
    def first_us(self) -> NDArray[np.float64]:
        """What a trial of each row says: the figure before the one that it is judged by."""
        times = self.measured.times
        if "quick_us" not in times:
            return times["cold_us"]
        cold, quick = times["cold_us"], times["quick_us"]
        both = np.isfinite(cold) & np.isfinite(quick)
        return np.where(np.isfinite(cold), cold, quick * float(np.median(cold[both] / quick[both])))

    @cached_property
    def last_us(self) -> NDArray[np.float64]:
        """What each row is judged by."""
        return self.measured.time_us()

    def row_of(self, proposal: Proposal) -> int:
        """The row of a proposal."""
        kernel = self.candidates.kernels[self.candidates.by_name[proposal.kernel]]
        row = kernel.find(proposal.config)
        if row is None:
            raise ValueError(f"{proposal} is not among the recorded rows")
        return int(self.rows[proposal.kernel][row])

    def record(self, row: int) -> TuningRecord:
        """A row as a record of the tuner's."""
        workload, kernel = self.measured.workload, str(self.measured.kernels[row])
        names = self.candidates.kernels[self.candidates.by_name[kernel]].columns
        seconds = float(self.first_us[row]) * 1e-6
        return TuningRecord(
            kernel=kernel,
            operation=workload.operation,
            gpu=self.gpu.name,
            dtype=workload.dtype,
            sizes=dict(workload.sizes),
            options=dict(workload.options),
            config={name: int(self.measured.columns[name][row]) for name in names},
            outcome="ok",
            run="recorded",
            created=0.0,
            figures=Figures(median_s=seconds, spread_s=0.0, num_rounds=1),
        )

    def found(self, tried: Sequence[int]) -> float:
        """The best time of the table over the best among the tried rows, both by their best figures."""
        return float(self.last_us.min() / self.last_us[list(tried)].min())

    def found_blind(self, tried: Sequence[int]) -> float:
        """The same where both bests are picked by the first figure and judged by the last one.

        A figure that picks the best of many is too small on average; judged by another one, neither side gains.
        """
        rows = np.array(tried)
        best, mine = int(np.argmin(self._first_of_judged)), rows[np.argmin(self.first_us[rows])]
        return float(self.last_us[best] / self.last_us[mine])

    @cached_property
    def _first_of_judged(self) -> NDArray[np.float64]:
        """First figures of the rows that have another one; of all rows where no row has."""
        judged = self.measured.times[self.measured.best_figure]
        return np.where(np.isfinite(judged), self.first_us, np.inf)


def recorded(gpu: GpuModel, folder: str, tables: Sequence[str]) -> Iterator[Recorded]:
    """The workloads of recorded tables."""
    for table in tables:
        for measured in read_space(FOLDER / folder / table):
            yield Recorded(gpu, measured)
