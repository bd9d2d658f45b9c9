"""What all back-ends have in common.

A back-end lists all solutions of a problem as integer columns and finds one (the best, where the problem has an
objective). It imports its library inside the function that uses it, and refuses what it cannot do exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray

from constrint.errors import LimitReachedError
from constrint.model import Problem
from constrint.solve.budget import Budget, Limits, Status
from constrint.solve.solution import Solution

Columns = dict[str, NDArray[Any]]


class Backend(ABC):
    """A solver: it states how all solutions are listed and how the best one is found."""

    name: str

    @abstractmethod
    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution once: one integer column per variable, in declared order of variables.

        Raises:
            LimitReachedError: When a limit ended the search before all solutions were known.
            UnsupportedError: When the problem has something that this back-end cannot express.
        """

    @abstractmethod
    def best(self, problem: Problem, budget: Budget) -> dict[str, int] | None:
        """The best solution by the problem's objective, any solution without one; None where there is none.

        Raises:
            LimitReachedError: When a limit ended the search before the answer was known.
            UndefinedValueError: When there are solutions and the objective has a value in none of them.
        """

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Finds the best solution by the problem's objective, and says how the search ended."""
        budget = Budget(limits)
        try:
            best = self.best(problem, budget)
        except LimitReachedError as error:
            return Solution(Status.LIMIT_REACHED, problem, message=str(error), stats=budget.stats)
        budget.stats.seconds = budget.elapsed_seconds()
        return Solution.of(problem, best, budget.stats)
