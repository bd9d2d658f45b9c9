"""Arithmetic on lanes: quotients, least and greatest values in the core, as Python has them."""

from __future__ import annotations

import random

import pytest

from constrint.core import compiled
from constrint.model import Problem, ceildiv, maximum, minimum
from constrint.solve import brute_force, enumerate_space

VALUES = 13


@pytest.mark.skipif(compiled is None, reason="the compiled core is not installed")
@pytest.mark.parametrize("largest", [50, 2**31 - 2, 2**51, 2**52 - 1, 2**53 + 1, 2**55])
def test_quotients_and_extremes_of_negative_and_large_numbers(largest: int) -> None:
    rng = random.Random(largest)
    divisors = {rng.choice((-1, 1)) * rng.randint(1, rng.choice((9, 1000, largest))) for _ in range(VALUES)}
    numbers = {rng.randint(-largest, largest) for _ in range(VALUES)}
    # Multiples and their neighbours: a quotient that is rounded anywhere on the way is wrong there.
    by = rng.choice(sorted(divisors))
    numbers |= {
        n for n in (rng.randint(-largest, largest) // by * by + shift for shift in (-1, 0, 1)) if abs(n) <= largest
    }
    problem = Problem()
    x, z = problem.int_var("x", values=sorted(numbers)), problem.int_var("z", values=sorted(numbers))
    y = problem.int_var("y", values=sorted(divisors))
    problem.add((minimum(x, y, z) - maximum(x, z)) % 5 != 2)
    problem.add((x // y + ceildiv(z, y)) % 3 != 1)
    problem.add((x % y) % 7 != 4)
    space = enumerate_space(problem)
    expected = brute_force(problem)
    assert 0 < len(expected) < problem.num_combinations
    assert sorted(map(str, space)) == sorted(map(str, expected))
