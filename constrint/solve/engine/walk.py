"""Solutions one after the other in declared order on numpy, without tables, pruned by interval bounds per row."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import CancelledError, LimitReachedError
from constrint.model import Calculation, Comparison, Const, Constraint, Domain, Element, Expr, Problem, Truth, Var
from constrint.model.columns import MAX, MIN, ExactColumn, evaluate, test, wide
from constrint.model.operations import BINARY, UNARY, Interval, fold
from constrint.solve.budget import Budget, Limits
from constrint.solve.engine.compiled import CompiledWalk, walk_in_order
from constrint.solve.engine.factored import factored_space, search
from constrint.solve.engine.prepare import Prepared, components, fixed_columns, flatten, prepare
from constrint.solve.engine.tables import TableCheck
from constrint.solve.propagation import propagate
from constrint.solve.space.axes import Axis, AxisLayout, LazyAxis, axis_of_free, dicts_of, places_of

# Cells evaluated in one step: few at first, more with every dead end.
_FIRST_CELLS: Final = 1 << 12
_MOST_CELLS: Final = 1 << 15
# Rows that become Python integers at once.
_LISTED_ROWS: Final = 1 << 10
# Solutions that are sorted at once, and combinations tried for them.
_SORTED_ROWS: Final = 1 << 20
_SORTED_CELLS: Final = 1 << 22


def solutions_in_order(
    problem: Problem, limits: Limits | None = None, backend: str = "native"
) -> Iterator[dict[str, int]]:
    """Yield solutions in declared order, coded values as their codes; see `constrint.solve.solutions_in_order`."""
    budget = Budget(limits or Limits())
    compiled = walk_in_order(problem, budget) if backend == "native" else None
    if compiled is False:
        return
    if isinstance(compiled, CompiledWalk):
        walks = [_Walk(names, compiled.rows(i, budget)) for i, names in enumerate(compiled.components)]
        walks += [_Walk([n], zip(range(len(compiled.values[n])))) for n in compiled.free]
        open_names = {n for walk in walks for n in walk.names}
        for positions in _merged(walks, [n for n in problem.names if n in open_names], budget):
            yield compiled.assignment(positions)
        return
    with budget.watching():
        prepared = prepare(problem, budget)
    if not prepared.feasible:
        return
    axes: dict[str, Axis | LazyAxis] = dict(prepared.axes)
    axes.update({n: axis_of_free(d, budget) for n, d in prepared.free.items()})
    layout = AxisLayout(tuple(problem.variables), axes, prepared.fixed, prepared.derived)
    if layout.has_early:
        yield from _by_derived(problem, budget)
        return
    walks = _walks(problem, prepared, budget)
    walks += [_Walk([n], zip(range(layout.size(n)))) for n in prepared.free]
    for positions in _merged(walks, [n for n in problem.variables if n in axes], budget):
        rows = {n: np.array([at]) for n, at in positions.items()}
        solution = layout.assignments(rows, 1)
        yield {n: int(column[0]) for n, column in solution.items()}


def _by_derived(problem: Problem, budget: Budget) -> Iterator[dict[str, int]]:
    """Solutions in order where a variable that follows from others is declared before them: it has no axis to walk on.

    Few solutions are listed and sorted; many are searched for, range by range of the variable.
    """
    try:
        limits = budget.rest(max_rows=_SORTED_ROWS, max_cells=min(budget.limits.max_cells, _SORTED_CELLS))
        space = factored_space(problem, limits, use_core=False)
        with budget.watching():
            columns = space.columns() if space.size <= _SORTED_ROWS else None
    except CancelledError:
        raise
    except LimitReachedError:
        columns = None
    budget.check_work()
    if columns is not None:
        places = [places_of(problem.variables[n], columns[n]) for n in reversed(problem.names)]
        order = np.lexsort(places)
        for start in range(0, len(order), _LISTED_ROWS):
            rows = order[start : start + _LISTED_ROWS]
            yield from dicts_of({n: columns[n][rows] for n in problem.names}, len(rows))
        return
    constraints = flatten(problem.constraints)
    with budget.watching():
        domains = propagate(dict(problem.variables), constraints)
    if domains is None or not all(c.holds({}) for c in constraints if not c.variables):
        return
    walks: list[_Walk] = []
    for group in components(domains, [c.variables for c in constraints if c.variables]):
        names = [n for n in problem.names if n in set(group)]
        mine = [c for c in constraints if c.variables and c.variables <= set(group)]
        walks.append(_Walk(names, _searched({n: domains[n] for n in names}, mine, budget)))
    for found in _merged(walks, problem.names, budget):
        yield {n: domains[n].at(place) for n, place in found.items()}


def _searched(
    domains: dict[str, Domain], constraints: Sequence[Constraint], budget: Budget
) -> Iterator[tuple[int, ...]]:
    """Places of the values of one component's solutions, in order."""
    if not constraints:
        ((_, domain),) = domains.items()
        yield from zip(range(domain.size))
        return
    places = {n: {v: at for at, v in enumerate(d.listed)} for n, d in domains.items() if d.listed is not None}
    for found in search(domains, constraints, budget, in_order=True):
        yield tuple(
            places[n][v] if n in places else (v - domains[n].lower) // domains[n].step for n, v in found.items()
        )


@dataclass(slots=True)
class _Walk:
    """Solutions of one component: those found so far, and a source of further ones."""

    names: list[str]
    source: Iterator[tuple[int, ...]]
    known: list[tuple[int, ...]] = field(default_factory=list)

    def has(self, i: int, budget: Budget) -> bool:
        """Says whether there is an i-th solution."""
        while len(self.known) <= i:
            solution = next(self.source, None)
            if solution is None:
                return False
            budget.take_bytes(_tuple_bytes(len(solution)), "a list of the solutions so far")
            self.known.append(solution)
        return True


def _tuple_bytes(length: int) -> int:
    """Memory of a tuple of integers, with its place in a list."""
    return 64 + 40 * length


def _walks(problem: Problem, prepared: Prepared, budget: Budget) -> list[_Walk]:
    walks = []
    groups = components(prepared.axes, [c.scope for c in prepared.checks])
    for group in groups:
        names = [n for n in problem.variables if n in set(group)]
        mine = [c for c in prepared.checks if c.scope <= set(group)]
        walks.append(_Walk(names, _Component(names, mine, prepared, budget).solutions()))
    return walks


def _merged(walks: Sequence[_Walk], order: Sequence[str], budget: Budget) -> Iterator[dict[str, int]]:
    """Combines the components' solutions so that the whole stays in order."""
    if len(walks) == 1:
        # Nothing to combine: each solution is given away as it is found.
        (walk,) = walks
        for solution in walk.source:
            yield dict(zip(walk.names, solution, strict=True))
        return
    if not all(walk.has(0, budget) for walk in walks):
        return

    def entry(at: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        positions: dict[str, int] = {}
        for walk, i in zip(walks, at, strict=True):
            positions.update(zip(walk.names, walk.known[i], strict=True))
        return tuple(positions[n] for n in order), at

    entry_bytes = 64 + _tuple_bytes(len(order)) + _tuple_bytes(len(walks))
    heap = [entry((0,) * len(walks))]
    counted = 0
    while heap:
        positions, at = heapq.heappop(heap)
        yield dict(zip(order, positions, strict=True))
        budget.tick()
        # Each combination follows the one in which its last component that has moved stood a step before.
        first = max((i for i, moved in enumerate(at) if moved), default=0)
        for i in range(first, len(walks)):
            if walks[i].has(at[i] + 1, budget):
                heapq.heappush(heap, entry((*at[:i], at[i] + 1, *at[i + 1 :])))
        if len(heap) > counted:
            budget.take_bytes(entry_bytes * (len(heap) - counted), "a list of combinations that come next")
            counted = len(heap)


class _Component:
    """Depth-first walk over one component, in pieces of many rows."""

    def __init__(self, names: list[str], checks: Sequence[TableCheck], prepared: Prepared, budget: Budget) -> None:
        self.names, self.budget = names, budget
        self.axes: dict[str, Axis] = {n: prepared.axes[n] for n in names}
        self.fixed = fixed_columns(prepared.fixed)
        self.open: dict[str, Interval] = {n: self.axes[n].bounds for n in names}
        place = {n: i for i, n in enumerate(names)}
        # Per level the checks that its variable completes, and those that it only narrows.
        self.decided: list[list[TableCheck]] = [[] for _ in names]
        self.narrowed: list[list[Comparison]] = [[] for _ in names]
        for check in checks:
            levels = sorted(place[n] for n in check.scope)
            self.decided[levels[-1]].append(check)
            if isinstance(check.constraint, Comparison):
                for level in levels[:-1]:
                    self.narrowed[level].append(check.constraint)
        self.used = [
            frozenset().union(*(c.scope for c in decided), *(c.variables for c in narrowed))
            for decided, narrowed in zip(self.decided, self.narrowed, strict=True)
        ]
        self.cells = _FIRST_CELLS

    def solutions(self) -> Iterator[tuple[int, ...]]:
        """Yields rows of positions in order."""
        empty: NDArray[np.int32] = np.zeros((1, 0), dtype=np.int32)
        # Pieces that wait: the level of the next variable, rows of positions of those before it, and its first value.
        stack: list[tuple[int, NDArray[np.int32], int]] = [(0, empty, 0)]
        while stack:
            level, rows, first = stack.pop()
            if level == len(self.names):
                # Often only the first solutions are used, so a long piece is not converted to Python integers at once.
                for start in range(0, len(rows), _LISTED_ROWS):
                    yield from map(tuple, rows[start : start + _LISTED_ROWS].tolist())
                continue
            self.budget.tick()
            num_values = len(self.axes[self.names[level]])
            step = max(1, self.cells // num_values)
            if len(rows) > step:
                stack.append((level, rows[step:], 0))
                rows = rows[:step]
            if num_values - first > _MOST_CELLS:
                stack.append((level, rows, first + _MOST_CELLS))
            with self.budget.watching():
                rows = self._extended(level, rows, slice(first, first + _MOST_CELLS))
            if len(rows):
                stack.append((level + 1, rows, 0))
            else:
                self.cells = min(2 * self.cells, _MOST_CELLS)

    def _extended(self, level: int, rows: NDArray[np.int32], places: slice) -> NDArray[np.int32]:
        """Adds the variable of this level, at these places of its axis, to every row, where the rules allow it."""
        name = self.names[level]
        axis = self.axes[name]
        columns: dict[str, ExactColumn] = dict(self.fixed)
        for i, before in enumerate(self.names[:level]):
            if before not in self.used[level]:
                continue
            other = self.axes[before]
            columns[before] = ExactColumn(other.narrow[rows[:, i]][:, None], other.bounds)
        values = axis.narrow[places]
        columns[name] = ExactColumn(values[None, :], axis.bounds)
        mask: Any = True
        for check in self.decided[level]:
            mask = mask & np.asarray(test(check.constraint, columns))
        for rule in self.narrowed[level]:
            verdict = may_hold(rule, columns, self.open)
            if verdict is not None:
                mask = mask & verdict
        self.budget.stats.cells += len(rows) * len(values)
        flat = np.flatnonzero(np.broadcast_to(mask, (len(rows), len(values))))
        row = flat // len(values)
        longer = np.empty((len(flat), level + 1), dtype=np.int32)
        longer[:, :level] = rows[row]
        longer[:, level] = flat - row * len(values) + places.start
        return longer


class _Unknown(Exception):
    """Raised where no useful bounds exist; the comparison then rules nothing out."""


class _Range(NamedTuple):
    """Bounds of an expression per row, and over all rows."""

    low: Any
    high: Any
    bounds: Interval


def may_hold(rule: Comparison, assigned: Mapping[str, ExactColumn], open_bounds: Mapping[str, Interval]) -> Any:
    """Marks the rows whose completions may satisfy `rule`; None where bounds decide nothing."""
    try:
        left = _range(rule.left, assigned, open_bounds)
        right = _range(rule.right, assigned, open_bounds)
    except _Unknown:
        return None
    op = rule.op
    if op in (">=", ">"):
        left, right, op = right, left, "<=" if op == ">=" else "<"
    if op == "<=":
        return left.low <= right.high
    if op == "<":
        return left.low < right.high
    if op == "==":
        return np.logical_and(left.low <= right.high, right.low <= left.high)
    return None


def _range(expr: Expr, assigned: Mapping[str, ExactColumn], open_bounds: Mapping[str, Interval]) -> _Range:
    if isinstance(expr, Const):
        return _Range(expr.number, expr.number, _small((expr.number, expr.number)))
    if isinstance(expr, Var):
        column = assigned.get(expr.name)
        if column is not None:
            return _Range(column.values, column.values, column.bounds)
        low, high = open_bounds[expr.name]
        return _Range(low, high, (low, high))
    if isinstance(expr, Truth) and not all(n in assigned for n in expr.variables):
        return _Range(0, 1, (0, 1))
    if isinstance(expr, Element) and not all(n in assigned for n in expr.variables):
        raise _Unknown
    assert isinstance(expr, (Calculation, Truth))
    if all(n in assigned for n in expr.variables):
        column = evaluate(expr, assigned)
        return _Range(column.values, column.values, _small(column.bounds))
    assert isinstance(expr, Calculation)
    return fold(expr.op, [_range(a, assigned, open_bounds) for a in expr.args], _unary, _binary)


def _small(bounds: Interval) -> Interval:
    if bounds[0] <= MIN // 4 or bounds[1] >= MAX // 4:
        raise _Unknown
    return bounds


def _unary(op: str, a: _Range) -> _Range:
    bounds = UNARY[op].bounds(_small(a.bounds))
    if op == "neg":
        return _Range(-a.high, -a.low, bounds)
    if a.bounds[0] >= 0:
        return a
    return _Range(*bounds, bounds)


def _binary(op: str, a: _Range, b: _Range) -> _Range:
    # A small result does not make its operands small: min(x, 2 ^ 70).
    known = BINARY[op].bounds(_small(a.bounds), _small(b.bounds))
    if known is None:
        raise _Unknown
    bounds = _small(known)
    low_a, low_b = wide(a.low), wide(b.low)
    # Where an operand is known exactly its two bounds are one array.
    high_a = low_a if a.high is a.low else wide(a.high)
    high_b = low_b if b.high is b.low else wide(b.high)
    if op == "add":
        low = low_a + low_b
        return _Range(low, low if high_a is low_a and high_b is low_b else high_a + high_b, bounds)
    if op == "mul":
        if a.bounds[0] >= 0 and b.bounds[0] >= 0:
            low = low_a * low_b
            return _Range(low, low if high_a is low_a and high_b is low_b else high_a * high_b, bounds)
        corners = [low_a * low_b, low_a * high_b, high_a * low_b, high_a * high_b]
        return _Range(_fold(np.minimum, corners), _fold(np.maximum, corners), bounds)
    if op in ("min", "max"):
        function = np.minimum if op == "min" else np.maximum
        return _Range(function(low_a, low_b), function(high_a, high_b), bounds)
    if op == "floordiv" and a.bounds[0] >= 0 and b.bounds[0] > 0:
        return _Range(low_a // high_b, high_a // low_b, bounds)
    if op == "ceildiv" and a.bounds[0] >= 0 and b.bounds[0] > 0:
        return _Range(-(-low_a // high_b), -(-high_a // low_b), bounds)
    return _Range(*bounds, bounds)


def _fold(function: Any, values: list[Any]) -> NDArray[Any]:
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return np.asarray(result)
