"""The k cheapest solutions of a space, by an expression or by a function over columns, without listing the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Expr
from constrint.model.columns import column_of, evaluate

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace

Cost = Callable[[dict[str, NDArray[Any]]], Any]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A solution and its cost."""

    cost: int | float
    config: dict[str, int]


def best_solutions(
    space: SearchSpace, k: int, cost: Expr | Cost, names: Sequence[str] | None, maximise: bool
) -> list[Ranked]:
    """Implements `SearchSpace.best`.

    Solutions of equal cost come in no particular order. Rows in which the cost has no value are left out.
    """
    if k < 0:
        raise UsageError(f"the number of solutions must not be negative, got {k}.")
    if isinstance(cost, Expr):
        for name in sorted(cost.variables):
            if name not in space.names:
                raise UnknownNameError("variable", name, space.names)
        names = [n for n in space.names if n in cost.variables]
    columns, counts = space.project(list(names if names is not None else space.names))
    if k == 0 or len(counts) == 0:
        return []
    rows, costs = _costs(columns, len(counts), cost)
    # Not the order of negated costs: the smallest integer of a dtype has no negative, and unsigned ones have none.
    order = np.argsort(costs, kind="stable")[:: -1 if maximise else 1]
    ranked: list[Ranked] = []
    for at in order.tolist():
        partial = {n: int(column[rows[at]]) for n, column in columns.items()}
        below = space.extend(partial)
        wanted = min(k - len(ranked), below.size)
        ranked += [
            Ranked(costs[at].item() if hasattr(costs[at], "item") else costs[at], below[i]) for i in range(wanted)
        ]
        if len(ranked) >= k:
            break
    return ranked


def _costs(columns: dict[str, NDArray[Any]], num_rows: int, cost: Expr | Cost) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Rows that have a cost, and the costs."""
    if isinstance(cost, Expr):
        result = evaluate(cost, {n: column_of(c) for n, c in columns.items()})
        values = np.broadcast_to(np.asarray(result.values), (num_rows,))
        if result.defined is None:
            return np.arange(num_rows), values
        rows = np.flatnonzero(np.broadcast_to(result.defined, (num_rows,)))
        return rows, values[rows]
    values = np.asarray(cost(columns))
    if values.shape != (num_rows,) or values.dtype.kind not in "iufO":
        raise UsageError(
            f"the cost function must return one number per row ({num_rows}), got shape {values.shape} "
            f"of {values.dtype}."
        )
    rows = np.flatnonzero(values == values)
    return rows, values[rows]
