"""Parts of a factored search space: independent sets of variables whose solutions multiply.

A `TreePart` holds the tables of one component; a `FreePart` holds one variable that no constraint touches. Both answer
in positions on the variables' axes, never in values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.listing import list_rows
from constrint.solve.space.membership import Membership
from constrint.solve.space.projection import project_tree
from constrint.solve.space.row_keys import Rows, check_listing, total_type
from constrint.solve.space.tree import LinkedTable, Tree


class Part(Protocol):
    """What a search space asks of each of its independent parts."""

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
        table = LinkedTable({self.name: positions}, len(positions), -1, [], ())
        return TreePart(Tree([table], {self.name: self.size}))


class TreePart:
    """The solutions of one component of linked variables; every question goes to the file that answers it."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.names, self.count = tree, tree.names, tree.count
        membership = Membership(tree)
        self.take, self.ranks, self.moves = tree.take, membership.ranks, membership.moves
        self.has = membership.has

    @property
    def root(self) -> LinkedTable:
        """The table that the others hang on."""
        return self.tree.nodes[0]

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Joins the tables top-down; the rows come out in index order."""
        return list_rows(self.tree, values)

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Sums counts bottom-up, carrying only the kept variables and what tables share."""
        return project_tree(self.tree, keep)

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """Fixes one variable after the other to the first position that extends to a solution."""
        positions: dict[str, int] = {}
        tree = self.tree
        for name in order:
            positions[name] = int(project_tree(tree, [name])[0][name][0])
            tree = tree.restricted({name: np.array([positions[name]])})
        return positions

    def restrict(self, allowed: Mapping[str, NDArray[Any]]) -> Part | None:
        """Keeps the rows that have allowed positions."""
        mine = {n: p for n, p in allowed.items() if n in self.tree.sizes}
        if not mine:
            return self
        tree = self.tree.restricted(mine)
        return TreePart(tree) if tree.count else None
