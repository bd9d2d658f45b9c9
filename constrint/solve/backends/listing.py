"""Back-ends that list solutions one by one: brute force, the oracle of the tests, and python-constraint2."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from constrint.errors import LimitReachedError, UndefinedValueError
from constrint.model import Constraint, Problem
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.budget import Budget, Limits
from constrint.solve.engine.prepare import flatten
from constrint.solve.propagation import propagate
from constrint.solve.solution import StoppedEarlyError

MAX_COMBINATIONS: Final = 1_000_000


def all_solutions(problem: Problem, budget: Budget, max_combinations: int) -> Iterator[dict[str, int]]:
    """Tests every combination in declared order.

    Raises:
        LimitReachedError: When there are more than `max_combinations`, or a limit is reached.
    """
    total = math.prod(d.size for d in problem.variables.values())
    if total > max_combinations:
        raise LimitReachedError(f"brute force over {total} combinations; at most {max_combinations} are tried.")
    names = tuple(problem.variables)
    budget.check_work()
    for values in itertools.product(*problem.variables.values()):
        budget.tick()
        assignment = dict(zip(names, values, strict=True))
        if all(c.holds(assignment) for c in problem.constraints):
            yield assignment


class BruteBackend(Backend):
    """Tests every combination."""

    name = "brute"

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        return columns_of(problem, all_solutions(problem, Budget(limits), MAX_COMBINATIONS))

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution, or the first one by declared order."""
        return best_of(problem, all_solutions(problem, budget, MAX_COMBINATIONS))


# The library keeps every domain as a list.
MAX_VALUES: Final = 1 << 16


class PythonConstraintBackend(Backend):
    """Backtracking in Python; domains must be listable."""

    name = "python-constraint"

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        return columns_of(problem, self._iterate(problem, Budget(limits)))

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best of the listed solutions, or any one without an objective."""
        return best_of(problem, self._iterate(problem, budget))

    def _iterate(self, problem: Problem, budget: Budget) -> Iterator[dict[str, int]]:
        from constraint import OptimizedBacktrackingSolver
        from constraint import Problem as LibraryProblem

        flat = flatten(problem.constraints)
        budget.check_work()
        with budget.watching():
            domains = propagate(dict(problem.variables), flat)
        if domains is None or not all(c.holds({}) for c in flat if not c.variables):
            return
        if not domains:
            yield {}
            return
        library = LibraryProblem(OptimizedBacktrackingSolver(forwardcheck=False))
        for name, domain in domains.items():
            if domain.size > MAX_VALUES:
                raise LimitReachedError(
                    f"variable {name!r} has {domain.size} values; the back-end python-constraint lists at "
                    f"most {MAX_VALUES}. Bound it, or use the native back-end."
                )
            library.addVariable(name, list(domain))
        for constraint in flat:
            if constraint.variables:
                scope = sorted(constraint.variables)
                library.addConstraint(_tested(constraint, scope, budget), scope)
        for solution in library.getSolutionIter():
            budget.tick()
            yield {n: solution[n] for n in problem.variables}


def _tested(constraint: Constraint, scope: list[str], budget: Budget) -> Callable[..., Any]:
    def holds(*values: int) -> bool:
        budget.tick()
        return constraint.holds(dict(zip(scope, values, strict=True)))

    return holds


def columns_of(problem: Problem, rows: Iterable[Mapping[str, int]]) -> Columns:
    """One column per variable; Python integers where 64 bits do not suffice."""
    listed = list(rows)
    columns: Columns = {}
    for name, domain in problem.variables.items():
        fits = domain.lower >= -(2**63) and domain.upper < 2**63
        columns[name] = np.array([r[name] for r in listed], dtype=np.int64 if fits else object)
    return columns


def best_of(problem: Problem, rows: Iterable[dict[str, int]]) -> dict[str, int] | None:
    """The best row by the objective; the first row without one.

    Raises:
        StoppedEarlyError: When a limit ended the rows.
        UndefinedValueError: When there are rows and the objective has a value in none of them.
    """
    objective = problem.objective
    if objective is None:
        return next(iter(rows), None)
    best: dict[str, int] | None = None
    value: int | None = None
    has_any = False
    try:
        for row in rows:
            has_any = True
            try:
                cost = objective.expr.value(row)
            except UndefinedValueError:
                continue
            if value is None or (cost > value if objective.maximise else cost < value):
                best, value = row, cost
    except LimitReachedError as error:
        raise StoppedEarlyError(str(error), best) from None
    if has_any and best is None:
        raise UndefinedValueError(f"{objective} has no value in any solution; change the objective.")
    return best
