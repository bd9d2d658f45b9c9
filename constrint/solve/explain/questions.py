"""The many small questions behind one explanation, within the limits of the whole."""

from __future__ import annotations

from typing import Final

from constrint.errors import CancelledError, LimitReachedError
from constrint.model import Expr, Problem
from constrint.solve.backends.native import NativeBackend
from constrint.solve.budget import Budget, Limits, Status
from constrint.solve.solution import Solution

# Work that one question may cost.
_MAX_NODES: Final = 300
_MAX_ROWS: Final = 1 << 20
_MAX_CELLS: Final = 1 << 21
# Where the caller gave no time: seconds for one question, and for all those together that stay without an answer.
_SECONDS: Final = 0.3
_UNDECIDED_SECONDS: Final = 2.0
# Variables with more values than this are hardly ever searched through; a moment shows whether there is a quick answer.
_SEARCHED: Final = 1 << 24
_MOMENT: Final = 0.05
# Of the time that the caller gave one question takes at most this share of what is left.
_SHARE: Final = 0.25


class Questions:
    """Asks the native engine, each time within a share of what is left.

    Attributes:
        undecided: How many questions stayed without an answer.
    """

    def __init__(self, limits: Limits | None) -> None:
        self.budget = Budget(limits or Limits())
        self.undecided = 0
        self._undecided_seconds = 0.0

    def check(self) -> None:
        """Ends the explanation where its limit is reached.

        Raises:
            LimitReachedError: When the time is over; CancelledError when the caller's signal came.
        """
        self.budget.check_work()

    def decide(self, problem: Problem, objective: Expr | None = None) -> Solution:
        """One solution of a problem, the one with the smallest `objective` if that is given."""
        asked = problem.without_objective()
        if objective is not None:
            asked.minimise(objective)
        self.check()
        limits = self.budget.limits
        left = self.budget.seconds_left()
        seconds = _SECONDS
        if self._undecided_seconds > _UNDECIDED_SECONDS or any(d.size > _SEARCHED for d in asked.variables.values()):
            seconds = _MOMENT
        if left is not None:
            # A caller who gives more time gets answers that take longer.
            seconds = max(seconds, _SHARE * left)
        mine = self.budget.part(
            seconds,
            max_rows=min(limits.max_rows, _MAX_ROWS),
            max_nodes=min(limits.max_nodes, _MAX_NODES),
            max_cells=min(limits.max_cells, _MAX_CELLS),
        )
        before = self.budget.elapsed_seconds()
        try:
            answer = NativeBackend().solve(asked, mine)
        except CancelledError:
            raise
        except LimitReachedError as error:
            answer = Solution(Status.LIMIT_REACHED, asked, message=str(error))
        if answer.status is Status.LIMIT_REACHED:
            # The limit may have been the caller's own.
            self.check()
            self.undecided += 1
            self._undecided_seconds += self.budget.elapsed_seconds() - before
        return answer
