"""Solutions listed one by one: brute force, the oracle of the tests, and what back-ends make of listed rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from constrint.errors import LimitReachedError, UndefinedValueError
from constrint.model import Problem
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.budget import Budget, Limits
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
