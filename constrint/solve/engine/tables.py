"""Tables: all combinations of a few variables that satisfy the constraints between them, listed with numpy.

A table holds, for each of its variables, a column of positions on that variable's axis (its values in
preference order). Constraints are evaluated on broadcast grids, so a sub-expression is computed once per
combination of the variables that it really contains.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.model import Constraint
from constrint.model.columns import ExactColumn, test
from constrint.solve.budget import Budget
from constrint.solve.space.axes import Axis, Rows, position_type

# A grid may grow to this many cells before the rows that survived so far are listed.
GRID_CELLS: Final = 1 << 13
# A larger grid is evaluated in pieces, whose columns stay in the cache and reuse memory.
CHUNK_CELLS: Final = 31 << 10
# Rows of one piece of a longer table.
PIECE_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class TableCheck:
    """A constraint to evaluate, with the variables that are not fixed yet."""

    constraint: Constraint
    scope: frozenset[str]


def order_variables(
    names: Sequence[str], checks: Sequence[TableCheck], axes: Mapping[str, Axis]
) -> list[tuple[list[str], list[TableCheck]]]:
    """Orders variables so that checks become decidable after as few combinations as possible.

    Returns:
        Steps: the variables that come next together, and the checks that they complete.
    """
    sizes = {n: len(axes[n]) for n in names}
    left = dict.fromkeys(names)
    missing = {i: [n for n in left if n in check.scope] for i, check in enumerate(checks)}
    steps: list[tuple[list[str], list[TableCheck]]] = []
    while missing:
        chosen = min(missing.values(), key=lambda m: math.prod(sizes[n] for n in m))
        for name in chosen:
            del left[name]
        taken = frozenset(chosen)
        missing = {i: [n for n in m if n not in taken] for i, m in missing.items()}
        steps.append((chosen, [checks[i] for i, m in missing.items() if not m]))
        missing = {i: m for i, m in missing.items() if m}
    if left:
        steps.append((list(left), []))
    return steps


class _Builder:
    """Grows a table one variable at a time; variables wait on grid axes until their rows are listed.

    The grid has the shape (last waiting variable, ..., first waiting variable, rows): a new variable adds an
    axis in front, and the long axis of rows stays innermost, where numpy is fastest.
    """

    def __init__(self, axes: Mapping[str, Axis], fixed: Mapping[str, ExactColumn], budget: Budget) -> None:
        self.axes, self.fixed, self.budget = axes, fixed, budget
        self.rows: Rows = {}
        self.num_rows = 1
        self.waiting: list[str] = []
        self.masks: list[NDArray[np.bool_]] = []
        self.gathered: dict[str, ExactColumn] = {}
        self.empty = False

    def cells(self) -> int:
        """Combinations on the grid."""
        total = self.num_rows
        for name in self.waiting:
            total *= len(self.axes[name])
        return total

    def add(self, names: Sequence[str], checks: Sequence[TableCheck]) -> None:
        """Adds variables, and the checks that they complete."""
        width = math.prod(len(self.axes[n]) for n in names)
        if self.waiting and self.cells() * width > min(GRID_CELLS, CHUNK_CELLS):
            self.list_rows()
        while len(names) > 1 and width > CHUNK_CELLS:
            self.waiting = [names[0]]
            width //= len(self.axes[names[0]])
            names = names[1:]
            self.list_rows()
        self.waiting += names
        if self.rows and self.cells() > CHUNK_CELLS:
            self._list_in_pieces(checks)
            return
        self.budget.check_bytes(8 * self.cells(), "a grid")
        self.masks += self._evaluate(checks, self.rows, self.gathered)

    def _evaluate(
        self, checks: Sequence[TableCheck], rows: Rows, gathered: dict[str, ExactColumn]
    ) -> list[NDArray[np.bool_]]:
        """Evaluates checks on the grid; axes have length 1 where a variable is absent."""
        masks = []
        for check in checks:
            columns: dict[str, ExactColumn] = {}
            for name in check.constraint.variables:
                if name in self.fixed:
                    columns[name] = self.fixed[name]
                    continue
                axis = self.axes[name]
                if name in rows:
                    if name not in gathered:
                        gathered[name] = ExactColumn(axis.narrow[rows[name]], axis.bounds)
                    columns[name] = gathered[name]
                else:
                    columns[name] = axis.column((-1,) + (1,) * (1 + self.waiting.index(name)))
            verdict = test(check.constraint, columns)
            if isinstance(verdict, bool):
                self.empty |= not verdict
                continue
            self.budget.stats.cells += verdict.size
            masks.append(verdict)
        return masks

    def _selected(self, masks: list[NDArray[np.bool_]], num_rows: int) -> NDArray[np.intp] | None:
        """Indices of the cells that pass, on the flattened grid; None where every cell does."""
        if not masks:
            return None
        shape = (*(len(self.axes[n]) for n in reversed(self.waiting)), num_rows)
        full: NDArray[np.bool_] | None = None
        for mask in sorted(masks, key=lambda m: m.size):
            full = mask if full is None else full & mask
        return np.flatnonzero(np.broadcast_to(full if full is not None else True, shape))

    def _decoded(self, flat: NDArray[np.intp] | None, rows: Rows, num_rows: int) -> Rows:
        """Positions of every variable at the given cells of the grid."""
        total = num_rows * math.prod(len(self.axes[n]) for n in self.waiting) if flat is None else len(flat)
        if total <= PIECE_ROWS:
            return self._decoded_piece(np.arange(total) if flat is None else flat, rows, num_rows)
        listed: Rows = {n: np.empty(total, dtype=c.dtype) for n, c in rows.items()}
        listed.update({n: np.empty(total, dtype=position_type(len(self.axes[n]))) for n in self.waiting})
        for start in range(0, total, PIECE_ROWS):
            self.budget.tick()
            end = min(start + PIECE_ROWS, total)
            piece = np.arange(start, end) if flat is None else flat[start:end]
            for name, column in self._decoded_piece(piece, rows, num_rows).items():
                listed[name][start:end] = column
        return listed

    def _row_bytes(self) -> int:
        """Bytes of one row of the table over listed and waiting variables."""
        waiting = [int(np.dtype(position_type(len(self.axes[n]))).itemsize) for n in self.waiting]
        return sum(waiting) + sum(column.itemsize for column in self.rows.values())

    def _decoded_piece(self, flat: NDArray[np.intp], rows: Rows, num_rows: int) -> Rows:
        decoded: Rows = {}
        rest: NDArray[Any] = flat if len(flat) == 0 or flat[-1] >= 1 << 31 else flat.astype(np.int32)
        if num_rows > 1 or rows:
            above = rest // num_rows
            row = rest - above * num_rows
            rest = above
            row = row.astype(np.intp, copy=False)
            decoded = {name: column[row] for name, column in rows.items()}
        for name in self.waiting[:-1]:
            size = len(self.axes[name])
            above = rest // size
            decoded[name] = (rest - above * size).astype(position_type(size))
            rest = above
        for name in self.waiting[-1:]:
            decoded[name] = rest.astype(position_type(len(self.axes[name])))
        return decoded

    def list_rows(self) -> None:
        """Turns the grid into listed rows."""
        if not self.waiting:
            return
        flat = self._selected(self.masks, self.num_rows)
        num_rows = self.cells() if flat is None else len(flat)
        self.budget.check_rows(num_rows, (*self.rows, *self.waiting))
        self.budget.check_bytes(num_rows * self._row_bytes(), "a table")
        self._take(self._decoded(flat, self.rows, self.num_rows), num_rows)

    def _take(self, rows: Rows, num_rows: int) -> None:
        self.rows, self.num_rows = rows, num_rows
        self.waiting, self.masks, self.gathered = [], [], {}
        self.budget.check_bytes(sum(c.nbytes for c in rows.values()), "a table")

    def _list_in_pieces(self, checks: Sequence[TableCheck]) -> None:
        """Lists the rows of a grid that is too large to evaluate at once, some rows at a time."""
        width = self.cells() // max(self.num_rows, 1)
        step = max(1, CHUNK_CELLS // width)
        pieces: list[Rows] = []
        num_listed = 0
        for start in range(0, self.num_rows, step):
            self.budget.tick()
            part = {name: column[start : start + step] for name, column in self.rows.items()}
            num = min(step, self.num_rows - start)
            flat = self._selected(self._evaluate(checks, part, {}), num)
            num_here = num * width if flat is None else len(flat)
            if num_here == 0 and pieces:
                continue
            num_listed += num_here
            self.budget.check_rows(num_listed, (*self.rows, *self.waiting))
            # The pieces are joined in the end: for a moment all rows exist twice.
            self.budget.check_bytes(2 * num_listed * self._row_bytes(), "a table")
            pieces.append(self._decoded(flat, part, num))
        self._take({n: np.concatenate([p[n] for p in pieces]) for n in pieces[0]} if pieces else {}, num_listed)


def build_table(
    names: Sequence[str],
    checks: Sequence[TableCheck],
    axes: Mapping[str, Axis],
    fixed: Mapping[str, ExactColumn],
    budget: Budget,
) -> tuple[Rows, int]:
    """Lists every combination of `names` that passes the checks (whose scopes lie within `names`).

    Returns:
        The columns of positions, and the number of rows.
    """
    builder = _Builder(axes, fixed, budget)
    for chosen, ready in order_variables(names, checks, axes):
        builder.add(chosen, ready)
        budget.tick()
    builder.list_rows()
    if builder.empty:
        return {name: np.zeros(0, dtype=np.uint8) for name in names}, 0
    budget.stats.table_bytes += sum(column.nbytes for column in builder.rows.values())
    budget.stats.rows += builder.num_rows
    budget.stats.tables += 1
    return {name: builder.rows[name] for name in names}, builder.num_rows
