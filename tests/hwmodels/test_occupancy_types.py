"""Type checkers know an occupancy's figures, and what comparisons of a problem's variables are."""

from __future__ import annotations

from constrint import Problem, occupancy
from constrint.model.constraint import Comparison, Constraint


def test_figures_of_one_configuration_are_ints() -> None:
    # mypy reads this function, too: each name has the type that it states.
    blocks: int = occupancy("h200", threads_per_block=256, registers_per_thread=128).blocks_per_sm
    assert blocks == 2
    assert occupancy("h200", threads_per_block=[256, 512], registers_per_thread=64).blocks_per_sm.tolist() == [4, 2]


def test_comparisons_are_constraints() -> None:
    x = Problem("types").int_var("x", lower=0, upper=3)
    equal: Comparison = x == 1
    other: Constraint = ~(x != 1)
    both: Comparison = (x > 1) == (x > 2)
    assert all(isinstance(one, Constraint) for one in (equal, other, both))
