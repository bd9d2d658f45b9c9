"""The k cheapest solutions of a space, by an expression or by a function over columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import LimitReachedError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import Domain, Expr, Problem
from constrint.model.columns import rows_with_value
from constrint.model.problem import Objective
from constrint.solve.budget import UNLIMITED, Budget, Limits
from constrint.solve.space.axes import places_of

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace

Cost = Callable[[dict[str, NDArray[Any]]], Any]

#: Combinations of an expression's variables up to which they are listed at once, and up to which after a short search.
_FEW_COMBINATIONS: Final = 1 << 12
_MANY_COMBINATIONS: Final = 1 << 24
#: Most solutions that a search is asked for: it keeps those so far in order, one by one.
_MOST_SEARCHED: Final = 1 << 10


@dataclass(frozen=True, slots=True)
class Ranked:
    """A solution and its cost."""

    cost: int | float
    config: dict[str, int]


def best_solutions(
    space: SearchSpace, k: int, cost: Expr | Cost, names: Sequence[str] | None, maximise: bool, limits: Limits | None
) -> list[Ranked]:
    """Implements `SearchSpace.best`."""
    if k < 0:
        raise UsageError(f"the number of solutions must not be negative, got {k}.")
    budget = Budget(limits or UNLIMITED)
    if not isinstance(cost, Expr):
        return _by_function(space, k, cost, names, maximise, budget)
    for name in sorted(cost.variables):
        if name not in space.names:
            raise UnknownNameError("variable", name, space.names)
    if k == 0 or not space.size:
        return []
    needed = [n for n in space.layout.needed(sorted(cost.variables)) if n in space.layout.axes]
    rows = min(space.size, math.prod(space.layout.size(n) for n in needed))
    if rows > _FEW_COMBINATIONS and k + len(space.gaps) <= _MOST_SEARCHED:
        found = _by_search(space, k, Objective(cost, maximise=maximise), budget, is_last=rows > _MANY_COMBINATIONS)
        if found is not None:
            return found
    return _by_projection(space, k, cost, maximise, budget)


def _by_search(
    space: SearchSpace, k: int, objective: Objective, budget: Budget, *, is_last: bool
) -> list[Ranked] | None:
    """The best by a search; None where there is none that is quick, and it is not the last way."""
    problem = _narrowed(space).with_objectives(objective)
    try:
        result = space.engine.best(problem, k + len(space.gaps), budget, is_last)
    except UndefinedValueError:
        return []
    if result is None:
        return None
    if not result.complete:
        budget.check_work()
        raise LimitReachedError(result.message)
    ranked = [Ranked(objective.expr.value(a), a) for a in result.assignments if a not in space.excluded]
    columns = {name: np.array([r.config[name] for r in ranked], dtype=object) for name in problem.names}
    places = [places_of(domain, columns[name]).tolist() for name, domain in problem.variables.items()]
    costs = [-r.cost if objective.maximise else r.cost for r in ranked]
    order = sorted(range(len(ranked)), key=lambda at: (costs[at], [column[at] for column in places]))
    return [ranked[at] for at in order[:k]]


def _narrowed(space: SearchSpace) -> Problem:
    """The problem of a space, excluded solutions still in it."""
    problem = space.problem.without_objective()
    for name, values in space.values_left.items():
        domain, left = problem.variables[name], frozenset(values)
        # A range may be too long to go through.
        kept = [v for v in sorted(left) if v in domain] if domain.listed is None else [v for v in domain if v in left]
        problem = problem.with_domain(name, Domain.from_values(kept))
    return problem


def _by_function(
    space: SearchSpace, k: int, cost: Cost, names: Sequence[str] | None, maximise: bool, budget: Budget
) -> list[Ranked]:
    """The best by a function over columns: every combination of its variables is listed."""
    budget.check_work()
    columns, counts = space.project(list(names if names is not None else space.names))
    if k == 0 or len(counts) == 0:
        return []
    values = np.asarray(cost(columns))
    if values.shape != counts.shape or values.dtype.kind not in "iufO":
        raise UsageError(
            f"the cost function must return one number per row ({len(counts)}), got shape {values.shape} "
            f"of {values.dtype}."
        )
    budget.check_work()
    rows = np.flatnonzero(values == values)
    return _ranked(space, k, columns, rows, values[rows], maximise)


def _by_projection(space: SearchSpace, k: int, cost: Expr, maximise: bool, budget: Budget) -> list[Ranked]:
    """The best by an expression, from all combinations of its variables."""
    budget.check_work()
    columns, counts = space.project([n for n in space.names if n in cost.variables])
    places = [places_of(space.problem.variables[n], column) for n, column in columns.items()]
    if places:
        order = np.lexsort(places[::-1])
        columns = {n: column[order] for n, column in columns.items()}
    with budget.watching():
        rows, values = rows_with_value(cost, columns, len(counts))
    return _ranked(space, k, columns, rows, values, maximise)


def _ranked(
    space: SearchSpace,
    k: int,
    columns: Mapping[str, NDArray[Any]],
    rows: NDArray[np.intp],
    costs: NDArray[Any],
    maximise: bool,
) -> list[Ranked]:
    """The solutions of the k best rows; equally good rows in their order."""
    # Not -x: that fails for the smallest integer and for unsigned ones.
    descending = ~costs if costs.dtype.kind in "iu" else -costs
    ranked: list[Ranked] = []
    for at in np.argsort(descending if maximise else costs, kind="stable")[:k].tolist():
        below = space.extend({n: int(column[rows[at]]) for n, column in columns.items()})
        number = costs[at].item() if hasattr(costs[at], "item") else costs[at]
        ranked += [Ranked(number, below[i]) for i in range(min(k - len(ranked), below.size))]
        if len(ranked) >= k:
            break
    return ranked
