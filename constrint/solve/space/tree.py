"""A tree of tables: the solutions of one component, counted without being listed.

Each table holds combinations of a few variables. A row is linked to those rows of the child tables that have the same
values of the variables that both tables have. Positions stand for values everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.model.work import step
from constrint.solve.space.row_keys import Keys, Rows, combine, find, group, total_type


@dataclass(slots=True)
class LinkedTable:
    """One table of a tree, its rows sorted into groups that agree on what they share with the parent."""

    rows: Rows
    num_rows: int
    parent: int
    children: list[int]
    shared: tuple[str, ...]
    # Set by counting. `links[child]` is each row's group in that child.
    links: dict[int, NDArray[Any]] = field(default_factory=dict)
    keys: Keys = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    bound: int = 1
    starts: NDArray[np.intp] = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    totals: NDArray[Any] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def unsigned_type(largest: int) -> Any:
    """The smallest unsigned dtype that holds 0..largest."""
    return np.uint8 if largest < 1 << 8 else np.uint16 if largest < 1 << 16 else np.int64


class Tree:
    """The solutions of one component as a tree of tables; node 0 is the root and parents precede children.

    Attributes:
        nodes: The tables, sorted and linked.
        names: The variables of the component.
        sizes: Number of positions on each variable's axis.
        count: Number of solutions.
    """

    def __init__(self, nodes: list[LinkedTable], sizes: Mapping[str, int]) -> None:
        self.nodes = nodes
        self.names: tuple[str, ...] = tuple(dict.fromkeys(n for node in nodes for n in node.rows))
        self.sizes = {name: sizes[name] for name in self.names}
        self._total_type = total_type(math.prod(self.sizes.values()))
        self._before: dict[int, NDArray[Any]] = {}
        for i in reversed(range(len(nodes))):
            self._count(i)
        root = nodes[0]
        self.count = int(root.totals[0]) if len(root.totals) else 0

    def _count(self, i: int) -> None:
        """Counts the solutions below every group of node i, drops rows that have none, and groups the rest."""
        node = self.nodes[i]
        for child in node.children:
            step()
            below = self.nodes[child]
            link = self._match(below, node)
            linked = link >= 0
            if not bool(linked.all()):
                node.rows = {n: column[linked] for n, column in node.rows.items()}
                node.links = {c: at[linked] for c, at in node.links.items()}
                link = link[linked]
                node.num_rows = len(link)
            node.links[child] = link
        self._group(node)
        weights = self.weights(i)
        if not node.shared:
            total = weights.sum(dtype=self._total_type)
            node.totals = np.array([total] if node.num_rows else [], dtype=self._total_type)
        elif len(node.starts) == node.num_rows:
            # In the dtype of sums: products and sums of totals are formed in it.
            node.totals = weights.astype(self._total_type)
        else:
            node.totals = np.add.reduceat(weights, node.starts, dtype=self._total_type)

    def weights(self, i: int) -> NDArray[Any]:
        """Number of solutions below every row of node i."""
        node = self.nodes[i]
        weights: NDArray[Any] | None = None
        for child in node.children:
            totals = self.nodes[child].totals
            if len(node.children) == 1 and self._total_type is np.int64 and len(totals):
                totals = totals.astype(unsigned_type(int(totals.max())))
            more = totals[node.links[child]]
            weights = more if weights is None else weights * more
        return np.ones(node.num_rows, dtype=np.uint8) if weights is None else weights

    def before(self, i: int) -> NDArray[Any]:
        """Number of solutions below the earlier rows of node i; computed when it is first asked for."""
        if i not in self._before:
            weights = self.weights(i).astype(self._total_type)
            self._before[i] = np.cumsum(weights, dtype=self._total_type) - weights
        return self._before[i]

    def _match(self, below: LinkedTable, node: LinkedTable) -> NDArray[Any]:
        """Group of `below` for every row of `node`; -1 where it has none."""
        sizes = [self.sizes[n] for n in below.shared]
        columns = [node.rows[n] for n in below.shared]
        if math.prod(sizes) < 1 << 62:
            keys = columns[0] if len(columns) == 1 else combine([columns], sizes)[0][0]
            return find(keys, below.keys, below.bound)
        # The key was renumbered somewhere: encode both sides together.
        at = below.starts
        both, bound = combine([[node.rows[n] for n in below.shared], [below.rows[n][at] for n in below.shared]], sizes)
        order = np.argsort(both[1], kind="stable")
        at_sorted = find(both[0], both[1][order], bound)
        return np.where(at_sorted >= 0, order[at_sorted], -1) if len(order) else at_sorted

    def _group(self, node: LinkedTable) -> None:
        """Sorts the rows of a node by what they share with the parent."""
        if not node.shared:
            node.starts = np.zeros(1 if node.num_rows else 0, dtype=np.intp)
            return
        keys, node.bound = combine([[node.rows[n] for n in node.shared]], [self.sizes[n] for n in node.shared])
        order, node.keys, node.starts = group(keys[0], node.bound)
        if order is not None:
            node.rows = {n: column[order] for n, column in node.rows.items()}
            node.links = {c: at[order] for c, at in node.links.items()}

    def take(self, indices: NDArray[Any]) -> Rows:
        """Finds solutions by index: a row of the root by its counts, then one row in each child."""
        rows: Rows = {}
        index = np.asarray(indices, dtype=self._total_type)
        self._descend(0, np.zeros(len(index), dtype=np.intp), index, rows)
        return rows

    def _descend(self, i: int, groups: NDArray[np.intp], index: NDArray[Any], rows: Rows) -> None:
        node = self.nodes[i]
        before = self.before(i)
        target = index + before[node.starts[groups]]
        row = np.searchsorted(before, target, side="right") - 1
        rest = target - before[row]
        for name, column in node.rows.items():
            if name not in rows:
                rows[name] = column[row]
        for position, child in enumerate(node.children):
            after = np.ones(len(row), dtype=self._total_type)
            for later in node.children[position + 1 :]:
                after = after * self.nodes[later].totals[node.links[later][row]]
            self._descend(child, node.links[child][row], rest // after, rows)
            rest = rest % after

    def restricted(self, allowed: Mapping[str, NDArray[Any]]) -> Tree:
        """The tree of the rows that have allowed positions, counted again; it may have no solution."""
        nodes = []
        for node in self.nodes:
            mask: NDArray[np.bool_] | None = None
            for name, positions in allowed.items():
                if name in node.rows:
                    column = node.rows[name]
                    agrees = column == positions[0] if len(positions) == 1 else np.isin(column, positions)
                    mask = agrees if mask is None else mask & agrees
            rows = node.rows if mask is None else {n: column[mask] for n, column in node.rows.items()}
            num_rows = node.num_rows if mask is None else int(mask.sum())
            nodes.append(LinkedTable(dict(rows), num_rows, node.parent, list(node.children), node.shared))
        return Tree(nodes, self.sizes)
