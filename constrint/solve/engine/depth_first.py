"""Depth-first search for one solution, for problems whose tables would be too large to list.

Each node of the search narrows the domains by propagation. If few combinations are left, all of them are enumerated at
once; otherwise the smallest domain is split. Values are tried in the order in which they were given.
"""

from __future__ import annotations

import math
from typing import Final

from constrint.model import Domain, Problem
from constrint.solve.budget import Budget
from constrint.solve.engine.factored import factored_space
from constrint.solve.engine.prepare import flatten
from constrint.solve.propagation.propagate import propagate

# With this many combinations left a node is enumerated instead of split.
ENUMERABLE: Final = 1 << 16
# Larger ranges are halved, smaller domains are tried value by value.
_HALVED: Final = 16


def search_one(problem: Problem, budget: Budget) -> dict[str, int] | None:
    """Finds one solution.

    Returns:
        A solution, or None when there is none.

    Raises:
        LimitReachedError: When the budget ended first.
    """
    constraints = flatten(problem.constraints)
    touched = frozenset().union(*(c.variables for c in constraints)) if constraints else frozenset()
    stack: list[dict[str, Domain]] = [dict(problem.variables)]
    while stack:
        budget.spend_node()
        with budget.watching():
            domains = propagate(stack.pop(), constraints)
        if domains is None:
            continue
        open_names = [n for n in domains if n in touched and domains[n].size > 1]
        if math.prod(domains[n].size for n in open_names) <= ENUMERABLE:
            solution = _finish(problem, domains, budget)
            if solution is not None:
                return solution
            continue
        name = min(open_names, key=lambda n: domains[n].size)
        for piece in reversed(split(domains[name])):
            stack.append({**domains, name: piece})
    return None


def _finish(problem: Problem, domains: dict[str, Domain], budget: Budget) -> dict[str, int] | None:
    narrowed = problem
    for name, domain in domains.items():
        narrowed = narrowed.with_domain(name, domain)
    space = factored_space(narrowed, budget.rest(max_rows=4 * ENUMERABLE))
    return space.first() if space else None


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
