"""Core space of a kernel: valid configurations without order and free parameters, and the resources of their blocks.

A kernel's own rules, its resources and its occupancy are the same for many workloads. They are solved once and cached.
Rules that depend on sizes, and those of the user, then filter the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.model import Constraint, Problem, Var
from constrint.select.limits import (
    BlockColumns,
    BlockUse,
)
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.solve import Limits, SearchSpace

#: Most cached spaces: a dozen of dtypes and alignments on a few GPUs.
MAX_CACHED = 64


@dataclass(frozen=True)
class CoreSpace:
    """The valid configurations of a kernel for a workload.

    Args:
        columns: Parameters other than order and free ones, a row for each configuration.
        num_variants: Number of valid orders and free values that each row represents.
        blocks: Resources of a block of each row.
        num_product: Configurations in the full product of all parameters.
    """

    columns: dict[str, NDArray[Any]]
    num_variants: NDArray[np.int64]
    blocks: BlockColumns
    num_product: int

    @property
    def num_valid(self) -> int:
        """Number of valid configurations."""
        return int(self.num_variants.sum())


def core_space(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, problem: Problem, limits: Limits | None = None
) -> CoreSpace:
    """Solve `problem`, the kernel's own or one with further rules."""
    num_product = prod(domain.size for domain in problem.variables.values())
    cached = _cached_space(spec, gpu, workload, problem, limits)
    filtered = None if cached is None else cached.filtered(problem)
    if cached is not None and filtered is not None:
        rows, num_variants = filtered
        columns = {name: column[rows] for name, column in cached.columns.items()}
        return CoreSpace(columns, num_variants, cached.blocks.take(rows), num_product)
    space = _solved(problem, limits)
    names = [name for name in problem.variables if name not in {*spec.order_params, *spec.free_params}]
    if space.size == 0:
        none = np.zeros(0, dtype=np.int64)
        certain = none.astype(np.float64)
        nothing = BlockColumns(None, none, none, none, none, none, certain, certain)
        return CoreSpace({}, none, nothing, num_product)
    projected, counts = space.project(names)
    use = spec.use(gpu, workload, {name: Var(name) for name in problem.variables})
    return CoreSpace(dict(projected), counts, BlockColumns.of(gpu, use, projected, problem.estimates), num_product)


class _SolvedSpace:
    """A space solved without the rules that depend on sizes; values of each column are numbered for lookups.

    Args:
        spec: The kernel.
        gpu: The hardware model, referenced so that it lives as long as the space.
        workload: Any workload that the stated problem is for.
        stated: The kernel's problem without rules on sizes.
    """

    def __init__(
        self, spec: KernelSpec, gpu: GpuModel, workload: Workload, stated: Problem, limits: Limits | None
    ) -> None:
        self.spec, self.gpu, self.stated = spec, gpu, stated
        self.order = [name for name in spec.order_params if name in stated.variables]
        self.free = {name for name in spec.free_params if name in stated.variables}
        self.own = {id(constraint) for constraint in stated.constraints}
        core = [name for name in stated.variables if name not in {*self.order, *self.free}]
        columns, self.counts = _solved(_without(stated, self.order), limits).project(core)
        self.columns = dict(columns)
        use = spec.use(gpu, workload, {name: Var(name) for name in stated.variables})
        self.blocks = BlockColumns.of(gpu, use, self.columns, stated.estimates)
        self.values = {name: np.array(sorted(set(column.tolist()))) for name, column in self.columns.items()}
        self.places = {name: np.searchsorted(self.values[name], column) for name, column in self.columns.items()}

    def filtered(self, problem: Problem) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Rows that satisfy further rules, and their variants; None where these rules mention free parameters."""
        if any(problem.variables[name] is not domain for name, domain in self.stated.variables.items()):
            return None
        further = [constraint for constraint in problem.constraints if id(constraint) not in self.own]
        if any(constraint.variables & self.free for constraint in further):
            return None
        num_variants = self.counts
        for order, rules in _by_order(self.order, further):
            num_variants = num_variants * self._completions(order, rules)
        rows = np.flatnonzero(num_variants)
        return rows, num_variants[rows]

    def _completions(self, order: list[str], rules: list[Constraint]) -> Any:
        """Per row, the number of valid values of the order parameters; 0 or 1 without such parameters."""
        core = sorted({name for rule in rules for name in rule.variables} - set(order))
        axes = [self.values[name] for name in core]
        axes += [np.array(list(self.stated.variables[name]), dtype=np.int64) for name in order]
        shape = [len(axis) for axis in axes]
        if prod(shape) > max(len(self.counts), 1) * prod(shape[len(core) :]):
            return self._completions_by_row(core, order, rules)
        grid = np.meshgrid(*axes, indexing="ij", copy=False) if axes else []
        named = {name: np.ravel(axis) for name, axis in zip([*core, *order], grid, strict=True)}
        holds = np.ones(prod(shape), dtype=bool)
        for rule in rules:
            holds &= rule.holds_columns(named)
        # Of a space without rows the number of values is stated: numpy cannot tell it.
        counts = holds.reshape(*shape[: len(core)], prod(shape[len(core) :])).sum(axis=-1)
        return counts[tuple(self.places[name] for name in core)]

    def _completions_by_row(self, core: list[str], order: list[str], rules: list[Constraint]) -> Any:
        """Like `_completions`, where the parameters' values have more combinations than there are rows."""
        domains = [list(self.stated.variables[name]) for name in order]
        total = np.zeros(len(self.counts), dtype=np.int64)
        for point in combinations(*domains):
            named = {name: self.columns[name] for name in core}
            named |= {name: np.full(len(total), value) for name, value in zip(order, point, strict=True)}
            holds = np.ones(len(total), dtype=bool)
            for rule in rules:
                holds &= rule.holds_columns(named)
            total += holds
        return total


_CACHE: dict[int, _SolvedSpace] = {}


def _cached_space(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, problem: Problem, limits: Limits | None
) -> _SolvedSpace | None:
    """The cached part of a kernel's space; None where the kernel states none, or it cannot be cached."""
    stated = spec.stated_problem(gpu, workload)
    if stated is None or any(rule.variables & set(spec.order_params) for rule in stated.constraints):
        return None
    key = id(stated)
    if key not in _CACHE:
        if len(_CACHE) >= MAX_CACHED:
            _CACHE.clear()
        _CACHE[key] = _SolvedSpace(spec, gpu, workload, stated, limits)
    return _CACHE[key]


def _solved(problem: Problem, limits: Limits | None) -> SearchSpace:
    """All solutions."""
    from constrint.solve.enumeration import enumerate_space  # loaded where there is something to solve

    return enumerate_space(problem, limits)


def _without(problem: Problem, names: Iterable[str]) -> Problem:
    """Copy of a problem without variables that no rule mentions."""
    smaller = Problem(problem.name)
    for name, domain in problem.variables.items():
        if name not in names:
            smaller.declare(name, domain)
    for rule in problem.constraints:
        smaller.add(rule, name=rule.name, because=rule.because)
    return smaller


def _by_order(order: list[str], rules: list[Constraint]) -> Iterator[tuple[list[str], list[Constraint]]]:
    """Group rules that share order parameters; each rule without order parameters is a group of its own."""
    groups = [({name}, list[Constraint]()) for name in order]
    for rule in rules:
        touched = [group for group in groups if rule.variables & group[0]]
        if not touched:
            yield [], [rule]
            continue
        for group in touched[1:]:
            touched[0][0].update(group[0])
            touched[0][1].extend(group[1])
            groups.remove(group)
        touched[0][1].append(rule)
    for names, own in groups:
        yield [name for name in order if name in names], own


def chance_of(gpu: GpuModel, use: BlockUse, estimates: Iterable[Constraint], config: Mapping[str, int]) -> float:
    """Chance from 0 to 1 that one configuration spills or does not fit."""
    columns: dict[str, Any] = {name: np.array([value]) for name, value in config.items()}
    return float(BlockColumns.of(gpu, use, columns, estimates).chances[0])
