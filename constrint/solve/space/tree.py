"""The solutions of linked variables as a tree of tables, counted and projected without a join of everything.

A row of a table takes one group of rows in every table below it, and every variable is a column of one table. A
decision diagram is such a tree, too: a chain with a table for each layer, whose rows are arcs, whose groups are states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.axes import KEY_LIMIT, Keys, Rows, check_listing, combine, ranges, rising, total_type


@dataclass(slots=True)
class LinkedTable:
    """One table of a tree; every row has a solution in the tables below it.

    Attributes:
        rows: Positions of its own variables, those that no table above it has.
        starts: Where each group of rows begins, and at last the number of rows.
        links: Per table below it, the group that each row takes there.
        totals: Number of solutions below each group.
    """

    rows: Rows
    starts: NDArray[np.intp]
    links: dict[int, NDArray[Any]] = field(default_factory=dict)
    totals: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.starts[-1])

    @property
    def group(self) -> NDArray[np.intp]:
        """The group of every row."""
        return np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))


def one_table(rows: Rows, num_rows: int) -> LinkedTable:
    """A table whose rows are one group."""
    return LinkedTable(rows, np.array([0, num_rows]))


class _Found(NamedTuple):
    """Rows of positions in a tree: which of them are solutions, and per table the group and the row of each."""

    valid: NDArray[np.bool_]
    groups: dict[int, NDArray[Any]]
    rows: list[NDArray[Any]]


#: Combinations of kept variables per group of a table, their counts, and where each group begins.
_Message = tuple[Rows, NDArray[Any], NDArray[np.intp]]


class Tree:
    """The solutions of one component; table 0 is the root, and tables stand before those below them.

    Attributes:
        tables: The tables.
        names: The variables of the component.
        sizes: Number of positions on each variable's axis.
        count: Number of solutions.
    """

    def __init__(self, tables: Sequence[LinkedTable], sizes: Mapping[str, int]) -> None:
        self.tables = tables
        self.names: tuple[str, ...] = tuple(n for table in tables for n in table.rows)
        self.sizes = {name: sizes[name] for name in self.names}
        self._type = total_type(math.prod(self.sizes.values()))
        for table in reversed(tables):
            table.totals = np.add.reduceat(self._weights(table), table.starts[:-1])
        if self._type is object and all(table.totals.sum() < KEY_LIMIT for table in tables):
            self._type = np.int64
            for table in tables:
                table.totals = table.totals.astype(np.int64)
        self.count = int(tables[0].totals[0])
        self._before: dict[int, NDArray[Any]] = {}
        self._keys: dict[int, tuple[NDArray[np.intp], Keys]] = {}

    def _weights(self, table: LinkedTable, apart: Sequence[int] = ()) -> NDArray[Any]:
        """Number of solutions below every row of a table, without those in the tables `apart`."""
        weights: NDArray[Any] = np.ones(table.num_rows, dtype=self._type)
        for child, link in table.links.items():
            if child not in apart:
                weights = weights * self.tables[child].totals[link]
        return weights

    def _solutions_before(self, i: int) -> NDArray[Any]:
        """Number of solutions below the earlier rows of table i."""
        if i not in self._before:
            weights = self._weights(self.tables[i])
            self._before[i] = np.cumsum(weights, dtype=self._type) - weights
        return self._before[i]

    def take(self, indices: NDArray[Any]) -> Rows:
        """Positions of the solutions with these indices: in every table the row that the index falls to."""
        rows: Rows = {}
        waiting = {0: (np.zeros(len(indices), dtype=np.intp), np.asarray(indices, dtype=self._type))}
        for i, table in enumerate(self.tables):
            groups, index = waiting.pop(i)
            before = self._solutions_before(i)
            target = index + before[table.starts[groups]]
            row = np.searchsorted(before, target, side="right") - 1
            rest = target - before[row]
            rows.update({name: column[row] for name, column in table.rows.items()})
            # The last table below varies fastest.
            for child, link in reversed(table.links.items()):
                below = link[row]
                total = self.tables[child].totals[below]
                waiting[child] = below, rest % total
                rest = rest // total
        return rows

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Values of all solutions in index order, given the values on each variable's axis.

        A value is repeated for every solution that begins with what is chosen so far.
        """
        check_listing(self.count, sum(values[name].dtype.itemsize for name in self.names))
        columns: Rows = {}
        ends: NDArray[Any] = np.array([self.count])
        waiting = {0: np.zeros(1, dtype=np.intp)}
        stack = [0]
        while stack:
            i = stack.pop()
            table, groups = self.tables[i], waiting.pop(i)
            source, rows = ranges(table.starts[groups], np.diff(table.starts)[groups])
            ends = (ends // table.totals[groups])[source] * self._weights(table)[rows]
            for name, column in table.rows.items():
                columns[name] = np.repeat(values[name][column[rows]], ends.astype(np.int64, copy=False))
            waiting = {other: at[source] for other, at in waiting.items()}
            waiting.update({below: link[rows] for below, link in table.links.items()})
            stack.extend(reversed(table.links))
        return columns

    def _find(self, i: int, groups: NDArray[Any], rows: Rows) -> NDArray[np.intp]:
        """The row of table i in its group for every row of positions; -1 where there is none."""
        table = self.tables[i]
        columns = [groups, *(rows[n] for n in table.rows)]
        sizes = [len(table.starts) - 1, *(self.sizes[n] for n in table.rows)]
        if math.prod(sizes) < KEY_LIMIT:
            if i not in self._keys:
                own = combine([[table.group, *table.rows.values()]], sizes)[0][0]
                order = rising(own)
                self._keys[i] = order, own[order]
            (wanted,), (order, keys) = combine([columns], sizes)[0], self._keys[i]
        else:
            # Such keys are renumbered: both sides must be encoded together.
            own, wanted = combine([[table.group, *table.rows.values()], columns], sizes)[0]
            order = rising(own)
            keys = own[order]
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[at] == wanted, order[at], -1)

    def _found(self, rows: Rows) -> _Found:
        num_rows = len(next(iter(rows.values())))
        found = _Found(np.ones(num_rows, dtype=bool), {0: np.zeros(num_rows, dtype=np.intp)}, [])
        for i, table in enumerate(self.tables):
            at = self._find(i, found.groups[i], rows)
            np.logical_and(found.valid, at >= 0, out=found.valid)
            found.rows.append(np.maximum(at, 0))
            found.groups.update({child: link[found.rows[i]] for child, link in table.links.items()})
        return found

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """Index of the solution in each row of positions; -1 where it is none."""
        found = self._found(rows)
        index: dict[int, Any] = {}
        for i in reversed(range(len(self.tables))):
            table, at, before = self.tables[i], found.rows[i], self._solutions_before(i)
            rank, after = before[at] - before[table.starts[found.groups[i]]], 1
            for child, link in reversed(table.links.items()):
                rank = rank + index.pop(child) * after
                after = after * self.tables[child].totals[link[at]]
            index[i] = rank
        return np.where(found.valid, index[0], -1)

    def has(self, positions: Mapping[str, int]) -> bool:
        """Whether one row of positions is a solution."""
        return bool(self._found({n: np.array([positions[n]]) for n in self.names}).valid[0])

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Whether each row of positions is a solution, and with which single positions exchanged it is one."""
        num_rows = len(next(iter(rows.values())))
        fits: dict[str, NDArray[np.bool_]] = {}
        for name, size in self.sizes.items():
            check_listing(num_rows * size)
            changed = {n: np.repeat(rows[n], size) for n in self.names}
            changed[name] = np.tile(np.arange(size), num_rows)
            fits[name] = self._found(changed).valid.reshape(num_rows, size)
        return self._found(rows).valid, fits

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Distinct combinations of `keep`, in lexicographic order, and how many solutions each stands for.

        Counts are summed from the last tables up, with the kept variables alone.
        """
        names = set(keep)
        messages: dict[int, _Message] = {}
        for i in reversed(range(1, len(self.tables))):
            table = self.tables[i]
            if names.isdisjoint(table.rows) and messages.keys().isdisjoint(table.links):
                continue
            columns, counts = self._gathered(i, names, messages)
            sizes = {**self.sizes, "": len(table.starts) - 1}
            columns, counts = aggregate({"": columns.pop(""), **columns}, sizes, counts)
            groups = columns.pop("")
            messages[i] = columns, counts, np.searchsorted(groups, np.arange(len(table.starts)))
        columns, counts = self._gathered(0, names, messages)
        return aggregate({n: columns[n] for n in keep}, self.sizes, counts)

    def _gathered(self, i: int, names: set[str], messages: dict[int, _Message]) -> tuple[Rows, NDArray[Any]]:
        """Rows of a table reduced to its group and to kept variables, extended by what the tables below keep."""
        table = self.tables[i]
        below = [child for child in table.links if child in messages]
        counts = self._weights(table, below)
        columns = {n: column for n, column in table.rows.items() if n in names}
        # Groups are columns, too, until their tables are joined; their names cannot clash.
        if i:
            columns[""] = table.group
        sizes = {**self.sizes, "": len(table.starts) - 1}
        for child in below:
            columns[f"#{child}"] = table.links[child]
            sizes[f"#{child}"] = len(self.tables[child].starts) - 1
        for child in below:
            columns, counts = aggregate(columns, sizes, counts)
            kept, weights, starts = messages.pop(child)
            groups = columns.pop(f"#{child}")
            source, rows = ranges(starts[groups], np.diff(starts)[groups])
            columns = {n: column[source] for n, column in columns.items()}
            columns.update({n: column[rows] for n, column in kept.items()})
            counts = counts[source] * weights[rows]
        return columns, counts

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """Positions of the lexicographically first solution, variables taken in this order."""
        if tuple(order) == self.names and all(len(table.rows) == 1 for table in self.tables):
            return {n: int(column[0]) for n, column in self.take(np.zeros(1, dtype=np.int64)).items()}
        positions: dict[str, int] = {}
        tree: Tree | None = self
        for name in order:
            assert tree is not None
            positions[name] = int(tree.project([name])[0][name][0])
            tree = tree.restrict({name: np.array([positions[name]])})
        return positions

    def restrict(self, allowed: Mapping[str, NDArray[Any]]) -> Tree | None:
        """The solutions in which each of these variables has one of these positions; None if there is none."""
        if not any(n in self.sizes for n in allowed):
            return self
        tables: list[LinkedTable] = []
        # Per table its groups' new numbers; -1 for a group that has no row left.
        number: dict[int, NDArray[np.intp]] = {}
        for i in reversed(range(len(self.tables))):
            table = self.tables[i]
            left = np.ones(table.num_rows, dtype=bool)
            for name in table.rows.keys() & allowed.keys():
                left &= np.isin(table.rows[name], allowed[name])
            for child, link in table.links.items():
                left &= number[child][link] >= 0
            lengths = np.add.reduceat(left, table.starts[:-1], dtype=np.intp)
            stays = lengths > 0
            if not stays.any():
                return None
            number[i] = np.where(stays, np.cumsum(stays) - 1, -1)
            links = {child: number[child][link[left]] for child, link in table.links.items()}
            starts = np.concatenate([[0], np.cumsum(lengths[stays])])
            tables.insert(0, LinkedTable({n: column[left] for n, column in table.rows.items()}, starts, links))
        return Tree(tables, self.sizes)


def aggregate(columns: Rows, sizes: Mapping[str, int], counts: NDArray[Any]) -> tuple[Rows, NDArray[Any]]:
    """Adds up the counts of equal rows; the result is in lexicographic order of the columns."""
    if not columns:
        return {}, np.array([counts.sum()], dtype=counts.dtype)
    (keys,), _ = combine([list(columns.values())], [sizes[n] for n in columns])
    order = rising(keys)
    keys, counts = keys[order], counts[order]
    first = np.ones(len(keys), dtype=bool)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    if len(starts) != len(counts):
        counts = np.add.reduceat(counts, starts)
    return {n: column[order[starts]] for n, column in columns.items()}, counts


def merged(columns: dict[str, NDArray[Any]], counts: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Adds up the counts of equal rows of values."""
    levels = {n: np.unique(c, return_inverse=True) for n, c in columns.items()}
    positions: Rows = {n: inverse.reshape(-1) for n, (_, inverse) in levels.items()}
    kept, counts = aggregate(positions, {n: max(1, len(u)) for n, (u, _) in levels.items()}, counts)
    return {n: levels[n][0][at] for n, at in kept.items()}, counts
