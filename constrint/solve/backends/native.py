"""The native engine as a back-end (a walk in order, factored tables, depth-first search), and the default `auto`.

`auto` runs the native engine first; for hard problems CP-SAT runs beside it, where OR-tools is installed.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.machinery import PathFinder
from threading import Event, Thread
from typing import Final

import numpy as np

from constrint.core import compiled as core
from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError, UnsupportedError
from constrint.model import Calculation, Comparison, Const, Domain, Problem, Var
from constrint.model.columns import rows_with_value
from constrint.solve.backends.backend import Backend, Columns
from constrint.solve.budget import BETWEEN_LOOKS, Budget, HeadStart, Limits, is_cancelled
from constrint.solve.engine.compiled import MAX_VALUES, BranchAndBound, factored_space, run_within
from constrint.solve.engine.factored import search_one
from constrint.solve.engine.prepare import flatten
from constrint.solve.engine.walk import solutions_in_order
from constrint.solve.incumbents import Incumbents
from constrint.solve.intervals import Domains
from constrint.solve.propagation import impossible, propagate
from constrint.solve.solution import SearchResult, StoppedEarlyError
from constrint.solve.space.axes import places_of
from constrint.solve.space.space import SearchSpace

# A walk in declared order may look at this many combinations, and where the core does not take the problem assign this
# often, before tables are tried.
_WALK_CELLS: Final = 1 << 22
_WALK_NODES: Final = 1 << 9
# Tables up to this length are listed before a depth-first search takes over.
_TABLE_ROWS: Final = 1 << 21
# Tables may look at this many combinations before branch and bound takes over.
_TABLE_CELLS: Final = 1 << 22
# Decisions of branch and bound before tables are tried.
_FIRST_DECISIONS: Final = 1 << 13


#: Names of the native engine: on its compiled core, and on numpy alone.
NATIVE: Final = ("native", "numpy")


class NativeBackend(Backend):
    """Factored tables, on the compiled core ("native") or on numpy alone ("numpy")."""

    def __init__(self, name: str = "native") -> None:
        self.name = name
        self._use_core = name == "native"

    def space(self, problem: Problem, limits: Limits) -> SearchSpace:
        """Finds every solution, in factored form."""
        return factored_space(problem, limits, self._use_core)

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution."""
        return self.space(problem, limits).columns()

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution; without an objective, the first one in declared order.

        Without an objective, solutions are walked in order. With one, the tables of the factored space give the best;
        where these would be too large, a depth-first search takes over.
        """
        limits = budget.limits
        if problem.objective is None:
            if _is_impossible(problem):
                return None
            try:
                return next(solutions_in_order(problem, _walk_limits(budget), self.name), None)
            except CancelledError:
                raise
            except LimitReachedError:
                budget.check_work()  # The walk takes too long: tables, or a search in another order, may be quicker.
            search = BranchAndBound.of(problem, budget) if self._use_core else None
            if search is not None:
                return self._any(search, budget)
        try:
            return self._best_by_tables(problem, budget, limits.max_cells)
        except CancelledError:
            raise
        except LimitReachedError:
            budget.check_work()
            if _is_impossible(problem):
                return None
            return _searched(problem, budget)

    def find(
        self, problem: Problem, budget: Budget, number: int = 1, hint: Mapping[str, int] | None = None
    ) -> SearchResult:
        """The best solutions: by branch and bound on the compiled core; by tables where it takes long.

        Without objectives they are the first ones in declared order.
        """
        if not problem.objectives:
            return self._first(problem, budget, number)
        try:
            search = BranchAndBound.of(problem, budget, number, hint) if self._use_core else None
        except LimitReachedError as error:
            return SearchResult((), False, message=str(error))
        if search is None:
            return self._walked(problem, budget, number) or super().find(problem, budget, number, hint)
        try:
            search.run(budget, min(_FIRST_DECISIONS, budget.limits.max_nodes))
            if len(problem.objectives) > 1 and not search.done:
                walked = self._walked(problem, budget, number)
                if walked is not None:
                    return walked
            if number == len(problem.objectives) == 1 and not search.done:
                best = self._best_by_tables(problem, budget, _TABLE_CELLS)
                return SearchResult(() if best is None else (best,))
        except CancelledError as error:
            return search.result(str(error))
        except LimitReachedError:
            pass  # The tables are too large or the time is over; the search below handles both.
        if search.done:
            return search.result()
        return run_within(search, budget, budget.limits.incumbents, only_best=number == 1)

    def _walked(self, problem: Problem, budget: Budget, number: int) -> SearchResult | None:
        """The best solutions where objectives are variables: the first ones of a problem declared in this order.

        None where an objective is something else, or where the walk takes long.
        """
        try:
            turned = in_order_of_objectives(problem, budget)
            if turned is None:
                return None
            found = list(itertools.islice(solutions_in_order(turned, _walk_limits(budget), self.name), number))
        except CancelledError:
            raise
        except LimitReachedError:
            return None
        return SearchResult(tuple({name: values[name] for name in problem.names} for values in found))

    def _first(self, problem: Problem, budget: Budget, number: int) -> SearchResult:
        if number == 1:
            return super().find(problem, budget)
        incumbents: list[dict[str, int]] = []
        try:
            incumbents.extend(itertools.islice(solutions_in_order(problem, budget.limits, self.name), number))
        except LimitReachedError as error:
            return SearchResult(tuple(incumbents), False, message=str(error))
        return SearchResult(tuple(incumbents))

    def _any(self, search: BranchAndBound, budget: Budget) -> dict[str, int] | None:
        """Any solution, by depth-first search; None where there is none."""
        result = run_within(search, budget)
        if not result.complete and not result.assignments:
            raise LimitReachedError(result.message)
        return result.assignments[0] if result.assignments else None

    def _best_by_tables(self, problem: Problem, budget: Budget, max_cells: int) -> dict[str, int] | None:
        """The best solution where the objective's variables have few combinations.

        Raises:
            LimitReachedError: In any other case.
        """
        limits = budget.limits
        rows, cells = min(limits.max_rows, _TABLE_ROWS), min(limits.max_cells, max_cells)
        space = self.space(problem, budget.rest(max_rows=rows, max_cells=cells))
        budget.stats = space.stats
        if not space:
            return None
        return _best_of_space(problem, space, budget)


def _walk_limits(budget: Budget) -> Limits:
    """Limits of a walk in order that comes before other ways."""
    limits = budget.limits
    return budget.rest(max_cells=min(limits.max_cells, _WALK_CELLS), max_nodes=min(limits.max_nodes, _WALK_NODES))


def _is_impossible(problem: Problem) -> bool:
    """Whether remainders rule out every solution; looked at where domains are too long for the compiled core."""
    if all(domain.size <= MAX_VALUES for domain in problem.variables.values()):
        return False
    return impossible(problem.variables, flatten(problem.constraints))


def in_order_of_objectives(problem: Problem, budget: Budget) -> Problem | None:
    """The problem with its objectives' variables declared first, best values first; None where one is no variable."""
    directions: dict[str, bool] = {}
    for objective in problem.objectives:
        expr, rises = objective.expr, objective.maximise
        if isinstance(expr, Calculation) and expr.op == "neg":
            (expr,), rises = expr.args, not rises
        if not isinstance(expr, Var):
            return None
        directions.setdefault(expr.name, rises)
    with budget.watching():
        domains = propagate(dict(problem.variables), flatten(problem.constraints))
    turned = Problem(problem.name)
    for name in dict.fromkeys((*directions, *problem.names)):
        domain = problem.variables[name]
        left = domain if domains is None else domains[name]
        if name in directions and (directions[name] or domain.listed is not None):
            if left.size > MAX_VALUES:
                return None
            domain = Domain.from_values(sorted(left, reverse=directions[name]))
        turned.declare(name, domain)
    for rule in problem.constraints:
        turned.add(rule)
    return turned


def _best_of_space(problem: Problem, space: SearchSpace, budget: Budget) -> dict[str, int] | None:
    """The first of the best solutions in declared order."""
    objective = problem.objective
    if objective is None:
        return space.first()
    names = [n for n in problem.variables if n in objective.expr.variables]
    with budget.watching():
        sizes = (space.layout.size(n) for n in space.layout.needed(names) if n in space.layout.axes)
        if min(space.size, math.prod(sizes)) > _TABLE_ROWS:
            raise LimitReachedError(f"the objective has more than {_TABLE_ROWS} values in {space.size} solutions.")
        columns, num_rows = space.covering(names)
        rows, values = rows_with_value(objective.expr, columns, num_rows)
        if len(rows) == 0:
            raise UndefinedValueError(f"{objective} has no value in any solution; change the objective.")
        equal = rows[np.flatnonzero(values == (np.max if objective.maximise else np.min)(values))]
        # Ties go to the first in the order of preference.
        places = [places_of(problem.variables[n], columns[n][equal]) for n in reversed(names)] or [equal]
        at = int(equal[np.lexsort(places)[0]])
        return space.extend({n: int(columns[n][at]) for n in names}).first()


def _searched(problem: Problem, budget: Budget) -> dict[str, int] | None:
    """The best solution by depth-first search: the range of the objective's possible values is halved."""
    if problem.objective is None:
        return search_one(problem, budget)
    maximise = problem.objective.maximise
    expr = -problem.objective.expr if maximise else problem.objective.expr
    plain = problem.without_objective()
    # False where the objective has no value: such a solution is not comparable.
    plain.add(Comparison(expr, "==", expr))
    best: dict[str, int] | None = None
    low: int | None = None
    try:
        with budget.watching():
            domains = propagate(dict(plain.variables), flatten(plain.constraints))
        bounds = Domains(domains).bounds(expr) if domains is not None else None
        low = None if bounds is None else bounds[0]
        best = search_one(plain, budget)
        if best is None:
            return None
        if low is None:
            raise LimitReachedError(f"no bounds are known for the objective {expr}; bound its powers by a constraint.")
        high = expr.value(best)
        while low < high:
            middle = (low + high) // 2
            trial = plain.copy()
            trial.add(Comparison(expr, "<=", Const(middle)))
            better = search_one(trial, budget)
            if better is None:
                low = middle + 1
            else:
                best, high = better, expr.value(better)
    except LimitReachedError as error:
        bound = -low if low is not None and maximise else low
        raise StoppedEarlyError(str(error), best, bound) from None
    return best


#: Seconds before CP-SAT begins for a hard problem where OR-tools is not loaded, since loading it takes longer; the
#: largest share of the time limit for them.
LOADING_SECONDS: Final = 0.25
NATIVE_PART: Final = 0.3
#: The name of the thread in which CP-SAT runs beside the native engine.
BESIDE: Final = "constrint: CP-SAT beside the native engine"
# Seconds for which CP-SAT is waited for at a limit, which it has itself; it may still be loading.
_PATIENCE: Final = 0.2


@cache
def _has_cpsat() -> bool:
    """Whether OR-tools is installed; cached, since the look-up takes as long as a small problem."""
    return PathFinder.find_spec("ortools") is not None


class AutoBackend(Backend):
    """The native engine, and CP-SAT beside it for hard problems; `Solution.solver` names the one that answered."""

    name = "auto"

    def __init__(self) -> None:
        self._native = NativeBackend()

    def solutions(self, problem: Problem, limits: Limits) -> Columns:
        """Lists every solution with the native engine."""
        return self._native.solutions(problem, limits)

    def best(self, problem: Problem, budget: Budget, hint: Mapping[str, int] | None = None) -> dict[str, int] | None:
        """The best solution by the native engine."""
        return self._native.best(problem, budget, hint)

    def find(
        self, problem: Problem, budget: Budget, number: int = 1, hint: Mapping[str, int] | None = None
    ) -> SearchResult:
        """The best solutions by all objectives; without one, the first in declared order or else any solution."""
        if not _has_cpsat() or (number > 1 and not problem.objectives):
            return replace(self._native.find(problem, budget, number, hint), solver="native")
        limits = budget.limits
        if number == 1 and problem.objectives and limits.incumbents is None:
            limits = replace(limits, incumbents=Incumbents(problem.objectives))
        beside = _Beside(problem, Budget(replace(limits, started=budget.started)), number, hint)

        def cancel() -> bool:
            return beside.is_complete() or is_cancelled(limits)

        own = replace(limits, started=budget.started, head_start=beside.head_start, cancel=cancel)
        try:
            try:
                native = replace(self._native.find(problem, Budget(own, budget.stats), number, hint), solver="native")
            except CancelledError as error:  # by the caller, or since CP-SAT has the answer
                native = SearchResult((), False, message=str(error), solver="native")
            if native.complete:
                return native
            other = beside.result(native)
        finally:
            beside.end()
        return other if other.complete else _together(problem, other, native)


#: Seconds after which one of two threads of Python gives way to the other; the interpreter's own 5 ms are as long as a
#: small problem takes.
_SWITCH_SECONDS: Final = 2e-4
# The interpreter's own interval, as often as threads run beside each other.
_intervals: list[float] = []
# Most seconds for which the native engine, where it works in Python itself, waits for CP-SAT's model, which is built in
# Python, too: the sooner that stands, the sooner both work at once.
_BUILD_SECONDS: Final = 0.01


class _Beside:
    """CP-SAT in a thread of its own, once the native engine has worked for a while.

    What CP-SAT does depends on the problem and the hint alone, not on the other engine.
    """

    def __init__(self, problem: Problem, budget: Budget, number: int, hint: Mapping[str, int] | None) -> None:
        left = budget.seconds_left()
        wait = LOADING_SECONDS if left is None else min(LOADING_SECONDS, NATIVE_PART * left)
        self.head_start = HeadStart(self._begin, 0.0 if "ortools.sat.python.cp_model" in sys.modules else wait)
        self._asked = problem, budget, number, hint
        self._results: list[SearchResult] = []
        self._failures: list[Exception] = []

    def _begin(self, in_python: bool) -> None:
        self._over, self._done, self._built = Event(), Event(), Event()
        _intervals.append(_intervals[0] if _intervals else sys.getswitchinterval())
        sys.setswitchinterval(_SWITCH_SECONDS)
        Thread(target=self._work, name=BESIDE).start()
        if in_python:
            self._built.wait(_BUILD_SECONDS)

    def _work(self) -> None:
        problem, budget, number, hint = self._asked
        try:
            from constrint.solve.backends.cpsat import CpSatBackend

            own = Budget(budget.rest(cancel=self._over, progress=None))
            self._results.append(
                replace(CpSatBackend(built=self._built).find(problem, own, number, hint), solver="cpsat")
            )
        except UnsupportedError:
            pass  # The native engine goes on alone.
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            self._failures.append(error)
        finally:
            interval = _intervals.pop()
            if not _intervals:
                sys.setswitchinterval(interval)
            self._done.set()
            self._built.set()
            if core is not None and self.is_complete():
                core.ring()

    def is_complete(self) -> bool:
        """Whether CP-SAT has the answer: solutions that are proven, or an error."""
        return bool(self._failures) or any(result.complete for result in self._results)

    def result(self, native: SearchResult) -> SearchResult:
        """Wait for CP-SAT, which begins now if it has not before; the native engine's result where it has none."""
        budget = self._asked[1]
        try:
            if not self.head_start.has_begun:
                budget.check_work()
        except LimitReachedError as error:
            return replace(native, message=str(error))
        self.head_start.end()
        while not self._done.is_set():
            try:
                budget.check_work()
            except LimitReachedError:
                self._over.set()
                self._done.wait(_PATIENCE)
                break
            self._done.wait(BETWEEN_LOOKS)
        if self._failures:
            raise self._failures[0]
        return self._results[0] if self._results else native

    def end(self) -> None:
        """Ends CP-SAT, which takes a moment, and does not wait for it."""
        if self.head_start.has_begun:
            self._over.set()


def _together(problem: Problem, first: SearchResult, second: SearchResult) -> SearchResult:
    """Combine the results of two stopped searches: the better solution and the tighter bound."""
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
    return SearchResult(best, False, bound, first.message or second.message, solver)
