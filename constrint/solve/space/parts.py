"""Parts of a factored search space: independent sets of variables whose solutions multiply.

A `TreePart` holds the tables of one component with counts on them; a `FreePart` holds one variable that no
constraint touches. Both answer in positions (int64) on the variables' axes, never in values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from constrint.solve.engine.tables import Table
from constrint.solve.space.row_keys import Keys, check_listing, combine, find, group, total_type

if TYPE_CHECKING:
    from constrint.solve.space.membership import Lookup

Rows = dict[str, NDArray[Any]]


class Part(Protocol):
    """What a search space asks of each of its independent parts."""

    names: tuple[str, ...]
    count: int

    def take(self, indices: NDArray[Any]) -> Rows:
        """Positions of the solutions with these indices (each at least 0 and below `count`)."""

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Values of all solutions, in index order, given the values on each variable's axis."""

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """Index of the solution in each row of positions; -1 where it is none."""

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Whether each row of positions is a solution, and with which single positions exchanged it is one."""

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Distinct combinations of `keep` (names of the part) and how many solutions each stands for."""

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """Positions of the lexicographically first solution, variables taken in this order."""

    def restrict(self, fixed: Mapping[str, int]) -> Part | None:
        """The solutions in which these variables have these positions; None if there is none."""


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

    def restrict(self, fixed: Mapping[str, int]) -> Part | None:
        """Fixes the variable to a position."""
        position = fixed.get(self.name)
        if position is None or position == self.only:
            return self
        return FreePart(self.name, self.size, position) if self.only is None else None


@dataclass(slots=True)
class Node:
    """One table of a tree, its rows sorted into groups that agree on what they share with the parent."""

    rows: Table
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


class TreePart:
    """The solutions of one component as a tree of tables; node 0 is the root and parents precede children."""

    def __init__(self, nodes: list[Node], sizes: Mapping[str, int]) -> None:
        self.nodes = nodes
        self.names: tuple[str, ...] = tuple(dict.fromkeys(n for node in nodes for n in node.rows))
        self.sizes = {name: sizes[name] for name in self.names}
        self._kind = total_type(math.prod(self.sizes.values()))
        self._before: dict[int, NDArray[Any]] = {}
        for i in reversed(range(len(nodes))):
            self._count(i)
        root = nodes[0]
        self.count = int(root.totals[0]) if len(root.totals) else 0
        self._lookups: dict[int, Lookup] = {}

    def lookup(self, i: int) -> Lookup:
        """The rows of table i by key; built when it is first asked for."""
        if i not in self._lookups:
            from constrint.solve.space.membership import Lookup

            node = self.nodes[i]
            self._lookups[i] = Lookup(node, tuple(node.rows), [self.sizes[n] for n in node.rows])
        return self._lookups[i]

    def _count(self, i: int) -> None:
        """Counts the solutions below every group of node i, drops rows that have none, and groups the rest."""
        node = self.nodes[i]
        for child in node.children:
            below = self.nodes[child]
            link = self._match(below, node)
            found = link >= 0
            if not bool(found.all()):
                node.rows = {n: column[found] for n, column in node.rows.items()}
                node.links = {c: at[found] for c, at in node.links.items()}
                link = link[found]
                node.num_rows = len(link)
            node.links[child] = link
        self._group(node)
        weights = self.weights(i)
        if not node.shared:
            total = weights.sum(dtype=self._kind)
            node.totals = np.array([total] if node.num_rows else [], dtype=self._kind)
        elif len(node.starts) == node.num_rows:
            node.totals = weights
        else:
            node.totals = np.add.reduceat(weights, node.starts, dtype=self._kind)

    def weights(self, i: int) -> NDArray[Any]:
        """Number of solutions below every row of node i."""
        node = self.nodes[i]
        weights: NDArray[Any] | None = None
        for child in node.children:
            totals = self.nodes[child].totals
            if len(node.children) == 1 and self._kind is np.int64 and len(totals):
                totals = totals.astype(unsigned_type(int(totals.max())))
            more = totals[node.links[child]]
            weights = more if weights is None else weights * more
        return np.ones(node.num_rows, dtype=np.uint8) if weights is None else weights

    def before(self, i: int) -> NDArray[Any]:
        """Number of solutions below the earlier rows of node i; computed when it is first asked for."""
        if i not in self._before:
            weights = self.weights(i).astype(self._kind)
            self._before[i] = np.cumsum(weights, dtype=self._kind) - weights
        return self._before[i]

    def _match(self, below: Node, node: Node) -> NDArray[Any]:
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
        found = find(both[0], both[1][order], bound)
        return np.where(found >= 0, order[found], -1) if len(order) else found

    def _group(self, node: Node) -> None:
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
        out: Rows = {}
        index = np.asarray(indices, dtype=self._kind)
        self._descend(0, np.zeros(len(index), dtype=np.intp), index, out)
        return out

    def _descend(self, i: int, groups: NDArray[np.intp], index: NDArray[Any], out: Rows) -> None:
        node = self.nodes[i]
        before = self.before(i)
        target = index + before[node.starts[groups]]
        row = np.searchsorted(before, target, side="right") - 1
        rest = target - before[row]
        for name, column in node.rows.items():
            if name not in out:
                out[name] = column[row]
        for position, child in enumerate(node.children):
            after = np.ones(len(row), dtype=self._kind)
            for later in node.children[position + 1 :]:
                after = after * self.nodes[later].totals[node.links[later][row]]
            self._descend(child, node.links[child][row], rest // after, out)
            rest = rest % after

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Joins the tables top-down; the rows come out in index order."""
        from constrint.solve.space.listing import expand_tree

        return expand_tree(self, values)

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """Finds each row's place in every table."""
        from constrint.solve.space.membership import rank_rows

        return rank_rows(self, rows)

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Looks changed rows up in every table."""
        from constrint.solve.space.membership import moves

        return moves(self, rows)

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """Fixes one variable after the other to the first position that extends to a solution."""
        found: dict[str, int] = {}
        part: Part | None = self
        for name in order:
            if part is None:
                break
            found[name] = int(part.project([name])[0][name][0])
            part = part.restrict({name: found[name]})
        return found

    def restrict(self, fixed: Mapping[str, int]) -> Part | None:
        """Keeps the rows that agree with `fixed` and counts again."""
        mine = {n: p for n, p in fixed.items() if n in self.sizes}
        if not mine:
            return self
        nodes = []
        for node in self.nodes:
            mask: NDArray[np.bool_] | None = None
            for name, position in mine.items():
                if name in node.rows:
                    agrees = node.rows[name] == position
                    mask = agrees if mask is None else mask & agrees
            rows = node.rows if mask is None else {n: column[mask] for n, column in node.rows.items()}
            num = node.num_rows if mask is None else int(mask.sum())
            nodes.append(Node(dict(rows), num, node.parent, list(node.children), node.shared))
        part = TreePart(nodes, self.sizes)
        return part if part.count else None

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Sums counts bottom-up, carrying only the kept variables and what tables share."""
        from constrint.solve.space.projection import project_tree

        return project_tree(self, keep)
