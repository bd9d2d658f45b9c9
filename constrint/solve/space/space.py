"""The search space: all solutions of a problem, kept factored until rows are asked for.

It is a product of independent parts, each a tree of small tables with counts. Counting, membership, the i-th
solution, uniform samples, neighbours, projections and completions work on that form; `columns()` alone lists
every row.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from constrint.errors import LimitReachedError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import Domain, Expr, Problem
from constrint.model.operations import as_int
from constrint.solve.budget import Budget, Limits, SearchStats
from constrint.solve.solution import SearchResult
from constrint.solve.space.axes import AxisLayout, Rows, check_listing, dicts_of, places_of, total_type
from constrint.solve.space.parts import Factors, Part
from constrint.solve.space.tree import Tree, merged

if TYPE_CHECKING:
    from constrint.solve.space.best import Cost, Ranked


class SpaceEngine(NamedTuple):
    """Questions of a space to the engine that found it.

    Attributes:
        space: Finds the space of a changed problem.
        best: Searches for the k best solutions of a problem within a budget; None where it has no quick way to them,
            unless it is told that there is no other way.
    """

    space: Callable[[Problem], SearchSpace]
    best: Callable[[Problem, int, Budget, bool], SearchResult | None]


_BATCH: Final = 4096
# Combinations of its inputs that are tried for the first value of a variable that follows from them.
_MOST_INPUTS: Final = 1 << 24


class SearchSpace:
    """All solutions of a problem; see the module's docstring.

    Attributes:
        problem: The problem.
        factors: The solutions in factored form, excluded ones still in them.
        stats: Work of the search.
        values_left: Per variable that was narrowed, the values that are left.
        excluded: Solutions removed by `exclude`.
        engine: Answers the few questions that this space cannot answer.
        gaps: Indices that the excluded solutions would have, in ascending order.
        size: Number of solutions, without the excluded ones.
    """

    def __init__(
        self,
        problem: Problem,
        factors: Factors,
        stats: SearchStats,
        engine: SpaceEngine,
        *,
        values_left: Mapping[str, tuple[int, ...]] | None = None,
        excluded: Sequence[Mapping[str, int]] = (),
    ) -> None:
        self.problem = problem
        self.stats = stats
        self.factors = factors
        # For the few questions that this space cannot answer.
        self.engine = engine
        self.values_left = dict(values_left or {})
        self.excluded = tuple(dict(e) for e in excluded)
        self.gaps = sorted(self._index(e) for e in self.excluded)
        self.size: int = factors.total - len(self.gaps)

    @property
    def layout(self) -> AxisLayout:
        """Axes of the variables, and how positions become assignments."""
        return self.factors.layout

    @property
    def parts(self) -> tuple[Part, ...] | None:
        """The independent parts, excluded solutions still in them; None where there is no solution."""
        return self.factors.parts

    @property
    def names(self) -> tuple[str, ...]:
        """Variables in declared order."""
        return self.factors.names

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
        from constrint.solve.space.queries import summary

        return summary(self)

    def _repr_html_(self) -> str:
        """The first solutions as a table, for notebooks."""
        from constrint.solve.space.queries import as_html

        return as_html(self)

    def __eq__(self, other: object) -> bool:
        """Whether the other space has the same variables and the same solutions, in whatever order.

        Spaces whose tables are alike are compared without listing them.
        """
        if not isinstance(other, SearchSpace):
            return NotImplemented
        from constrint.solve.space.queries import same_solutions

        return self is other or same_solutions(self, other)

    def __hash__(self) -> int:
        return hash((frozenset(self.names), self.size))

    def to_pandas(self) -> Any:
        """Every solution as a row of a `pandas.DataFrame`, in index order.

        Raises:
            UsageError: When pandas is not installed.
            LimitReachedError: When there are too many solutions to list.
        """
        from constrint.solve.space.queries import pandas_frame

        return pandas_frame(self)

    def to_polars(self) -> Any:
        """Every solution as a row of a `polars.DataFrame`, in index order.

        Raises:
            UsageError: When polars is not installed.
            LimitReachedError: When there are too many solutions to list.
        """
        from constrint.solve.space.queries import polars_frame

        return polars_frame(self)

    def take(self, indices: Sequence[int] | NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Lists the solutions with these indices as columns."""
        array = np.asarray(indices)
        if array.dtype.kind not in "iu":
            array = np.array([as_int(i, "an index") for i in np.asarray(indices, dtype=object).ravel()], dtype=object)
        for index in (array.min(), array.max()) if len(array) else ():
            if not 0 <= index < self.size:
                raise IndexError(f"index {index} is outside the space of {self.size} solutions")
        if not len(array):
            return {n: np.zeros(0, dtype=np.int64) for n in self.names}
        for gap in self.gaps:
            array = array + (array >= gap)
        return self.layout.assignments(self._positions(array), len(array))

    def _positions(self, indices: NDArray[Any]) -> Rows:
        """Positions of the solutions with these indices, excluded ones counted."""
        rest: NDArray[Any] = indices.astype(total_type(self.size + len(self.gaps)))
        rows: Rows = {}
        for part in reversed(self.parts or ()):
            rows.update(part.take((rest % part.count).astype(total_type(part.count))))
            rest = rest // part.count
        return rows

    @overload
    def __getitem__(self, index: int) -> dict[str, int]: ...

    @overload
    def __getitem__(self, index: slice | Sequence[int] | NDArray[Any]) -> list[dict[str, int]]: ...

    def __getitem__(self, index: Any) -> dict[str, int] | list[dict[str, int]]:
        """The solution with an index, or a list of those in a slice or with listed indices; -1 is the last."""
        if not isinstance(index, int):
            from constrint.solve.space.queries import indices_of

            several = indices_of(index, self.size)
            if several is not None:
                return dicts_of(self.take(np.array(several, dtype=total_type(self.size))), len(several))
        number = as_int(index, "an index")
        return dicts_of(self.take(np.array([number + self.size if number < 0 else number], dtype=object)), 1)[0]

    def __iter__(self) -> Iterator[dict[str, int]]:
        for start in range(0, self.size, _BATCH):
            stop = min(start + _BATCH, self.size)
            yield from dicts_of(self.take(range(start, stop)), stop - start)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Lists every solution, one integer column per variable in the smallest signed dtype that fits.

        Row i is `space[i]`. Convert to int64 before computing with a column.

        Raises:
            LimitReachedError: When they would take more than half of the memory that is left.
        """
        columns = self.factors.columns()
        return {n: np.delete(c, self.gaps) for n, c in columns.items()} if self.gaps else columns

    def contains(self, assignment: Mapping[str, int]) -> bool:
        """Says whether a full assignment is one of the solutions."""
        values = self._checked(assignment)
        missing = [n for n in self.names if n not in values]
        if missing:
            raise UsageError(f"contains needs a value for every variable; missing: {', '.join(missing)}.")
        return self._has(values) and values not in self.excluded

    def _has(self, values: Mapping[str, int]) -> bool:
        """Whether an assignment is a solution, excluded ones counted."""
        if self.parts is None or any(values[n] != v for n, v in self.layout.fixed.items()):
            return False
        positions: dict[str, int] = {}
        for name in self.layout.axes:
            at = self.layout.position(name, values[name])
            if at is None:
                return False
            positions[name] = at
        if not self._follows(values):
            return False
        return all(part.has(positions) for part in self.parts)

    def _follows(self, values: Mapping[str, int]) -> bool:
        """Whether the derived variables have the values that follow from the others."""
        try:
            return all(e.value(values) == values[n] for n, e in self.layout.derived.items())
        except UndefinedValueError:
            return False

    __contains__ = contains

    def contains_columns(self, columns: Mapping[str, NDArray[Any]]) -> bool:
        """Whether every row of columns, one per variable, is a solution; many rows at once."""
        number = len(next(iter(columns.values()), ()))
        if self.gaps:
            return all(self.contains(row) for row in dicts_of(dict(columns), number))
        if self.parts is None or any(bool(np.any(columns[n] != v)) for n, v in self.layout.fixed.items()):
            return False
        rows = self.layout.positions_of(columns)
        if rows is None or not all(bool(np.all(part.ranks(rows) >= 0)) for part in self.parts):
            return False
        return all(
            bool(np.all(self.layout.derived_column(n, columns, number) == columns[n])) for n in self.layout.derived
        )

    def index(self, assignment: Mapping[str, int]) -> int:
        """Index of a solution: `space.index(space[i]) == i`.

        Raises:
            UsageError: When the assignment is not a solution.
        """
        if not self.contains(assignment):
            raise UsageError(f"{dict(assignment)} is not in the space; why_not(problem, config) says why.")
        raw = self._index(self._checked(assignment))
        return raw - sum(gap < raw for gap in self.gaps)

    def _index(self, values: Mapping[str, int]) -> int:
        """Index with excluded solutions counted; -1 for what is no solution."""
        if self.parts is None or any(values[n] != v for n, v in self.layout.fixed.items()):
            return -1
        rows = self.layout.row_of(values)
        if rows is None or not self._follows(values):
            return -1
        index = 0
        for part in self.parts:
            within = int(part.ranks(rows)[0])
            if within < 0:
                return -1
            index = index * part.count + within
        return index

    def exclude(self, *solutions: Mapping[str, int]) -> SearchSpace:
        """Returns the space without these solutions; what is not in it is ignored.

        The order of the others stays, so `space.exclude(space.first()).first()` is the next best.
        """
        gone = [dict(e) for e in self.excluded]
        for solution in solutions:
            values = {n: self._checked(solution)[n] for n in self.names} if self.contains(solution) else None
            if values is not None and values not in gone:
                gone.append(values)
        return self._of(self.factors, self.values_left, gone)

    def best(
        self,
        k: int,
        cost: Expr | Cost,
        *,
        names: Sequence[str] | None = None,
        maximise: bool = False,
        limits: Limits | None = None,
    ) -> list[Ranked]:
        """The `k` cheapest solutions, cheapest first; those in which the cost has no value are left out.

        By an expression they are found without listing the others. Equally cheap ones come in an order that is the same
        in every run; where more than `k` share the last place, which of them are returned is the search's choice.

        Args:
            k: Most solutions to return.
            cost: An expression, or a function from columns of values to one number per row.
            names: The variables that a cost function reads; all of them when None. The space is listed only
                over these, so naming them keeps large spaces factored.
            maximise: Ranks the largest cost first instead.
            limits: Limits of the search.

        Raises:
            LimitReachedError: When a limit came first.
        """
        from constrint.solve.space.best import best_solutions  # loaded at its first use

        return best_solutions(self, as_int(k, "the number of solutions"), cost, names, maximise, limits)

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
        return dicts_of(self.take(indices), len(indices))

    def sample_indices(self, n: int, seed: int | None = None) -> list[int]:
        """Indices of `n` distinct solutions, drawn uniformly."""
        from constrint.solve.space.queries import sample_indices

        return sample_indices(self.size, n, seed)

    def restrict(self, **fixed: Any) -> SearchSpace:
        """Returns the solutions in which these variables have this value each, or one of several listed ones."""
        return self._narrowed({n: self._values(n, value) for n, value in fixed.items()})

    def extend(self, partial: Mapping[str, int]) -> SearchSpace:
        """Returns all completions of a partial assignment."""
        return self._narrowed({n: (v,) for n, v in self._checked(partial).items()})

    def _values(self, name: str, values: int | Iterable[int]) -> tuple[int, ...]:
        """One or several values of a variable, each of them once."""
        several = (
            isinstance(values, Iterable) and not isinstance(values, (str, bytes)) and getattr(values, "ndim", 1) != 0
        )
        listed: Iterable[Any] = values if several else (values,)  # type: ignore[assignment]
        if isinstance(values, range):
            check_listing(len(values))
        if not several or name not in self.problem.variables:
            return tuple(self._checked(dict.fromkeys([name], values)).values())
        return tuple(dict.fromkeys(self._checked({name: v})[name] for v in listed))

    def _narrowed(self, values: Mapping[str, tuple[int, ...]]) -> SearchSpace:
        """The solutions in which each of these variables has one of its listed values."""
        if self.parts is None:
            return self
        positions: dict[str, NDArray[Any]] = {}
        for name, allowed in values.items():
            if name in self.layout.fixed:
                if self.layout.fixed[name] not in allowed:
                    return self._nothing()
            elif name not in self.layout.derived:
                at = [p for p in (self.layout.position(name, v) for v in allowed) if p is not None]
                if not at:
                    return self._nothing()
                positions[name] = np.array(sorted(at))
        values_left = dict(self.values_left)
        for name, allowed in values.items():
            values_left[name] = tuple(v for v in values_left.get(name, allowed) if v in allowed)
        if any(name in self.layout.derived for name in values):
            return self._solved_again(values_left)
        parts: list[Part] = []
        for part in self.parts:
            kept = part.restrict(positions)
            if kept is None:
                return self._nothing()
            parts.append(kept)
        gone = [e for e in self.excluded if all(e[n] in allowed for n, allowed in values.items())]
        return self._of(Factors(self.layout, tuple(parts)), values_left, gone)

    def _of(
        self,
        factors: Factors,
        values_left: Mapping[str, tuple[int, ...]] | None = None,
        excluded: Sequence[Mapping[str, int]] = (),
    ) -> SearchSpace:
        """A space of the same problem with other solutions."""
        return SearchSpace(self.problem, factors, self.stats, self.engine, values_left=values_left, excluded=excluded)

    def _nothing(self) -> SearchSpace:
        return self._of(Factors(self.layout, None))

    def _solved_again(self, values_left: Mapping[str, tuple[int, ...]]) -> SearchSpace:
        """Narrows derived variables: these have no axis, so the problem is solved anew."""
        narrowed = self.problem
        for name, values in values_left.items():
            left = [v for v in values if v in self.problem.variables[name]]
            if not left:
                return self._nothing()
            narrowed = narrowed.with_domain(name, Domain.from_values(left))
        space = self.engine.space(narrowed)
        gone = [e for e in self.excluded if all(e[n] in values for n, values in values_left.items())]
        return SearchSpace(
            self.problem, space.factors, space.stats, self.engine, values_left=values_left, excluded=gone
        )

    def first(self) -> dict[str, int]:
        """The solution that comes first by the declared order of variables and of their values.

        Raises:
            IndexError: When there is no solution.
        """
        if self.parts is None or self.size == 0:
            raise IndexError("the space is empty; it has no first solution")
        if self.layout.has_early:
            return self._first_of_derived()
        rows: Rows = {}
        for part in self.parts:
            names = [n for n in self.names if n in part.names]
            rows.update({n: np.array([at]) for n, at in part.first(names).items()})
        solution = dicts_of(self.layout.assignments(rows, 1), 1)[0]
        if not self.excluded:
            return solution
        from constrint.solve.space.queries import solution_after

        whole = self._of(self.factors, self.values_left)
        while solution in self.excluded:
            solution = solution_after(whole, solution)
        return solution

    def _first_of_derived(self) -> dict[str, int]:
        """The first solution where some variable follows from later ones: one variable after the other gets a value."""
        left = self
        for name in self.names:
            if left.layout.has_early:
                inputs = left.layout.needed([name]) & left.layout.axes.keys()
                if math.prod(left.layout.size(n) for n in inputs) > _MOST_INPUTS:
                    raise LimitReachedError(
                        f"{name!r} follows from more than {_MOST_INPUTS} combinations of {', '.join(sorted(inputs))}, "
                        "too many to compare; solutions_in_order(problem) searches for the first."
                    )
                values = left.project([name])[0][name]
                first = values[np.argmin(places_of(self.problem.variables[name], values))]
                left = left.extend({name: int(first)})
        return left.first()

    def neighbours(self, assignment: Mapping[str, int]) -> list[dict[str, int]]:
        """Solutions that differ from `assignment` in exactly one variable, in declared order."""
        from constrint.solve.space.queries import neighbours_of

        values = self._checked(assignment)
        return [n for n in neighbours_of(self, values) if n not in self.excluded]

    def neighbour_columns(
        self, assignments: Mapping[str, NDArray[Any]]
    ) -> tuple[NDArray[np.intp], dict[str, NDArray[Any]]]:
        """Neighbours of many assignments at once.

        Args:
            assignments: One column per variable; `space.take(indices)` gives such columns.

        Returns:
            For each neighbour the row of `assignments` that it belongs to, and the neighbours as columns.
        """
        from constrint.solve.space.queries import neighbour_columns

        return neighbour_columns(self, assignments)

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
        if self.parts is None:
            return {n: np.zeros(0, dtype=np.int64) for n in names}, np.zeros(0, dtype=np.int64)
        needed = self.layout.needed(names)
        rows, counts = self._project_positions([n for n in self.names if n in needed and n in self.layout.axes])
        if self.gaps:
            rows, counts = self._less_excluded(rows, counts)
        known = self.layout.assignments(rows, len(counts), needed)
        if any(n in self.layout.derived for n in needed):
            return merged({n: known[n] for n in names}, counts)
        return {n: known[n] for n in names}, counts

    def covering(self, names: Sequence[str]) -> tuple[dict[str, NDArray[Any]], int]:
        """Every combination of some variables that extends to a solution, each at least once, and how many rows.

        Cheaper than `project` where one table holds all these variables: its rows are taken as they are.
        """
        for part in () if self.gaps else self.parts or ():
            root = part.tables[0] if isinstance(part, Tree) else None
            if names and root is not None and all(n in root.rows for n in names):
                return {n: self.layout.narrow_values(n)[root.rows[n]] for n in names}, root.num_rows
        columns, counts = self.project(names)
        return columns, len(counts)

    def _less_excluded(self, rows: Rows, counts: NDArray[Any]) -> tuple[Rows, NDArray[Any]]:
        counts = counts.copy()
        for solution in self.excluded:
            same = np.ones(len(counts), dtype=bool)
            for name, column in rows.items():
                same &= column == self.layout.position(name, solution[name])
            counts[same] -= 1
        kept = counts > 0
        return {n: c[kept] for n, c in rows.items()}, counts[kept]

    def _project_positions(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        counts_type = total_type(self.size + len(self.gaps))
        rows: Rows = {}
        counts: NDArray[Any] = np.ones(1, dtype=counts_type)
        for part in self.parts or ():
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
            counts = np.repeat(counts, size) * np.tile(weights.astype(counts_type), others)
        return rows, counts
