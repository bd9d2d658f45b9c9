"""Arithmetic on lanes: quotients, least and greatest values of columns in the core, as Python has them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from constrint.core import compiled
from constrint.model import Var, ceildiv, maximum, minimum

ROWS = 3000


@pytest.mark.skipif(compiled is None, reason="the compiled core is not installed")
@pytest.mark.parametrize("largest", [50, 2**31 - 2, 2**51, 2**52 - 1, 2**53 + 1, 2**55])
def test_quotients_and_extremes_of_negative_and_large_numbers(largest: int) -> None:
    rng = random.Random(largest)
    x, y, z = Var("x"), Var("y"), Var("z")
    # Long enough to be worth encoding.
    expr = minimum(x, y, z) - maximum(x, z) + x // y + x % y + ceildiv(z, y)
    for i in range(40):
        expr = expr + ceildiv(x + i, y)
    numbers = np.array([rng.randint(-largest, largest) for _ in range(ROWS)])
    divisors = np.array([rng.choice((-1, 1)) * rng.randint(1, rng.choice((9, 1000, largest))) for _ in range(ROWS)])
    # Multiples and their neighbours: a quotient that is rounded anywhere on the way is wrong there.
    for shift in (-1, 0, 1):
        part = slice(shift + 1, None, 5)
        near = numbers[part] // divisors[part] * divisors[part] + shift
        numbers[part] = np.where(np.abs(near) <= largest, near, numbers[part])
    columns = {"x": numbers, "y": divisors, "z": numbers[::-1].copy()}
    rows = (dict(zip(columns, map(int, row), strict=True)) for row in zip(*columns.values(), strict=True))
    assert expr.columns(columns).tolist() == [expr.value(row) for row in rows]
