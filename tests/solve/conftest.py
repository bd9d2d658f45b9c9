import random
from collections.abc import Callable

import pytest

from constrint import model as m


@pytest.fixture(scope="session")
def random_problem() -> Callable[[int], m.Problem]:
    """Draws a problem from a number, quickly: the bulk of the agreement tests uses it."""
    return _random_problem


def _random_expr(rng: random.Random, names: list[str], depth: int) -> m.Expr:
    if depth == 0 or rng.random() < 0.25:
        return m.Var(rng.choice(names)) if rng.random() < 0.75 else m.const(rng.randint(-6, 12))
    a, b = (_random_expr(rng, names, depth - 1) for _ in range(2))
    pick = rng.randrange(20)
    if pick < 4:
        return a * b
    if pick < 7:
        return a + b
    if pick < 9:
        return a - b
    if pick == 9:
        return a // b
    if pick == 10:
        return a % b
    if pick == 11:
        return a ** rng.randint(0, 3)
    if pick == 12:
        return m.const(2) ** (b % 5)
    if pick == 13:
        return m.minimum(a, b) if rng.random() < 0.5 else m.maximum(a, b)
    if pick == 14:
        return rng.choice((m.ceildiv, m.gcd, m.lcm))(m.Var(rng.choice(names)), m.Var(rng.choice(names)))
    if pick == 16:
        return m.Operation(rng.choice(("bitand", "bitor", "bitxor")), (a, b))
    if pick == 17:
        return m.element(a % 4 if rng.random() < 0.5 else a, [b, rng.randint(-9, 9), a / 2])
    if pick == 18:
        return m.count(_random_rule(rng, names, 0), a > b)
    if pick == 19:
        chosen: m.Expr = m.if_then_else(_random_rule(rng, names, 0), a, b)
        return chosen
    return a / b if rng.random() < 0.5 else abs(a)


def _random_rule(rng: random.Random, names: list[str], depth: int) -> m.Constraint:
    pick = rng.randrange(10) if depth else 9
    if pick < 4:
        parts = [_random_rule(rng, names, depth - 1) for _ in range(2)]
        combine = (m.any_of, m.any_of, m.implies, lambda a, b: m.all_of(m.negate(a), b))
        return combine[pick](*parts)
    a = _random_expr(rng, names, 2)
    kind = rng.randrange(12)
    if kind == 8:
        return m.all_different(*(_random_expr(rng, names, 1) for _ in range(rng.randint(0, 3))))
    if kind == 9:
        width = rng.randint(1, 3)
        rows = [[rng.randint(-6, 12) for _ in range(width)] for _ in range(rng.randint(0, 40))]
        return m.table([_random_expr(rng, names, rng.randint(0, 1)) for _ in range(width)], rows)
    if kind == 10:
        return rng.choice((m.iff, m.xor))(_random_rule(rng, names, 0), a > rng.randint(-5, 9))
    if kind == 11:
        chosen: m.Constraint = m.if_then_else(*(_random_rule(rng, names, 0) for _ in range(3)))
        return chosen
    if kind == 0:
        return m.divides(m.Var(rng.choice(names)), a)
    if kind == 1:
        return m.is_in(a, [rng.randint(-10, 40) for _ in range(rng.randint(1, 6))])
    if kind == 2:
        return a % rng.randint(1, 6) == rng.randint(0, 2)
    b = m.const(rng.randint(-20, 80)) if rng.random() < 0.7 else _random_expr(rng, names, 1)
    return (a <= b, a >= b, a == b, a != b, a < b)[kind - 3]


def _random_problem(number: int) -> m.Problem:
    rng = random.Random(number)
    problem = m.Problem(f"random {number}")
    names = ["a", "b", "c", "d", "e"][: rng.randint(1, 5)]
    for name in names:
        size = rng.randint(1, 6 if len(names) < 5 else 3)
        if rng.random() < 0.5:
            values = rng.sample(range(-6, 25), size)
            problem.int_var(name, values=values)
        else:
            low, step = rng.randint(-5, 5), rng.randint(1, 3)
            problem.int_var(name, lower=low, upper=low + step * size, step=step)
    for _ in range(rng.randint(1, 4)):
        problem.add(_random_rule(rng, names, rng.randint(0, 2)))
    return problem
