"""Conflicts against brute force, on wide and hostile domains as well as small ones, and within limits."""

import random
from collections.abc import Callable
from threading import Event

import pytest

from benchmarks.attacks import conflicts
from constrint.errors import CancelledError, InfeasibleError, LimitReachedError
from constrint.model import Problem, parse
from constrint.solve import Limits, brute_force, minimal_conflict, pruning, relaxations, solve, why_not
from constrint.solve.explain.narrowing import Differences, Narrowing
from constrint.solve.explain.reduction import Questions
from tests.support.clock import within
from tests.support.conflicts import can_hold, fault_of, kept, near


def chain(length: int, upper: int, seed: int | None = None) -> Problem:
    """v0 < v1 < ... < v0: contradictory whatever the domains are."""
    rules = [f"v{i} < v{(i + 1) % length}" for i in range(length)]
    if seed is not None:
        random.Random(seed).shuffle(rules)
    return parse("; ".join([*(f"var v{i} in 0..{upper}" for i in range(length)), *rules]))


@pytest.mark.parametrize("first", range(5))
def test_conflicts_of_random_problems(first: int, random_problem: Callable[[int], Problem]) -> None:
    asked = 0
    for number in range(first * 400, first * 400 + 400):
        problem = random_problem(number)
        if len(problem.names) > 2 or can_hold(problem):
            continue
        asked += 1
        assert not fault_of(problem, minimal_conflict(problem)), number
    assert asked > 20


@pytest.mark.parametrize("scale", [1, 2**31 - 1, 2**53 + 1, 2**63 - 1, 2**70])
def test_conflicts_of_wide_domains(scale: int) -> None:
    problem = parse(
        f"var x in 0..{9 * scale} step {scale}; var y in {{1, {scale + 1}}}; x + y == {100 * scale}; y >= 0"
    )
    conflict = minimal_conflict(problem)
    assert {m.text for m in conflict.members if m.constraint is not None} == {f"x + y == {100 * scale}"}
    assert not brute_force(kept(problem, conflict.members, near))
    assert minimal_conflict(chain(7, 9 * scale)).minimal


#: What propagation finds needs neither of these.
NO_SEARCH = Limits(max_nodes=1, max_cells=64, max_rows=1)


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("upper", [999, 10**6, 10**18])
def test_a_long_chain_is_minimal_at_once(seed: int | None, upper: int) -> None:
    conflict = minimal_conflict(chain(101, upper, seed), NO_SEARCH)
    assert conflict.minimal
    assert len(conflict.members) == 101
    assert all(m.constraint is not None for m in conflict.members)


def test_rules_that_have_no_part_in_it_cost_little() -> None:
    lines = [f"var w{i} in 0..3; w{i} + {i % 7} <= 9" for i in range(300)]
    problem = parse("; ".join([*lines, "var x in 1..9; var y in 1..9; x * y == 77; x > y"]))
    conflict = minimal_conflict(problem, NO_SEARCH)
    assert [m.text for m in conflict.members] == ["x in 1..9", "y in 1..9", "x * y == 77"]
    assert conflict.minimal


def test_the_same_term_twice_needs_no_domain() -> None:
    conflict = minimal_conflict(
        parse("var x in 0..9; var y in 0..9; (x * y + x) % 7 == 3; x > 2; x * y % 9 <= 3; (x * y + x) % 7 > 4")
    )
    assert {m.text for m in conflict.members} == {"(x * y + x) % 7 == 3", "(x * y + x) % 7 > 4"}
    sums = minimal_conflict(
        parse("var a in 0..9; var b in 0..9; var c in 0..9; a + b + c <= 4; b >= 1; 2*c + 2*b + 2*a >= 9")
    )
    assert {m.text for m in sums.members} == {"a + b + c <= 4", "2 * c + 2 * b + 2 * a >= 9"}


def test_differences_that_can_hold_come_with_values(random_problem: Callable[[int], Problem]) -> None:
    rng = random.Random(3)
    seen = {True: 0, False: 0}
    for _ in range(400):
        names = ["a", "b", "c", "d"]
        problem = Problem()
        variables = [problem.int_var(n, lower=rng.randint(-3, 1), upper=rng.randint(1, 4)) for n in names]
        for _ in range(rng.randint(1, 6)):
            left, right = rng.sample(variables, 2)
            bound = rng.randint(-4, 4)
            problem.add(rng.choice((left - right <= bound, left == right + bound, 2 * left > 2 * right + bound)))
        found = Differences(problem.variables, problem.constraints)
        solutions = brute_force(problem)
        assert (found.core is None) == bool(solutions)
        seen[found.core is None] += 1
        if found.core is None:
            values = {n: d.lower for n, d in problem.variables.items()} | found.values
            assert all(c.holds(values) for c in problem.constraints)
    assert min(seen.values()) > 50


def test_the_rules_behind_a_contradiction_are_contradictory(random_problem: Callable[[int], Problem]) -> None:
    seen = 0
    for number in range(3000):
        problem = random_problem(number)
        for answer in (Narrowing, Differences):
            core = answer(problem.variables, problem.constraints).core
            if core is None:
                continue
            seen += 1
            rest = Problem()
            for name, domain in problem.variables.items():
                rest.declare(name, domain)
            for place in core.rules:
                rest.add(problem.constraints[place])
            assert not brute_force(rest), number
    assert seen > 500


HARD = "var x in 1..100000; var y in 1..100000; var z in 1..100000; x^3 + y^3 == z^3"


@pytest.mark.parametrize("question", [minimal_conflict, relaxations, pruning], ids=lambda f: f.__name__)
def test_limits_of_time_hold(question: Callable[..., object]) -> None:
    def ask() -> None:
        with pytest.raises(LimitReachedError):
            question(parse(HARD), limits=Limits(max_seconds=0.5))

    within(0.5 * 1.2 + 0.2, ask)


def test_what_a_limit_leaves_open_is_not_called_minimal() -> None:
    problem = parse(
        "; ".join(
            [
                *(f"var v{i} in 0..999" for i in range(100)),
                *(f"v{i} + v{(i + 1) % 100} < 2 * v{(i + 2) % 100}" for i in range(100)),
            ]
        )
    )
    conflict = minimal_conflict(problem, Limits(max_seconds=0.5))
    assert not conflict.minimal
    hopeless = minimal_conflict(parse("var x in {-4294967295, 6, 8, 4294967295}; 4 - x <= x ^ (x % 3) / 60"))
    assert len(hopeless.members) == 2
    assert not hopeless.minimal


def test_sums_that_contradict_each_other_on_wide_domains_are_minimal_by_counted_work() -> None:
    """No propagation sees it, since every sum has room; no domain has a part in it."""
    pytest.importorskip("ortools", reason="the native engine alone leaves this open")
    conflict = minimal_conflict(parse(conflicts.sums(random.Random(30), 30)))
    assert conflict.minimal
    assert len(conflict.members) == 30
    assert all(member.constraint is not None for member in conflict.members)


def test_a_question_of_counted_work_does_not_depend_on_the_machine() -> None:
    """Pigeons in holes are hard: the work runs out, at the same place each time."""
    pytest.importorskip("ortools")
    names = [f"p{i}" for i in range(14)]
    rules = "; ".join(f"{a} != {b}" for at, a in enumerate(names) for b in names[:at])
    problem = parse("; ".join([*(f"var {name} in 1..13" for name in names), rules]))
    first, second = (Questions(Limits()).decide_by_cpsat(problem) for _ in range(2))
    assert first == second


def test_signals_end_an_explanation() -> None:
    stop = Event()
    stop.set()
    limits = Limits(cancel=stop)
    infeasible = chain(9, 99)
    for question in (minimal_conflict, relaxations, pruning):
        with pytest.raises(CancelledError):
            question(infeasible, limits=limits)
    with pytest.raises(CancelledError):
        why_not(infeasible, dict.fromkeys(infeasible.names, 0), limits)


def test_broken_rules_are_named_though_the_time_is_over() -> None:
    answer = why_not(parse("var x in 1..9; var y in 1..9; x > y"), {"x": 1, "y": 1}, Limits(max_seconds=0))
    assert [b.text for b in answer] == ["x > y"]
    assert answer.changes == {}


def test_ways_out_within_a_limit_are_those_found_so_far() -> None:
    problem = parse("var x in 1..9; x >= 12")
    conflict = minimal_conflict(problem)
    assert len(relaxations(problem, conflict)) == 2
    assert relaxations(problem, conflict, Limits(max_seconds=0)) == []


def test_a_solution_that_is_required_says_why_there_is_none() -> None:
    with pytest.raises(InfeasibleError, match="x >= 12") as caught:
        solve(parse("var x in 1..9; x >= 12")).require()
    assert caught.value.conflict is not None
    assert caught.value.conflict.minimal
