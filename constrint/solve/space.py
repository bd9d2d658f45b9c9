"""The search space: all solutions of a problem, kept factored until rows are asked for.

It is a product of independent parts, each a tree of small tables with counts. Counting, membership, the i-th
solution, uniform samples, neighbours, projections and completions work on that form; `columns()` alone lists
every row.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Domain, Problem
from constrint.model.intmath import as_int
from constrint.solve.expand import multiply_out
from constrint.solve.keys import check_listing, total_type
from constrint.solve.layout import Layout
from constrint.solve.limits import SearchStats
from constrint.solve.parts import Part, Rows
from constrint.solve.project import aggregate

_BATCH: Final = 4096


class SearchSpace:
    """All solutions of a problem; see the module's docstring."""

    def __init__(
        self,
        problem: Problem,
        layout: Layout,
        parts: Sequence[Part] | None,
        stats: SearchStats,
        given: Mapping[str, int] | None = None,
    ) -> None:
        self.problem = problem
        self.stats = stats
        self._layout = layout
        # None: no solution at all. An empty tuple: exactly one, with every variable fixed.
        self._parts = None if parts is None else tuple(parts)
        self._given = dict(given or {})
        self.size: int = 0 if self._parts is None else math.prod(p.count for p in self._parts)

    @property
    def names(self) -> tuple[str, ...]:
        """Variables in declared order."""
        return self._layout.names

    @property
    def product_size(self) -> int:
        """Number of combinations of the declared domains, before any constraint."""
        return math.prod(d.size for d in self.problem.variables.values())

    def __len__(self) -> int:
        if self.size > sys.maxsize:
            raise OverflowError(f"the space has {self.size} solutions, too many for len(); use space.size")
        return self.size

    def __bool__(self) -> bool:
        return self.size > 0

    def __repr__(self) -> str:
        return f"<SearchSpace {self.problem.name!r}: {self.size} of {self.product_size} configs>"

    def take(self, indices: Sequence[int] | NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Lists the solutions with these indices as columns."""
        wanted = [as_int(i, "an index") for i in np.asarray(indices, dtype=object).ravel().tolist()]
        for index in wanted:
            if not 0 <= index < self.size:
                raise IndexError(f"index {index} is outside the space of {self.size} solutions")
        rest = np.array(wanted, dtype=total_type(self.size))
        rows: Rows = {}
        for part in reversed(self._parts or ()):
            rows.update(part.take((rest % part.count).astype(total_type(part.count))))
            rest = rest // part.count
        return self._layout.assignments(rows, len(wanted))

    def __getitem__(self, index: int) -> dict[str, int]:
        number = as_int(index, "an index")
        return _dicts(self.take([number + self.size if number < 0 else number]), 1)[0]

    def __iter__(self) -> Iterator[dict[str, int]]:
        for start in range(0, self.size, _BATCH):
            stop = min(start + _BATCH, self.size)
            yield from _dicts(self.take(range(start, stop)), stop - start)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Lists every solution, one integer column per variable in the smallest signed dtype that fits.

        Row i is `space[i]`. Convert to int64 before computing with a column.

        Raises:
            LimitReachedError: When there are more than `keys.MAX_FLAT_ROWS` solutions.
        """
        check_listing(self.size)
        if self._parts is None:
            return {n: np.zeros(0, dtype=np.int8) for n in self.names}
        columns: Rows = {}
        outer, inner = 1, self.size
        for part in self._parts:
            inner //= max(part.count, 1)
            listed = part.expand({n: self._layout.narrow_values(n) for n in part.names})
            for name, column in listed.items():
                columns[name] = multiply_out(column, outer, inner)
            outer *= part.count
        return self._layout.completed(columns, self.size)

    def contains(self, assignment: Mapping[str, int]) -> bool:
        """Says whether a full assignment is one of the solutions."""
        values = self._checked(assignment)
        missing = [n for n in self.names if n not in values]
        if missing:
            raise UsageError(f"contains needs a value for every variable; missing: {', '.join(missing)}.")
        derived = self._layout.derived
        base = self.extend({n: v for n, v in values.items() if n not in derived})
        return base.size > 0 and all(expr.value(values) == values[n] for n, expr in derived.items())

    __contains__ = contains

    def _checked(self, assignment: Mapping[str, object]) -> dict[str, int]:
        for name in assignment:
            if name not in self.problem.variables:
                raise UnknownNameError("variable", str(name), self.problem.variables)
        return {str(n): as_int(v, f"the value of {n!r}") for n, v in assignment.items()}

    def sample(self, n: int, seed: int | None = None) -> list[dict[str, int]]:
        """Draws `n` distinct solutions uniformly (all of them, shuffled, if there are fewer)."""
        if as_int(n, "the sample's size") < 0:
            raise UsageError(f"the sample's size must not be negative, got {n}.")
        indices = self.sample_indices(n, seed)
        return _dicts(self.take(indices), len(indices))

    def sample_indices(self, n: int, seed: int | None = None) -> list[int]:
        """Indices of `n` distinct solutions, drawn uniformly."""
        generator = random.Random(seed)
        n = min(n, self.size)
        if self.size <= sys.maxsize:
            return generator.sample(range(self.size), n)
        drawn: dict[int, None] = {}
        while len(drawn) < n:
            drawn[generator.randrange(self.size)] = None
        return list(drawn)

    def restrict(self, **fixed: int) -> SearchSpace:
        """Returns the solutions in which these variables have these values."""
        return self.extend(fixed)

    def extend(self, partial: Mapping[str, int]) -> SearchSpace:
        """Returns all completions of a partial assignment."""
        values = self._checked(partial)
        if self._parts is None:
            return self
        positions: dict[str, int] = {}
        for name, value in values.items():
            if name in self._layout.fixed:
                if self._layout.fixed[name] != value:
                    return self._nothing()
            elif name not in self._layout.derived:
                at = self._layout.position(name, value)
                if at is None:
                    return self._nothing()
                positions[name] = at
        if any(name in self._layout.derived for name in values):
            return self._solved_again(values)
        parts: list[Part] = []
        for part in self._parts:
            kept = part.restrict(positions)
            if kept is None:
                return self._nothing()
            parts.append(kept)
        return SearchSpace(self.problem, self._layout, parts, self.stats, {**self._given, **values})

    def _nothing(self) -> SearchSpace:
        return SearchSpace(self.problem, self._layout, None, self.stats)

    def _solved_again(self, values: Mapping[str, int]) -> SearchSpace:
        """Fixes derived variables: these have no axis, so the problem is solved anew."""
        from constrint.solve.enumerate import enumerate_space

        narrowed = self.problem
        for name, value in {**self._given, **values}.items():
            if value not in self.problem.variables[name] or self._given.get(name, value) != value:
                return self._nothing()
            narrowed = narrowed.with_domain(name, Domain.from_values([value]))
        space = enumerate_space(narrowed)
        return SearchSpace(self.problem, space._layout, space._parts, space.stats, {**self._given, **values})

    def first(self) -> dict[str, int]:
        """The solution that comes first by the declared order of variables and of their values.

        Raises:
            IndexError: When there is no solution.
        """
        if self._parts is None:
            raise IndexError("the space is empty; it has no first solution")
        rows: Rows = {}
        for part in self._parts:
            names = [n for n in self.names if n in part.names]
            rows.update({n: np.array([at]) for n, at in part.first(names).items()})
        return _dicts(self._layout.assignments(rows, 1), 1)[0]

    def neighbours(self, assignment: Mapping[str, int]) -> list[dict[str, int]]:
        """Solutions that differ from `assignment` in exactly one variable, in declared order."""
        values = self._checked(assignment)
        found: list[dict[str, int]] = []
        for name in self.names:
            others = {n: v for n, v in values.items() if n != name}
            near = self.extend(others)
            if near.size:
                listed = near.project([name])[0][name].tolist()
                found += [{**values, name: v} for v in listed if v != values.get(name)]
        return found

    def project(self, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
        """Distinct combinations of some variables that extend to a solution, without listing the rest.

        Args:
            names: Variables to keep.

        Returns:
            One int64 column per name, and for each row the number of solutions that it stands for.
        """
        for name in names:
            if name not in self.problem.variables:
                raise UnknownNameError("variable", name, self.problem.variables)
        if self._parts is None:
            return {n: np.zeros(0, dtype=np.int64) for n in names}, np.zeros(0, dtype=np.int64)
        needed = self._needed(names)
        rows, counts = self._project_positions([n for n in self.names if n in needed and n in self._layout.axes])
        known = self._layout.assignments(rows, len(counts), needed)
        if any(n in self._layout.derived for n in needed):
            return _merged({n: known[n] for n in names}, counts)
        return {n: known[n] for n in names}, counts

    def _needed(self, names: Sequence[str]) -> set[str]:
        needed = set(names)
        for name, expr in reversed(self._layout.derived.items()):
            if name in needed:
                needed |= expr.variables
        return needed

    def _project_positions(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        kind = total_type(self.size)
        rows: Rows = {}
        counts: NDArray[Any] = np.ones(1, dtype=kind)
        for part in self._parts or ():
            mine = [n for n in keep if n in part.names]
            if not mine:
                counts = counts * part.count
                continue
            check_listing(part.count if len(part.names) == 1 else 0)
            more, weights = part.project(mine)
            size, others = len(weights), len(counts)
            check_listing(size * others)
            rows = {n: np.repeat(c, size) for n, c in rows.items()}
            rows.update({n: np.tile(c, others) for n, c in more.items()})
            counts = np.repeat(counts, size) * np.tile(weights.astype(kind), others)
        return rows, counts


def _merged(columns: dict[str, NDArray[Any]], counts: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Adds up the counts of equal rows of values."""
    levels = {n: np.unique(c, return_inverse=True) for n, c in columns.items()}
    positions: Rows = {n: inverse.reshape(-1) for n, (_, inverse) in levels.items()}
    merged, counts = aggregate(positions, {n: max(1, len(u)) for n, (u, _) in levels.items()}, counts)
    return {n: levels[n][0][at] for n, at in merged.items()}, counts


def _dicts(columns: dict[str, NDArray[Any]], num_rows: int) -> list[dict[str, int]]:
    if not columns:
        return [{} for _ in range(num_rows)]
    names = tuple(columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*(c.tolist() for c in columns.values()), strict=True)]
