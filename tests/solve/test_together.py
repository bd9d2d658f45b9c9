"""The smallest set of changes where no single one helps, against brute force over all sets."""

import itertools
import random

import pytest

from constrint.model import Comparison, Const, Problem, Var, all_different, parse
from constrint.solve import brute_force, changes_together, solve, why_not
from constrint.solve.explain import together
from tests.support.clock import PATIENCE_S


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """How much is shown within some tenths of a second says how busy the machine is."""
    monkeypatch.setattr(together, "_SECONDS", PATIENCE_S)


def _random_problem(rng: random.Random) -> Problem:
    problem = Problem()
    variables = [problem.int_var(name, lower=0, upper=4) for name in "xyz"]
    for _ in range(rng.randint(1, 5)):
        side = sum(rng.randint(-1, 2) * x for x in variables) + rng.choice(variables)
        problem.add(Comparison(side, rng.choice(["<=", ">=", "==", "<", ">", "!="]), Const(rng.randint(-3, 9))))
    if rng.random() < 0.3:
        problem.add(all_different(*variables))
    return problem


def test_as_few_variables_change_as_brute_force_changes() -> None:
    rng = random.Random(5)
    several = 0
    for _ in range(120):
        problem = _random_problem(rng)
        config = {name: rng.randint(0, 4) for name in problem.names}
        answer = why_not(problem, config)
        solutions = brute_force(problem)
        counts = [sum(s[n] != v for n, v in config.items()) for s in solutions]
        assert bool(answer.changes) == (1 in counts and 0 not in counts)
        if not answer or answer.changes or not solutions:
            assert not answer.together
            continue
        several += 1
        assert answer.is_fewest
        assert len(answer.together) == min(counts)
        assert config | answer.together in solutions
        near = min(
            sum(abs(s[n] - v) for n, v in config.items())
            for s, number in zip(solutions, counts, strict=True)
            if number == min(counts)
        )
        assert sum(abs(v - config[n]) for n, v in answer.together.items()) == near
        assert "no single change is enough; fits if" in answer.ways_out
    assert several > 10


def test_as_few_rules_change_as_brute_force_drops() -> None:
    rng = random.Random(6)
    several = 0
    for _ in range(150):
        problem = _random_problem(rng)
        if solve(problem):
            continue
        changes = changes_together(problem)
        assert changes is not None
        assert changes.is_smallest
        rules = problem.constraints
        fewest = next(
            number
            for number in range(1, len(rules) + 1)
            if any(solve(problem.without(*some)) for some in itertools.combinations(rules, number))
        )
        several += fewest > 1
        assert len(changes.rules) == fewest
        assert {id(c.rule) for c in changes.rules} == {id(r) for r in rules if not r.holds(changes.solution)}
    assert several > 3


def test_the_numbers_are_the_users_own() -> None:
    problem = parse("var x in 0..10; var z in 0..10\nlow: 3 * z >= 21\nhigh: z <= 3\nx - z >= 8\nx <= 2")
    changes = changes_together(problem)
    assert str(changes) == "high: z <= 7 (instead of 3) and x - z >= -5 (instead of 8)"


def test_values_that_are_no_integers_change_together() -> None:
    problem = parse('var s in {0.5, 1.5}; var t in {"a", "b"}; var u in 1..3\ns * 2 == u -> t == "b"\ns == 1.5\nu == 3')
    answer = why_not(problem, {"s": 0.5, "t": "a", "u": 1})
    assert not answer.changes
    assert answer.together == {"s": 1.5, "t": "b", "u": 3}


@pytest.mark.parametrize("among", [0, 1])
def test_rules_that_may_not_change_stay(among: int) -> None:
    problem = parse("var x in 0..10; x >= 7; x <= 3")
    (rule,) = problem.constraints[among : among + 1]
    changes = changes_together(problem, among=[rule])
    assert changes is not None
    assert [c.rule for c in changes.rules] == [rule]
    assert Var("x") in [Var(name) for name in changes.solution]
    assert changes_together(parse("var x in 0..10; x >= 7; x <= 3; x == 1"), among=[]) is None
