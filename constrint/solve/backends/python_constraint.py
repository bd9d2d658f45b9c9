"""python-constraint2 as a back-end: constraints are tested by exact Python evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from constrint.errors import LimitReachedError
from constrint.model import Constraint, Problem
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.backends.listed import best_of, columns_of
from constrint.solve.budget import Budget, Limits
from constrint.solve.engine.prepare import flatten
from constrint.solve.propagation.propagate import propagate

# The library keeps every domain as a list.
MAX_VALUES: Final = 1 << 16


class PythonConstraintBackend(Backend):
    """Backtracking in Python; domains must be listable."""

    name = "python-constraint"

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        return columns_of(problem, self._iterate(problem, Budget(limits)))

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution of those listed, or any one without an objective."""
        return best_of(problem, self._iterate(problem, budget))

    def _iterate(self, problem: Problem, budget: Budget) -> Iterator[dict[str, int]]:
        from constraint import OptimizedBacktrackingSolver
        from constraint import Problem as LibraryProblem

        flat = flatten(problem.constraints)
        budget.check_work()
        with budget.watching():
            domains = propagate(dict(problem.variables), flat)
        if domains is None or not all(c.holds({}) for c in flat if not c.variables):
            return
        if not domains:
            yield {}
            return
        library = LibraryProblem(OptimizedBacktrackingSolver(forwardcheck=False))
        for name, domain in domains.items():
            if domain.size > MAX_VALUES:
                raise LimitReachedError(
                    f"variable {name!r} has {domain.size} values; the back-end python-constraint lists at "
                    f"most {MAX_VALUES}. Bound it, or use the native back-end."
                )
            library.addVariable(name, list(domain))
        for constraint in flat:
            if constraint.variables:
                scope = sorted(constraint.variables)
                library.addConstraint(_tested(constraint, scope, budget), scope)
        for solution in library.getSolutionIter():
            budget.tick()
            yield {n: solution[n] for n in problem.variables}


def _tested(constraint: Constraint, scope: list[str], budget: Budget) -> Callable[..., Any]:
    def holds(*values: int) -> bool:
        budget.tick()
        return constraint.holds(dict(zip(scope, values, strict=True)))

    return holds
