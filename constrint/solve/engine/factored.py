"""The native engine on numpy: factored tables, complete and without duplicates; depth-first search for large ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from constrint.model import Constraint, Domain, Problem
from constrint.solve.budget import Budget
from constrint.solve.engine.prepare import Bag, Prepared, components, fixed_columns, flatten, prepare, tree
from constrint.solve.engine.tables import TableCheck, build_table
from constrint.solve.propagation import propagate
from constrint.solve.space.axes import Axis, AxisLayout, LazyAxis, Rows, axis_from_domain, axis_of_free, dicts_of
from constrint.solve.space.parts import Factors, FreePart, Part, TreePart
from constrint.solve.space.tree import LinkedTable, Tree

# Largest component, in combinations, that is one table.
ONE_TABLE = 1 << 12
# Bytes per row of a table that is linked to others, and while it is.
_LINK_BYTES: Final = 4
_KEY_BYTES: Final = 24


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
    """Builds the independent parts; None as soon as one has no solution."""
    parts: list[Part] = []
    groups = components(prepared.axes, [c.scope for c in prepared.checks])
    of_name = {name: i for i, names in enumerate(groups) for name in names}
    checks: list[list[TableCheck]] = [[] for _ in groups]
    for check in prepared.checks:
        checks[of_name[next(iter(check.scope))]].append(check)
    for names, mine in zip(groups, checks, strict=True):
        part = _tree_part(names, mine, prepared, budget)
        if part is None:
            return None
        parts.append(part)
    parts += [FreePart(name, layout.size(name)) for name in prepared.free]
    # The largest part varies fastest, so that listing repeats the others in long runs.
    return sorted(parts, key=lambda p: p.count)


def _bags(names: Sequence[str], checks: Sequence[TableCheck], axes: dict[str, Axis]) -> list[Bag]:
    if math.prod(len(axes[n]) for n in names) <= ONE_TABLE:
        return [Bag(frozenset(names))]
    return tree(names, [c.scope for c in checks], {n: math.log(len(axes[n])) for n in names})


def _tree_part(
    names: Sequence[str], checks: Sequence[TableCheck], prepared: Prepared, budget: Budget
) -> TreePart | None:
    """Lists the tables of one component and links them."""
    bags = _bags(names, checks, prepared.axes)
    fixed = fixed_columns(prepared.fixed)
    tables: list[tuple[Rows, int]] = []
    for bag in bags:
        mine = [c for c in checks if c.scope <= bag.names]
        members = [n for n in names if n in bag.names]
        rows, num_rows = build_table(members, mine, prepared.axes, fixed, budget)
        if num_rows == 0:
            return None
        tables.append((rows, num_rows))
    # Keys and their order while one table is linked and grouped; links stay.
    most, total = max(n for _, n in tables), sum(n for _, n in tables)
    budget.check_bytes((_LINK_BYTES * total + _KEY_BYTES * most) * (len(tables) > 1), "the count of a table")
    tree = Tree(_linked(bags, tables), {n: len(prepared.axes[n]) for n in names})
    return TreePart(tree) if tree.count else None


def _linked(bags: Sequence[Bag], tables: Sequence[tuple[Rows, int]]) -> list[LinkedTable]:
    """Link the tables with the largest as root, whose rows then need neither sorting nor a lookup."""
    beside = [[*bag.children, *([bag.parent] if bag.parent >= 0 else [])] for bag in bags]
    root = max(range(len(bags)), key=lambda i: tables[i][1])
    nodes: list[LinkedTable] = []
    waiting = [(root, -1, -1)]
    for at, above, place in waiting:
        rows, num_rows = tables[at]
        shared = tuple(n for n in rows if above >= 0 and n in tables[above][0])
        if place >= 0:
            nodes[place].children.append(len(nodes))
        waiting += [(other, at, len(nodes)) for other in beside[at] if other != above]
        nodes.append(LinkedTable(rows, num_rows, place, [], shared))
    return nodes


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
    rows, num_rows = build_table(open_names, checks, axes, fixed, Budget(budget.rest()))
    order = np.lexsort([rows[n] for n in reversed(open_names)])
    return {n: axes[n].values[rows[n][order].astype(np.intp)] for n in open_names}, num_rows


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
