"""Listing of a tree of tables: joins them top-down into columns of values, in the smallest dtypes throughout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from constrint.solve.keys import ranges

if TYPE_CHECKING:
    from constrint.solve.parts import Rows, TreePart


def expand_tree(part: TreePart, values: Mapping[str, NDArray[Any]]) -> Rows:
    """Implements `TreePart.expand`."""
    root = part.nodes[0]
    columns: Rows = {name: values[name][at] for name, at in root.rows.items()}
    # The group in each table that is still to be joined; its rows follow the columns.
    waiting: dict[int, NDArray[np.intp]] = dict(root.links)
    stack = list(reversed(root.children))
    while stack:
        child = stack.pop()
        node = part.nodes[child]
        groups = waiting.pop(child)
        lengths = np.diff(node.starts, append=node.num_rows)
        if len(lengths) == node.num_rows:
            # Every group is one row: nothing is repeated.
            rows = groups
        else:
            source, rows = ranges(node.starts[groups], lengths[groups])
            columns = {name: column[source] for name, column in columns.items()}
            waiting = {c: at[source] for c, at in waiting.items()}
        for name, at in node.rows.items():
            if name not in columns:
                columns[name] = values[name][at][rows]
        for below, link in node.links.items():
            waiting[below] = link[rows]
        stack.extend(reversed(node.children))
    return columns


def multiply_out(columns: NDArray[Any], outer: int, inner: int) -> NDArray[Any]:
    """Repeats every element `inner` times, and the result `outer` times."""
    if inner > 1:
        columns = np.repeat(columns, inner)
    if outer == 1:
        return columns
    result = np.empty((outer, len(columns)), dtype=columns.dtype)
    result[:] = columns
    return result.reshape(-1)
