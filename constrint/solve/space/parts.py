"""Parts of a factored search space: independent sets of variables whose solutions multiply, and membership in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.axes import AxisLayout, Keys, Rows, check_listing, combine, find, group, total_type
from constrint.solve.space.tree import LinkedTable, Tree, list_rows, multiply_out, project_tree


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
                columns[name] = multiply_out(column, outer, inner)
            outer *= part.count
        return self.layout.completed(columns, total)


_LARGEST_KEY: Final = 1 << 62
# Tables of moves with more cells are not kept.
_MAX_MOVES: Final = 1 << 24


class _Lookup:
    """The rows of one table by key."""

    def __init__(self, node: LinkedTable, names: Sequence[str], sizes: Sequence[int]) -> None:
        self.names, self.sizes = names, sizes
        self.columns = [node.rows[n] for n in names]
        self.bound = math.prod(sizes)
        self._moves: dict[str, _Moves | None] = {}
        if self.bound < _LARGEST_KEY:
            self.order, self.known = self._sorted(combine([self.columns], sizes)[0][0], self.bound)

    def _sorted(self, keys: Keys, bound: int) -> tuple[NDArray[np.intp] | None, Keys]:
        order, sorted_keys, _ = group(keys, bound)
        return order, sorted_keys

    def find(self, rows: Rows) -> NDArray[np.intp]:
        """Row of the table for every row of positions; -1 where it has none."""
        columns = [rows[n] for n in self.names]
        if self.bound < _LARGEST_KEY:
            order, sorted_keys, bound = self.order, self.known, self.bound
            keys = combine([columns], self.sizes)[0][0]
        else:
            # Such keys are renumbered: both sides must be encoded together.
            both, bound = combine([columns, self.columns], self.sizes)
            keys = both[0]
            order, sorted_keys = self._sorted(both[1], bound)
        at = find(keys, sorted_keys, bound)
        return at if order is None or len(order) == 0 else np.where(at >= 0, order[at], -1)

    def has(self, positions: Mapping[str, int]) -> bool:
        """Whether the table has one row of positions."""
        if self.bound >= _LARGEST_KEY:
            return bool(self.find({n: np.array([positions[n]]) for n in self.names})[0] >= 0)
        key = 0
        for name, size in zip(self.names, self.sizes, strict=True):
            key = key * size + positions[name]
        at = int(self.known.searchsorted(key))
        return at < len(self.known) and int(self.known[at]) == key

    def moves_of(self, name: str) -> _Moves | None:
        """Which positions of one variable go with the others; None where that table would be too large."""
        if name not in self._moves:
            self._moves[name] = _Moves.of(self, name) if self.bound < _LARGEST_KEY else None
        return self._moves[name]

    def moved(self, rows: Rows, name: str, size: int) -> NDArray[np.bool_]:
        """For every row of positions: with which positions of one variable the table has it."""
        num_rows = len(rows[name])
        table = self.moves_of(name)
        if table is not None:
            return table.find(rows, num_rows)
        wide = {n: np.repeat(rows[n], size) for n in self.names}
        wide[name] = np.tile(np.arange(size), num_rows)
        return (self.find(wide) >= 0).reshape(num_rows, size)


@dataclass(slots=True)
class _Moves:
    """Per combination of the other variables of a table: whether each position of one variable is there."""

    names: list[str]
    sizes: list[int]
    known: Keys
    bound: int
    allowed: NDArray[np.bool_]

    @staticmethod
    def of(lookup: _Lookup, name: str) -> _Moves | None:
        at = lookup.names.index(name)
        names = [n for n in lookup.names if n != name]
        sizes = [s for i, s in enumerate(lookup.sizes) if i != at]
        size, column = lookup.sizes[at], lookup.columns[at]
        if names:
            others = [c for i, c in enumerate(lookup.columns) if i != at]
            keys, bound = combine([others], sizes)[0][0], math.prod(sizes)
        else:
            keys, bound = np.zeros(len(column), dtype=np.int64), 1
        sorted_keys, groups = np.unique(keys, return_inverse=True)
        if len(sorted_keys) * size > _MAX_MOVES:
            return None
        # The last line answers for combinations that are not there at all.
        allowed = np.zeros((len(sorted_keys) + 1, size), dtype=bool)
        allowed[groups.reshape(-1), column] = True
        return _Moves(names, sizes, sorted_keys, bound, allowed)

    def find(self, rows: Rows, num_rows: int) -> NDArray[np.bool_]:
        """For every row of positions which positions of the variable go with the others."""
        if not self.names:
            return np.repeat(self.allowed[:1], num_rows, axis=0)
        keys = combine([[rows[n] for n in self.names]], self.sizes)[0][0]
        result: NDArray[np.bool_] = self.allowed[find(keys, self.known, self.bound)]
        return result


class Membership:
    """Finds rows of positions in the tables of one tree."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._lookups: dict[int, _Lookup] = {}

    def _lookup(self, i: int) -> _Lookup:
        """The rows of table i by key; built when it is first asked for."""
        if i not in self._lookups:
            node = self._tree.nodes[i]
            self._lookups[i] = _Lookup(node, tuple(node.rows), [self._tree.sizes[n] for n in node.rows])
        return self._lookups[i]

    def has(self, positions: Mapping[str, int]) -> bool:
        """Whether one row of positions is a solution: where it is in every table."""
        return all(self._lookup(i).has(positions) for i in range(len(self._tree.nodes)))

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Decides what becomes of rows when one variable moves.

        Returns:
            Whether each row is a solution as it is, and for every variable a table (row, position): whether the row
            is a solution with that position of the variable.
        """
        nodes, sizes = self._tree.nodes, self._tree.sizes
        fits = [self._lookup(i).find(rows) >= 0 for i in range(len(nodes))]
        wrong: Any = sum((~fit).astype(np.int64) for fit in fits)
        allowed: dict[str, NDArray[np.bool_]] = {}
        for i, node in enumerate(nodes):
            for name in node.rows:
                inside = self._lookup(i).moved(rows, name, sizes[name])
                allowed[name] = allowed[name] & inside if name in allowed else inside
        for name in allowed:
            # Tables without the variable must fit already.
            others = wrong - sum((~fits[i]).astype(np.int64) for i, n in enumerate(nodes) if name in n.rows)
            allowed[name] &= (others == 0)[:, None]
        return wrong == 0, allowed

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """Index of the solution in each row of positions; -1 where it is none."""
        num_rows = len(next(iter(rows.values())))
        valid = np.ones(num_rows, dtype=bool)
        places: list[NDArray[np.intp]] = []
        for i, node in enumerate(self._tree.nodes):
            if node.num_rows == 0:
                return np.full(num_rows, -1, dtype=np.int64)
            place = self._lookup(i).find(rows)
            valid &= place >= 0
            places.append(np.maximum(place, 0))
        return np.where(valid, self._rank(0, places), -1)

    def _rank(self, i: int, places: list[NDArray[np.intp]]) -> NDArray[Any]:
        """Index of each solution among those of its group in table i; the inverse of `Tree.take`."""
        tree = self._tree
        node, row = tree.nodes[i], places[i]
        within = np.searchsorted(node.starts, row, side="right") - 1
        before = tree.before(i)
        index: NDArray[Any] = before[row] - before[node.starts[within]]
        after: Any = 1
        for child in reversed(node.children):
            index = index + self._rank(child, places) * after
            after = after * tree.nodes[child].totals[node.links[child][row]]
        return index
