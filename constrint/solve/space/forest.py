"""The parts of a space as one tree of tables, in which the solutions with the smallest cost are looked for.

Below an artificial root hang the parts. Every row of a table knows how many solutions come before it, so that a
combination of rows knows its index.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.model.columns import Column
from constrint.solve.space.axes import Axis, Layout
from constrint.solve.space.diagram import DiagramPart
from constrint.solve.space.parts import FreePart, Part, TreePart
from constrint.solve.space.row_keys import Rows, check_listing, total_type


@dataclass(slots=True)
class Table:
    """One table; its rows lie in groups, of which a row of the table above takes one.

    Attributes:
        rows: Positions by variable.
        num_rows: Number of rows.
        starts: Where each group begins, and at last the number of rows.
        children: The tables below, in order.
        links: Per table below: the group that each row takes there.
        totals: Number of solutions below each group.
        before: Number of solutions below the earlier rows.
        below: All variables in this table and those below it.
    """

    rows: Rows
    num_rows: int
    starts: NDArray[Any]
    totals: NDArray[Any]
    before: NDArray[Any]
    children: list[int] = field(default_factory=list)
    links: dict[int, NDArray[Any]] = field(default_factory=dict)
    below: frozenset[str] = frozenset()
    columns: dict[str, Column] = field(default_factory=dict)


class Forest:
    """All tables of a space; the first one is the root, and a table comes after the one above it.

    Attributes:
        tables: The tables in the order in which rows are chosen, so that later choices count up the index first.
        count_type: The dtype in which numbers of solutions are exact.
    """

    def __init__(self, parts: Sequence[Part], layout: Layout, total: int) -> None:
        self._layout = layout
        self.count_type = total_type(total)
        one = np.ones(1, dtype=self.count_type)
        zero = np.zeros(1, dtype=np.intp)
        self.tables = [Table({}, 1, np.array([0, 1]), one * total, one * 0)]
        for part in parts:
            self.tables[0].links[self._add(part)] = zero
        self.tables[0].children = list(self.tables[0].links)
        for table in reversed(self.tables):
            table.below = frozenset(table.rows).union(*(self.tables[c].below for c in table.children))

    def _add(self, part: Part) -> int:
        """Adds the tables of a part; the number of its first."""
        if isinstance(part, FreePart):
            check_listing(part.count)
            counting = np.arange(part.count, dtype=self.count_type)
            rows: Rows = {part.name: np.arange(part.count) + (part.only or 0)}
            ends = np.array([0, part.count])
            self.tables.append(Table(rows, part.count, ends, np.array([part.count], dtype=self.count_type), counting))
            return len(self.tables) - 1
        if isinstance(part, DiagramPart):
            return self._add_diagram(part)
        assert isinstance(part, TreePart)
        return self._add_tree(part, 0)

    def _add_diagram(self, part: DiagramPart) -> int:
        """A chain of tables: the arcs of a layer are the rows, the states that they leave the groups."""
        first = len(self.tables)
        for level, layer in enumerate(part.layers):
            starts, totals, before = (np.asarray(a) for a in part.groups(level))
            totals, before = (a.astype(self.count_type, copy=False) for a in (totals, before))
            table = Table({layer.name: layer.place}, len(layer.place), starts, totals, before)
            if level + 1 < len(part.layers):
                table.children = [len(self.tables) + 1]
                table.links = {len(self.tables) + 1: layer.target.astype(np.intp)}
            self.tables.append(table)
        return first

    def _add_tree(self, part: TreePart, i: int) -> int:
        node = part.tree.nodes[i]
        number = len(self.tables)
        totals, before = (a.astype(self.count_type, copy=False) for a in (node.totals, part.tree.before(i)))
        table = Table(node.rows, node.num_rows, np.append(node.starts, node.num_rows), totals, before)
        self.tables.append(table)
        for child in node.children:
            place = self._add_tree(part, child)
            table.children.append(place)
            table.links[place] = node.links[child]
        return number

    def column(self, place: int, name: str) -> Column:
        """The values of a variable in the rows of a table."""
        table = self.tables[place]
        if name not in table.columns:
            axis = self._layout.axes[name]
            values = axis.narrow if isinstance(axis, Axis) else axis.take(np.arange(axis.size))
            bounds = axis.bounds if isinstance(axis, Axis) else (axis.lower, axis.lower + axis.step * (axis.size - 1))
            table.columns[name] = Column(values[table.rows[name]], bounds)
        return table.columns[name]

    def taken(self, rows: Mapping[int, NDArray[Any]], names: frozenset[str]) -> dict[str, Column]:
        """The values of some variables in chosen rows of tables."""
        columns: dict[str, Column] = {}
        for place, at in rows.items():
            for name in self.tables[place].rows:
                if name in names and name not in columns:
                    whole = self.column(place, name)
                    columns[name] = Column(np.asarray(whole.values)[at], whole.bounds)
        return columns
