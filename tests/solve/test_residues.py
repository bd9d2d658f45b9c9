import itertools
import random

import pytest

from constrint import model as m
from constrint.model import parse
from constrint.solve import Status, solve
from constrint.solve.engine.prepare import flatten
from constrint.solve.propagation import MODULI, impossible


@pytest.mark.parametrize(
    ("text", "ruled_out"),
    [
        ("x ^ 2 + y ^ 2 == 1000000016000000063", True),
        ("x ^ 2 + y ^ 2 == 25000000", False),
        ("x ^ 3 + y ^ 3 == 9 * z + 4", True),
        ("x ^ 3 + y ^ 3 == z ^ 3", False),
        ("x ^ 4 + 16 * y == 16 * z + 7", True),
        ("var x in 1..1000 step 8; var y in 2..1000 step 8; x * x == y * y", True),
        ("x // 2 == y", False),
    ],
)
def test_remainders_rule_out_what_they_can(text: str, ruled_out: bool) -> None:
    problem = parse(text)
    assert impossible(problem.variables, flatten(problem.constraints)) is ruled_out


def test_what_remainders_rule_out_is_answered_at_once() -> None:
    for text in ("x ^ 2 + y ^ 2 == 1000000016000000063", "x ^ 2 + y ^ 2 == 1000000016000000063; maximise x"):
        problem = parse(text)
        answer = solve(problem)
        assert answer.status is Status.INFEASIBLE
        assert answer.stats.nodes == answer.stats.cells == 0


def test_nothing_that_has_a_solution_is_ruled_out() -> None:
    num_ruled_out = 0
    for number in range(3000):
        rng = random.Random(number)
        problem = m.Problem()
        variables = []
        for name in "xyz"[: rng.randint(1, 3)]:
            low, step = rng.randint(-9, 9), rng.randint(1, 16)
            variables.append(problem.int_var(name, lower=low, upper=low + step * rng.randint(0, 6), step=step))
        a, b, c = rng.choices(variables, k=3)
        terms = [rng.randint(-9, 9) * x ** rng.randint(0, 4) for x in rng.choices(variables, k=rng.randint(1, 3))]
        left = sum(terms, start=m.const(rng.randint(-20, 20)))
        right = rng.choice((m.const(rng.randint(-99, 99)), -a * b, rng.choice(MODULI) * c + 3))
        problem.add(left == right)
        if impossible(problem.variables, problem.constraints):
            num_ruled_out += 1
            for values in itertools.product(*problem.variables.values()):
                assignment = dict(zip(problem.names, values, strict=True))
                assert not problem.constraints[0].holds(assignment), str(problem)
    assert num_ruled_out > 300
