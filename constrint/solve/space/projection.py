"""Projection of a tree of tables onto some variables, with counts, without joining the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.row_keys import Rows, combine, group, ranges
from constrint.solve.space.tree import Tree


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
    wanted = set(keep)
    messages: dict[int, _Message | None] = {}
    for i in reversed(range(1, len(tree.nodes))):
        messages[i] = _message(tree, i, wanted, messages)
    columns, counts = _gather(tree, 0, wanted, messages)
    return aggregate({n: columns[n] for n in keep}, tree.sizes, counts)


def _below(tree: Tree, i: int, wanted: set[str]) -> bool:
    """Says whether the subtree of node i has variables to keep that are not in its parent's table."""
    node = tree.nodes[i]
    own = any(n in wanted and n not in node.shared for n in node.rows)
    return own or any(_below(tree, c, wanted) for c in node.children)


def _message(tree: Tree, i: int, wanted: set[str], messages: dict[int, _Message | None]) -> _Message | None:
    """What node i tells its parent; None where the group totals say it all."""
    if not _below(tree, i, wanted):
        return None
    node = tree.nodes[i]
    columns, counts = _gather(tree, i, wanted, messages)
    # `_gather` keeps the group of every row under the reserved name "".
    sizes = {**tree.sizes, "": max(1, len(node.starts))}
    ordered = {"": columns[""], **{n: c for n, c in columns.items() if n != "" and n not in node.shared}}
    kept, counts = aggregate(ordered, sizes, counts)
    groups = kept.pop("")
    starts = np.searchsorted(groups, np.arange(len(node.starts) + 1))
    return _Message(kept, counts, starts[:-1], np.diff(starts))


def _gather(tree: Tree, i: int, wanted: set[str], messages: dict[int, _Message | None]) -> tuple[Rows, NDArray[Any]]:
    """Rows of node i reduced to wanted variables (and their group), extended by what the children keep."""
    node = tree.nodes[i]
    talking = [c for c in node.children if messages[c] is not None]
    counts: NDArray[Any] = np.ones(node.num_rows, dtype=node.totals.dtype)
    for child in node.children:
        if messages[child] is None:
            counts = counts * tree.nodes[child].totals[node.links[child]]
    if not talking:
        counts = tree.weights(i).astype(node.totals.dtype)
    columns: Rows = {n: column for n, column in node.rows.items() if n in wanted}
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
