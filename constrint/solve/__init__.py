"""Finds, counts and explains the solutions of a `constrint.model.Problem`, natively on numpy."""

from constrint.solve.enumerate import brute_force, count, enumerate_space
from constrint.solve.limits import Limits, SearchStats, Status
from constrint.solve.space import SearchSpace

__all__ = [
    "Limits",
    "SearchSpace",
    "SearchStats",
    "Status",
    "brute_force",
    "count",
    "enumerate_space",
]
