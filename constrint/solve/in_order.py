"""Solutions one after the other, in the declared order of variables and of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from constrint.model import Problem
from constrint.model.coding import Coding
from constrint.solve.budget import Limits
from constrint.solve.engine import walk


def solutions_in_order(
    problem: Problem, limits: Limits | None = None, backend: str = "native"
) -> Iterator[dict[str, Any]]:
    """Yields solutions in the declared order of variables and of their values, the first one first.

    Args:
        problem: The problem; its objective plays no role here.
        limits: How much work is allowed.
        backend: "native" (the compiled core where it takes the problem, else numpy) or "numpy".

    Raises:
        LimitReachedError: When a limit ended the search before the next solution was known.
    """
    found = walk.solutions_in_order(problem, limits, backend)
    coding = Coding.of(problem)
    return found if coding is None else map(coding.decoded, found)
