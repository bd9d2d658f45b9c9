"""The native engine on numpy: plain, for what the compiled core does not take and where there is none.

One table lists each component; depth-first search with propagation finds single solutions where tables are too long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.model import Constraint, Domain, Problem
from constrint.model.columns import ExactColumn, test
from constrint.solve.budget import Budget
from constrint.solve.engine.prepare import Prepared, TableCheck, components, fixed_columns, flatten, prepare
from constrint.solve.propagation import propagate
from constrint.solve.space.axes import (
    Axis,
    AxisLayout,
    LazyAxis,
    Rows,
    axis_from_domain,
    axis_of_free,
    dicts_of,
    position_type,
)
from constrint.solve.space.parts import Factors, FreePart, Part
from constrint.solve.space.tree import Tree, one_table


def numpy_factors(problem: Problem, budget: Budget) -> Factors:
    """All solutions of a problem, in factored form, on numpy alone.

    Raises:
        LimitReachedError: When the budget ended before all solutions were known.
    """
    with budget.watching():
        prepared = prepare(problem, budget)
        layout = _layout(problem, prepared, budget)
        parts = _parts(prepared, layout, budget) if prepared.feasible else None
        return Factors(layout, None if parts is None else tuple(parts))


def _layout(problem: Problem, prepared: Prepared, budget: Budget) -> AxisLayout:
    axes: dict[str, Axis | LazyAxis] = dict(prepared.axes)
    for name, domain in prepared.free.items():
        axes[name] = axis_of_free(domain, budget)
    return AxisLayout(tuple(problem.variables), axes, prepared.fixed, prepared.derived)


def _parts(prepared: Prepared, layout: AxisLayout, budget: Budget) -> list[Part] | None:
    """Lists each component as one table; None as soon as one has no solution."""
    parts: list[Part] = []
    fixed = fixed_columns(prepared.fixed)
    for names in components(prepared.axes, [c.scope for c in prepared.checks]):
        checks = [check for check in prepared.checks if check.scope <= set(names)]
        rows, num_rows = list_rows(names, checks, prepared.axes, fixed, budget)
        if num_rows == 0:
            return None
        budget.stats.table_bytes += sum(column.nbytes for column in rows.values())
        budget.stats.rows += num_rows
        budget.stats.tables += 1
        parts.append(Tree([one_table(rows, num_rows)], {n: len(prepared.axes[n]) for n in names}))
    parts += [FreePart(name, layout.size(name)) for name in prepared.free]
    # The largest part varies fastest, so that listing repeats the others in long runs.
    return sorted(parts, key=lambda p: p.count)


# Combinations that are evaluated at once.
_PIECE_CELLS: Final = 1 << 16


def list_rows(
    names: Sequence[str],
    checks: Sequence[TableCheck],
    axes: Mapping[str, Axis],
    fixed: Mapping[str, ExactColumn],
    budget: Budget,
) -> tuple[Rows, int]:
    """Lists every combination of `names` that passes the checks, whose scopes lie within `names`.

    Returns:
        The columns of positions, in lexicographic order, and the number of rows.
    """
    rows: Rows = {}
    num_rows, waiting = 1, list(checks)
    for name in _ordered(names, checks, axes):
        known = {*rows, name}
        ready = [check for check in waiting if check.scope <= known]
        waiting = [check for check in waiting if not check.scope <= known]
        pieces = list(_extended(rows, num_rows, name, ready, axes, fixed, budget))
        rows = {n: np.concatenate([piece[n] for piece in pieces]) for n in pieces[0]}
        num_rows = len(rows[name])
    order = np.lexsort([rows[n] for n in reversed(names)])
    return {n: rows[n][order] for n in names}, num_rows


def _ordered(names: Sequence[str], checks: Sequence[TableCheck], axes: Mapping[str, Axis]) -> list[str]:
    """Orders variables so that checks can be evaluated after as few combinations as possible."""
    ordered: dict[str, None] = {}
    waiting = [check.scope for check in checks]
    while waiting:
        missing = min((scope - ordered.keys() for scope in waiting), key=lambda m: math.prod(len(axes[n]) for n in m))
        ordered.update(dict.fromkeys(n for n in names if n in missing))
        waiting = [scope for scope in waiting if not scope <= ordered.keys()]
    return [*ordered, *(n for n in names if n not in ordered)]


def _extended(
    rows: Rows,
    num_rows: int,
    name: str,
    checks: Sequence[TableCheck],
    axes: Mapping[str, Axis],
    fixed: Mapping[str, ExactColumn],
    budget: Budget,
) -> Iterator[Rows]:
    """Extends rows by every value of one more variable, and keeps those that pass the checks, a piece at a time."""
    width = len(axes[name])
    types = {n: column.dtype for n, column in rows.items()} | {name: np.dtype(position_type(width))}
    row_bytes = sum(kind.itemsize for kind in types.values())
    total = 0
    for start in range(0, max(1, num_rows * width), _PIECE_CELLS):
        budget.tick()
        above, position = np.divmod(np.arange(start, min(start + _PIECE_CELLS, num_rows * width)), width)
        piece = {n: column[above] for n, column in rows.items()} | {name: position.astype(types[name])}
        for check in checks:
            columns = {
                n: fixed[n] if n in fixed else ExactColumn(axes[n].narrow[piece[n]], axes[n].bounds)
                for n in check.constraint.variables
            }
            budget.stats.cells += len(piece[name])
            passes = np.broadcast_to(np.asarray(test(check.constraint, columns), dtype=bool), piece[name].shape)
            piece = {n: column[passes] for n, column in piece.items()}
        total += len(piece[name])
        budget.check_rows(total, tuple(types))
        # The pieces are joined in the end: for a moment all rows exist twice.
        budget.check_bytes(2 * total * row_bytes, "a table")
        yield piece


# A node with at most this many combinations is enumerated instead of split.
ENUMERABLE: Final = 1 << 16
# Larger ranges are halved, smaller domains are tried value by value.
_HALVED: Final = 16
# Solutions of a node that become dictionaries at once.
_AT_ONCE: Final = 1 << 8


def search_one(problem: Problem, budget: Budget) -> dict[str, int] | None:
    """Finds one solution.

    Returns:
        A solution, or None when there is none.

    Raises:
        LimitReachedError: When the budget ended first.
    """
    constraints = flatten(problem.constraints)
    return next(search(dict(problem.variables), constraints, budget, in_order=False), None)


def search(
    domains: dict[str, Domain], constraints: Sequence[Constraint], budget: Budget, *, in_order: bool
) -> Iterator[dict[str, int]]:
    """Depth-first search with propagation: yields solutions; variables without a constraint get their first value.

    Args:
        domains: The variables in declared order.
        constraints: The rules on them.
        budget: Remaining work of the search.
        in_order: Whether solutions come in declared order; else the variable with the fewest values is split first.
    """
    touched = frozenset().union(*(c.variables for c in constraints)) if constraints else frozenset()
    stack = [domains]
    while stack:
        budget.spend_node()
        with budget.watching():
            narrowed = propagate(stack.pop(), constraints)
        if narrowed is None:
            continue
        open_names = [n for n in narrowed if n in touched and narrowed[n].size > 1]
        if math.prod(narrowed[n].size for n in open_names) <= ENUMERABLE:
            with budget.watching():
                columns, num_rows = _listed(narrowed, open_names, constraints, budget)
            # Often only the first solution is used.
            rest = {n: next(iter(d)) for n, d in narrowed.items()}
            for start in range(0, num_rows, _AT_ONCE):
                piece = {n: column[start : start + _AT_ONCE] for n, column in columns.items()}
                yield from ({**rest, **found} for found in dicts_of(piece, min(_AT_ONCE, num_rows - start)))
            continue
        name = open_names[0] if in_order else min(open_names, key=lambda n: narrowed[n].size)
        stack += [{**narrowed, name: piece} for piece in reversed(split(narrowed[name]))]


def _listed(
    domains: dict[str, Domain], open_names: list[str], constraints: Sequence[Constraint], budget: Budget
) -> tuple[dict[str, NDArray[Any]], int]:
    """The solutions within small domains, in declared order: columns of the open variables, and their length."""
    first = {n: next(iter(d)) for n, d in domains.items()}
    axes = {n: axis_from_domain(domains[n]) for n in open_names}
    fixed = fixed_columns({n: v for n, v in first.items() if n not in axes})
    decided = [c for c in constraints if not c.variables & axes.keys()]
    if not all(c.holds(first) for c in decided):
        return {}, 0
    if not open_names:
        return {}, 1
    checks = [TableCheck(c, c.variables & axes.keys()) for c in constraints if c.variables & axes.keys()]
    rows, num_rows = list_rows(open_names, checks, axes, fixed, Budget(budget.rest()))
    return {n: axes[n].values[rows[n]] for n in open_names}, num_rows


def split(domain: Domain) -> list[Domain]:
    """Cuts a domain into pieces: single values if it is small, else two halves."""
    if domain.size <= _HALVED:
        return [Domain.from_values([v]) for v in domain]
    half = domain.size // 2
    if domain.listed is not None:
        return [Domain.from_values(domain.listed[:half]), Domain.from_values(domain.listed[half:])]
    # Slices of a range with more than 2^63 members overflow.
    middle = domain.lower + half * domain.step
    return [
        Domain.from_range(domain.lower, middle - domain.step, domain.step),
        Domain.from_range(middle, domain.upper, domain.step),
    ]
