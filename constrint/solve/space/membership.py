"""Membership in a tree of tables: whether rows of positions are solutions, and which; many rows at a time.

Every table is searched by row keys, which are sorted once, when they are first needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.row_keys import Keys, Rows, combine, find, group
from constrint.solve.space.tree import LinkedTable, Tree

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
        order, known, _ = group(keys, bound)
        return order, known

    def find(self, rows: Rows) -> NDArray[np.intp]:
        """Row of the table for every row of positions; -1 where it has none."""
        wanted = [rows[n] for n in self.names]
        if self.bound < _LARGEST_KEY:
            order, known, bound = self.order, self.known, self.bound
            keys = combine([wanted], self.sizes)[0][0]
        else:
            # Such keys are renumbered: both sides must be encoded together.
            both, bound = combine([wanted, self.columns], self.sizes)
            keys = both[0]
            order, known = self._sorted(both[1], bound)
        at = find(keys, known, bound)
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
        known, groups = np.unique(keys, return_inverse=True)
        if len(known) * size > _MAX_MOVES:
            return None
        # The last line answers for combinations that are not there at all.
        allowed = np.zeros((len(known) + 1, size), dtype=bool)
        allowed[groups.reshape(-1), column] = True
        return _Moves(names, sizes, known, bound, allowed)

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
