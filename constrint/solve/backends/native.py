"""The native engine as a back-end: a walk in order, then factored tables, then a depth-first search.

Each step takes over where the one before it would cost too much; all of them answer exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError
from constrint.model import Comparison, Const, Problem
from constrint.model.columns import column_of, evaluate
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.budget import Budget, Limits
from constrint.solve.engine.compiled import best_assignment
from constrint.solve.engine.depth_first import search_one
from constrint.solve.engine.factored import factored_space
from constrint.solve.engine.prepare import flatten
from constrint.solve.engine.walk import solutions_in_order
from constrint.solve.propagation.domains import Domains
from constrint.solve.propagation.propagate import propagate
from constrint.solve.space.space import SearchSpace

# A walk in declared order may look at this many combinations before tables are tried.
_WALK_CELLS: Final = 1 << 22
# Tables up to this length are listed before a depth-first search takes over.
_TABLE_ROWS: Final = 1 << 21


#: Names under which the native engine goes: with its compiled core, and on numpy alone.
NATIVE: Final = ("native", "numpy")


class NativeBackend(Backend):
    """Factored tables, on the compiled core ("native") or on numpy alone ("numpy")."""

    def __init__(self, name: str = "native") -> None:
        self.name = name
        self._use_core = name == "native"

    def space(self, problem: Problem, limits: Limits) -> SearchSpace:
        """Finds every solution, in factored form."""
        return factored_space(problem, limits, self._use_core)

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        return self.space(problem, limits).columns()

    def best(self, problem: Problem, budget: Budget) -> dict[str, int] | None:
        """The best solution; without an objective, the first one in declared order.

        Without an objective solutions are walked in order. Else the tables of the factored space say which is best.
        Where these would be too large, a depth-first search takes over.
        """
        limits = budget.limits
        if problem.objective is None:
            walked = replace(limits, max_cells=min(limits.max_cells, _WALK_CELLS))
            try:
                return next(solutions_in_order(problem, walked, self.name), None)
            except CancelledError:
                raise
            except LimitReachedError:
                pass  # It takes too long: tables may be quicker.
        try:
            space = self.space(problem, replace(limits, max_rows=min(limits.max_rows, _TABLE_ROWS)))
            budget.stats = space.stats
            return _best_of_space(problem, space)
        except LimitReachedError:
            return _searched(problem, budget)


def _best_of_space(problem: Problem, space: SearchSpace) -> dict[str, int] | None:
    objective = problem.objective
    if not space or objective is None:
        return space.first() if space else None
    quick = best_assignment(problem, space.factors, Budget(Limits(max_cells=_WALK_CELLS)))
    if quick is not None:
        return quick
    names = [n for n in problem.variables if n in objective.expr.variables]
    columns, places = space.covering(names)
    num_rows = len(next(iter(places.values())))
    result = evaluate(objective.expr, {n: column_of(c) for n, c in columns.items()})
    values = np.broadcast_to(np.asarray(result.values), (num_rows,))
    rows = np.arange(num_rows)
    if result.defined is not None:
        rows = np.flatnonzero(np.broadcast_to(result.defined, (num_rows,)))
        if len(rows) == 0:
            raise UndefinedValueError(f"{objective} has no value in any solution; change the objective.")
    extreme = (np.max if objective.maximise else np.min)(values[rows])
    equal = rows[np.flatnonzero(values[rows] == extreme)]
    # Of equally good ones the first in the order of preference.
    at = int(equal[np.lexsort([place[equal] for place in reversed(places.values())])[0]])
    return space.extend({n: int(columns[n][at]) for n in names}).first()


def _searched(problem: Problem, budget: Budget) -> dict[str, int] | None:
    """The best solution by depth-first search: the range of the objective's possible values is halved."""
    if problem.objective is None:
        return search_one(problem, budget)
    expr = -problem.objective.expr if problem.objective.maximise else problem.objective.expr
    plain = problem.without_objective()
    # False where the objective has no value: such a solution is not comparable.
    plain.add(Comparison(expr, "==", expr))
    best = search_one(plain, budget)
    if best is None:
        return None
    domains = propagate(dict(plain.variables), flatten(plain.constraints))
    known = Domains(domains).bounds(expr) if domains is not None else None
    if known is None:
        raise LimitReachedError(f"no bounds are known for the objective {expr}; bound its powers by a constraint.")
    low, high = known[0], expr.value(best)
    while low < high:
        middle = (low + high) // 2
        trial = plain.copy()
        trial.add(Comparison(expr, "<=", Const(middle)))
        better = search_one(trial, budget)
        if better is None:
            low = middle + 1
        else:
            best, high = better, expr.value(better)
    return best
