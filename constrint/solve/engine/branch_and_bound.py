"""Branch and bound on the compiled core: the best solutions of a problem, and what is known when it is stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from constrint.core import compiled as core
from constrint.errors import LimitReachedError, UndefinedValueError
from constrint.model import Problem
from constrint.model.encode import encode_expression
from constrint.solve.budget import Budget
from constrint.solve.engine.compiled import core_model
from constrint.solve.found import Found

# The core stands for "no bound" by numbers of this size.
_UNBOUNDED: Final = 1 << 62


class BranchAndBound:
    """A search that can be stopped and go on.

    Attributes:
        done: Whether it came to its end: what it found is best, or there is no solution.
    """

    def __init__(self, problem: Problem, search: object, model: object) -> None:
        # The model is kept alive by nothing else that the search needs it for; decisions are counted over all runs.
        self._problem, self._search, self._model = problem, search, model
        self.done = False

    @classmethod
    def of(
        cls, problem: Problem, budget: Budget, number: int = 1, hint: Mapping[str, int] | None = None
    ) -> BranchAndBound | None:
        """Prepares a search for the best solutions by all objectives in order; None where the core declines."""
        model = core_model(problem, budget)
        if core is None or model is None:
            return None
        places = {name: place for place, name in enumerate(problem.names)}
        goals = [(encode_expression(o.expr, places), o.maximise) for o in problem.objectives]
        tried = [(places[n], v) for n, v in (hint or {}).items() if abs(v) < _UNBOUNDED]
        budget.check_work()
        search: Any = core.best_search(model, goals, number, tried, budget.limits.max_cells, _poll(budget, 0))
        if search is None or isinstance(search, tuple):
            return None
        return cls(problem, search, model)

    def run(self, budget: Budget, decisions: int) -> None:
        """Goes on for so many decisions.

        Raises:
            LimitReachedError: When a limit of the budget ended it.
        """
        before = self._state()[2]
        spent = budget.stats.cells
        assert core is not None
        try:
            left = budget.limits.max_cells - spent
            answer: Any = core.best_run(self._search, left, decisions, _poll(budget, spent))
            self.done = answer is True
            if isinstance(answer, tuple):
                budget.stats.cells = spent + answer[2]
                budget.check_work()
        finally:
            budget.stats.nodes += self._state()[2] - before

    def found(self, message: str = "") -> Found:
        """What is known by now.

        Raises:
            UndefinedValueError: When the search is over and an objective has a value in no solution.
        """
        solutions, bound, _, undefined = self._state()
        if self.done and undefined and not solutions:
            objectives = "; ".join(map(str, self._problem.objectives))
            raise UndefinedValueError(f"{objectives} has no value in any solution; change the objective.")
        assignments = tuple(dict(zip(self._problem.names, values, strict=True)) for values in solutions)
        known = bound if self._problem.objectives and abs(bound) < _UNBOUNDED else None
        if known is not None and self._problem.objectives[0].maximise:
            known = -known
        return Found(assignments, self.done, known, message)

    def _state(self) -> tuple[list[list[int]], int, int, bool]:
        assert core is not None
        state: tuple[list[list[int]], int, int, bool] = core.best_state(self._search)
        return state


def _poll(budget: Budget, spent: int) -> Any:
    def poll(cells: int) -> None:
        budget.stats.cells = spent + cells
        budget.check_work()

    return poll


def found_within(search: BranchAndBound, budget: Budget) -> Found:
    """Runs a search to its end or to a limit, and says what it found."""
    try:
        search.run(budget, max(0, budget.limits.max_nodes - budget.stats.nodes))
    except LimitReachedError as error:
        return search.found(str(error))
    if search.done:
        return search.found()
    return search.found(
        f"no proof after max_nodes={budget.limits.max_nodes} assignments; narrow the variables or raise max_nodes."
    )
