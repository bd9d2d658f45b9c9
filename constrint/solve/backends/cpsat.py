"""OR-tools CP-SAT as a back-end: objectives and huge domains, within its 64-bit range.

Every expression is bounded first; one that could leave the safe range is refused, because the library aborts the
process on some overflows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from constrint.errors import ConstrintError, LimitReachedError, UndefinedValueError, UnsupportedError
from constrint.model import Problem, Word
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.backends.cpsat_model import ModelBuilder
from constrint.solve.backends.cpsat_words import WHOLE
from constrint.solve.backends.listing import columns_of
from constrint.solve.budget import BETWEEN_LOOKS, Budget, Limits
from constrint.solve.engine.prepare import flatten
from constrint.solve.propagation import propagate
from constrint.solve.solution import StoppedEarlyError

# Seconds for which an interrupted search waits for the solver to stop.
_PATIENCE: Final = 0.2


class CpSatBackend(Backend):
    """One CP-SAT model per question.

    Args:
        work: Most work of a search for one solution, in CP-SAT's deterministic seconds; None for no limit.
        built: Set once a model is built.
    """

    name = "cpsat"

    def __init__(self, work: float | None = None, built: threading.Event | None = None) -> None:
        self._work, self._built = work, built

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        budget = Budget(limits)
        built = _built(problem, budget)
        if built is None:
            return columns_of(problem, [])
        listed: list[dict[str, int]] = []
        status = _run(built, budget, listed, everything=True)
        if status == "UNKNOWN" or len(listed) > limits.max_rows:
            raise LimitReachedError(
                f"CP-SAT stopped at a limit after {len(listed)} solutions; raise max_seconds or max_rows."
            )
        return columns_of(problem, listed)

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution by the objective, proven; any solution without one."""
        objective = problem.objective
        built = _built(problem, budget)
        if built is None:
            return None
        if objective is not None:
            built.optimise(objective.expr, objective.maximise)
        for name, value in (hint or {}).items():
            built.model.add_hint(built.variables[name], value)
        if self._built is not None:
            self._built.set()
        improving: list[dict[str, int]] = []
        bounds: list[int] = []
        try:
            status = _run(built, budget, improving, everything=False, bounds=bounds, work=self._work)
        except LimitReachedError as error:
            raise StoppedEarlyError(
                str(error), improving[-1] if improving else None, bounds[0] if bounds else None
            ) from None
        if status == "INFEASIBLE":
            if objective is not None and self.best(problem.without_objective(), budget) is not None:
                raise UndefinedValueError(f"{objective} has no value in any solution; change the objective.")
            return None
        # Without a proof of optimality the best so far is only part of an answer.
        if not improving or (objective is not None and status != "OPTIMAL"):
            raise StoppedEarlyError(
                "CP-SAT stopped at a limit before the answer was known; raise max_seconds.",
                improving[-1] if improving else None,
                bounds[0] if bounds and objective is not None else None,
            )
        return improving[-1]


def _built(problem: Problem, budget: Budget) -> ModelBuilder | None:
    constraints = flatten(problem.constraints, WHOLE)
    with budget.watching():
        # Words that are not taken apart narrow nothing here; CP-SAT has its own propagation of them.
        domains = propagate(dict(problem.variables), [c for c in constraints if not isinstance(c, Word)])
        if domains is None:
            return None
        builder = ModelBuilder(domains)
        for constraint in constraints:
            budget.tick()
            builder.require(constraint)
    return builder


def _run(
    built: ModelBuilder,
    budget: Budget,
    solutions: list[dict[str, int]],
    everything: bool,
    bounds: list[int] | None = None,
    work: float | None = None,
) -> str:
    """Solves, adds every solution to `solutions` and the bound to `bounds`; returns the name of CP-SAT's status."""
    from ortools.sat.python import cp_model

    complaint = built.model.validate()
    if complaint:
        raise UnsupportedError(
            f"CP-SAT refuses the problem ({complaint.splitlines()[0][:120]}); "
            "bound its variables more tightly or use the native back-end."
        )
    stopped: list[ConstrintError] = []

    class Collector(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            solutions.append({n: int(self.value(v)) for n, v in built.variables.items()})
            try:
                if budget.limits.incumbents is not None and not everything:
                    budget.limits.incumbents.offer(solutions[-1])
                budget.check_work()
                budget.check_rows(len(solutions), tuple(built.variables))
            except ConstrintError as error:
                stopped.append(error)
                self.stop_search()

    solver: Any = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.enumerate_all_solutions = everything
    # OR-tools 9.15 loses solutions in presolve where it is to list all: of 30 for two variables and a literal for
    # `a - c in {21474836502, 21474836503}` 23 are left (tests/solve/test_backends.py).
    solver.parameters.cp_model_presolve = not everything
    if work is not None:
        solver.parameters.max_deterministic_time = work
    if budget.limits.max_seconds is not None:
        solver.parameters.max_time_in_seconds = max(0.0, budget.limits.max_seconds - budget.elapsed_seconds())
    # The library's own handler would ignore two Ctrl-C and end the process at the third.
    solver.parameters.catch_sigint_signal = False
    status = str(solver.status_name(_solved(budget, solver, lambda: solver.solve(built.model, Collector()), stopped)))
    if bounds is not None and status == "FEASIBLE" and built.model.has_objective():
        # Every number of the model is below 2^50, so the float is the integer bound.
        bounds.append(round(solver.best_objective_bound))
    if stopped:
        raise stopped[0]
    if everything and status == "FEASIBLE":
        return "UNKNOWN"
    return status


def _solved(budget: Budget, solver: Any, solve: Callable[[], Any], stopped: list[ConstrintError]) -> Any:
    """Run the solver in a thread of its own and return its answer; this thread handles signals and cancellation."""
    answers: list[Any] = []
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            answers.append(solve())
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            failures.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        while not done.wait(BETWEEN_LOOKS):
            # The solver has the time limit itself, and returns its best solution and bound then.
            if not stopped:
                _look(budget, solver, stopped)
            else:  # It may not have begun at the first time.
                solver.stop_search()
    except BaseException:
        solver.stop_search()
        thread.join(_PATIENCE)
        raise
    if failures:
        raise failures[0]
    return answers[0]


def _look(budget: Budget, solver: Any, stopped: list[ConstrintError]) -> None:
    """Stops the solver when the search is cancelled, also while it has found nothing yet."""
    try:
        budget.check_work()
    except ConstrintError as error:
        stopped.append(error)
        solver.stop_search()
