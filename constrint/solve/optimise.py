"""The best solutions of a problem by its objectives and soft constraints; without an objective the first solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import LimitReachedError, UnknownNameError, UsageError
from constrint.model import Comparison, Const, Expr, Problem, Truth, any_of, negate
from constrint.model.columns import rows_with_value
from constrint.model.encode import Coding
from constrint.model.expr import add
from constrint.model.operations import as_int
from constrint.model.problem import Objective
from constrint.solve.backends.backend import get_backend, solution_of
from constrint.solve.budget import UNLIMITED, Budget, Limits, Status
from constrint.solve.enumeration import enumerate_space
from constrint.solve.explain.conflict import conflict_of_infeasible
from constrint.solve.incumbents import Incumbents
from constrint.solve.solution import SearchResult, Solution
from constrint.solve.space.space import SearchSpace

#: Default time limit of an optimisation, in seconds: its best solution so far is of use. Listing has no default limit,
#: since a partial list is of no use.
DEFAULT_SECONDS: Final = 60.0


def solve(
    problem: Problem,
    limits: Limits | None = None,
    backend: str = "auto",
    *,
    hint: Mapping[str, object] | None = None,
    on_better: Callable[[Solution], None] | None = None,
) -> Solution:
    """Finds the best solution by the objectives; without one, the first in declared order.

    Soft constraints count before objectives, and an objective counts before those added after it. At a limit the answer
    is LIMIT_REACHED with the best solution found so far and a bound on what the first objective can be.

    Args:
        problem: The problem.
        limits: Limits of the search; without them at most `DEFAULT_SECONDS` seconds.
        backend: "auto" (the native engine; after about a millisecond of work CP-SAT beside it where OR-tools is
            installed), "native", "numpy" (the native engine without its compiled core), "cpsat",
            "python-constraint" or "brute". A back-end of another library gives any solution where there is no
            objective.
        hint: Values of some variables that may be good; they are tried first and forbid nothing.
        on_better: Called with every better solution that a search for the best one finds, LIMIT_REACHED since it is
            not proven best, in the caller's thread. What it raises ends the search.

    Raises:
        UndefinedValueError: When there are solutions and an objective has a value in none of them.
    """
    result, budget, solver = _search(problem, 1, limits, backend, hint, on_better)
    # The caller's cancellation belongs to this search, not to later explanations.
    later = replace(limits or UNLIMITED, cancel=None, progress=None)
    answer = _with_values(problem, solution_of(problem, result, budget, solver))
    return replace(answer, explain=partial(conflict_of_infeasible, later))


def best_solutions(
    problem: Problem,
    number: int,
    limits: Limits | None = None,
    backend: str = "auto",
    *,
    hint: Mapping[str, object] | None = None,
    on_better: Callable[[Solution], None] | None = None,
) -> tuple[Solution, ...]:
    """Finds the `number` best solutions by the objectives, the best first; without one, the first in declared order.

    There are fewer where the problem has fewer, and none where it has none.

    Args:
        problem: The problem.
        number: How many, at least 1.
        limits: Limits of the search; without them at most `DEFAULT_SECONDS` seconds.
        backend: As for `solve`.
        hint: As for `solve`.
        on_better: As for `solve`; for the best one of the solutions.

    Raises:
        LimitReachedError: When a limit ended the search before any solution was found. Where some were, their status is
            LIMIT_REACHED.
    """
    count = as_int(number, "the number of solutions")
    if count < 1:
        raise UsageError(f"best_solutions finds at least 1 solution, not {count}.")
    result, budget, solver = _search(problem, count, limits, backend, hint, on_better)
    if not result.complete and not result.assignments:
        raise LimitReachedError(result.message)
    answers = (solution_of(problem, result, budget, solver, place) for place in range(len(result.assignments)))
    return tuple(_with_values(problem, answer) for answer in answers)


def all_optima(problem: Problem, limits: Limits | None = None, backend: str = "auto") -> SearchSpace:
    """Finds all solutions that are best by soft rules and objectives, in factored form; without these, all solutions.

    Args:
        problem: The problem.
        limits: Limits of each of the two searches; without them, of `DEFAULT_SECONDS` for the best value.
        backend: As for `solve`.

    Raises:
        LimitReachedError: When a limit ended a search before the answer was known.
    """
    best = solve(problem, limits, backend)
    if best.status is Status.LIMIT_REACHED:
        raise LimitReachedError(best.message)
    return enumerate_space(as_good_as(problem, best), limits, backend)


def as_good_as(problem: Problem, best: Solution) -> Problem:
    """The problem whose solutions are those that are as good as one; the same problem where it has none."""
    twin = problem.without_objective()
    if best.status is Status.FEASIBLE and problem.soft_constraints:
        price = (soft.weight * Truth(negate(soft.constraint)) for soft in problem.soft_constraints)
        twin.add(Comparison(add(*price), "==", Const(best.penalty)), because="the penalty is the least one")
    for objective, value in zip(problem.objectives, best.values, strict=False):
        number = int(Fraction(value) * objective.scale)
        twin.add(Comparison(objective.expr, "==", Const(number)), because=f"{objective}: no better value")
    return twin


def _with_values(problem: Problem, answer: Solution) -> Solution:
    """Translate an answer from codes to the values of the problem's variables."""
    coding = Coding.of(problem)
    return answer if coding is None else replace(answer, assignment=coding.decoded(answer.assignment))


def _search(
    problem: Problem,
    number: int,
    limits: Limits | None,
    backend: str,
    hint: Mapping[str, object] | None,
    on_better: Callable[[Solution], None] | None,
) -> tuple[SearchResult, Budget, str]:
    tried: dict[str, int] = {}
    coding = Coding.of(problem)
    for name, value in (hint or {}).items():
        if name not in problem.names:
            raise UnknownNameError("variable", name, problem.names, "A hint is a value per variable.")
        # What the variable cannot be is no help to any search.
        if coding is None or name not in coding.domains:
            if (wanted := as_int(value, f"the hint for {name!r}")) in problem.variables[name]:
                tried[name] = wanted
        elif (code := coding.code(name, value)) is not None:
            tried[name] = code
    hard = hardened(problem)
    limits = limits or Limits(max_seconds=DEFAULT_SECONDS)
    if on_better is not None and hard.objectives:
        budget = Budget(limits)

        def told(assignment: Mapping[str, int]) -> None:
            found = SearchResult((dict(assignment),), False, message="the search goes on")
            on_better(_with_values(problem, solution_of(problem, found, budget, backend)))

        limits = replace(limits, incumbents=Incumbents(hard.objectives, told), started=budget.started)
    budget = Budget(limits)
    result = get_backend(backend).find(hard, budget, number, tried)
    if limits.incumbents is not None and result.assignments:
        limits.incumbents.offer(result.assignments[0])
        limits.incumbents.announce()
    budget.stats.seconds = budget.elapsed_seconds()
    return result, budget, backend


def best_order(problem: Problem, columns: Mapping[str, NDArray[Any]], num_rows: int) -> NDArray[np.intp]:
    """The order in which rows of solutions are best first; rows in which an objective has no value come last.

    Args:
        problem: The problem, with soft constraints before objectives.
        columns: A column of codes per variable.
        num_rows: Their length.
    """
    keys: list[NDArray[Any]] = []
    if problem.soft_constraints:
        fits = sum(soft.weight for soft in problem.soft_constraints) < 1 << 63
        penalty: NDArray[Any] = np.zeros(num_rows, dtype=np.int64 if fits else object)
        for soft in problem.soft_constraints:
            violated = np.flatnonzero(~soft.constraint.holds_columns(columns)) if columns else np.arange(num_rows)
            penalty[violated] += soft.weight
        keys.append(_ranks(penalty))
    undefined = np.zeros(num_rows, dtype=bool)
    for objective in problem.objectives:
        rows, values = rows_with_value(objective.expr, columns, num_rows)
        key = np.full(num_rows, num_rows)
        key[rows] = _ranks(values) * (-1 if objective.maximise else 1)
        undefined |= key == num_rows
        keys.append(key)
    order: NDArray[np.intp] = np.lexsort([*reversed(keys), undefined])
    return order


def _ranks(values: NDArray[Any]) -> NDArray[np.intp]:
    """Ranks of numbers of any size."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)


def hardened(problem: Problem) -> Problem:
    """Replace soft constraints by 0/1 variables for violation, whose total weight becomes the first objective.

    A problem without soft constraints is returned as it is.
    """
    if not problem.soft_constraints:
        return problem
    twin = problem.without_objective()
    prices: list[Expr] = []
    for number, soft in enumerate(problem.soft_constraints):
        name = f"violated_{number}"
        while name in twin.variables or name in twin.constants:
            name += "_"
        violated = twin.int_var(name, lower=0, upper=1)
        twin.add(any_of(soft.constraint, violated == 1))
        twin.add(any_of(negate(soft.constraint), violated == 0))
        prices.append(soft.weight * violated)
    return twin.with_objectives(Objective(add(*prices), maximise=False), *problem.objectives)
