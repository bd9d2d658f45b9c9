"""The native engine as a back-end."""

from __future__ import annotations

from constrint.model import Problem
from constrint.solve.backends import Columns
from constrint.solve.budget import Limits
from constrint.solve.solution import Solution


class NativeBackend:
    """Factored tables, on the compiled core ("native") or on numpy alone; see `constrint.solve.enumerate`."""

    def __init__(self, name: str = "native") -> None:
        self.name = name

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        from constrint.solve.enumerate import enumerate_space

        return enumerate_space(problem, limits, self.name).columns()

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Finds the best solution, or the first one by declared order."""
        from constrint.solve.optimise import solve

        return solve(problem, limits, self.name)
