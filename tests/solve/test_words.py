"""Words over lists against brute force: every back-end, in every place a condition may stand, and written back."""

import itertools
import random
from datetime import datetime, timezone

import pytest

from constrint.model import (
    Constraint,
    Expr,
    Problem,
    Var,
    Word,
    all_different,
    all_of,
    any_of,
    at_least,
    at_most,
    circuit,
    cumulative,
    element,
    exactly,
    global_cardinality,
    implies,
    inverse,
    is_in,
    lex_less,
    lex_less_equal,
    negate,
    no_overlap,
    parse,
    regular,
)
from constrint.solve import brute_force, enumerate_space, solve, why_not

NUMBER = 60


def _expr(rng: random.Random, variables: list[Var]) -> Expr:
    x = rng.choice(variables)
    y = rng.choice(variables)
    forms = [x, x, x, x + rng.randint(-2, 2), x * 2 - 1, x + y, x - y, x % 2, abs(x - 2)]
    if rng.random() < 0.1:
        return x // y  # has no value for y = 0
    form: Expr = rng.choice(forms)
    return form


def _exprs(rng: random.Random, variables: list[Var], number: int | None = None) -> list[Expr]:
    if rng.random() < 0.4 and number in (None, len(variables)):
        return list(variables)
    return [_expr(rng, variables) for _ in range(rng.randint(0, 4) if number is None else number)]


def _numbers(rng: random.Random, variables: list[Var], number: int, least: int = 0) -> list[object]:
    return [rng.randint(least, 2) if rng.random() < 0.8 else _expr(rng, variables) for _ in range(number)]


def _condition(rng: random.Random, variables: list[Var]) -> Constraint:
    x = _expr(rng, variables)
    return rng.choice([x == rng.randint(0, 3), x <= rng.randint(0, 3), x != _expr(rng, variables), is_in(x, [0, 2])])


def _word(kind: str, rng: random.Random, variables: list[Var]) -> Constraint:
    size = rng.randint(0, 4)
    if kind in ("exactly", "at_least", "at_most"):
        function = {"exactly": exactly, "at_least": at_least, "at_most": at_most}[kind]
        number = rng.randint(-1, 4) if rng.random() < 0.7 else _expr(rng, variables)
        return function(number, *(_condition(rng, variables) for _ in range(size)))
    if kind == "all_different":
        return all_different(_exprs(rng, variables))
    if kind == "global_cardinality":
        values = rng.sample(range(-1, 4), rng.randint(1, 3))
        return global_cardinality(_exprs(rng, variables), values, _numbers(rng, variables, len(values)))
    if kind in ("lex_less", "lex_less_equal", "inverse"):
        of_two = {"lex_less": lex_less, "lex_less_equal": lex_less_equal, "inverse": inverse}[kind]
        first = _exprs(rng, variables)
        return of_two(first, _exprs(rng, variables, len(first)))
    if kind == "circuit":
        return circuit(_exprs(rng, variables))
    if kind == "no_overlap":
        starts = _exprs(rng, variables)
        return no_overlap(starts, _numbers(rng, variables, len(starts)) if rng.random() < 0.8 else 2)
    if kind == "cumulative":
        starts = _exprs(rng, variables)
        durations, demands = (_numbers(rng, variables, len(starts)) for _ in range(2))
        return cumulative(starts, durations, demands, rng.choice([rng.randint(-1, 4), _expr(rng, variables)]))
    if kind == "element":
        rows = [_numbers(rng, variables, 2, -1) for _ in range(rng.randint(1, 3))]
        return element((_expr(rng, variables), _expr(rng, variables)), rows) == rng.randint(0, 2)
    assert kind == "regular"
    pairs = itertools.product(range(3), range(-1, 4))
    steps = [(at, value, rng.randrange(3)) for at, value in pairs if rng.random() < 0.6]
    ends = rng.sample(range(3), rng.randint(0, 2))
    return regular(_exprs(rng, variables), rng.randrange(3), ends, steps)


KINDS = (
    *("all_different", "exactly", "at_least", "at_most", "global_cardinality", "lex_less", "lex_less_equal"),
    *("inverse", "circuit", "no_overlap", "cumulative", "regular", "element"),
)


def problem_of(kind: str, number: int) -> Problem:
    """A problem of few small variables with one or two words, required or inside of a condition."""
    rng = random.Random(f"{kind} {number}")
    problem = Problem(f"{kind} {number}")
    for name in "xyzw"[: rng.randint(2, 4)]:
        lower = rng.randint(-1, 1)
        if rng.random() < 0.3:
            problem.int_var(name, values=rng.sample(range(-1, 4), rng.randint(1, 4)))
        else:
            problem.int_var(name, lower=lower, upper=lower + rng.randint(0, 3))
    variables = [Var(name) for name in problem.names]
    for _ in range(rng.randint(1, 2)):
        rule = _word(kind, rng, variables)
        form = rng.randrange(6)
        if form == 1:
            rule = negate(rule)
        elif form == 2:
            rule = any_of(rule, _condition(rng, variables))
        elif form == 3:
            rule = implies(_condition(rng, variables), rule)
        elif form == 4:
            rule = all_of(rule, _condition(rng, variables))
        problem.add(rule)
    if rng.random() < 0.5:
        problem.minimise(sum(rng.randint(-2, 2) * x for x in variables))
    return problem


def check(problem: Problem, backends: tuple[str, ...] = ("native", "numpy", "cpsat")) -> None:
    """Every back-end agrees with brute force; the text is read back as the same problem; parts say the same."""
    plain = problem.without_objective()
    names = problem.names
    wanted = sorted(tuple(s[n] for n in names) for s in brute_force(plain))
    assert parse(str(problem)) == problem
    for backend in backends:
        found = sorted(tuple(row.values()) for row in enumerate_space(plain, backend=backend))
        assert found == wanted, backend
        best = solve(problem, backend=backend)
        if not wanted:
            assert not best
        elif problem.objective is not None:
            expr = problem.objective.expr
            assert best.value == min(expr.value(dict(zip(names, row, strict=True))) for row in wanted), backend
    for rule in problem.constraints:
        if isinstance(rule, Word):
            apart = Problem()
            for name, domain in problem.variables.items():
                apart.declare(name, domain)
            apart.add(all_of(*rule.parts))
            assert len(brute_force(apart)) == sum(
                rule.holds(dict(zip(names, row, strict=True))) for row in itertools.product(*problem.variables.values())
            )
    everything = list(itertools.product(*problem.variables.values()))
    config = dict(zip(names, random.Random(0).choice(everything), strict=True))
    answer = why_not(plain, config)
    assert bool(answer) == (tuple(config.values()) not in wanted)
    assert all(
        rule.seen and "it does not hold" not in rule.seen for rule in answer if isinstance(rule.constraint, Word)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_random_problems_of_the_day_agree_with_brute_force(kind: str) -> None:
    start = NUMBER * datetime.now(timezone.utc).toordinal()
    for number in range(start, start + NUMBER):
        problem = problem_of(kind, number)
        try:
            check(problem, ("native", "numpy", "cpsat") if number % 3 == 0 else ("native",))
        except Exception as error:
            raise AssertionError(f"problem_of({kind!r}, {number})\n{problem}\n{error!r}") from error
