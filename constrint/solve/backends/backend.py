"""The protocol of back-ends, and their registry: `get_backend(name)`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, cast

from numpy.typing import NDArray

from constrint.errors import LimitReachedError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import AllOf, Comparison, Const, Not, Problem, Var
from constrint.model.encode import in_codes
from constrint.solve.budget import Budget, Limits, Status
from constrint.solve.solution import SearchResult, Solution, StoppedEarlyError

Columns = dict[str, NDArray[Any]]


class Backend(ABC):
    """Protocol of a solver: list all solutions, find the best ones."""

    name: str

    @abstractmethod
    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution once: one integer column per variable, in declared order of variables.

        Raises:
            LimitReachedError: When a limit ended the search before all solutions were known.
            UnsupportedError: When the problem has something that this back-end cannot express.
        """

    @abstractmethod
    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution by the problem's first objective, any solution without one; None where there is none.

        Args:
            problem: The problem; only its first objective counts here.
            budget: Remaining work of the search.
            hint: Values to try first.

        Raises:
            LimitReachedError: When a limit ended the search before the answer was known; a `StoppedEarlyError` where
                a solution or a bound is known.
            UndefinedValueError: When there are solutions and the objective has a value in none of them.
        """

    def find(
        self, problem: Problem, budget: Budget, number: int = 1, hint: Mapping[str, int] | None = None
    ) -> SearchResult:
        """Find the best solutions by all objectives in lexicographic order; at a limit, the best so far and a bound."""
        incumbents: list[dict[str, int]] = []
        coded = in_codes(problem)
        bound: int | None = None
        try:
            while len(incumbents) < number:
                best = self._by_all_objectives(coded, budget, hint)
                if best is None:
                    break
                incumbents.append(best)
                if len(incumbents) == number:
                    break
                coded = coded.copy() if len(incumbents) == 1 else coded
                coded.add(Not(AllOf(tuple(Comparison(Var(n), "==", Const(v)) for n, v in best.items()))))
        except LimitReachedError as error:
            if isinstance(error, StoppedEarlyError):
                incumbents += [error.incumbent] if error.incumbent is not None else []
                bound = error.bound
            return SearchResult(tuple(incumbents), False, bound if len(incumbents) < 2 else None, str(error))
        except UndefinedValueError:
            if not incumbents:
                raise
        return SearchResult(tuple(incumbents))

    def _by_all_objectives(
        self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None
    ) -> dict[str, int] | None:
        """Optimise one objective after the other, each among the optima of those before it."""
        if len(problem.objectives) < 2:
            return self.best(problem, budget, hint)
        feasibility = problem.without_objective()
        for objective in problem.objectives:
            # False where the objective has no value: such a solution is not comparable.
            feasibility.add(Comparison(objective.expr, "==", objective.expr))
        best: dict[str, int] | None = None
        bound: int | None = None
        for objective in problem.objectives:
            try:
                better = self.best(feasibility.with_objectives(objective), budget, best or hint)
            except LimitReachedError as error:
                known = error if isinstance(error, StoppedEarlyError) else StoppedEarlyError(str(error))
                raise StoppedEarlyError(
                    str(error), known.incumbent or best, known.bound if best is None else bound
                ) from None
            if better is None:
                if self.best(problem.without_objective(), budget) is None:
                    return None
                objectives = "; ".join(map(str, problem.objectives))
                raise UndefinedValueError(f"{objectives} has no value in any solution; change the objectives.")
            value = objective.expr.value(better)
            bound = value if best is None else bound
            best = better
            feasibility.add(Comparison(objective.expr, "==", Const(value)))
        return best

    def solve(self, problem: Problem, limits: Limits) -> Solution:
        """Finds the best solution by the problem's objectives, and says how the search ended."""
        budget = Budget(limits)
        result = self.find(problem, budget)
        budget.stats.seconds = budget.elapsed_seconds()
        return solution_of(problem, result, budget, self.name)


def solution_of(problem: Problem, result: SearchResult, budget: Budget, solver: str, place: int = 0) -> Solution:
    """Make the answer from a search's result: its solution number `place`, the best being 0."""
    solver = result.solver or solver
    if result.complete:
        status = Status.FEASIBLE if place < len(result.assignments) else Status.INFEASIBLE
    else:
        status = Status.LIMIT_REACHED
    assignment = result.assignments[place] if place < len(result.assignments) else None
    return Solution.of(
        problem, assignment, budget.stats, status, bound=result.bound, message=result.message, solver=solver
    )


#: Module and class of each back-end, and the arguments that make it; a module is imported at its first use.
_BACKENDS: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "auto": ("native", "AutoBackend", ()),
    "native": ("native", "NativeBackend", ()),
    "numpy": ("native", "NativeBackend", ("numpy",)),
    "brute": ("listing", "BruteBackend", ()),
    "cpsat": ("cpsat", "CpSatBackend", ()),
    "python-constraint": ("listing", "PythonConstraintBackend", ()),
}

#: Libraries of optional back-ends: import name and name in messages.
_LIBRARIES: Final = {"cpsat": ("ortools", "OR-tools"), "python-constraint": ("constraint", "python-constraint2")}


def list_backends() -> tuple[str, ...]:
    """Names that `backend=` takes; the default of `solve` comes first."""
    return tuple(_BACKENDS)


def get_backend(name: str) -> Backend:
    """Returns the back-end of that name.

    Raises:
        UnknownNameError: When there is none; names the nearest.
        UsageError: When its library is not installed; names the extra.
    """
    if name not in _BACKENDS:
        raise UnknownNameError("back-end", name, _BACKENDS)
    imported, library = _LIBRARIES.get(name, ("", ""))
    if imported and find_spec(imported) is None:
        raise UsageError(
            f"back-end {name!r} needs {library}, which is not installed: pip install 'constrint[solvers]'. "
            "The native back-end needs nothing."
        )
    module, class_name, arguments = _BACKENDS[name]
    backend = getattr(import_module(f"constrint.solve.backends.{module}"), class_name)(*arguments)
    return cast(Backend, backend)
