"""The valid configurations of an operation's kernels with their predicted times, for searches to choose from.

A space is listed whole up to `MOST_LISTED` rows. Of a larger one the rows with the preferred order of blocks and the
preferred compiler's knobs are listed, or a random share of these; further rows are added on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.model import Problem, Var
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.rank import KernelProblem, infeasible, predict, requests, tie_steps
from constrint.select.spec import KernelSpec, Operation
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.solve import Limits, SearchSpace

#: Rows of one kernel that are listed and priced at once: half a second of work.
MOST_LISTED = 500_000
#: Rows drawn from a larger space where even those with preferred values are too many.
NUM_DRAWN = 50_000

Rows = NDArray[np.int64]


class KernelCandidates:
    """The configurations of one implementation.

    Args:
        spec: The implementation.
        gpu: The hardware model.
        workload: The workload.
        columns: A column for each parameter; rows in the order of preference.
        space: The space for further configurations; None where the columns hold all of them.
    """

    def __init__(
        self,
        spec: KernelSpec,
        gpu: GpuModel,
        workload: Workload,
        columns: Mapping[str, NDArray[Any]],
        space: SearchSpace | None = None,
    ) -> None:
        self.spec, self.gpu, self.workload, self.space = spec, gpu, workload, space
        self.columns = {name: _narrowed(np.asarray(column)) for name, column in columns.items()}
        self.num_rows = len(next(iter(self.columns.values()))) if self.columns else 1
        self.seconds, self._parts = self._priced(np.arange(self.num_rows))
        self._places: dict[tuple[int, ...], int] | None = None  # row by values, built on demand

    @staticmethod
    def of(request: KernelProblem, limits: Limits | None = None) -> KernelCandidates:
        """Solve the space of an implementation for a workload.

        Raises:
            LimitReachedError: When a limit ended the search before all configurations were known.
        """
        from constrint.solve.enumeration import enumerate_space  # loaded where there is something to solve

        spec, gpu, workload, problem = request.spec, request.gpu, request.workload, request.problem
        if not problem.variables:
            return KernelCandidates(spec, gpu, workload, {})
        space = enumerate_space(problem, limits)
        if space.size <= MOST_LISTED:
            return KernelCandidates(spec, gpu, workload, space.columns())
        preferred = {p.name: p.values[0] for p in spec.params(gpu, workload) if p.name in _unpriced_params(spec)}
        some = space.restrict(**preferred)
        some = some if some.size else space
        if some.size <= MOST_LISTED:
            return KernelCandidates(spec, gpu, workload, some.columns(), space)
        drawn = np.sort(np.array(some.sample_indices(NUM_DRAWN, seed=0), dtype=object))
        return KernelCandidates(spec, gpu, workload, some.take(drawn), space)

    @property
    def size(self) -> int:
        """Number of configurations, listed or not."""
        return self.num_rows if self.space is None else self.space.size

    def config(self, row: int) -> dict[str, int]:
        """The configuration of a row."""
        return {name: int(column[row]) for name, column in self.columns.items()}

    def at(self, index: int) -> dict[str, int]:
        """The configuration with a number, listed or not."""
        return self.config(index) if self.space is None else self.space[index]

    def number(self, config: Mapping[str, Any]) -> int | None:
        """The number of a configuration, as `at` counts; None where it is invalid."""
        row = self.find(config)
        return row if row is None or self.space is None else self.space.index(config)

    def find(self, config: Mapping[str, Any]) -> int | None:
        """The row of a configuration, added if it is not listed; None where the configuration is invalid."""
        if set(config) != set(self.columns) or any(not isinstance(value, int) for value in config.values()):
            return None
        values = tuple(config[name] for name in self.columns)
        if self.space is None:
            rows = np.arange(self.num_rows)
            for column, value in zip(self.columns.values(), values, strict=True):
                rows = rows[column[rows] == value]
            return int(rows[0]) if len(rows) else None
        if values not in self._by_values() and self.space.contains(config):
            self._append([config])
        return self._by_values().get(values)

    def neighbours(self, row: int) -> Rows:
        """Rows that differ from a row in exactly one parameter."""
        if self.space is None:
            different = np.zeros(self.num_rows, dtype=np.int64)
            for column in self.columns.values():
                different += column != column[row]
            return np.flatnonzero(different == 1)
        return self._listed(self.space.neighbours(self.config(row)))

    def widen(self, number: int, seed: int) -> Rows:
        """List up to `number` further configurations: random ones, and in the end all that are left."""
        if self.space is None or self.num_rows >= self.space.size:
            return np.zeros(0, dtype=np.int64)
        before = self.num_rows
        self._listed(self.space.sample(number, seed))
        if self.num_rows == before:
            # The first num_rows + number of the space hold at least `number` unlisted ones, or all that are left.
            stop = min(self.space.size, self.num_rows + number)
            self._listed([self.space[index] for index in range(stop)])
        return np.arange(before, self.num_rows)

    def parts_s(self, rows: Rows) -> dict[str, NDArray[np.float64]]:
        """Seconds that each resource alone would need for these rows, by resource."""
        return {name: part[rows] for name, part in self._parts.items()}

    def _priced(self, rows: Rows) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
        """Predicted seconds (inf where the model has none) and their parts."""
        cost = _cost(self, rows)
        seconds = np.asarray(cost.seconds, dtype=np.float64)
        parts = {n: np.broadcast_to(np.asarray(p, dtype=np.float64), (len(rows),)) for n, p in cost.parts_s.items()}
        return np.where(np.isfinite(seconds) & (seconds > 0), seconds, np.inf), parts

    def _by_values(self) -> dict[tuple[int, ...], int]:
        if self._places is None:
            values = zip(*(column.tolist() for column in self.columns.values()), strict=True)
            self._places = {of_row: row for row, of_row in enumerate(values)}
        return self._places

    def _listed(self, configs: Sequence[Config]) -> Rows:
        """Rows of valid configurations; unlisted ones are added."""
        places = self._by_values()
        keys = [tuple(config[name] for name in self.columns) for config in configs]
        self._append([config for config, key in zip(configs, keys, strict=True) if key not in places])
        return np.array([places[key] for key in keys], dtype=np.int64)

    def _append(self, configs: Sequence[Config]) -> None:
        if not configs:
            return
        places = self._by_values()
        fresh = np.arange(self.num_rows, self.num_rows + len(configs))
        for name, column in self.columns.items():
            added = np.array([config[name] for config in configs], dtype=np.int64)
            self.columns[name] = np.concatenate([column, added])
        places.update(
            {tuple(config[n] for n in self.columns): int(row) for config, row in zip(configs, fresh, strict=True)}
        )
        self.num_rows += len(configs)
        seconds, parts = self._priced(fresh)
        self.seconds = np.concatenate([self.seconds, seconds])
        self._parts = {name: np.concatenate([part, parts[name]]) for name, part in self._parts.items()}


class Candidates:
    """The configurations of all implementations of an operation that can take a workload.

    Args:
        kernels: Candidates of each implementation, in the operation's order.
    """

    def __init__(self, kernels: Sequence[KernelCandidates]) -> None:
        self.kernels = tuple(kernels)
        self.by_name = {kernel.spec.full_name: place for place, kernel in enumerate(self.kernels)}

    @staticmethod
    def of(
        operation: Operation, gpu: GpuModel, workload: Workload, fixed: Mapping[str, int] | None = None
    ) -> Candidates:
        """Solve the spaces of an operation's implementations.

        Args:
            operation: The operation with its implementations.
            gpu: The hardware model.
            workload: The workload.
            fixed: Required values of parameters, in the kernels that have them.

        Raises:
            UsageError: When no implementation can take the workload.
            InfeasibleError: When nothing is valid; carries a minimal conflict.
        """
        able, _ = requests(operation, gpu, workload)
        able = [replace(request, problem=with_fixed(request.problem, fixed)) if fixed else request for request in able]
        kernels = [KernelCandidates.of(request) for request in able]
        if not any(kernel.size for kernel in kernels):
            raise infeasible(able)
        return Candidates(kernels)

    @property
    def size(self) -> int:
        """The number of all configurations."""
        return sum(kernel.size for kernel in self.kernels)

    def at(self, index: int) -> tuple[str, dict[str, int]]:
        """The kernel and the configuration with a number, counted over all implementations."""
        for kernel in self.kernels:
            if index < kernel.size:
                return kernel.spec.full_name, kernel.at(index)
            index -= kernel.size
        raise IndexError(f"index {index} is outside of the configurations")

    def number(self, name: str, config: Mapping[str, Any]) -> int | None:
        """The number of a kernel's configuration, as `at` counts; None where it is invalid."""
        before = 0
        for kernel in self.kernels:
            if kernel.spec.full_name == name:
                number = kernel.number(config)
                return None if number is None else before + number
            before += kernel.size
        return None

    def best(self, number: int) -> tuple[Rows, Rows]:
        """The listed rows with the least predicted times, as indices of kernels and rows; ties by preference."""
        parts = []
        for place, kernel in enumerate(self.kernels):
            steps = tie_steps(kernel.seconds)
            rows = _least(steps, number)
            parts.append((np.full(len(rows), place), rows, steps[rows]))
        places, rows, steps = (np.concatenate(column) for column in zip(*parts, strict=True))
        first = np.argsort(steps, kind="stable")[:number]
        return places[first], rows[first]


def _cost(kernel: KernelCandidates, rows: Rows) -> CostColumns:
    if not kernel.columns:
        return kernel.spec.cost(kernel.gpu, kernel.workload, {}, np.ones(1))
    columns = {name: column[rows].astype(np.int64) for name, column in kernel.columns.items()}
    return predict(kernel.spec, kernel.gpu, kernel.workload, columns)


def _narrowed(column: NDArray[Any]) -> NDArray[Any]:
    """Convert integers to the smallest dtype: there may be half a million rows for each of many workloads."""
    if not len(column):
        return column.astype(np.int64)
    return column.astype(np.result_type(np.min_scalar_type(column.min()), np.min_scalar_type(column.max())))


def with_fixed(problem: Problem, fixed: Mapping[str, int]) -> Problem:
    """Copy of a problem in which parameters have fixed values."""
    problem = problem.copy()
    for name, value in fixed.items():
        if name in problem.variables:
            problem.add(Var(name) == value, because=f"{name} was fixed to {value}")
    return problem


def _unpriced_params(spec: KernelSpec) -> set[str]:
    """Order and free parameters, which the model prices late or not at all."""
    return {*spec.order_params, *spec.free_params}


def _least(steps: NDArray[np.float64], number: int) -> Rows:
    """Rows with the least steps of `tie_steps`; ties go to the first."""
    if number < len(steps):
        bound = np.partition(steps, number - 1)[number - 1]
        near = np.flatnonzero(steps <= bound)
        return near[np.argsort(steps[near], kind="stable")][:number]
    return np.argsort(steps, kind="stable")
