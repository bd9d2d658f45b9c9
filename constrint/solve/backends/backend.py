"""The protocol of a back-end.

A back-end lists all solutions of a problem as integer columns and finds one (the best, where the problem has an
objective). It imports its library inside the function that uses it, and refuses what it cannot do exactly.
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from constrint.model import Problem
from constrint.solve.budget import Limits
from constrint.solve.solution import Solution

Columns = dict[str, NDArray[Any]]


class Backend(Protocol):
    """What a solver must be able to do."""

    name: str

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution once: one integer column per variable, in declared order of variables.

        Raises:
            LimitReachedError: When a limit ended the search before all solutions were known.
            UnsupportedError: When the problem has something that this back-end cannot express.
        """

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Finds the best solution by the problem's objective; any solution without one."""
