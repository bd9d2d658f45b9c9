"""The k cheapest solutions of a space, by an expression or by a function over columns, without listing the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Expr
from constrint.model.columns import rows_with_value
from constrint.solve.budget import Budget, Limits
from constrint.solve.space.diagram import DiagramPart
from constrint.solve.space.k_best import KBest

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace

Cost = Callable[[dict[str, NDArray[Any]]], Any]

#: So many combinations of an expression's variables are listed where the other variables are many.
_FEW_COMBINATIONS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Ranked:
    """A solution and its cost."""

    cost: int | float
    config: dict[str, int]


def best_solutions(
    space: SearchSpace, k: int, cost: Expr | Cost, names: Sequence[str] | None, maximise: bool, limits: Limits | None
) -> list[Ranked]:
    """Implements `SearchSpace.best`."""
    if k < 0:
        raise UsageError(f"the number of solutions must not be negative, got {k}.")
    budget = Budget(limits or Limits())
    if not isinstance(cost, Expr):
        return _by_function(space, k, cost, names, maximise, budget)
    for name in sorted(cost.variables):
        if name not in space.names:
            raise UnknownNameError("variable", name, space.names)
    if k == 0 or not space.size:
        return []
    if _is_projected(space, cost):
        return _by_projection(space, k, cost, maximise, budget)
    found = KBest(space.factors, -cost if maximise else cost, k + len(space.gaps), budget).run()
    found = [f for f in found if f.place not in space.gaps][:k]
    configs = space.taken_with_gaps([f.place for f in found])
    return [Ranked(-f.cost if maximise else f.cost, config) for f, config in zip(found, configs, strict=True)]


def _by_function(
    space: SearchSpace, k: int, cost: Cost, names: Sequence[str] | None, maximise: bool, budget: Budget
) -> list[Ranked]:
    """The best by a function over columns: every combination of its variables is listed."""
    budget.check_work()
    columns, counts = space.project(list(names if names is not None else space.names))
    if k == 0 or len(counts) == 0:
        return []
    rows, costs = _costs(columns, len(counts), cost)
    budget.check_work()
    return _ranked(space, k, columns, rows, costs, maximise)


def _is_projected(space: SearchSpace, cost: Expr) -> bool:
    """Whether a diagram has few of its variables in the expression: then many paths differ in nothing that counts."""
    names = [n for n in space.layout.needed(sorted(cost.variables)) if n in space.layout.axes]
    diagrams = [part for part in space.factors.parts or () if isinstance(part, DiagramPart)]
    return any(n in part.sizes for part in diagrams for n in names) and (
        math.prod(space.layout.size(n) for n in names) <= _FEW_COMBINATIONS
    )


def _by_projection(space: SearchSpace, k: int, cost: Expr, maximise: bool, budget: Budget) -> list[Ranked]:
    """The best by an expression, from all combinations of its variables."""
    budget.check_work()
    columns, counts = space.project([n for n in space.names if n in cost.variables])
    with budget.watching():
        rows, values = rows_with_value(cost, columns, len(counts))
    return _ranked(space, k, columns, rows, values, maximise)


def _ranked(
    space: SearchSpace,
    k: int,
    columns: dict[str, NDArray[Any]],
    rows: NDArray[np.intp],
    costs: NDArray[Any],
    maximise: bool,
) -> list[Ranked]:
    """The solutions of the k best rows."""
    order = _first(_turned(costs) if maximise else costs, k)
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


def _turned(costs: NDArray[Any]) -> NDArray[Any]:
    """Numbers in the opposite order; not the negative ones, which the smallest integer and unsigned ones lack."""
    return ~costs if costs.dtype.kind in "iu" else -costs


def _first(costs: NDArray[Any], k: int) -> NDArray[np.intp]:
    """Rows of the k smallest costs, the smallest first; equal ones in their order."""
    if costs.dtype == object or len(costs) <= 4 * k:
        return np.argsort(costs, kind="stable")[:k]
    largest = np.partition(costs, k - 1)[k - 1]
    rows = np.flatnonzero(costs <= largest)
    return rows[np.argsort(costs[rows], kind="stable")[:k]]


def _costs(columns: dict[str, NDArray[Any]], num_rows: int, cost: Cost) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Rows that have a cost, and the costs."""
    values = np.asarray(cost(columns))
    if values.shape != (num_rows,) or values.dtype.kind not in "iufO":
        raise UsageError(
            f"the cost function must return one number per row ({num_rows}), got shape {values.shape} "
            f"of {values.dtype}."
        )
    rows = np.flatnonzero(values == values)
    return rows, values[rows]
