"""Listed solutions as columns or as a search space, and the best of them: what the simple back-ends share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UndefinedValueError
from constrint.model import Problem
from constrint.solve.backends import Columns
from constrint.solve.budget import Budget, Limits, Status
from constrint.solve.solution import Solution
from constrint.solve.space.axes import LazyAxis

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace


def columns_of(problem: Problem, rows: Iterable[Mapping[str, int]]) -> Columns:
    """One column per variable; Python integers where 64 bits do not suffice."""
    listed = list(rows)
    columns: Columns = {}
    for name, domain in problem.variables.items():
        fits = domain.lower >= -(2**63) and domain.upper < 2**63
        columns[name] = np.array([r[name] for r in listed], dtype=np.int64 if fits else object)
    return columns


def best_of(problem: Problem, rows: Iterable[dict[str, int]], budget: Budget) -> Solution:
    """The best row by the objective; the first row without one.

    Raises:
        UndefinedValueError: When there are rows and the objective has a value in none of them.
    """
    objective = problem.objective
    best: dict[str, int] | None = None
    value: int | None = None
    seen = False
    for row in rows:
        seen = True
        if objective is None:
            return Solution(Status.FEASIBLE, problem, row, stats=budget.stats)
        try:
            cost = objective.expr.value(row)
        except UndefinedValueError:
            continue
        if value is None or (cost > value if objective.maximise else cost < value):
            best, value = row, cost
    if best is None:
        if seen:
            raise UndefinedValueError(f"{objective} has no value in any solution; change the objective.")
        return Solution(Status.INFEASIBLE, problem, stats=budget.stats)
    return Solution(Status.FEASIBLE, problem, best, value, stats=budget.stats)


def space_of(problem: Problem, backend: str, limits: Limits) -> SearchSpace:
    """Lets a back-end list all solutions and keeps them as one table."""
    from constrint.solve.backends import get_backend
    from constrint.solve.engine.tables import Axis, axis_of, position_type
    from constrint.solve.space.axes import Layout
    from constrint.solve.space.factors import ListedFactors
    from constrint.solve.space.parts import Node, Part, TreePart
    from constrint.solve.space.space import SearchSpace

    budget = Budget(limits)
    columns = get_backend(backend).solutions(problem, limits)
    num_rows = len(next(iter(columns.values()))) if columns else 0
    axes: dict[str, Axis | LazyAxis] = {}
    rows: dict[str, NDArray[Any]] = {}
    for name, column in columns.items():
        found, at = np.unique(column, return_inverse=True)
        # The axis keeps the order of preference, the order in which the values were given.
        listed = problem.variables[name].listed
        place = {v: i for i, v in enumerate(listed)} if listed is not None else {}
        order = np.argsort([place[v] for v in found.tolist()]) if place else np.arange(len(found))
        axes[name] = axis_of(found[order])
        back = np.argsort(order)
        rows[name] = back[at.reshape(-1)].astype(position_type(max(1, len(found))))
    parts: list[Part] | None = None
    if num_rows:
        parts = [
            TreePart(
                [Node(rows, num_rows, -1, [], ())],
                {n: a.size if isinstance(a, LazyAxis) else len(a) for n, a in axes.items()},
            )
        ]
    elif not columns and _holds_without_variables(problem):
        parts = []
    budget.stats.seconds = budget.elapsed_seconds()
    factors = ListedFactors(Layout(problem.names, axes, {}, {}), None if parts is None else tuple(parts))
    return SearchSpace(problem, factors, budget.stats)


def _holds_without_variables(problem: Problem) -> bool:
    """Decides a problem without variables."""
    return not problem.variables and all(c.holds({}) for c in problem.constraints)
