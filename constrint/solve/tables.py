"""Tables: all combinations of a few variables that satisfy the constraints between them, listed with numpy.

A table holds, for each of its variables, a column of positions on that variable's axis (its values in
preference order). Constraints are evaluated on broadcast grids, so a sub-expression is computed once per
combination of the variables that it really contains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.model import Constraint, Domain
from constrint.model.columns import Column, test
from constrint.solve.limits import Budget

Positions = NDArray[np.int32]
# A grid may grow to this many cells before the rows that survived so far are listed.
GRID_CELLS: Final = 1 << 17
# A grid larger than this is evaluated in pieces.
CHUNK_CELLS: Final = 1 << 21


@dataclass(slots=True)
class Axis:
    """The values of one variable as an array, in preference order, with their bounds."""

    values: NDArray[Any]
    bounds: tuple[int, int]

    def __len__(self) -> int:
        return len(self.values)

    def keep(self, mask: NDArray[np.bool_]) -> Axis:
        """Returns the axis with only the marked values."""
        return axis_of(self.values[mask])

    def column(self, shape: tuple[int, ...]) -> Column:
        """The values, reshaped to lie along one axis of a grid."""
        return Column(self.values.reshape(shape), self.bounds)


def axis_of(values: NDArray[Any]) -> Axis:
    """Wraps an array of values."""
    if len(values) == 0:
        return Axis(values, (0, 0))
    return Axis(values, (int(values.min()), int(values.max())))


def axis_from_domain(domain: Domain) -> Axis:
    """Lists the values of a domain; the caller has checked that there are not too many."""
    fits = domain.lower >= -(2**63) and domain.upper < 2**63 - domain.step
    kind = np.int64 if fits else object
    if domain.listed is not None:
        return Axis(np.array(domain.listed, dtype=kind), (domain.lower, domain.upper))
    if fits:
        values = np.arange(domain.lower, domain.upper + 1, domain.step, dtype=np.int64)
    else:
        values = np.array(list(domain), dtype=object)
    return Axis(values, (domain.lower, domain.upper))


@dataclass(frozen=True, slots=True)
class Check:
    """A constraint to evaluate, with the variables that are not fixed yet."""

    constraint: Constraint
    scope: frozenset[str]


Table = dict[str, Positions]


def order_variables(names: Sequence[str], checks: Sequence[Check], axes: Mapping[str, Axis]) -> list[str]:
    """Orders variables so that checks become decidable after as few combinations as possible."""
    order: list[str] = []
    left = dict.fromkeys(names)
    pending = [c for c in checks if len(c.scope) > 0]
    while left:
        best: tuple[int, list[str]] | None = None
        for check in pending:
            missing = [n for n in left if n in check.scope]
            cost = 1
            for name in missing:
                cost *= len(axes[name])
            if missing and (best is None or cost < best[0]):
                best = (cost, missing)
        chosen = best[1] if best is not None else list(left)
        for name in chosen:
            order.append(name)
            del left[name]
        pending = [c for c in pending if any(n in left for n in c.scope)]
    return order


class _Builder:
    """Grows a table one variable at a time; variables wait on grid axes until their rows are listed."""

    def __init__(self, axes: Mapping[str, Axis], fixed: Mapping[str, Column], budget: Budget) -> None:
        self.axes, self.fixed, self.budget = axes, fixed, budget
        self.rows: Table = {}
        self.num_rows = 1
        self.waiting: list[str] = []
        self.masks: list[NDArray[np.bool_]] = []
        self.deferred: list[Check] = []
        self.empty = False

    def cells(self) -> int:
        total = self.num_rows
        for name in self.waiting:
            total *= len(self.axes[name])
        return total

    def add(self, name: str, checks: Sequence[Check]) -> None:
        """Adds a variable, and the checks that it completes."""
        size = len(self.axes[name])
        if self.waiting and self.cells() * size > min(GRID_CELLS, CHUNK_CELLS):
            self.list_rows()
        self.waiting.append(name)
        if self.cells() > CHUNK_CELLS:
            self._list_in_pieces(checks)
            return
        self.masks += self._evaluate(checks, self.rows, self.num_rows)

    def _evaluate(self, checks: Sequence[Check], rows: Table, num_rows: int) -> list[NDArray[np.bool_]]:
        """Evaluates checks on the grid (rows, waiting axes...); length 1 where a variable is absent."""
        dims = 1 + len(self.waiting)
        masks = []
        for check in checks:
            columns: dict[str, Column] = {}
            for name in check.constraint.variables:
                if name in rows:
                    axis = self.axes[name]
                    columns[name] = Column(
                        axis.values[rows[name]].reshape((num_rows,) + (1,) * (dims - 1)), axis.bounds
                    )
                elif name in self.fixed:
                    columns[name] = self.fixed[name]
                else:
                    shape = [1] * dims
                    shape[1 + self.waiting.index(name)] = -1
                    columns[name] = self.axes[name].column(tuple(shape))
            verdict = test(check.constraint, columns)
            if isinstance(verdict, bool):
                self.empty |= not verdict
                continue
            self.budget.stats.cells += verdict.size
            masks.append(verdict)
        return masks

    def _selected(self, masks: list[NDArray[np.bool_]], num_rows: int) -> tuple[NDArray[np.intp], ...]:
        shape = (num_rows, *(len(self.axes[n]) for n in self.waiting))
        dims = len(shape)
        full: NDArray[np.bool_] | None = None
        for mask in sorted(masks, key=lambda m: m.size):
            wide = mask.reshape(mask.shape + (1,) * (dims - mask.ndim)) if mask.ndim else mask
            full = wide if full is None else full & wide
        full = np.broadcast_to(True if full is None else full, shape)
        return np.nonzero(full)

    def list_rows(self) -> None:
        """Turns the grid into listed rows."""
        if not self.waiting:
            return
        selected = self._selected(self.masks, self.num_rows)
        self._take([(self.rows, selected)])

    def _take(self, pieces: list[tuple[Table, tuple[NDArray[np.intp], ...]]]) -> None:
        names = (*self.rows, *self.waiting)
        self.num_rows = sum(len(selected[0]) for _, selected in pieces)
        self.budget.check_rows(self.num_rows, names)
        rows: Table = {}
        for name in self.rows:
            rows[name] = np.concatenate([table[name][selected[0]] for table, selected in pieces])
        for position, name in enumerate(self.waiting):
            parts = [selected[1 + position].astype(np.int32) for _, selected in pieces]
            rows[name] = np.concatenate(parts) if len(parts) != 1 else parts[0]
        self.rows, self.waiting, self.masks = rows, [], []

    def _list_in_pieces(self, checks: Sequence[Check]) -> None:
        """Lists the rows of a grid that is too large to evaluate at once, some rows at a time."""
        if not self.rows and self.num_rows == 1:
            # Only one axis waits here (the others were listed before); its values become the rows.
            masks = self._evaluate(checks, self.rows, 1)
            self._take([(self.rows, self._selected(masks, 1))])
            return
        width = self.cells() // max(self.num_rows, 1)
        step = max(1, CHUNK_CELLS // width)
        pieces, found = [], 0
        for start in range(0, self.num_rows, step):
            self.budget.check_work()
            part = {name: column[start : start + step] for name, column in self.rows.items()}
            num = min(step, self.num_rows - start)
            selected = self._selected(self._evaluate(checks, part, num), num)
            found += len(selected[0])
            self.budget.check_rows(found, (*self.rows, *self.waiting))
            pieces.append((part, selected))
        self._take(pieces)


def build_table(
    names: Sequence[str],
    checks: Sequence[Check],
    axes: Mapping[str, Axis],
    fixed: Mapping[str, Column],
    budget: Budget,
) -> tuple[Table, int]:
    """Lists every combination of `names` that passes the checks (whose scopes lie within `names`).

    Returns:
        The columns of positions, and the number of rows.
    """
    builder = _Builder(axes, fixed, budget)
    order = order_variables(names, checks, axes)
    left = list(checks)
    done: set[str] = set()
    for name in order:
        done.add(name)
        ready = [c for c in left if c.scope <= done]
        left = [c for c in left if not c.scope <= done]
        builder.add(name, ready)
        budget.check_work()
    builder.list_rows()
    if builder.empty:
        return {name: np.zeros(0, dtype=np.int32) for name in names}, 0
    budget.stats.rows += builder.num_rows
    budget.stats.tables += 1
    return {name: builder.rows[name] for name in names}, builder.num_rows
