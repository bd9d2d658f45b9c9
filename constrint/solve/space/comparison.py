"""Whether two spaces hold the same solutions, without listing them where their tables are alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from constrint.solve.space.parts import Part, TreePart
from constrint.solve.space.row_keys import combine

if TYPE_CHECKING:
    from constrint.solve.space.axes import Layout
    from constrint.solve.space.space import SearchSpace

_BATCH: Final = 1 << 16


def same_solutions(one: SearchSpace, other: SearchSpace) -> bool:
    """Whether two spaces have the same variables and the same solutions, in whatever order."""
    if set(one.names) != set(other.names) or one.size != other.size:
        return False
    if one.size == 0 or (one.factors is other.factors and one.gaps == other.gaps):
        return True
    if not (one.gaps or other.gaps) and _same_tables(one, other):
        return True
    return _holds_all(one, other)


def _same_tables(one: SearchSpace, other: SearchSpace) -> bool:
    """Whether the tables are equal, row by row; the solutions may be the same even if they are not."""
    mine, theirs = ({frozenset(p.names): p for p in s.parts or ()} for s in (one, other))
    if mine.keys() != theirs.keys() or one.layout.fixed != other.layout.fixed:
        return False
    derived = [{n: e.key() for n, e in s.layout.derived.items()} for s in (one, other)]
    if derived[0] != derived[1]:
        return False
    return all(_same_part(mine[names], theirs[names], one.layout, other.layout) for names in mine)


def _same_part(one: Part, other: Part, mine: Layout, theirs: Layout) -> bool:
    for name in one.names:
        a, b = mine.axes[name], theirs.axes[name]
        if mine.size(name) != theirs.size(name) or type(a) is not type(b):
            return False
        equal = np.array_equal(a.values, b.values) if hasattr(a, "values") and hasattr(b, "values") else a == b
        if not equal:
            return False
    if not isinstance(one, TreePart) or not isinstance(other, TreePart):
        return type(one) is type(other) and one == other
    tables = {frozenset(node.rows): node for node in other.tree.nodes}
    if tables.keys() != {frozenset(node.rows) for node in one.tree.nodes} or len(tables) != len(one.tree.nodes):
        return False
    for node in one.tree.nodes:
        match = tables[frozenset(node.rows)]
        if node.num_rows != match.num_rows:
            return False
        names = sorted(node.rows)
        both, _ = combine([[t.rows[n] for n in names] for t in (node, match)], [one.tree.sizes[n] for n in names])
        if not np.array_equal(np.sort(both[0]), np.sort(both[1])):
            return False
    return True


def _holds_all(one: SearchSpace, other: SearchSpace) -> bool:
    """Whether every solution of one space is in the other, which has as many."""
    for start in range(0, one.size, _BATCH):
        columns = one.take(range(start, min(start + _BATCH, one.size)))
        if not other.contains_columns(columns):
            return False
    return True
