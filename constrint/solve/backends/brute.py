"""Brute force: every combination of the domains, decided with exact Python integers. The oracle of the tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

from constrint.errors import LimitReachedError
from constrint.model import Problem
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.backends.listed import best_of, columns_of
from constrint.solve.budget import Budget, Limits

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
