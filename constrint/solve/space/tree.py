"""A tree of tables: the solutions of one component, counted, listed and projected without a join of everything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.model.operations import step
from constrint.solve.space.axes import Keys, Rows, check_listing, combine, find, group, ranges, total_type


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


_PIECE_ROWS: Final = 1 << 14


def list_rows(tree: Tree, values: Mapping[str, NDArray[Any]]) -> Rows:
    """Values of all solutions in index order, given the values on each variable's axis."""
    check_listing(tree.count, sum(values[name].dtype.itemsize for name in tree.names))
    root = tree.nodes[0]
    listed: list[Rows] = [{name: _looked_up(values[name], at) for name, at in node.rows.items()} for node in tree.nodes]
    if not root.children:
        return listed[0]
    if tree.count <= 2 * _PIECE_ROWS:
        return _joined(tree, listed, slice(None))
    columns = {name: np.empty(tree.count, dtype=values[name].dtype) for name in tree.names}
    step = max(1, _PIECE_ROWS * root.num_rows // tree.count)
    done = 0
    for start in range(0, root.num_rows, step):
        piece = _joined(tree, listed, slice(start, start + step))
        end = done
        for name, column in piece.items():
            end = done + len(column)
            columns[name][done:end] = column
        done = end
    return columns


def _looked_up(values: NDArray[Any], positions: NDArray[Any]) -> NDArray[Any]:
    """Values at positions; evenly spaced ones are computed, which is faster than looking them up."""
    if len(positions) > 4 * len(values) > 4 and values.dtype != object and positions.dtype == np.uint8:
        steps = np.diff(values.astype(np.int64))
        if len(values) < 128 and steps.min() == steps.max() and abs(int(steps[0])) < 128:
            result = positions.astype(values.dtype)
            result *= values.dtype.type(steps[0])
            result += values[0]
            return result
    taken: NDArray[Any] = values[positions]
    return taken


def _joined(tree: Tree, listed: list[Rows], rows_of_root: slice) -> Rows:
    """Lists the solutions below some rows of the root."""
    root = tree.nodes[0]
    columns = {name: column[rows_of_root] for name, column in listed[0].items()}
    # The group in each table that is still to be joined; its rows follow the columns.
    waiting = {child: link[rows_of_root] for child, link in root.links.items()}
    stack = list(reversed(root.children))
    while stack:
        child = stack.pop()
        node = tree.nodes[child]
        groups = waiting.pop(child)
        if len(node.starts) == node.num_rows:
            # Every group is one row: nothing is repeated.
            rows = groups
        else:
            lengths = np.diff(node.starts, append=node.num_rows)
            source, rows = ranges(node.starts[groups], lengths[groups])
            columns = {name: column[source] for name, column in columns.items()}
            waiting = {c: at[source] for c, at in waiting.items()}
        for name, column in listed[child].items():
            if name not in columns:
                columns[name] = column[rows]
        for below, link in node.links.items():
            waiting[below] = link[rows]
        stack.extend(reversed(node.children))
    return columns


def multiply_out(column: NDArray[Any], outer: int, inner: int) -> NDArray[Any]:
    """Repeats every element `inner` times, and the result `outer` times."""
    if inner > 1:
        column = np.repeat(column, inner)
    if outer == 1:
        return column
    result = np.empty((outer, len(column)), dtype=column.dtype)
    result[:] = column
    return result.reshape(-1)


@dataclass(slots=True)
class _Message:
    """Per group of a node: kept combinations below it and their counts; rows are sorted by group."""

    kept: Rows
    counts: NDArray[Any]
    starts: NDArray[np.intp]
    lengths: NDArray[np.intp]


def aggregate(columns: Rows, sizes: dict[str, int], counts: NDArray[Any]) -> tuple[Rows, NDArray[Any]]:
    """Adds up the counts of equal rows; the result is in lexicographic order of the columns."""
    if not columns:
        return {}, np.array([counts.sum()], dtype=counts.dtype)
    keys, bound = combine([list(columns.values())], [sizes[n] for n in columns])
    order, _, starts = group(keys[0], bound)
    if order is not None:
        counts = counts[order]
    if len(starts) != len(counts):
        counts = np.add.reduceat(counts, starts) if len(starts) else counts
    first = starts if order is None else order[starts]
    return {n: column[first] for n, column in columns.items()}, counts


def project_tree(tree: Tree, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
    """Distinct combinations of some variables, and how many solutions each stands for.

    The rows come in lexicographic order of `keep`.
    """
    names = set(keep)
    messages: dict[int, _Message | None] = {}
    for i in reversed(range(1, len(tree.nodes))):
        messages[i] = _message(tree, i, names, messages)
    columns, counts = _gather(tree, 0, names, messages)
    return aggregate({n: columns[n] for n in keep}, tree.sizes, counts)


def _below(tree: Tree, i: int, names: set[str]) -> bool:
    """Says whether the subtree of node i has variables to keep that are not in its parent's table."""
    node = tree.nodes[i]
    own = any(n in names and n not in node.shared for n in node.rows)
    return own or any(_below(tree, c, names) for c in node.children)


def _message(tree: Tree, i: int, names: set[str], messages: dict[int, _Message | None]) -> _Message | None:
    """Message of node i to its parent; None where the group totals suffice."""
    if not _below(tree, i, names):
        return None
    node = tree.nodes[i]
    columns, counts = _gather(tree, i, names, messages)
    # `_gather` keeps the group of every row under the reserved name "".
    sizes = {**tree.sizes, "": max(1, len(node.starts))}
    ordered = {"": columns[""], **{n: c for n, c in columns.items() if n != "" and n not in node.shared}}
    columns_below, counts = aggregate(ordered, sizes, counts)
    groups = columns_below.pop("")
    starts = np.searchsorted(groups, np.arange(len(node.starts) + 1))
    return _Message(columns_below, counts, starts[:-1], np.diff(starts))


def _gather(tree: Tree, i: int, names: set[str], messages: dict[int, _Message | None]) -> tuple[Rows, NDArray[Any]]:
    """Rows of node i reduced to wanted variables (and their group), extended by what the children keep."""
    node = tree.nodes[i]
    talking = [c for c in node.children if messages[c] is not None]
    counts: NDArray[Any] = np.ones(node.num_rows, dtype=node.totals.dtype)
    for child in node.children:
        if messages[child] is None:
            counts = counts * tree.nodes[child].totals[node.links[child]]
    if not talking:
        counts = tree.weights(i).astype(node.totals.dtype)
    columns: Rows = {n: column for n, column in node.rows.items() if n in names}
    if i:
        lengths = np.diff(np.append(node.starts, node.num_rows))
        columns[""] = np.repeat(np.arange(len(node.starts)), lengths)
    # Groups in talking children are columns too until those children are joined; their names cannot clash.
    sizes = {**tree.sizes, "": max(1, len(node.starts))}
    for child in talking:
        columns[f"#{child}"] = node.links[child]
        sizes[f"#{child}"] = max(1, len(tree.nodes[child].starts))
    if talking:
        columns, counts = aggregate(columns, sizes, counts)
    for child in talking:
        message = messages[child]
        if message is None:
            continue
        groups = columns.pop(f"#{child}")
        source, rows = ranges(message.starts[groups], message.lengths[groups])
        columns = {n: c[source] for n, c in columns.items()}
        columns.update({n: c[rows] for n, c in message.kept.items()})
        counts = counts[source] * message.counts[rows]
        if len(talking) > 1:
            columns, counts = aggregate(columns, sizes, counts)
    return columns, counts


def merged(columns: dict[str, NDArray[Any]], counts: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Adds up the counts of equal rows of values."""
    levels = {n: np.unique(c, return_inverse=True) for n, c in columns.items()}
    positions: Rows = {n: inverse.reshape(-1) for n, (_, inverse) in levels.items()}
    kept, counts = aggregate(positions, {n: max(1, len(u)) for n, (u, _) in levels.items()}, counts)
    return {n: levels[n][0][at] for n, at in kept.items()}, counts
