"""All solutions of a problem: the search space, their number or bounds on it, and one after the other in order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import CancelledError, LimitReachedError
from constrint.model import Problem
from constrint.model.encode import Coding
from constrint.solve.backends.backend import Columns, get_backend
from constrint.solve.backends.native import NATIVE
from constrint.solve.budget import UNLIMITED, Budget, Limits, SearchStats
from constrint.solve.engine import walk
from constrint.solve.engine.compiled import ENGINE, CompiledWalk, factored_space, walk_in_order
from constrint.solve.space.axes import Axis, AxisLayout, axis_of, places_of, position_type
from constrint.solve.space.parts import Factors, Part
from constrint.solve.space.space import SearchSpace
from constrint.solve.space.tree import Tree, one_table


def enumerate_space(problem: Problem, limits: Limits | None = None, backend: str = "native") -> SearchSpace:
    """Finds all solutions of a problem, in factored form.

    Args:
        problem: The problem; its objective is ignored.
        limits: Limits of the search.
        backend: "native" (the compiled core where it supports the problem, else numpy) or "auto" (the same),
            "numpy", "brute", "cpsat" or "python-constraint".

    Raises:
        LimitReachedError: When a limit ended the search before all solutions were known.
    """
    if backend in NATIVE or backend == "auto":
        return _with_values(factored_space(problem, limits, backend != "numpy"), problem)
    started = time.perf_counter()
    columns = get_backend(backend).solutions(problem, limits or UNLIMITED)
    factors = _one_table(problem, columns)
    space = SearchSpace(problem, factors, SearchStats(seconds=time.perf_counter() - started), ENGINE)
    return _with_values(space, problem)


def _with_values(space: SearchSpace, problem: Problem) -> SearchSpace:
    """A search space that takes and gives the values of the problem's variables instead of their codes."""
    coding = Coding.of(problem)
    if coding is None:
        return space
    from constrint.solve.space.labelled import LabelledSpace  # loaded where values are no integers

    return LabelledSpace(space, coding)


def count(problem: Problem, limits: Limits | None = None, backend: str = "native") -> int:
    """Number of solutions, exact even beyond 64 bits."""
    return enumerate_space(problem, limits, backend).size


def brute_force(problem: Problem, max_combinations: int = 1_000_000) -> list[dict[str, Any]]:
    """Tests every combination of the domains with exact Python integers; the reference for everything else.

    Raises:
        LimitReachedError: When the domains have more than `max_combinations` combinations.
    """
    from constrint.solve.backends.listing import all_solutions  # loaded at its first use

    solutions = all_solutions(problem, Budget(Limits()), max_combinations)
    coding = Coding.of(problem)
    return list(solutions if coding is None else map(coding.decoded, solutions))


def _one_table(problem: Problem, columns: Columns) -> Factors:
    """Keeps listed solutions as one table, in declared order."""
    num_rows = len(next(iter(columns.values()))) if columns else 0
    axes: dict[str, Axis] = {}
    rows: dict[str, NDArray[Any]] = {}
    for name, column in columns.items():
        # The axis keeps the order of preference, the order in which the values were given.
        ranks = places_of(problem.variables[name], column)
        _, first, at = np.unique(ranks, return_index=True, return_inverse=True)
        axes[name] = axis_of(column[first])
        rows[name] = at.reshape(-1).astype(position_type(max(1, len(first))))
    parts: tuple[Part, ...] | None = None
    if num_rows:
        order = np.lexsort([rows[n] for n in reversed(problem.names)])
        table = one_table({n: at[order] for n, at in rows.items()}, num_rows)
        parts = (Tree([table], {n: len(axis) for n, axis in axes.items()}),)
    elif not problem.variables and all(c.holds({}) for c in problem.constraints):
        parts = ()
    return Factors(AxisLayout(problem.names, {**axes}, {}), parts)


#: Share of the time limit for listing tables; the rest is for bounds.
TABLE_SHARE: Final = 0.8
#: Seconds for bounds: without a time limit, and after cancellation.
BOUND_SECONDS: Final = 1.0
CANCELLED_SECONDS: Final = 0.15


@dataclass(frozen=True)
class Count:
    """The number of solutions, or bounds on it.

    Attributes:
        at_least: Lower bound on the number of solutions.
        at_most: Upper bound on the number of solutions.
        searched: Finished share of the walk through all solutions, from 0 to 1; None where unknown.
        stopped: The limit that ended the search; empty where the number is exact.
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
    """Count the solutions; at a limit, return bounds on their number.

    Args:
        problem: The problem; its objective is ignored.
        limits: Limits of the search. With `max_seconds` the last fifth of the time is for bounds; without it, they
            take a second more.
        backend: The solver, as in `enumerate_space`.
    """
    budget = Budget(limits or UNLIMITED)
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
    """Bounds from a walk through the solutions in the remaining time."""
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
    # One component without a solution means no solution at all.
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


def solutions_in_order(
    problem: Problem, limits: Limits | None = None, backend: str = "native"
) -> Iterator[dict[str, Any]]:
    """Yields solutions in the declared order of variables and of their values, the first one first.

    Args:
        problem: The problem; its objective is ignored.
        limits: Limits of the search.
        backend: "native" (the compiled core where it supports the problem, else numpy) or "numpy".

    Raises:
        LimitReachedError: When a limit ended the search before the next solution was known.
    """
    solutions = walk.solutions_in_order(problem, limits, backend)
    coding = Coding.of(problem)
    return solutions if coding is None else map(coding.decoded, solutions)
