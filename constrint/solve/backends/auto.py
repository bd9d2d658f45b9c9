"""The native engine first; what it finds hard goes to CP-SAT within the same limits, where OR-tools is installed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from typing import Final

from constrint.errors import LimitReachedError, UnsupportedError
from constrint.model import Problem
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.backends.native import NativeBackend
from constrint.solve.budget import Budget, Limits
from constrint.solve.found import Found

#: Seconds after which a problem counts as hard; at most this part of the time that is allowed.
NATIVE_SECONDS: Final = 1.0
NATIVE_PART: Final = 0.3


@cache
def _has_cpsat() -> bool:
    """Whether OR-tools is installed; looked for once, which takes as long as a small problem."""
    return PathFinder.find_spec("ortools") is not None


class AutoBackend(Backend):
    """The native engine, and CP-SAT after it; `Solution.solver` says who answered."""

    name = "auto"

    def __init__(self) -> None:
        self._native = NativeBackend()

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution, natively."""
        return self._native.solutions(problem, limits)

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution by the native engine."""
        return self._native.best(problem, budget, hint)

    def find(self, problem: Problem, budget: Budget, number: int = 1, hint: Mapping[str, int] | None = None) -> Found:
        """The best solutions by all objectives; without one, the first in declared order or else any solution."""
        if not _has_cpsat() or (number > 1 and not problem.objectives):
            return replace(self._native.find(problem, budget, number, hint), solver="native")
        left = budget.seconds_left()
        early = Budget(budget.part(NATIVE_SECONDS if left is None else min(NATIVE_SECONDS, NATIVE_PART * left)))
        native = replace(self._native.find(problem, early, number, hint), solver="native")
        budget.stats = early.stats
        if native.complete:
            return native
        try:
            budget.check_work()
        except LimitReachedError as error:
            return replace(native, message=str(error))
        return self._handed_over(problem, budget, number, native, hint)

    def _handed_over(
        self, problem: Problem, budget: Budget, number: int, native: Found, hint: Mapping[str, int] | None
    ) -> Found:
        from constrint.solve.backends.cpsat import CpSatBackend

        incumbent = native.assignments[0] if native.assignments else hint
        rest = Budget(budget.rest())
        try:
            found = replace(CpSatBackend().find(problem, rest, number, incumbent), solver="cpsat")
        except UnsupportedError:
            rest = Budget(budget.rest())
            found = replace(self._native.find(problem, rest, number, incumbent), solver="native")
        return found if found.complete else _together(problem, found, native)


def _together(problem: Problem, first: Found, second: Found) -> Found:
    """What two searches know together that were both stopped."""
    values = {}
    for found in (first, second):
        for assignment in found.assignments:
            costs = (o.expr.value(assignment) * (-1 if o.maximise else 1) for o in problem.objectives)
            values[tuple(assignment.items())] = (tuple(costs), assignment, found.solver)
    ordered = sorted(values.values(), key=lambda entry: entry[0])
    bounds = [found.bound for found in (first, second) if found.bound is not None]
    tightest = min if problem.objective is not None and problem.objective.maximise else max
    bound = tightest(bounds) if bounds else None
    solver = ordered[0][2] if ordered else first.solver
    number = max(len(first.assignments), len(second.assignments))
    best = tuple(assignment for _, assignment, _ in ordered[:number])
    return Found(best, False, bound, first.message or second.message, solver)
