"""Listed solutions as columns, and the best of them: what the back-ends share that list solutions one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from constrint.errors import LimitReachedError, UndefinedValueError
from constrint.model import Problem
from constrint.solve.backends.backend import Columns
from constrint.solve.found import StoppedEarlyError


def columns_of(problem: Problem, rows: Iterable[Mapping[str, int]]) -> Columns:
    """One column per variable; Python integers where 64 bits do not suffice."""
    listed = list(rows)
    columns: Columns = {}
    for name, domain in problem.variables.items():
        fits = domain.lower >= -(2**63) and domain.upper < 2**63
        columns[name] = np.array([r[name] for r in listed], dtype=np.int64 if fits else object)
    return columns


def best_of(problem: Problem, rows: Iterable[dict[str, int]]) -> dict[str, int] | None:
    """The best row by the objective; the first row without one.

    Raises:
        StoppedEarlyError: When a limit ended the rows.
        UndefinedValueError: When there are rows and the objective has a value in none of them.
    """
    objective = problem.objective
    if objective is None:
        return next(iter(rows), None)
    best: dict[str, int] | None = None
    value: int | None = None
    seen = False
    try:
        for row in rows:
            seen = True
            try:
                cost = objective.expr.value(row)
            except UndefinedValueError:
                continue
            if value is None or (cost > value if objective.maximise else cost < value):
                best, value = row, cost
    except LimitReachedError as error:
        raise StoppedEarlyError(str(error), best) from None
    if seen and best is None:
        raise UndefinedValueError(f"{objective} has no value in any solution; change the objective.")
    return best
