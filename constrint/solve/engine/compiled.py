"""The native engine on the compiled core: factored spaces, the walk in declared order, branch and bound."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from constrint.core import compiled as core
from constrint.errors import LimitReachedError, UndefinedValueError
from constrint.model import Problem
from constrint.model.encode import encode_all, encode_expression
from constrint.solve.budget import BETWEEN_LOOKS, LARGE_BYTES, UNLIMITED, Budget, Limits
from constrint.solve.engine.factored import numpy_factors
from constrint.solve.engine.prepare import flatten
from constrint.solve.incumbents import Incumbents
from constrint.solve.propagation import propagate
from constrint.solve.solution import SearchResult
from constrint.solve.space.axes import Axis, AxisLayout, axis_of, check_listing, dtype_for, position_type
from constrint.solve.space.parts import Factors, FreePart, Part
from constrint.solve.space.space import SearchSpace, SpaceEngine
from constrint.solve.space.tree import LinkedTable, Tree

# The core's own limit on the values of one variable.
MAX_VALUES: Final = 4096
# Largest reported share of an unfinished search.
_NEARLY_ALL: Final = 1 - 2**-53
# Rows that the core reserves for a table that is not short.
_LEAST_ROWS: Final = 1 << 18
_KINDS: Final[dict[int, np.dtype[Any]]] = {
    1: np.dtype(np.int8),
    2: np.dtype(np.int16),
    4: np.dtype(np.int32),
    8: np.dtype(np.int64),
}


def factored_space(problem: Problem, limits: Limits | None = None, use_core: bool = True) -> SearchSpace:
    """Finds all solutions of a problem, in factored form, on the compiled core or, where it declines, on numpy.

    Args:
        problem: The problem; its objective is ignored.
        limits: Limits of the search.
        use_core: Whether the compiled core is tried first.

    Raises:
        LimitReachedError: When a limit ended the search before all solutions were known.
    """
    budget = Budget(limits or UNLIMITED)
    factors: Factors | None = enumerate_factors(problem, budget) if use_core else None
    if factors is None:
        budget.check_work()
        factors = numpy_factors(problem, budget)
    budget.stats.seconds = budget.elapsed_seconds()
    return SearchSpace(problem, factors, budget.stats, ENGINE)


def core_model(problem: Problem, budget: Budget) -> object | None:
    """The core's form of a problem, cached or encoded now."""
    if core is None or budget.limits.max_values < MAX_VALUES:
        return None
    if problem.core is None:
        with budget.watching():
            domains = _narrow_domains(problem)
            if domains is None:
                return None
            places = {name: place for place, name in enumerate(problem.names)}
            # Cached until the problem changes: several searches often use one problem.
            problem.core = core.build(domains, [encode_all(problem.constraints, places)]) or False
    return problem.core or None


def _narrow_domains(problem: Problem) -> list[list[int]] | None:
    """The values of every variable, long domains after propagation; None where some are still too many."""
    declared = problem.variables
    if not declared:
        return None
    if all(d.size <= MAX_VALUES for d in declared.values()):
        return [list(d) for d in declared.values()]
    narrowed = propagate(dict(declared), flatten(problem.constraints))
    if narrowed is None or any(d.size > MAX_VALUES for d in narrowed.values()):
        return None
    return [
        [v for v in d if v in narrowed[n]] if d.listed is not None else list(narrowed[n]) for n, d in declared.items()
    ]


def enumerate_factors(problem: Problem, budget: Budget) -> CompiledFactors | None:
    """Lists the tables of the factored space; None where the core declines."""
    model = core_model(problem, budget)
    if core is None or model is None:
        return None
    limits = budget.limits
    budget.check_work()
    few = limits.max_bytes is None and _most_bytes(problem) < LARGE_BYTES
    max_bytes = 1 << 62 if few else max(1, _word(budget.bytes_left()))
    try:
        answer: Any = core.enumerate(model, _word(limits.max_cells), _word(limits.max_rows), max_bytes, _poll(budget))
    except MemoryError:
        raise LimitReachedError("there is not enough memory for this search; narrow the problem.") from None
    if answer is None:
        return None
    if answer[0] == "limit":
        _refuse(answer, problem, budget)
    stats = budget.stats
    if answer[0] == "infeasible":
        stats.cells = answer[1]
        return CompiledFactors(core, problem, None, ())
    _, space, counts, stats.cells, stats.rows, stats.tables, stats.table_bytes = answer
    return CompiledFactors(core, problem, space, counts)


def _most_bytes(problem: Problem) -> int:
    """Bytes of the tables of all combinations: a bound that is cheaper than looking up the available memory."""
    return max(problem.num_combinations, _LEAST_ROWS) * 2 * len(problem.names)


def _poll(budget: Budget, spent: int = 0) -> Callable[[int, bool], None] | None:
    """Make the function that the core calls from time to time; `spent` combinations were evaluated before."""
    limits = budget.limits
    if limits.cancel is None and limits.progress is None and limits.max_seconds is None and limits.incumbents is None:
        return None

    def poll(cells: int, is_hard: bool) -> None:
        budget.stats.cells = spent + cells
        if is_hard and limits.head_start is not None:
            limits.head_start.is_hard()
        budget.check_work()

    return poll


def _word(limit: int) -> int:
    """A limit capped at the core's word size; larger ones are never reached."""
    return min(limit, 1 << 62)


def _refuse(answer: tuple[str, str, int, Sequence[int]], problem: Problem, budget: Budget) -> NoReturn:
    """Raise the error for a limit that the core reports."""
    _, what, number, variables = answer
    names = tuple(problem.names[v] for v in variables)
    if what == "rows":
        budget.check_rows(number, names)
    elif what == "bytes":
        budget.stats.table_bytes = 0
        budget.refuse_bytes(number, f"a table over {', '.join(names)}")
    else:
        budget.stats.cells = number
        budget.check_work()
    raise LimitReachedError(f"the compiled core takes no more than {number} {what}; narrow the problem.")


class CompiledFactors(Factors):
    """A factored space in the core; its parts become numpy tables at their first use."""

    def __init__(self, module: ModuleType, problem: Problem, space: object | None, counts: Sequence[int]) -> None:
        self._names, self._core, self._space, self._problem = problem.names, module, space, problem
        self._total = 0 if space is None else math.prod(counts)

    def __reduce__(self) -> tuple[Any, ...]:
        # The core's space cannot be copied or pickled; its tables can.
        return Factors, (self.layout, self.parts)

    def __getattr__(self, name: str) -> Any:
        if name not in ("layout", "parts"):
            raise AttributeError(name)
        self.layout, self.parts = self._fetched()
        return getattr(self, name)

    @property
    def names(self) -> tuple[str, ...]:
        """Variables in declared order."""
        return self._names

    @property
    def total(self) -> int:
        """Number of solutions."""
        return self._total

    def columns(self) -> dict[str, NDArray[Any]]:
        """List every solution in the core."""
        if self._space is None:
            return {n: np.zeros(0, dtype=np.int8) for n in self.names}
        if self.total * 8 * len(self.names) >= LARGE_BYTES:
            kinds = [np.dtype(dtype_for(d.lower, d.upper)) for d in self._problem.variables.values()]
            check_listing(self.total, sum(kind.itemsize for kind in kinds))
        listed: list[tuple[int, bytearray, int]] = self._core.columns(self._space, self.total)
        return {
            n: np.frombuffer(data, _KINDS[size], self.total, offset)
            for n, (size, data, offset) in zip(self.names, listed, strict=True)
        }

    def _fetched(self) -> tuple[AxisLayout, tuple[Part, ...] | None]:
        if self._space is None:
            return AxisLayout(self.names, {}, {}), None
        listed, parts = self._core.factors(self._space)
        axes, fixed = _axes(self.names, listed)
        sizes = {name: len(axis) for name, axis in axes.items()}
        return AxisLayout(self.names, {**axes}, fixed), tuple(self._part(part, sizes) for part in parts)

    def _part(self, part: Any, sizes: Mapping[str, int]) -> Part:
        if isinstance(part, int):
            return FreePart(self.names[part], sizes[self.names[part]])
        return Tree([self._table(table, sizes) for table in part], sizes)

    def _table(self, table: tuple[Any, ...], sizes: Mapping[str, int]) -> LinkedTable:
        variables, columns, starts, links = table
        rows: dict[str, NDArray[Any]] = {}
        for v, column in zip(variables, columns, strict=True):
            name = self.names[v]
            rows[name] = np.frombuffer(column, position_type(sizes[name]))
        groups = {child: np.frombuffer(link, np.uint32) for child, link in links}
        return LinkedTable(rows, np.frombuffer(starts, np.uint32).astype(np.intp), groups)


def _axes(names: Sequence[str], listed: Sequence[tuple[bytearray, bool]]) -> tuple[dict[str, Axis], dict[str, int]]:
    """Axes of the open variables, and the values of the fixed ones."""
    axes: dict[str, Axis] = {}
    fixed: dict[str, int] = {}
    for name, (values, one) in zip(names, listed, strict=True):
        array = np.frombuffer(values, np.int64)
        if one:
            fixed[name] = int(array[0])
        else:
            axes[name] = axis_of(array)
    return axes, fixed


class CompiledWalk:
    """Solutions of every component in declared order, one at a time."""

    def __init__(self, module: ModuleType, problem: Problem, walk: object, groups: list[list[int]], axes: Any) -> None:
        self._core, self._walk, self._problem = module, walk, problem
        self.components = [[problem.names[v] for v in group] for group in groups]
        linked = {v for group in groups for v in group}
        self.values: dict[str, list[int]] = {}
        self.free: list[str] = []
        for v, (name, (data, one)) in enumerate(zip(problem.names, axes, strict=True)):
            self.values[name] = np.frombuffer(data, np.int64).tolist()
            if not one and v not in linked:
                self.free.append(name)

    def assignment(self, positions: Mapping[str, int]) -> dict[str, int]:
        """Values at positions; variables without one are fixed."""
        return {name: values[positions.get(name, 0)] for name, values in self.values.items()}

    def rows(self, component: int, budget: Budget) -> Iterator[tuple[int, ...]]:
        """Yields positions of one component's solutions, in order."""
        while True:
            # The core looks at the clock within one call only, and a call may be short.
            budget.tick()
            left = budget.limits.max_cells - budget.stats.cells
            spent = budget.stats.cells
            answer = self._core.walk_next(self._walk, component, _word(left), _poll(budget))
            if answer[0] == "limit":
                _refuse((*answer[:2], spent + answer[2], answer[3]), self._problem, budget)
            budget.stats.cells = spent + answer[1]
            if answer[0] == "end":
                return
            yield tuple(answer[2])

    def counted(self, component: int, budget: Budget) -> tuple[int, float]:
        """Number of solutions of a component up to a limit, and the finished share of the search.

        The walk cannot go on after it; the share is 1 where all were counted.
        """
        try:
            answer = self._core.walk_to_end(self._walk, component, _word(budget.limits.max_cells), _poll(budget))
            is_through = answer[0] == "end"
        except LimitReachedError:
            is_through = False
        number, share = self._core.walk_state(self._walk, component)
        return number, 1.0 if is_through else min(share, _NEARLY_ALL)


def walk_in_order(problem: Problem, budget: Budget) -> CompiledWalk | bool | None:
    """Starts a walk; False where there is no solution, None where the core declines."""
    model = core_model(problem, budget)
    if core is None or model is None:
        return None
    budget.check_work()
    answer: Any = core.walk(model, _word(budget.limits.max_cells), _poll(budget))
    if answer is None:
        return None
    if answer[0] == "limit":
        _refuse(answer, problem, budget)
    return CompiledWalk(core, problem, *answer[1:]) if answer[0] == "walk" else False


# Numbers of this size mean "no bound" in the core.
_UNBOUNDED: Final = 1 << 62


class BranchAndBound:
    """Branch and bound that can be stopped and continued.

    Attributes:
        done: Whether the search is complete: its solutions are optimal, or there is none.
    """

    def __init__(self, problem: Problem, search: object, model: object) -> None:
        # The search refers to the model without owning it; decisions are counted over all runs.
        self._problem, self._search, self._model = problem, search, model
        self.done = False

    @classmethod
    def of(
        cls, problem: Problem, budget: Budget, number: int = 1, hint: Mapping[str, int] | None = None
    ) -> BranchAndBound | None:
        """Prepares a search for the best solutions by all objectives in order; None where the core declines."""
        model = core_model(problem, budget)
        if core is None or model is None:
            return None
        places = {name: place for place, name in enumerate(problem.names)}
        goals = [(encode_expression(o.expr, places), o.maximise) for o in problem.objectives]
        tried = [(places[n], v) for n, v in (hint or {}).items() if abs(v) < _UNBOUNDED]
        budget.check_work()
        search: Any = core.best_search(model, goals, number, tried, budget.limits.max_cells, _poll(budget))
        if search is None or isinstance(search, tuple):
            return None
        return cls(problem, search, model)

    def run(self, budget: Budget, decisions: int) -> None:
        """Continue the search for at most `decisions` decisions.

        Raises:
            LimitReachedError: When a limit of the budget ended it.
        """
        before = self._state()[2]
        spent = budget.stats.cells
        assert core is not None
        try:
            left = budget.limits.max_cells - spent
            answer: Any = core.best_run(self._search, left, decisions, _poll(budget, spent))
            self.done = answer is True
            if isinstance(answer, tuple):
                budget.stats.cells = spent + answer[2]
                budget.check_work()
        finally:
            budget.stats.nodes += self._state()[2] - before

    def share(self, incumbents: Incumbents, *, only_better: bool) -> None:
        """Gives the best solution so far to other engines; with `only_better`, looks for better ones than theirs."""
        solutions = self._state()[0]
        if solutions:
            incumbents.offer(dict(zip(self._problem.names, solutions[0], strict=True)))
        costs = incumbents.costs
        if costs and only_better and core is not None and all(abs(cost) < _UNBOUNDED for cost in costs):
            core.best_below(self._search, list(costs))

    def result(self, message: str = "") -> SearchResult:
        """The best solutions and the bound so far.

        Raises:
            UndefinedValueError: When the search is over and an objective has a value in no solution.
        """
        solutions, bound, _, undefined = self._state()
        if self.done and undefined and not solutions:
            objectives = "; ".join(map(str, self._problem.objectives))
            raise UndefinedValueError(f"{objectives} has no value in any solution; change the objective.")
        assignments = tuple(dict(zip(self._problem.names, values, strict=True)) for values in solutions)
        best_bound = bound if self._problem.objectives and abs(bound) < _UNBOUNDED else None
        if best_bound is not None and self._problem.objectives[0].maximise:
            best_bound = -best_bound
        return SearchResult(assignments, self.done, best_bound, message)

    def _state(self) -> tuple[list[list[int]], int, int, bool]:
        assert core is not None
        state: tuple[list[list[int]], int, int, bool] = core.best_state(self._search)
        return state


# Decisions before the first look at the solutions of other engines; later looks are some hundredths of a second apart.
_FIRST_SHARE: Final = 1 << 12


def run_within(
    search: BranchAndBound, budget: Budget, incumbents: Incumbents | None = None, *, only_best: bool = False
) -> SearchResult:
    """Runs a search to its end or to a limit, and says what it found.

    Args:
        search: The search.
        budget: Remaining work.
        incumbents: Takes its better solutions; they are by the same objectives.
        only_best: Whether the one best solution is wanted, so that those of other engines count, too.
    """
    try:
        share = budget.limits.max_nodes if incumbents is None else _FIRST_SHARE
        while not search.done and budget.stats.nodes < budget.limits.max_nodes:
            begun = time.perf_counter()
            search.run(budget, min(share, budget.limits.max_nodes - budget.stats.nodes))
            if incumbents is not None:
                search.share(incumbents, only_better=only_best)
                share *= 2 if time.perf_counter() - begun < BETWEEN_LOOKS else 1
    except LimitReachedError as error:
        return search.result(str(error))
    if search.done:
        # Another engine's solution that was not beaten is the best one.
        best = incumbents.best if incumbents is not None and only_best else None
        return search.result() if best is None else SearchResult((best,))
    return search.result(
        f"no proof after max_nodes={budget.limits.max_nodes} assignments; narrow the variables or raise max_nodes."
    )


# Decisions before another way to the best solutions is preferred.
_SHORT_SEARCH: Final = 1 << 18


def _best_by_search(problem: Problem, number: int, budget: Budget, is_last: bool) -> SearchResult | None:
    """The best solutions by branch and bound; None where the core declines, or it is long and another way is left."""
    search = BranchAndBound.of(problem, budget, number)
    if search is None:
        return None
    search.run(budget, _SHORT_SEARCH)
    return run_within(search, budget) if search.done or is_last else None


#: The native engine, as spaces ask it.
ENGINE: Final = SpaceEngine(factored_space, _best_by_search)
