"""All solutions of a problem: its search space and their number, by any back-end."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.model import Problem
from constrint.model.coding import Coding
from constrint.solve.backends.backend import Columns
from constrint.solve.backends.brute import all_solutions
from constrint.solve.backends.native import NATIVE, NativeBackend
from constrint.solve.backends.registry import get_backend
from constrint.solve.budget import Budget, Limits, SearchStats
from constrint.solve.engine.factored import factored_space
from constrint.solve.space.axes import Axis, Layout, axis_of, position_type
from constrint.solve.space.factors import Factors
from constrint.solve.space.labelled import with_values
from constrint.solve.space.parts import Part, TreePart
from constrint.solve.space.space import SearchSpace
from constrint.solve.space.tree import LinkedTable, Tree


def enumerate_space(problem: Problem, limits: Limits | None = None, backend: str = "native") -> SearchSpace:
    """Finds all solutions of a problem, in factored form.

    Args:
        problem: The problem; its objective plays no role here.
        limits: How much work is allowed.
        backend: Who searches: "native" (the compiled core where it takes the problem, else numpy) or "auto" (the same),
            "numpy", "brute", "cpsat" or "python-constraint".

    Raises:
        LimitReachedError: When a limit ended the search before all solutions were known.
    """
    if backend in NATIVE or backend == "auto":
        native = NativeBackend("numpy" if backend == "numpy" else "native")
        return with_values(native.space(problem, limits or Limits()), problem)
    started = time.perf_counter()
    columns = get_backend(backend).solutions(problem, limits or Limits())
    factors = _one_table(problem, columns)
    space = SearchSpace(problem, factors, SearchStats(seconds=time.perf_counter() - started), factored_space)
    return with_values(space, problem)


def count(problem: Problem, limits: Limits | None = None, backend: str = "native") -> int:
    """Number of solutions, exact even beyond 64 bits."""
    return enumerate_space(problem, limits, backend).size


def brute_force(problem: Problem, max_combinations: int = 1_000_000) -> list[dict[str, Any]]:
    """Tests every combination of the domains with exact Python integers; the reference for everything else.

    Raises:
        LimitReachedError: When the domains have more than `max_combinations` combinations.
    """
    found = all_solutions(problem, Budget(Limits()), max_combinations)
    coding = Coding.of(problem)
    return list(found if coding is None else map(coding.decoded, found))


def _one_table(problem: Problem, columns: Columns) -> Factors:
    """Keeps listed solutions as one table."""
    num_rows = len(next(iter(columns.values()))) if columns else 0
    axes: dict[str, Axis] = {}
    rows: dict[str, NDArray[Any]] = {}
    for name, column in columns.items():
        values, at = np.unique(column, return_inverse=True)
        # The axis keeps the order of preference, the order in which the values were given.
        listed = problem.variables[name].listed
        place = {v: i for i, v in enumerate(listed)} if listed is not None else {}
        order = np.argsort([place[v] for v in values.tolist()]) if place else np.arange(len(values))
        axes[name] = axis_of(values[order])
        rows[name] = np.argsort(order)[at.reshape(-1)].astype(position_type(max(1, len(values))))
    parts: tuple[Part, ...] | None = None
    if num_rows:
        tree = Tree([LinkedTable(rows, num_rows, -1, [], ())], {n: len(axis) for n, axis in axes.items()})
        parts = (TreePart(tree),)
    elif not problem.variables and all(c.holds({}) for c in problem.constraints):
        parts = ()
    return Factors(Layout(problem.names, {**axes}, {}), parts)
