"""One solution of a problem: the first by the order of values, or the best by the problem's objective."""

from __future__ import annotations

from dataclasses import replace

from constrint.model import Problem
from constrint.model.coding import Coding
from constrint.solve.backends.registry import get_backend
from constrint.solve.budget import Limits
from constrint.solve.explain.conflict import minimal_conflict
from constrint.solve.solution import Solution


def solve(problem: Problem, limits: Limits | None = None, backend: str = "native") -> Solution:
    """Finds the best solution by the objective; without one, the first in declared order.

    A back-end of another library gives any solution where there is no objective; "numpy" is the native engine without
    its compiled core.
    """
    found = replace(get_backend(backend).solve(problem, limits or Limits()), explain=minimal_conflict)
    coding = Coding.of(problem)
    return found if coding is None else replace(found, assignment=coding.decoded(found.assignment))
