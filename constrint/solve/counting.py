"""How many solutions a problem has, as far as a limit lets it be known: the number, or bounds on it.

The tables of the factored space give the number. Where they take too much, solutions are counted one after the other
for the time that is left: their number so far is a lower bound, and the share of that search which is behind says how
much is open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from constrint.errors import CancelledError, LimitReachedError
from constrint.model import Problem
from constrint.solve.budget import Budget, Limits
from constrint.solve.engine import walk
from constrint.solve.engine.compiled import CompiledWalk, walk_in_order
from constrint.solve.enumerate import count

#: Of the time that is allowed the tables may take this share; the rest is for bounds.
TABLE_SHARE: Final = 0.8
#: Seconds for bounds where no time is stated, and after the caller's own signal.
BOUND_SECONDS: Final = 1.0
CANCELLED_SECONDS: Final = 0.15


@dataclass(frozen=True)
class Count:
    """The number of solutions, or bounds on it.

    Attributes:
        at_least: So many solutions are known.
        at_most: More there cannot be.
        searched: The share of the search one after the other that is behind, from 0 to 1; None where nothing is known.
        stopped: What ended the search; empty where the number is exact.
    """

    at_least: int
    at_most: int
    searched: float | None = None
    stopped: str = ""

    @property
    def exact(self) -> int | None:
        """The number of solutions; None where only bounds are known."""
        return self.at_least if self.at_least == self.at_most else None

    def __str__(self) -> str:
        if self.at_least == self.at_most:
            return f"{self.at_least:,}"
        if self.searched is None:
            return f"between {self.at_least:,} and {self.at_most:,}"
        return f"between {self.at_least:,} and {self.at_most:,} ({_percent(self.searched)} of the search is done)"


def _percent(share: float) -> str:
    if 0 < share < 1e-4:
        return "less than 0.01 %"
    return f"{100 * share:.2g} %" if share < 0.995 else "more than 99 %"


def count_within(problem: Problem, limits: Limits | None = None, backend: str = "native") -> Count:
    """Counts the solutions; where a limit comes first, it says between which bounds their number is.

    Args:
        problem: The problem; its objective plays no role here.
        limits: How much work is allowed. With `max_seconds` the last fifth of the time is for bounds; without it, they
            take a second more.
        backend: Who counts, as `enumerate_space` takes it.
    """
    budget = Budget(limits or Limits())
    seconds = budget.limits.max_seconds
    within = budget.rest(max_seconds=None if seconds is None else TABLE_SHARE * seconds)
    try:
        size = count(problem, within, backend)
    except LimitReachedError as error:
        is_late = seconds is not None and budget.elapsed_seconds() > TABLE_SHARE * seconds
        stopped = budget.time_over() if is_late and not isinstance(error, CancelledError) else str(error)
        return _bounds(problem, budget, stopped, is_cancelled=isinstance(error, CancelledError))
    return Count(size, size)


def _bounds(problem: Problem, budget: Budget, stopped: str, *, is_cancelled: bool) -> Count:
    """What a search one after the other says in the time that is left."""
    if is_cancelled:
        left = Limits(max_seconds=CANCELLED_SECONDS)
    elif budget.limits.max_seconds is None:
        left = budget.part(BOUND_SECONDS)
    else:
        left = budget.rest()
    trivial = Count(0, problem.num_combinations, None, stopped)
    try:
        return replace(_walked(problem, Budget(left), trivial), stopped=stopped)
    except LimitReachedError:
        return trivial


def _walked(problem: Problem, budget: Budget, trivial: Count) -> Count:
    compiled = walk_in_order(problem, budget)
    if compiled is False:
        return Count(0, 0, 1.0)
    if not isinstance(compiled, CompiledWalk):
        return _walked_by_numpy(problem, budget, trivial)
    at_least = at_most = math.prod(len(compiled.values[name]) for name in compiled.free)
    searched = 1.0
    for component, names in enumerate(compiled.components):
        later = len(compiled.components) - component
        seconds = budget.seconds_left() or 0.0
        number, share = compiled.counted(component, Budget(budget.part(seconds / later)))
        at_least *= number
        at_most *= number if share >= 1 else math.prod(len(compiled.values[name]) for name in names)
        searched = min(searched, share)
    # A component without a solution leaves none, however little is known of the others.
    return Count(at_least, at_most, searched if at_most else 1.0)


def _walked_by_numpy(problem: Problem, budget: Budget, trivial: Count) -> Count:
    number = 0
    try:
        for _ in walk.solutions_in_order(problem, budget.limits, "numpy"):
            number += 1
            budget.tick()
    except LimitReachedError:
        return replace(trivial, at_least=number)
    return Count(number, number, 1.0)
