"""The answer of a search for one solution, and the result of a back-end that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from constrint.errors import ConstrintError, InfeasibleError, LimitReachedError, RulesInConflict
from constrint.model import Problem, SoftConstraint
from constrint.model.domain import literal
from constrint.solve.budget import SearchStats, Status

#: What an objective may be: a fraction is a float where that is equal.
Number: TypeAlias = int | float | Fraction


@dataclass(frozen=True)
class Solution:
    """The answer of `solve`.

    Attributes:
        status: FEASIBLE (proven best by the objectives), INFEASIBLE, or LIMIT_REACHED.
        assignment: A value per variable; with LIMIT_REACHED the best one known, empty where none is known.
        value: The first objective's value; None without an objective or an assignment.
        values: The values of all objectives in order.
        bound: Proven bound on the first objective; equal to its value at a proven optimum. With
            soft constraints, the total weight of those violated is the first objective here.
        violated: The soft constraints that the assignment violates.
        penalty: Their total weight; None without soft constraints or an assignment.
        solver: Name of the back-end that answered.
        message: The limit that ended the search, if one did.
        stats: Work of the search.
        explain: Finds the conflict in a problem without a solution; set by `solve`, not by back-ends.
    """

    status: Status
    problem: Problem
    assignment: dict[str, Any] = field(default_factory=dict)
    value: Number | None = None
    message: str = ""
    stats: SearchStats = field(default_factory=SearchStats)
    explain: Callable[[Problem], RulesInConflict] | None = field(default=None, repr=False, compare=False)
    values: tuple[Number, ...] = ()
    bound: Number | None = None
    violated: tuple[SoftConstraint, ...] = ()
    penalty: int | None = None
    solver: str = ""

    @classmethod
    def of(
        cls,
        problem: Problem,
        assignment: dict[str, int] | None,
        stats: SearchStats,
        status: Status | None = None,
        *,
        bound: int | None = None,
        message: str = "",
        solver: str = "",
    ) -> Solution:
        """Make the answer from an assignment (None where none is known), evaluated and checked with exact integers.

        Without a status the search ran to its end: the assignment is the answer, and without one there is no solution.

        Raises:
            ConstrintError: When the assignment is no solution, which is a fault of the solver.
        """
        if status is None:
            status = Status.INFEASIBLE if assignment is None else Status.FEASIBLE
        proven: Number | None = bound
        if bound is not None and problem.objective is not None and not problem.soft_constraints:
            proven = problem.objective.stated(bound)
        if assignment is None:
            return cls(status, problem, stats=stats, bound=proven, message=message, solver=solver)
        assignment = {name: assignment[name] for name in problem.names}
        for rule in problem.constraints:
            if not rule.holds(assignment):
                raise ConstrintError(f"{solver or 'a back-end'} gave an assignment that violates {rule}: {assignment}")
        values = tuple(o.value(assignment) for o in problem.objectives)
        violated = tuple(s for s in problem.soft_constraints if not s.constraint.holds(assignment))
        penalty = sum(s.weight for s in violated) if problem.soft_constraints else None
        if status is Status.FEASIBLE:
            proven = penalty if penalty is not None else values[0] if values else None
        return cls(
            status,
            problem,
            assignment,
            values[0] if values else None,
            message,
            stats,
            values=values,
            bound=proven,
            violated=violated,
            penalty=penalty,
            solver=solver,
        )

    def __bool__(self) -> bool:
        return self.status is Status.FEASIBLE

    def __getitem__(self, name: str) -> Any:
        return self.require()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.assignment)

    def __str__(self) -> str:
        name = f" of {self.problem.name!r}" if self.problem.name else ""
        values = ", ".join(f"{n} = {literal(v)}" for n, v in self.assignment.items())
        if self.status is Status.INFEASIBLE:
            return f"no solution{name}"
        if self.value is not None:
            values += f"; {self.problem.objective} is {self.value}"
        if self.status is Status.LIMIT_REACHED:
            return f"limit reached{name}: {self.message}" + (f" Best so far: {values}" if values else "")
        return f"solution{name}: {values}" if values else f"solution{name} without variables"

    def require(self) -> dict[str, Any]:
        """Returns the assignment, or raises with the minimal conflict (or the limit) against it."""
        if self.status is Status.FEASIBLE:
            return self.assignment
        if self.status is Status.LIMIT_REACHED:
            incumbent = f" `assignment` has the best solution known, with {self.values}." if self.assignment else ""
            raise LimitReachedError(self.message + incumbent)
        conflict = self.explain(self.problem) if self.explain is not None else None
        name = f" of {self.problem.name!r}" if self.problem.name else ""
        why = str(conflict) if conflict is not None else "minimal_conflict(problem) says why."
        raise InfeasibleError(f"no assignment{name} satisfies every constraint. {why}", conflict)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Result of a back-end's search for the best solutions.

    Attributes:
        assignments: The best known solutions, the best one first.
        complete: Whether these are proven to be the best ones, or all.
        bound: Proven bound on the first objective; None where there is none.
        message: The limit that ended the search; empty where it is complete.
        solver: The back-end that answered, where it is not the selected one.
    """

    assignments: tuple[dict[str, int], ...] = ()
    complete: bool = True
    bound: int | None = None
    message: str = ""
    solver: str = ""


class StoppedEarlyError(LimitReachedError):
    """Raised when a limit ended a search that has a solution or a bound already."""

    def __init__(self, message: str, incumbent: dict[str, int] | None = None, bound: int | None = None) -> None:
        self.incumbent, self.bound = incumbent, bound
        super().__init__(message)
