"""Listing of a tree of tables: joins them top-down into columns of values, in the smallest dtypes throughout.

Rows are listed some thousands at a time into columns that were allocated once: what lies in between stays in
the cache, and in memory that is used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.row_keys import Rows, check_listing, ranges
from constrint.solve.space.tree import Tree

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
