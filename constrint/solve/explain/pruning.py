"""What each rule costs: how many configurations it removes by itself, and how many only it removes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from constrint.errors import LimitReachedError
from constrint.model import Constraint, Problem
from constrint.model.columns import Column, test
from constrint.model.constraint import CERTAIN
from constrint.solve.budget import Budget, Limits
from constrint.solve.enumerate import count
from constrint.solve.space.axes import Axis, axis_from_domain

_PIECE_CELLS: Final = 1 << 20
_MAX_CELLS: Final = 1 << 32


@dataclass(frozen=True, eq=False)
class RulePruning:
    """How much one constraint removes.

    Attributes:
        constraint: The constraint.
        removes_alone: Combinations of the declared domains that violate it.
        removes_only: Combinations that violate it and nothing else: dropping the rule would add them.
        product_size: Combinations of the declared domains.
    """

    constraint: Constraint
    removes_alone: int
    removes_only: int
    product_size: int

    def _content(self) -> tuple[object, ...]:
        rule = self.constraint
        return rule.key(), rule.because, rule.name, self.removes_alone, self.removes_only, self.product_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RulePruning) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())


def pruning(problem: Problem, limits: Limits | None = None) -> list[RulePruning]:
    """Measures every constraint of a problem, exactly.

    Args:
        problem: The problem.
        limits: How much work is allowed; the time is that of all rules together.

    Raises:
        LimitReachedError: When a constraint links more combinations than can be evaluated, or a limit is reached.
    """
    return _measured(problem, limits, estimated=False)


def would_remove(problem: Problem, limits: Limits | None = None) -> list[RulePruning]:
    """Measures every estimated rule of a problem: what it would remove if it pruned.

    Args:
        problem: The problem.
        limits: How much work is allowed; the time is that of all rules together.

    Raises:
        LimitReachedError: When a rule links more combinations than can be evaluated, or a limit is reached.
    """
    return _measured(problem, limits, estimated=True)


def _measured(problem: Problem, limits: Limits | None, *, estimated: bool) -> list[RulePruning]:
    budget = Budget(limits or Limits())
    product = math.prod(d.size for d in problem.variables.values())
    total = _counted(problem, budget)
    return [
        RulePruning(
            rule, _violating(problem, rule, product, budget), removes_only(problem, rule, total, budget), product
        )
        for rule in (problem.estimates if estimated else problem.constraints)
    ]


def removes_alone(problem: Problem, rule: Constraint, budget: Budget) -> int:
    """Counts the combinations of the declared domains that violate a rule of the problem."""
    return _violating(problem, rule, math.prod(d.size for d in problem.variables.values()), budget)


def removes_only(problem: Problem, rule: Constraint, total: int, budget: Budget) -> int:
    """Counts the combinations that violate a rule of the problem and no other; it has `total` solutions."""
    if any(rule is estimate for estimate in problem.estimates):
        pruned = problem.copy()
        pruned.add(rule, kind=CERTAIN)
        return total - _counted(pruned, budget)
    return _counted(problem.without(rule), budget) - total


def _counted(problem: Problem, budget: Budget) -> int:
    """Counts the solutions in what is left of the time."""
    budget.check_work()
    return count(problem, budget.rest())


def _violating(problem: Problem, constraint: Constraint, product: int, budget: Budget) -> int:
    """Counts the combinations of all declared domains, `product` in number, that violate a constraint."""
    scope = [n for n in problem.variables if n in constraint.variables]
    own = math.prod(problem.variables[n].size for n in scope)
    return (own - _satisfied(problem, constraint, scope, budget)) * (product // own)


def _satisfied(problem: Problem, constraint: Constraint, scope: Sequence[str], budget: Budget) -> int:
    """Counts the combinations of its own variables' domains that satisfy a constraint."""
    cells = math.prod(problem.variables[n].size for n in scope)
    if cells > _MAX_CELLS:
        raise LimitReachedError(
            f"{constraint} links {cells} combinations; at most {_MAX_CELLS} are counted. Narrow its variables."
        )
    axes = {n: axis_from_domain(problem.variables[n]) for n in scope}
    # Leading variables take their values one by one, so that the grid of the others fits.
    leading: list[str] = []
    grid = list(scope)
    while len(grid) > 1 and math.prod(len(axes[n]) for n in grid) > _PIECE_CELLS:
        grid.sort(key=lambda n: len(axes[n]))
        leading.append(grid.pop(0))
    return _count(constraint, leading, grid, axes, {}, budget)


def _count(
    constraint: Constraint,
    leading: list[str],
    grid: list[str],
    axes: Mapping[str, Axis],
    chosen: dict[str, Column],
    budget: Budget,
) -> int:
    if leading:
        first, *rest = leading
        total = 0
        for value in axes[first].values.tolist():
            total += _count(constraint, rest, grid, axes, {**chosen, first: Column(value, (value, value))}, budget)
        return total
    budget.check_work()
    columns = dict(chosen)
    for position, name in enumerate(grid):
        shape = [1] * len(grid)
        shape[position] = -1
        columns[name] = axes[name].column(tuple(shape))
    sizes = tuple(len(axes[n]) for n in grid)
    verdict = np.asarray(test(constraint, columns), dtype=bool)
    return int(np.count_nonzero(verdict)) * (math.prod(sizes) // verdict.size)
