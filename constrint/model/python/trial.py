"""Conditions decided by trying them on all values of their parameters: the answer becomes a table."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from constrint.errors import ConstrintError
from constrint.model import constraint as c
from constrint.model import expr as e
from constrint.model.domain import Domain
from constrint.model.python.evaluate import NO_VALUE, Function, TooLong
from constrint.model.table import table_of

MAX_NODES: Final = 200


@dataclass(slots=True)
class Trials:
    """Steps left for conditions that are tried on all values."""

    left: int = 2_000_000

    def spend(self, node: ast.expr, num_assignments: int) -> bool:
        """Takes the steps of one condition; False when too few are left."""
        nodes = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
        # A power of integers may be long.
        powers = sum(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Pow) and not _short(n.right) for n in nodes)
        steps = (len(nodes) + 50 * powers) * num_assignments
        affordable = steps <= self.left and len(nodes) <= MAX_NODES
        self.left -= steps if affordable else 0
        return affordable


def _short(exponent: ast.expr) -> bool:
    return isinstance(exponent, ast.Constant) and isinstance(exponent.value, (int, float)) and exponent.value <= 8


@dataclass(frozen=True, slots=True)
class Answers:
    """What Python says for every combination of some parameters' values.

    Attributes:
        names: The parameters.
        codes: The combinations, as the integers that code the values.
        holds: Whether the condition holds, for each.
        raised: What Python raised for the first combination, where it raised for all of them; "" elsewhere.
    """

    names: tuple[str, ...]
    codes: list[tuple[int, ...]]
    holds: list[bool]
    raised: str = ""

    def constraint(self, variable: Callable[[str], e.Expr]) -> c.Constraint:
        """The condition as a table of what is allowed, or of what is not, whichever is shorter."""
        allowed = sum(self.holds)
        if allowed == len(self.holds):
            return c.AllOf(())
        exprs = tuple(variable(name) for name in self.names)
        listing = 2 * allowed <= len(self.holds)
        rows = [codes for codes, holds in zip(self.codes, self.holds, strict=True) if holds is listing]
        return table_of(exprs, rows) if listing else c.negate(table_of(exprs, rows))

    def agrees(self, constraint: c.Constraint) -> bool:
        """Says whether a constraint gives the same answers."""
        if not self.names:
            return constraint.holds({}) is self.holds[0]
        columns = zip(*self.codes, strict=True)
        try:
            found = constraint.holds_columns({n: _column(codes) for n, codes in zip(self.names, columns, strict=True)})
        except ConstrintError:
            return False
        return bool(np.array_equal(found, self.holds))


def _column(codes: Sequence[int]) -> Any:
    fits = all(-(2**63) <= code < 2**63 for code in codes)
    return np.array(codes, dtype=np.int64 if fits else object)


def answers(function: Function, names: Sequence[str], domains: Mapping[str, Domain]) -> Answers:
    """Asks Python about every combination; where it raises, the condition is false.

    Raises:
        TooLong: Where a number would become too long.
    """
    chosen = [domains[name] for name in names]
    codes = list(itertools.product(*chosen))
    holds: list[bool] = []
    first = ""
    raised = 0
    for row in itertools.product(*(domain.labels or domain for domain in chosen)):
        try:
            holds.append(bool(function(row)))
        except TooLong:
            raise
        except NO_VALUE as error:
            raised += 1
            holds.append(False)
            shown = ", ".join(f"{name} = {value!r}" for name, value in zip(names, row, strict=True))
            first = first or f"{type(error).__name__}: {error}{' for ' if shown else ''}{shown}"
    return Answers(tuple(names), codes, holds, first if raised == len(holds) else "")


def combinations(names: Sequence[str], domains: Mapping[str, Domain]) -> int:
    """How many combinations the values of some parameters have."""
    return math.prod(domains[name].size for name in names)
