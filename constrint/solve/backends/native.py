"""The native engine as a back-end: a walk in order, then factored tables, then a depth-first search.

Each step takes over where the one before it would cost too much; all of them answer exactly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError
from constrint.model import Comparison, Const, Expr, Problem
from constrint.model.columns import column_of, evaluate
from constrint.solve.backends.backend import Columns
from constrint.solve.budget import Budget, Limits, Status
from constrint.solve.engine.compiled import best_assignment
from constrint.solve.engine.depth_first import search_one
from constrint.solve.engine.factored import factored_space
from constrint.solve.engine.prepare import flatten
from constrint.solve.engine.walk import solutions_in_order
from constrint.solve.propagation.domains import Domains
from constrint.solve.propagation.propagate import propagate
from constrint.solve.solution import Solution
from constrint.solve.space.space import SearchSpace

# A walk in declared order may look at this many combinations before tables are tried.
_WALK_CELLS: Final = 1 << 22
# Tables up to this length are listed before a depth-first search takes over.
_TABLE_ROWS: Final = 1 << 21


#: Names under which the native engine goes: with its compiled core, and on numpy alone.
NATIVE: Final = ("native", "numpy")


class NativeBackend:
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

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Finds the best solution; without an objective, the first one in declared order.

        Without an objective solutions are walked in order. Else the tables of the factored space say which is best.
        Where these would be too large, a depth-first search takes over.
        """
        budget = Budget(limits)
        try:
            if problem.objective is None:
                walked = self._first_in_order(problem, budget)
                if walked is not None:
                    return walked
            by_tables = self._from_tables(problem, budget)
            return _from_search(problem, budget) if by_tables is None else by_tables
        except LimitReachedError as error:
            return Solution(Status.LIMIT_REACHED, problem, message=str(error), stats=budget.stats)

    def _first_in_order(self, problem: Problem, budget: Budget) -> Solution | None:
        """The first solution in declared order; None where looking for it takes too long."""
        limits = replace(budget.limits, max_cells=min(budget.limits.max_cells, _WALK_CELLS))
        try:
            first = next(solutions_in_order(problem, limits, self.name), None)
        except CancelledError:
            raise
        except LimitReachedError:
            return None
        budget.stats.seconds = budget.elapsed_seconds()
        status = Status.INFEASIBLE if first is None else Status.FEASIBLE
        return Solution(status, problem, first or {}, stats=budget.stats)

    def _from_tables(self, problem: Problem, budget: Budget) -> Solution | None:
        """The answer from the factored space; None where its tables would be too large."""
        try:
            space = self.space(problem, replace(budget.limits, max_rows=min(budget.limits.max_rows, _TABLE_ROWS)))
            budget.stats = space.stats
            return _from_space(problem, space)
        except LimitReachedError:
            return None


def _from_space(problem: Problem, space: SearchSpace) -> Solution:
    if not space:
        return Solution(Status.INFEASIBLE, problem, stats=space.stats)
    objective = problem.objective
    if objective is None:
        return Solution(Status.FEASIBLE, problem, space.first(), stats=space.stats)
    quick = best_assignment(problem, space.factors, Budget(Limits(max_cells=_WALK_CELLS)))
    if quick is not None:
        return Solution(Status.FEASIBLE, problem, quick, objective.expr.value(quick), stats=space.stats)
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
    best = space.extend({n: int(columns[n][at]) for n in names}).first()
    return Solution(Status.FEASIBLE, problem, best, objective.expr.value(best), stats=space.stats)


def _from_search(problem: Problem, budget: Budget) -> Solution:
    objective = problem.objective
    if objective is None:
        solution = search_one(problem, budget)
        if solution is None:
            return Solution(Status.INFEASIBLE, problem, stats=budget.stats)
        return Solution(Status.FEASIBLE, problem, solution, stats=budget.stats)
    best = _halve(problem, -objective.expr if objective.maximise else objective.expr, budget)
    if best is None:
        return Solution(Status.INFEASIBLE, problem, stats=budget.stats)
    return Solution(Status.FEASIBLE, problem, best, objective.expr.value(best), stats=budget.stats)


def _halve(problem: Problem, expr: Expr, budget: Budget) -> dict[str, int] | None:
    """Finds a solution with the smallest value of `expr` by halving the range of possible values."""
    plain = problem.copy()
    plain.objective = None
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
