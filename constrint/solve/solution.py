"""The answer of a search for one solution."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from constrint.errors import InfeasibleError, LimitReachedError, RulesInConflict
from constrint.model import Problem
from constrint.solve.budget import SearchStats, Status


@dataclass(frozen=True)
class Solution:
    """The answer of `solve`.

    Attributes:
        status: FEASIBLE, INFEASIBLE, or LIMIT_REACHED when nothing was found before a limit.
        assignment: A value per variable; empty unless feasible.
        value: The objective's value; None without an objective.
        message: What ended the search, where a limit did.
        stats: What the search cost.
        explain: Finds the conflict in a problem without a solution; `solve` gives it, back-ends leave it out.
    """

    status: Status
    problem: Problem
    assignment: dict[str, Any] = field(default_factory=dict)
    value: int | None = None
    message: str = ""
    stats: SearchStats = field(default_factory=SearchStats)
    explain: Callable[[Problem], RulesInConflict] | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, problem: Problem, assignment: dict[str, int] | None, stats: SearchStats) -> Solution:
        """The answer of a search that ran to its end: this assignment, or None where there is no solution."""
        if assignment is None:
            return cls(Status.INFEASIBLE, problem, stats=stats)
        value = None if problem.objective is None else problem.objective.expr.value(assignment)
        return cls(Status.FEASIBLE, problem, assignment, value, stats=stats)

    def __bool__(self) -> bool:
        return self.status is Status.FEASIBLE

    def __getitem__(self, name: str) -> Any:
        return self.require()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.assignment)

    def require(self) -> dict[str, Any]:
        """Returns the assignment, or raises with the minimal conflict (or the limit) against it."""
        if self.status is Status.FEASIBLE:
            return self.assignment
        if self.status is Status.LIMIT_REACHED:
            raise LimitReachedError(self.message)
        conflict = self.explain(self.problem) if self.explain is not None else None
        name = f" of {self.problem.name!r}" if self.problem.name else ""
        why = str(conflict) if conflict is not None else "minimal_conflict(problem) says why."
        raise InfeasibleError(f"no assignment{name} satisfies every constraint. {why}", conflict)
