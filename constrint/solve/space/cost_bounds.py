"""Bounds on the cost of partial solutions, row by row, and the forest of tables over which best-first search runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.model import Calculation, Element, Expr, Truth, Var
from constrint.model.columns import ExactColumn, evaluate
from constrint.model.operations import BINARY, UNARY, Interval, fold
from constrint.solve.space.axes import Axis, AxisLayout, Rows, check_listing, total_type
from constrint.solve.space.diagram import DiagramPart
from constrint.solve.space.parts import FreePart, Part, TreePart

# Bounds beyond this might overflow in the next operation.
_LARGEST = 1 << 60


class Unbounded(Exception):
    """Raised where no bounds are known."""


class _Missing(Exception):
    """Raised where the bounds of an expression in the groups of a table are needed first."""

    def __init__(self, place: int, expr: Expr) -> None:
        super().__init__()
        self.place, self.expr = place, expr


class Range(NamedTuple):
    """Bounds of an expression per row, and over all rows."""

    low: Any
    high: Any
    bounds: Interval


@dataclass(slots=True)
class PartialChoice:
    """Partial solutions, one per row: columns of chosen values, ranges of open ones, and the groups of open tables."""

    columns: Mapping[str, ExactColumn]
    groups: Mapping[int, NDArray[Any] | None]
    ranges: Mapping[str, Range]


class CostBounds:
    """Bounds of one expression over a forest."""

    def __init__(self, forest: Forest, fixed: Mapping[str, ExactColumn]) -> None:
        self._forest, self._fixed = forest, fixed
        self._messages: dict[tuple[int, Any], Range] = {}
        self._is_computing = False

    def range(self, expr: Expr, choice: PartialChoice) -> Range:
        """Bounds of an expression in every row.

        Raises:
            Unbounded: Where none are known, or the numbers are too large.
        """
        if expr.variables <= choice.columns.keys():
            column = evaluate(expr, choice.columns)
            values = np.asarray(column.values)
            if column.defined is not None:
                # Placeholders in rows without a value bound nothing, but must not overflow either.
                values = np.clip(values, *_small(column.bounds))
            return Range(values, values, _small(column.bounds))
        if isinstance(expr, Var) and expr.name in choice.ranges:
            return choice.ranges[expr.name]
        place = self._home(expr, choice)
        if place is not None:
            return self._of_group(place, expr, choice)
        if isinstance(expr, Truth):
            return Range(0, 1, (0, 1))
        assert isinstance(expr, Calculation)
        if isinstance(expr, Element):
            return self._of_items(expr, choice)
        args: Sequence[Expr] = expr.args
        if expr.op in BINARY and BINARY[expr.op].many and len(args) > 1:
            args = self._bundled(expr, choice)
        return fold(expr.op, [self.range(a, choice) for a in args], _unary, _binary)

    def _of_items(self, expr: Element, choice: PartialChoice) -> Range:
        """Bounds of the items that the index may select; where it selects none, no solution counts."""
        least, most = self.range(expr.args[0], choice).bounds
        items = expr.args[1:]
        first, *others = [self.range(a, choice) for a in items[max(least, 0) : max(most, 0) + 1] or items]
        low, high, bounds = first
        for other in others:
            low, high = np.minimum(_wide(low), _wide(other.low)), np.maximum(_wide(high), _wide(other.high))
            bounds = min(bounds[0], other.bounds[0]), max(bounds[1], other.bounds[1])
        return Range(low, high, bounds)

    def _home(self, expr: Expr, choice: PartialChoice) -> int | None:
        """The open table below which all variables of an expression lie."""
        return next((p for p in choice.groups if expr.variables <= self._forest.tables[p].below), None)

    def _bundled(self, expr: Calculation, choice: PartialChoice) -> Sequence[Expr]:
        """Operands that lie below one open table are taken together."""
        bundles: dict[int | None, list[Expr]] = {}
        rest: list[Expr] = []
        for arg in expr.args:
            is_chosen = arg.variables <= choice.columns.keys()
            home = None if is_chosen else self._home(arg, choice)
            if is_chosen or home is not None:
                bundles.setdefault(home, []).append(arg)
            else:
                rest.append(arg)
        return [*(b[0] if len(b) == 1 else Calculation(expr.op, tuple(b)) for b in bundles.values()), *rest]

    def _of_group(self, place: int, expr: Expr, choice: PartialChoice) -> Range:
        whole = self.message(place, expr)
        groups = choice.groups[place]
        if groups is None:
            return Range(*whole.bounds, whole.bounds)
        return Range(whole.low[groups], whole.high[groups], whole.bounds)

    def message(self, place: int, expr: Expr) -> Range:
        """Bounds of an expression in every group of a table.

        They need the bounds in the tables below. Those are computed first, from a list of what waits: tables may lie
        below each other a thousand times, deeper than functions may call themselves.
        """
        key = (place, expr.key())
        if key in self._messages:
            return self._messages[key]
        if self._is_computing:
            raise _Missing(place, expr)
        self._is_computing = True
        waiting = [(place, expr)]
        try:
            while waiting:
                try:
                    at, below = waiting[-1]
                    self._messages[at, below.key()] = self._computed(at, below)
                    waiting.pop()
                except _Missing as missing:
                    waiting.append((missing.place, missing.expr))
        finally:
            self._is_computing = False
        return self._messages[key]

    def _computed(self, place: int, expr: Expr) -> Range:
        table = self._forest.tables[place]
        columns = {n: self._forest.column(place, n) for n in expr.variables if n in table.rows}
        inside = self.range(expr, PartialChoice({**self._fixed, **columns}, table.links, {}))
        low, high = (np.broadcast_to(np.asarray(a), (table.num_rows,)) for a in inside[:2])
        begins = table.starts[:-1]
        low, high = np.minimum.reduceat(low, begins), np.maximum.reduceat(high, begins)
        return Range(low, high, (int(low.min()), int(high.max())))


def _small(bounds: Interval) -> Interval:
    if bounds[0] <= -_LARGEST or bounds[1] >= _LARGEST:
        raise Unbounded
    return bounds


def _wide(values: Any) -> Any:
    return values if isinstance(values, int) else np.asarray(values).astype(np.int64, copy=False)


def _unary(op: str, a: Range) -> Range:
    bounds = UNARY[op].bounds(a.bounds)
    if op == "neg":
        return Range(-_wide(a.high), -_wide(a.low), bounds)
    if a.bounds[0] >= 0:
        return a
    low, high = _wide(a.low), _wide(a.high)
    return Range(np.maximum(np.maximum(low, -high), 0), np.maximum(-low, high), bounds)


def _binary(op: str, a: Range, b: Range) -> Range:
    known = BINARY[op].bounds(a.bounds, b.bounds)
    if known is None:
        raise Unbounded
    bounds = _small(known)
    low_a, high_a, low_b, high_b = _wide(a.low), _wide(a.high), _wide(b.low), _wide(b.high)
    if op == "add":
        return Range(low_a + low_b, high_a + high_b, bounds)
    if op == "mul":
        if a.bounds[0] >= 0 and b.bounds[0] >= 0:
            return Range(low_a * low_b, high_a * high_b, bounds)
        corners = [low_a * low_b, low_a * high_b, high_a * low_b, high_a * high_b]
        low, high = corners[0], corners[0]
        for corner in corners[1:]:
            low, high = np.minimum(low, corner), np.maximum(high, corner)
        return Range(low, high, bounds)
    if op in ("min", "max"):
        function = np.minimum if op == "min" else np.maximum
        return Range(function(low_a, low_b), function(high_a, high_b), bounds)
    if op in ("floordiv", "div") and a.bounds[0] >= 0 and b.bounds[0] > 0:
        return Range(low_a // high_b, high_a // low_b, bounds)
    if op == "ceildiv" and a.bounds[0] >= 0 and b.bounds[0] > 0:
        return Range(-(-low_a // high_b), -(-high_a // low_b), bounds)
    if op == "pow" and b.bounds[0] == b.bounds[1] and (a.bounds[0] >= 0 or b.bounds[0] % 2):
        return Range(low_a ** b.bounds[0], high_a ** b.bounds[0], bounds)
    return Range(*bounds, bounds)


@dataclass(slots=True)
class CostTable:
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
    columns: dict[str, ExactColumn] = field(default_factory=dict)


class Forest:
    """All tables of a space; the first one is the root, and a table comes after the one above it.

    Attributes:
        tables: The tables in the order in which rows are chosen, so that later choices count up the index first.
        count_type: The dtype in which numbers of solutions are exact.
    """

    def __init__(self, parts: Sequence[Part], layout: AxisLayout, total: int) -> None:
        self._layout = layout
        self.count_type = total_type(total)
        one = np.ones(1, dtype=self.count_type)
        zero = np.zeros(1, dtype=np.intp)
        self.tables = [CostTable({}, 1, np.array([0, 1]), one * total, one * 0)]
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
            self.tables.append(
                CostTable(rows, part.count, ends, np.array([part.count], dtype=self.count_type), counting)
            )
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
            table = CostTable({layer.name: layer.place}, len(layer.place), starts, totals, before)
            if level + 1 < len(part.layers):
                table.children = [len(self.tables) + 1]
                table.links = {len(self.tables) + 1: layer.target.astype(np.intp)}
            self.tables.append(table)
        return first

    def _add_tree(self, part: TreePart, i: int) -> int:
        node = part.tree.nodes[i]
        number = len(self.tables)
        totals, before = (a.astype(self.count_type, copy=False) for a in (node.totals, part.tree.before(i)))
        table = CostTable(node.rows, node.num_rows, np.append(node.starts, node.num_rows), totals, before)
        self.tables.append(table)
        for child in node.children:
            place = self._add_tree(part, child)
            table.children.append(place)
            table.links[place] = node.links[child]
        return number

    def column(self, place: int, name: str) -> ExactColumn:
        """The values of a variable in the rows of a table."""
        table = self.tables[place]
        if name not in table.columns:
            axis = self._layout.axes[name]
            values = axis.narrow if isinstance(axis, Axis) else axis.take(np.arange(axis.size))
            bounds = axis.bounds if isinstance(axis, Axis) else (axis.lower, axis.lower + axis.step * (axis.size - 1))
            table.columns[name] = ExactColumn(values[table.rows[name]], bounds)
        return table.columns[name]

    def taken(self, rows: Mapping[int, NDArray[Any]], names: frozenset[str]) -> dict[str, ExactColumn]:
        """The values of some variables in chosen rows of tables."""
        columns: dict[str, ExactColumn] = {}
        for place, at in rows.items():
            for name in self.tables[place].rows:
                if name in names and name not in columns:
                    whole = self.column(place, name)
                    columns[name] = ExactColumn(np.asarray(whole.values)[at], whole.bounds)
        return columns
