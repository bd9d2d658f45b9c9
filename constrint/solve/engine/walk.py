"""Solutions one after the other in declared order: on the compiled core, or by search with propagation."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from constrint.model import Constraint, Domain, Problem
from constrint.solve.budget import UNLIMITED, Budget, Limits
from constrint.solve.engine.compiled import CompiledWalk, walk_in_order
from constrint.solve.engine.factored import search
from constrint.solve.engine.prepare import components, flatten
from constrint.solve.propagation import propagate


def solutions_in_order(
    problem: Problem, limits: Limits | None = None, backend: str = "native"
) -> Iterator[dict[str, int]]:
    """Yield solutions in declared order, coded values as their codes; see `constrint.solve.solutions_in_order`."""
    budget = Budget(limits or UNLIMITED)
    compiled = walk_in_order(problem, budget) if backend == "native" else None
    if compiled is False:
        return
    if isinstance(compiled, CompiledWalk):
        walks = [_Walk(names, compiled.rows(i, budget)) for i, names in enumerate(compiled.components)]
        walks += [_Walk([n], zip(range(len(compiled.values[n])))) for n in compiled.free]
        open_names = {n for walk in walks for n in walk.names}
        for positions in _merged(walks, [n for n in problem.names if n in open_names], budget):
            yield compiled.assignment(positions)
        return
    constraints = flatten(problem.constraints)
    with budget.watching():
        domains = propagate(dict(problem.variables), constraints)
    if domains is None or not all(c.holds({}) for c in constraints if not c.variables):
        return
    walks = []
    for group in components(domains, [c.variables for c in constraints if c.variables]):
        names = [n for n in problem.names if n in set(group)]
        mine = [c for c in constraints if c.variables and c.variables <= set(group)]
        walks.append(_Walk(names, _searched({n: domains[n] for n in names}, mine, budget)))
    for found in _merged(walks, problem.names, budget):
        yield {n: domains[n].at(place) for n, place in found.items()}


def _searched(
    domains: dict[str, Domain], constraints: Sequence[Constraint], budget: Budget
) -> Iterator[tuple[int, ...]]:
    """Places of the values of one component's solutions, in order."""
    if not constraints:
        ((_, domain),) = domains.items()
        yield from zip(range(domain.size))
        return
    places = {n: {v: at for at, v in enumerate(d.listed)} for n, d in domains.items() if d.listed is not None}
    for found in search(domains, constraints, budget, in_order=True):
        yield tuple(
            places[n][v] if n in places else (v - domains[n].lower) // domains[n].step for n, v in found.items()
        )


@dataclass(slots=True)
class _Walk:
    """Solutions of one component: those found so far, and a source of further ones."""

    names: list[str]
    source: Iterator[tuple[int, ...]]
    known: list[tuple[int, ...]] = field(default_factory=list)

    def has(self, i: int, budget: Budget) -> bool:
        """Says whether there is an i-th solution."""
        while len(self.known) <= i:
            solution = next(self.source, None)
            if solution is None:
                return False
            budget.take_bytes(_tuple_bytes(len(solution)), "a list of the solutions so far")
            self.known.append(solution)
        return True


def _tuple_bytes(length: int) -> int:
    """Memory of a tuple of integers, with its place in a list."""
    return 64 + 40 * length


def _merged(walks: Sequence[_Walk], order: Sequence[str], budget: Budget) -> Iterator[dict[str, int]]:
    """Combines the components' solutions so that the whole stays in order."""
    if len(walks) == 1:
        # Nothing to combine: each solution is given away as it is found.
        (walk,) = walks
        for solution in walk.source:
            yield dict(zip(walk.names, solution, strict=True))
        return
    if not all(walk.has(0, budget) for walk in walks):
        return

    def entry(at: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        positions: dict[str, int] = {}
        for walk, i in zip(walks, at, strict=True):
            positions.update(zip(walk.names, walk.known[i], strict=True))
        return tuple(positions[n] for n in order), at

    entry_bytes = 64 + _tuple_bytes(len(order)) + _tuple_bytes(len(walks))
    heap = [entry((0,) * len(walks))]
    counted = 0
    while heap:
        positions, at = heapq.heappop(heap)
        yield dict(zip(order, positions, strict=True))
        budget.tick()
        # Each combination follows the one in which its last component that has moved stood a step before.
        first = max((i for i, moved in enumerate(at) if moved), default=0)
        for i in range(first, len(walks)):
            if walks[i].has(at[i] + 1, budget):
                heapq.heappush(heap, entry((*at[:i], at[i] + 1, *at[i + 1 :])))
        if len(heap) > counted:
            budget.take_bytes(entry_bytes * (len(heap) - counted), "a list of combinations that come next")
            counted = len(heap)
