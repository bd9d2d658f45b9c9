"""Parts of a factored search space: independent sets of variables whose solutions multiply."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.axes import AxisLayout, Rows, check_listing, total_type
from constrint.solve.space.tree import Tree, one_table


class Part(Protocol):
    """Interface of the independent parts of a search space."""

    names: tuple[str, ...]
    count: int

    def take(self, indices: NDArray[Any]) -> Rows:
        """Positions of the solutions with these indices (each at least 0 and below `count`)."""

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Values of all solutions, in index order, given the values on each variable's axis."""

    def has(self, positions: Mapping[str, int]) -> bool:
        """Whether one row of positions is a solution."""

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """Index of the solution in each row of positions; -1 where it is none."""

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Whether each row of positions is a solution, and with which single positions exchanged it is one."""

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Distinct combinations of `keep` (names of the part) and how many solutions each stands for."""

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """Positions of the lexicographically first solution, variables taken in this order."""

    def restrict(self, allowed: Mapping[str, NDArray[Any]]) -> Part | None:
        """The solutions in which each of these variables has one of these positions; None if there is none."""


@dataclass(slots=True)
class FreePart:
    """One variable that no constraint touches; `only` is its position once it is fixed."""

    name: str
    size: int
    only: int | None = None
    names: tuple[str, ...] = field(init=False)
    count: int = field(init=False)

    def __post_init__(self) -> None:
        self.names = (self.name,)
        self.count = self.size if self.only is None else 1

    def take(self, indices: NDArray[Any]) -> Rows:
        """The index is the position."""
        return {self.name: indices + (self.only or 0)}

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Every value."""
        column = values[self.name]
        return {self.name: column if self.only is None else column[self.only : self.only + 1]}

    def has(self, positions: Mapping[str, int]) -> bool:
        """Every position is one, or the only one."""
        return self.only is None or positions[self.name] == self.only

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """The position is the index."""
        positions = rows[self.name]
        if self.only is None:
            return positions
        return np.where(positions == self.only, 0, -1)

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Every position fits, or the only one does."""
        check_listing(self.size)
        fits = np.ones(self.size, dtype=bool) if self.only is None else np.arange(self.size) == self.only
        positions = rows[self.name]
        return fits[positions.astype(np.intp)], {self.name: np.tile(fits, (len(positions), 1))}

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Every position stands for one solution."""
        if not keep:
            return {}, np.array([self.count], dtype=total_type(self.count))
        return self.take(np.arange(self.count)), np.ones(self.count, dtype=np.int64)

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """The fixed position, else 0."""
        return {self.name: self.only or 0}

    def restrict(self, allowed: Mapping[str, NDArray[Any]]) -> Part | None:
        """Fixes the variable to a position; several ones make it a table."""
        if self.name not in allowed:
            return self
        positions = allowed[self.name]
        if self.only is not None:
            return self if self.only in positions.tolist() else None
        if len(positions) == 1:
            return FreePart(self.name, self.size, int(positions[0]))
        return Tree([one_table({self.name: positions}, len(positions))], {self.name: self.size})


@dataclass
class Factors:
    """The factored form of a search space: its axes and its independent parts.

    `parts` is None where there is no solution, and empty where every variable is fixed.
    """

    layout: AxisLayout
    parts: tuple[Part, ...] | None

    @property
    def names(self) -> tuple[str, ...]:
        """Variables in declared order."""
        return self.layout.names

    @property
    def total(self) -> int:
        """Number of solutions."""
        return 0 if self.parts is None else math.prod(p.count for p in self.parts)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Every solution in index order, one column per variable in the smallest signed dtype."""
        if self.parts is None:
            return {n: np.zeros(0, dtype=np.int8) for n in self.names}
        total = self.total
        check_listing(total, sum(self.layout.itemsize(n) for n in self.names))
        columns: Rows = {}
        outer, inner = 1, total
        for part in self.parts:
            inner //= max(part.count, 1)
            values = {n: self.layout.narrow_values(n) for n in part.names}
            for name, column in part.expand(values).items():
                columns[name] = np.tile(np.repeat(column, inner), outer)
            outer *= part.count
        return self.layout.completed(columns, total)
