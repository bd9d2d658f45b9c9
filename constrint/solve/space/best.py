"""The k cheapest solutions of a space, by an expression or by a function over columns, without listing the rest."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Expr
from constrint.model.columns import ExactColumn, evaluate, rows_with_value
from constrint.solve.budget import Budget, Limits
from constrint.solve.propagation import substitute_expr
from constrint.solve.space.axes import places_of, ranges
from constrint.solve.space.cost_bounds import CostBounds, Forest, PartialChoice, Range, Unbounded
from constrint.solve.space.diagram import DiagramPart
from constrint.solve.space.parts import Factors

if TYPE_CHECKING:
    from constrint.solve.space.space import SearchSpace

Cost = Callable[[dict[str, NDArray[Any]]], Any]

#: Most combinations of an expression's variables that are listed where there are many other variables.
_FEW_COMBINATIONS: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class Ranked:
    """A solution and its cost."""

    cost: int | float
    config: dict[str, int]


def best_solutions(
    space: SearchSpace, k: int, cost: Expr | Cost, names: Sequence[str] | None, maximise: bool, limits: Limits | None
) -> list[Ranked]:
    """Implements `SearchSpace.best`."""
    if k < 0:
        raise UsageError(f"the number of solutions must not be negative, got {k}.")
    budget = Budget(limits or Limits())
    if not isinstance(cost, Expr):
        return _by_function(space, k, cost, names, maximise, budget)
    for name in sorted(cost.variables):
        if name not in space.names:
            raise UnknownNameError("variable", name, space.names)
    if k == 0 or not space.size:
        return []
    if _is_projected(space, cost):
        return _by_projection(space, k, cost, maximise, budget)
    best = KBest(space.factors, -cost if maximise else cost, k + len(space.gaps), budget).run()
    best = [f for f in best if f.place not in space.gaps][:k]
    configs = space.taken_with_gaps([f.place for f in best])
    return [Ranked(-f.cost if maximise else f.cost, config) for f, config in zip(best, configs, strict=True)]


def _by_function(
    space: SearchSpace, k: int, cost: Cost, names: Sequence[str] | None, maximise: bool, budget: Budget
) -> list[Ranked]:
    """The best by a function over columns: every combination of its variables is listed."""
    budget.check_work()
    columns, counts = space.project(list(names if names is not None else space.names))
    if k == 0 or len(counts) == 0:
        return []
    rows, costs = _costs(columns, len(counts), cost)
    budget.check_work()
    return _ranked(space, k, columns, rows, costs, maximise)


def _is_projected(space: SearchSpace, cost: Expr) -> bool:
    """Whether few of a diagram's variables are in the expression, so that many paths have equal costs.

    Ties are also decided by a derived variable that has no axis to compare positions on.
    """
    if space.layout.has_early and any(n in space.layout.derived for n in cost.variables):
        return True
    names = [n for n in space.layout.needed(sorted(cost.variables)) if n in space.layout.axes]
    diagrams = [part for part in space.factors.parts or () if isinstance(part, DiagramPart)]
    return any(n in part.sizes for part in diagrams for n in names) and (
        math.prod(space.layout.size(n) for n in names) <= _FEW_COMBINATIONS
    )


def _by_projection(space: SearchSpace, k: int, cost: Expr, maximise: bool, budget: Budget) -> list[Ranked]:
    """The best by an expression, from all combinations of its variables."""
    budget.check_work()
    columns, counts = space.project([n for n in space.names if n in cost.variables])
    places = [places_of(space.problem.variables[n], column) for n, column in columns.items()]
    if places:
        order = np.lexsort(places[::-1])
        columns = {n: column[order] for n, column in columns.items()}
    with budget.watching():
        rows, values = rows_with_value(cost, columns, len(counts))
    return _ranked(space, k, columns, rows, values, maximise)


def _ranked(
    space: SearchSpace,
    k: int,
    columns: dict[str, NDArray[Any]],
    rows: NDArray[np.intp],
    costs: NDArray[Any],
    maximise: bool,
) -> list[Ranked]:
    """The solutions of the k best rows."""
    order = _first(_descending(costs) if maximise else costs, k)
    ranked: list[Ranked] = []
    for at in order.tolist():
        partial = {n: int(column[rows[at]]) for n, column in columns.items()}
        below = space.extend(partial)
        number = min(k - len(ranked), below.size)
        ranked += [
            Ranked(costs[at].item() if hasattr(costs[at], "item") else costs[at], below[i]) for i in range(number)
        ]
        if len(ranked) >= k:
            break
    return ranked


def _descending(costs: NDArray[Any]) -> NDArray[Any]:
    """Map numbers to the opposite order by ~x, since -x fails for the smallest integer and for unsigned ones."""
    return ~costs if costs.dtype.kind in "iu" else -costs


def _first(costs: NDArray[Any], k: int) -> NDArray[np.intp]:
    """Rows of the k smallest costs, the smallest first; equal ones in their order."""
    if costs.dtype == object or len(costs) <= 4 * k:
        return np.argsort(costs, kind="stable")[:k]
    largest = np.partition(costs, k - 1)[k - 1]
    rows = np.flatnonzero(costs <= largest)
    return rows[np.argsort(costs[rows], kind="stable")[:k]]


def _costs(columns: dict[str, NDArray[Any]], num_rows: int, cost: Cost) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Rows that have a cost, and the costs."""
    values = np.asarray(cost(columns))
    if values.shape != (num_rows,) or values.dtype.kind not in "iufO":
        raise UsageError(
            f"the cost function must return one number per row ({num_rows}), got shape {values.shape} "
            f"of {values.dtype}."
        )
    rows = np.flatnonzero(values == values)
    return rows, values[rows]


# Rows of a table evaluated together: few at first, until some solutions are known.
_FIRST_ROWS: Final = 1 << 11
_MOST_ROWS: Final = 1 << 15
_FEWEST_ROWS: Final = 1 << 6
_MOST_CHOSEN: Final = 1 << 17
# A longer group is cut into ranges of rows first, and bounded by these.
_LONG: Final = 1 << 16
_RANGE: Final = 1 << 12
# Keys stay below this.
_KEY_LIMIT: Final = 1 << 59


class RankedIndex(NamedTuple):
    """A solution: its cost, and its place in the space with excluded solutions counted."""

    cost: int
    place: int


@dataclass(slots=True)
class _Block:
    """Partial solutions, one per row, all with chosen rows in the same tables."""

    chosen: dict[int, NDArray[Any]]
    groups: dict[int, NDArray[Any]]  #: Per open table: the group.
    weight: dict[int, NDArray[Any]]  #: Per open table: by how much one solution of it counts up the index.
    index: NDArray[Any]  #: The smallest index.
    keys: list[NDArray[Any]]  #: Positions of the chosen variables, packed.
    begin: NDArray[Any]  #: Where the rows of the next table begin and end.
    end: NDArray[Any]
    cost: NDArray[Any] | None = None  #: Lower bound on each row's cost; None where there are no bounds.
    least: list[NDArray[Any]] | None = None  #: Lower bounds on its keys, as one long number.

    def only(self, rows: Any) -> _Block:
        """Some of the rows."""
        return _Block(
            {p: a[rows] for p, a in self.chosen.items()},
            {p: a[rows] for p, a in self.groups.items()},
            {p: a[rows] for p, a in self.weight.items()},
            self.index[rows],
            [k[rows] for k in self.keys],
            self.begin[rows],
            self.end[rows],
            None if self.cost is None else self.cost[rows],
            None if self.least is None else [k[rows] for k in self.least],
        )

    def order(self, all_keys: bool = False) -> NDArray[np.intp]:
        """The rows by increasing lower bound on their cost."""
        by = [] if self.cost is None else [self.cost]
        by += self.keys if all_keys else self.least or []
        by.append(self.index)
        if any(a.dtype == object for a in by):
            rows = list(zip(*(a.tolist() for a in by), strict=True))
            return np.array(sorted(range(len(rows)), key=rows.__getitem__), dtype=np.intp)
        return np.lexsort(by[::-1])


class KBest:
    """The search for the k best solutions of one space."""

    def __init__(self, factors: Factors, expr: Expr, k: int, budget: Budget) -> None:
        layout = factors.layout
        for name, derived in reversed(layout.derived.items()):
            expr = substitute_expr(expr, name, derived)
        self._expr, self._k, self._budget = expr, k, budget
        self._forest = Forest(factors.parts or (), layout, factors.total)
        self._fixed = {n: ExactColumn(v, (v, v)) for n, v in layout.fixed.items()}
        self._bounds = CostBounds(self._forest, self._fixed)
        names = [n for n in layout.names if n in expr.variables and n in layout.axes]
        self._relevant = frozenset(names)
        self._keys = _Keys(self._forest, names, {n: layout.size(n) for n in names})
        # Cost, keys and index of the best so far, in this order.
        self._best: list[tuple[Any, ...]] = []
        # Each choice copies all earlier ones: with many tables, fewer rows at once.
        self._most_rows = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_CHOSEN // len(self._forest.tables)))
        self._rows = min(_FIRST_ROWS, self._most_rows)

    def run(self) -> list[RankedIndex]:
        """The best solutions, the best first."""
        none = np.zeros(1, dtype=self._forest.count_type)
        keys = [np.zeros(1, dtype=np.int64) for _ in self._keys.weights]
        start = _Block({}, {}, {}, none, keys, np.array([0]), np.array([1]))
        heap: list[tuple[tuple[Any, ...], int, _Block]] = [((-math.inf,), 0, start)]
        pushed = 0
        while heap:
            self._budget.check_work()
            least, _, block = heapq.heappop(heap)
            if len(self._best) == self._k and least >= self._best[-1]:
                break
            for part in self._cut(self._promising(block)):
                pushed += 1
                heapq.heappush(heap, (self._least(part), pushed, part))
        return [RankedIndex(int(best[0]), int(best[-1])) for best in self._best]

    def _least(self, block: _Block) -> tuple[Any, ...]:
        """Lower bound on the cost of a block's best solution."""
        if block.cost is None or block.least is None:
            return (-math.inf,)
        at = block.order()[0]
        return (int(block.cost[at]), *(int(k[at]) for k in block.least), int(block.index[at]))

    def _promising(self, block: _Block) -> _Block:
        """The rows that may be among the best."""
        if len(self._best) < self._k or block.cost is None or block.least is None:
            return block
        better: Any = False
        for bound, known in zip(
            reversed((block.cost, *block.least, block.index)), reversed(self._best[-1]), strict=True
        ):
            better = (bound < known) | ((bound == known) & better)
        return block.only(np.asarray(better, dtype=bool))

    def _cut(self, block: _Block) -> list[_Block]:
        """Chooses rows of the next table for the best rows of a block; the rest waits."""
        if not len(block.index):
            return []
        place = len(block.chosen)
        if not self._forest.tables[place].below & self._relevant:
            # All of them cost the same: the first ones by index are enough.
            block.end = np.minimum(block.end, block.begin + self._k)
        if len(block.index) == 1 and block.end[0] - block.begin[0] > _LONG:
            return [self._ranged(block, place)]
        order = block.order()
        lengths = (block.end - block.begin)[order]
        number = max(1, int(np.searchsorted(np.cumsum(lengths), self._rows, side="right")))
        parts = [block.only(order[number:])] if number < len(order) else []
        now = block.only(order[:number])
        if number == 1 and lengths[0] > 2 * self._rows:
            later = block.only(order[:1])
            later.begin = now.end = now.begin + self._rows
            parts.append(later)
        self._rows = min(2 * self._rows, self._most_rows)
        longer = self._promising(self._extended(now, place))
        if len(longer.chosen) == len(self._forest.tables):
            self._keep(longer)
            return parts
        return [*parts, longer] if len(longer.index) else parts

    def _extended(self, block: _Block, place: int) -> _Block:
        """Chooses every row of the next table."""
        table = self._forest.tables[place]
        source, rows = ranges(block.begin, block.end - block.begin)
        self._budget.stats.cells += len(rows)
        groups = {p: a[source] for p, a in block.groups.items() if p != place}
        weight = {p: a[source] for p, a in block.weight.items() if p != place}
        index = block.index[source]
        mine: Any = np.ones(len(rows), dtype=self._forest.count_type)
        if place:
            mine = block.weight[place][source]
            first = table.starts[block.groups[place]]
            index = index + mine * (table.before[rows] - table.before[first][source])
        for child in reversed(table.children):
            groups[child], weight[child] = table.links[child][rows], mine
            mine = mine * self._forest.tables[child].totals[groups[child]]
        chosen = {p: a[source] for p, a in block.chosen.items()} | {place: rows}
        keys = [k[source] + own for k, own in zip(block.keys, self._keys.own(place, rows), strict=True)]
        return self._bounded(_Block(chosen, groups, weight, index, keys, rows, rows))

    def _bounded(self, block: _Block) -> _Block:
        """Sets bounds and the range of the next table; drops rows in which the cost has no value."""
        shape = block.index.shape
        columns = {**self._fixed, **self._forest.taken(block.chosen, self._relevant)}
        defined: Any = None
        if self._expr.variables <= columns.keys():
            cost = evaluate(self._expr, columns)
            block.cost, defined = np.broadcast_to(np.asarray(cost.values), shape), cost.defined
        elif len(block.chosen) > 1:
            # At the root nothing is chosen yet: a bound over everything would only give the optimum's cost.
            block.cost = self._lowest(PartialChoice(columns, block.groups, {}), shape)
        block.least = block.keys
        for place, groups in block.groups.items():
            more = self._keys.least(place)
            block.least = [known + key[groups] for known, key in zip(block.least, more, strict=True)]
        place = len(block.chosen)
        if place < len(self._forest.tables):
            starts = self._forest.tables[place].starts
            block.begin, block.end = starts[block.groups[place]], starts[block.groups[place] + 1]
        return block if defined is None else block.only(np.broadcast_to(defined, shape))

    def _lowest(self, choice: PartialChoice, shape: tuple[int, ...]) -> NDArray[Any] | None:
        try:
            return np.broadcast_to(np.asarray(self._bounds.range(self._expr, choice).low), shape)
        except Unbounded:
            return None

    def _ranged(self, block: _Block, place: int) -> _Block:
        """Cuts the rows of one group into ranges, and bounds each of them."""
        table = self._forest.tables[place]
        begin = np.arange(int(block.begin[0]), int(block.end[0]), _RANGE)
        offsets, group = begin - begin[0], slice(int(begin[0]), int(block.end[0]))
        many = block.only(np.zeros(len(begin), dtype=np.intp))
        many.begin, many.end = begin, np.minimum(begin + _RANGE, block.end[0])
        columns = {**self._fixed, **self._forest.taken(block.chosen, self._relevant)}
        spans: dict[str, Range] = {}
        for name in table.rows:
            if name in self._relevant and name not in columns:
                column = self._forest.column(place, name)
                values = column.values[group]
                low, high = np.minimum.reduceat(values, offsets), np.maximum.reduceat(values, offsets)
                spans[name] = Range(low, high, column.bounds)
        groups: dict[int, NDArray[Any] | None] = {p: a for p, a in block.groups.items() if p != place}
        groups |= dict.fromkeys(table.children)
        many.cost = self._lowest(PartialChoice(columns, groups, spans), begin.shape)
        return many

    def _keep(self, block: _Block) -> None:
        """Adds complete solutions to the best."""
        assert block.cost is not None
        rows = block.order(all_keys=True)[: self._k].tolist()
        tuples = [(int(block.cost[r]), *(int(k[r]) for k in block.keys), int(block.index[r])) for r in rows]
        self._best = sorted([*self._best, *tuples])[: self._k]


class _Keys:
    """Positions of the cost's variables as numbers that order solutions by preference, the first variable first.

    One number would be too long for many variables; each of `weights` is one number, the most significant first.
    """

    def __init__(self, forest: Forest, names: Sequence[str], sizes: Mapping[str, int]) -> None:
        self._forest = forest
        self.weights: list[dict[str, int]] = [{}]
        scale = 1
        for name in reversed(names):
            if scale * sizes[name] >= _KEY_LIMIT:
                scale = 1
                self.weights.insert(0, {})
            self.weights[0][name] = scale
            scale *= sizes[name]
        seen: set[str] = set()
        # The variables that a table is the first to have.
        self._first = []
        for table in forest.tables:
            self._first.append([n for n in table.rows if n not in seen])
            seen.update(table.rows)
        self._least: dict[int, list[NDArray[Any]]] = {}

    def own(self, place: int, rows: Any) -> list[Any]:
        """Contribution of a table's rows to each number."""
        table = self._forest.tables[place]
        return [
            sum((table.rows[n][rows].astype(np.int64) * w[n] for n in self._first[place] if n in w), np.int64(0))
            for w in self.weights
        ]

    def least(self, place: int) -> list[NDArray[Any]]:
        """Per group of a table: what it and the tables below add to the numbers at least, taken as one long number."""
        if not self._least:
            # Every table comes after the one above it.
            for at in reversed(range(len(self._forest.tables))):
                self._least[at] = self._smallest(at)
        return self._least[place]

    def _smallest(self, place: int) -> list[NDArray[Any]]:
        table = self._forest.tables[place]
        totals = [np.zeros(table.num_rows, dtype=np.int64) + own for own in self.own(place, slice(None))]
        for child in table.children:
            links = table.links[child]
            totals = [total + key[links] for total, key in zip(totals, self._least[child], strict=True)]
        begins = table.starts[:-1]
        if len(totals) == 1:
            return [np.minimum.reduceat(totals[0], begins)]
        group = np.repeat(np.arange(len(begins)), np.diff(table.starts))
        first = np.lexsort([*reversed(totals), group])[begins]
        return [total[first] for total in totals]
