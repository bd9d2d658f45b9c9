# ruff: noqa: I001
# The names of `constrint.solve` by the module that defines each: the one list, for mypy and for `constrint/lazy.py`.

from constrint.solve.backends.backend import list_backends as list_backends
from constrint.solve.budget import Limits as Limits, SearchStats as SearchStats, Status as Status
from constrint.solve.enumeration import (
    Count as Count,
    brute_force as brute_force,
    count as count,
    count_within as count_within,
    enumerate_space as enumerate_space,
    solutions_in_order as solutions_in_order,
)
from constrint.solve.explain.conflict import (
    Conflict as Conflict,
    ConflictMember as ConflictMember,
    Relaxation as Relaxation,
    minimal_conflict as minimal_conflict,
    relaxations as relaxations,
    ways_out as ways_out,
)
from constrint.solve.explain.together import Changes as Changes, changes_together as changes_together
from constrint.solve.explain.why_not import (
    BrokenRule as BrokenRule,
    RulePruning as RulePruning,
    WhyNot as WhyNot,
    pruning as pruning,
    why_not as why_not,
    would_remove as would_remove,
)
from constrint.solve.optimise import all_optima as all_optima, best_solutions as best_solutions, solve as solve
from constrint.solve.solution import Solution as Solution
from constrint.solve.space.best import Ranked as Ranked
from constrint.solve.space.space import SearchSpace as SearchSpace
