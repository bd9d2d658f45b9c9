"""One solution of a problem: the first by the order of values, or the best by the problem's objective."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError
from constrint.model import Comparison, Const, Expr, Problem
from constrint.model.columns import column_of, evaluate
from constrint.solve.budget import Budget, Limits, Status
from constrint.solve.engine.compiled import best_assignment
from constrint.solve.engine.depth_first import search_one
from constrint.solve.engine.prepare import flatten
from constrint.solve.engine.walk import solutions_in_order
from constrint.solve.enumerate import enumerate_space
from constrint.solve.propagation.domains import Domains
from constrint.solve.propagation.propagate import propagate
from constrint.solve.solution import Solution
from constrint.solve.space.space import SearchSpace

# A walk in declared order may look at this many combinations before tables are tried.
_WALK_CELLS: Final = 1 << 22
# Tables up to this length are listed before a depth-first search takes over.
_TABLE_ROWS: Final = 1 << 21


def solve(problem: Problem, limits: Limits | None = None, backend: str = "native") -> Solution:
    """Finds the best solution by the objective; without one, the first in declared order.

    Where the tables of the factored space would be too large, a depth-first search looks for any solution,
    and an objective is met by halving its range. A back-end of another library gives any solution where there is
    no objective; "numpy" is the native engine without its compiled core.
    """
    if backend not in ("native", "numpy"):
        from constrint.solve.backends import get_backend

        return get_backend(backend).solve(problem, limits or Limits())
    budget = Budget(limits or Limits())
    wanted = budget.limits
    if problem.objective is None:
        try:
            first = next(
                solutions_in_order(problem, replace(wanted, max_cells=min(wanted.max_cells, _WALK_CELLS)), backend),
                None,
            )
        except CancelledError as error:
            return Solution(Status.LIMIT_REACHED, problem, message=str(error), stats=budget.stats)
        except LimitReachedError:
            pass
        else:
            budget.stats.seconds = budget.elapsed_seconds()
            status = Status.INFEASIBLE if first is None else Status.FEASIBLE
            return Solution(status, problem, first or {}, stats=budget.stats)
    try:
        space = enumerate_space(problem, replace(wanted, max_rows=min(wanted.max_rows, _TABLE_ROWS)), backend)
        budget.stats = space.stats
        return _from_space(problem, space)
    except LimitReachedError:
        pass
    try:
        return _from_search(problem, budget)
    except LimitReachedError as error:
        return Solution(Status.LIMIT_REACHED, problem, message=str(error), stats=budget.stats)


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
        found = search_one(problem, budget)
        if found is None:
            return Solution(Status.INFEASIBLE, problem, stats=budget.stats)
        return Solution(Status.FEASIBLE, problem, found, stats=budget.stats)
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
