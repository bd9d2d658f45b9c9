"""The best solutions: objectives in order, hints, k best, soft constraints, and what is known at a limit."""

import contextlib
import itertools
import math
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.core import compiled as core
from constrint.errors import (
    ConstrintError,
    LimitReachedError,
    UndefinedValueError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
)
from constrint.model import Problem, Var, parse
from constrint.model.encode import encode_all
from constrint.solve import (
    Limits,
    Solution,
    Status,
    best_solutions,
    brute_force,
    list_backends,
    solutions_in_order,
    solve,
)
from constrint.solve.backends import native
from constrint.solve.backends.cpsat import CpSatBackend
from constrint.solve.budget import Budget
from constrint.solve.solution import SearchResult
from tests.support import rnn_problem, strategies
from tests.support.clock import PATIENCE_S, ticks_beside, within, worked
from tests.support.puzzles import knapsack

LIMITS = Limits(max_seconds=PATIENCE_S)


def costs(problem: Problem, assignment: dict[str, int]) -> tuple[int, ...] | None:
    """The weight of violated soft constraints, then what every objective costs; None where one has no value."""
    penalty = sum(s.weight for s in problem.soft_constraints if not s.constraint.holds(assignment))
    try:
        values = [o.expr.value(assignment) * (-1 if o.maximise else 1) for o in problem.objectives]
    except UndefinedValueError:
        return None
    return (penalty, *values)


def ranked(problem: Problem) -> list[tuple[int, ...]]:
    """The costs of all solutions, by plain Python."""
    return sorted(c for c in (costs(problem, s) for s in brute_force(problem)) if c is not None)


@contextmanager
def may_refuse(backend: str) -> Iterator[None]:
    """CP-SAT takes no numbers beyond 2^50; the others take any."""
    try:
        yield
    except UnsupportedError:
        if backend != "cpsat":
            raise


def with_objectives(data: st.DataObject, most_soft: int = 2) -> Problem:
    problem = data.draw(strategies.problems())
    names = tuple(problem.variables)
    for constraint in data.draw(st.lists(strategies.constraints(names, 1), max_size=most_soft)):
        problem.add_soft(constraint, data.draw(st.integers(1, 5)))
    for expr in data.draw(st.lists(strategies.expressions(names), min_size=1, max_size=3)):
        problem.minimise(expr) if data.draw(st.booleans()) else problem.maximise(expr)
    return problem


@pytest.mark.parametrize("backend", list_backends())
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_objectives_count_in_order(backend: str, data: st.DataObject) -> None:
    problem = with_objectives(data)
    expected = ranked(problem)
    with may_refuse(backend):
        check_answer(problem, backend, expected)


def check_answer(problem: Problem, backend: str, expected: list[tuple[int, ...]]) -> None:
    if not expected and brute_force(problem):
        with pytest.raises(UndefinedValueError, match="no value"):
            solve(problem, LIMITS, backend)
        return
    answer = solve(problem, LIMITS, backend)
    assert answer.status is (Status.FEASIBLE if expected else Status.INFEASIBLE)
    if expected:
        assert costs(problem, answer.assignment) == expected[0]
        assert (answer.penalty or 0, *answer.values) == (
            expected[0][0],
            *(o.expr.value(answer.assignment) for o in problem.objectives),
        )
        assert answer.value == answer.values[0]
        assert sum(s.weight for s in answer.violated) == expected[0][0]
        assert list(answer.assignment) == list(problem.names)


@pytest.mark.parametrize("backend", ["auto", "native", "numpy", "cpsat"])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_the_k_best_are_the_k_best(backend: str, data: st.DataObject) -> None:
    problem = with_objectives(data)
    number = data.draw(st.integers(1, 6))
    expected = ranked(problem)
    if not expected and brute_force(problem):
        return
    with may_refuse(backend):
        found = best_solutions(problem, number, LIMITS, backend)
        assert [costs(problem, s.assignment) for s in found] == expected[:number]
        assert len({tuple(s.assignment.values()) for s in found}) == len(found)
        assert all(s.status is Status.FEASIBLE for s in found)


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_branch_and_bound_needs_no_tables(data: st.DataObject) -> None:
    problem = with_objectives(data)
    expected = ranked(problem)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_FIRST_DECISIONS", 1)
        patch.setattr(native, "_TABLE_CELLS", 0)
        if not expected:
            return
        hint = {n: data.draw(st.sampled_from([*d, 99])) for n, d in problem.variables.items()}
        answer = solve(problem, LIMITS, "native", hint=hint)
    assert costs(problem, answer.assignment) == expected[0]


def test_without_an_objective_the_k_best_are_the_first(random_problem: Callable[[int], Problem]) -> None:
    for number in range(200):
        problem = random_problem(number)
        assert [s.assignment for s in best_solutions(problem, 5, LIMITS)] == brute_force(problem)[:5]


@pytest.mark.parametrize("size", [24, 40, 80])
@pytest.mark.parametrize("seed", range(4))
def test_a_knapsack_is_solved_at_once(size: int, seed: int) -> None:
    problem, best = knapsack(size, seed)
    answer = solve(problem, LIMITS, "native")
    assert answer.stats.nodes < 400
    assert answer.status is Status.FEASIBLE
    assert answer.value == answer.bound == best


def hard_problem() -> Problem:
    """A product of many factors near a target, under two sums: nobody proves the best one quickly."""
    rng = random.Random(7)
    problem = Problem("hard")
    xs = [problem.int_var(f"x{i}", lower=1, upper=60) for i in range(24)]
    for _ in range(6):
        problem.add(sum(rng.randint(1, 50) * x for x in xs) <= 12_000)
    problem.add(sum(x * y for x, y in itertools.pairwise(xs)) % 101 == 5)
    problem.maximise(sum(rng.randint(1, 9) * x * y for x, y in itertools.pairwise(xs)))
    return problem


@pytest.mark.parametrize("backend", ["native", "auto", "cpsat"])
def test_a_limit_leaves_the_best_known_and_a_bound(backend: str) -> None:
    problem = hard_problem()
    # On a busy machine a search may be given no processor in so short a time: it finds something in one of these.
    answers = (solve(problem, Limits(max_seconds=seconds), backend) for seconds in (1.5, 15.0, 150.0))
    answer = next(one for one in answers if one.assignment)
    assert answer.status is Status.LIMIT_REACHED
    assert all(c.holds(answer.assignment) for c in problem.constraints)
    assert answer.value == problem.objectives[0].expr.value(answer.assignment)
    assert answer.bound is not None
    assert answer.bound >= answer.value
    with pytest.raises(LimitReachedError, match="best solution known"):
        answer.require()
    assert not answer


class _Alarm(Exception):
    pass


def test_a_search_for_the_best_hears_signals() -> None:
    def ring(*_: object) -> None:
        raise _Alarm

    def search() -> None:
        signal.setitimer(signal.ITIMER_PROF, 0.3)
        with pytest.raises(_Alarm):
            solve(hard_problem(), Limits(max_seconds=PATIENCE_S), "native")

    before = signal.signal(signal.SIGPROF, ring)
    try:
        within(1.0, search)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def test_other_threads_run_while_the_best_is_searched() -> None:
    problem = hard_problem()
    assert ticks_beside(lambda stop: solve(problem, Limits(cancel=stop, max_seconds=PATIENCE_S), "native"), 50) == 50


def test_a_cancelled_search_keeps_what_it_has() -> None:
    answer = solve(hard_problem(), Limits(cancel=worked(0.3)), "auto")
    assert answer.status is Status.LIMIT_REACHED
    assert "cancelled" in answer.message
    assert answer.assignment


@pytest.mark.skipif(core is None, reason="the compiled core is not built")
def test_malformed_arguments_of_a_search_end_in_an_error_or_nothing() -> None:
    assert core is not None
    model = core.build([[1, 2], [3, 4]], [encode_all([], {})])
    odd: list[object] = [None, -1, 0, 1 << 70, "x", [], [[]], [(1, 2)], [([0, 0, 9], True)], [(99, 1)], object(), model]
    calls = [
        *((core.best_search, (model, a, b, c, 1 << 40, None)) for a, b, c in itertools.product(odd, odd, odd)),
        *((core.best_run, (a, 1 << 40, b, None)) for a, b in itertools.product(odd, odd)),
        *((core.enumerate_by, (a, b)) for a, b in itertools.product(odd, odd)),
        *((core.best_state, (a,)) for a in odd),
    ]
    for function, arguments in calls:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            function(*arguments)


@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_what_is_known_at_a_limit_is_true(data: st.DataObject) -> None:
    problem = with_objectives(data)
    expected = ranked(problem)
    nodes = data.draw(st.integers(1, 6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_TABLE_CELLS", 0)
        try:
            answer = solve(problem, Limits(max_nodes=nodes), "native")
        except UndefinedValueError:
            assert not expected
            return
    if answer.status is not Status.LIMIT_REACHED:
        assert (answer.status is Status.FEASIBLE) == bool(expected)
        return
    if answer.assignment:
        assert costs(problem, answer.assignment) in expected
    if answer.bound is not None and expected:
        soft, first = bool(problem.soft_constraints), problem.objectives[0]
        best = expected[0][0] if soft else expected[0][1] * (-1 if first.maximise else 1)
        assert answer.bound >= best if first.maximise and not soft else answer.bound <= best


def hand_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT begins with the search, not when that has worked for a while, and is loaded."""
    import_module("ortools.sat.python.cp_model")
    made = native._Beside.__init__

    def begun(self: Any, *args: Any) -> None:
        made(self, *args)
        self.head_start.end()

    monkeypatch.setattr(native._Beside, "__init__", begun)


def test_auto_runs_both_ways_and_says_who_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, best = knapsack(30, 1)
    assert solve(parse("var x in 1..9; maximise x"), Limits(max_seconds=PATIENCE_S)).solver == "native"
    hand_over_at_once(monkeypatch)
    answer = solve(problem, Limits(max_seconds=PATIENCE_S))
    assert (answer.value, answer.status) == (best, Status.FEASIBLE)
    assert answer.solver in ("native", "cpsat")
    monkeypatch.setattr(native, "_has_cpsat", lambda: False)
    assert solve(problem, Limits(max_seconds=PATIENCE_S)).solver == "native"


def test_the_way_that_does_not_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of both searches until it is cancelled; the answer is the other one's."""
    problem, best = knapsack(30, 1)

    def endless(self: object, problem: Problem, budget: Budget, *rest: object) -> SearchResult:
        try:
            while True:
                budget.check_work()
        except LimitReachedError as error:
            return SearchResult((), False, message=str(error))

    hand_over_at_once(monkeypatch)
    with monkeypatch.context() as patch:
        patch.setattr(native.NativeBackend, "find", endless)
        answer = solve(problem, Limits(max_seconds=PATIENCE_S))
        assert (answer.solver, answer.value, answer.status) == ("cpsat", best, Status.FEASIBLE)
    monkeypatch.setattr(CpSatBackend, "find", endless)
    answer = solve(problem, Limits(max_seconds=PATIENCE_S))
    assert (answer.solver, answer.value, answer.status) == ("native", best, Status.FEASIBLE)
    # It is told to end, and not waited for.
    for thread in threading.enumerate():
        if thread.name == native.BESIDE:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def test_an_easy_problem_starts_no_other_search_however_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work counts, not time: a clock that runs a thousand times too fast changes nothing."""
    begun: list[native._Beside] = []
    begin, real = native._Beside._begin, time.perf_counter

    def noted(self: native._Beside, in_python: bool) -> None:
        begun.append(self)
        begin(self, in_python)

    monkeypatch.setattr(native._Beside, "_begin", noted)
    monkeypatch.setattr(time, "perf_counter", lambda: 1000 * real())
    easy = parse("var a in 1..9; var b in 1..9; var c in 1..9; all_different(a, b, c); maximise a * b - c")
    answers = {tuple(solve(easy, Limits()).assignment.items()) for _ in range(3)}
    assert (len(answers), begun) == (1, [])
    diagonals = "".join(f"; all_different([q[i] {sign} i for i in 0..19])" for sign in "+-")
    hard = parse(f"var q[20] in 0..19; all_different(q){diagonals}")
    assert solve(hard, Limits()).status is Status.FEASIBLE
    assert len(begun) == 1


def test_an_error_of_either_way_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over_at_once(monkeypatch)
    problem, _ = knapsack(30, 1)

    def broken(self: object, *args: object) -> SearchResult:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(CpSatBackend, "find", broken)
    monkeypatch.setattr(native.NativeBackend, "find", lambda *_: SearchResult((), False, message="stopped"))
    with pytest.raises(ZeroDivisionError, match="broken"):
        solve(problem, Limits(max_seconds=PATIENCE_S))


def test_auto_stays_native_where_cpsat_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    hand_over_at_once(monkeypatch)
    problem = parse("var x in 1..1000000000000; var y in 1..1000000000000; x * y == 10403; x > 1; maximise y - x")
    wide = parse(f"var x in {-(2**60)}..{2**60}; x % 3 == 1; x < 100; maximise x")
    assert solve(wide, Limits(max_seconds=PATIENCE_S)).value == 97
    assert solve(problem, Limits(max_seconds=PATIENCE_S)).value == 103 - 101


def test_hints_are_tried_first_and_forbid_nothing() -> None:
    problem, best = knapsack(40, 3)
    known = solve(problem, LIMITS, "native").assignment
    for backend in ("native", "auto", "cpsat"):
        answer = solve(problem, LIMITS, backend, hint=known)
        assert answer.value == best
        assert solve(problem, LIMITS, backend, hint={"x0": 7}).value == best
    with pytest.raises(UnknownNameError, match="y"):
        solve(problem, hint={"y": 1})
    with pytest.raises(UsageError):
        solve(problem, hint={"x0": "1"})
    with pytest.raises(UsageError, match="at least 1"):
        best_solutions(problem, 0)


def test_an_assignment_that_violates_a_rule_is_never_an_answer() -> None:
    problem = parse("var x in 1..3; x >= 2")
    stats = solve(problem).stats
    with pytest.raises(ConstrintError, match="x >= 2"):
        Solution.of(problem, {"x": 1}, stats, solver="wrong")


def test_soft_constraints_and_objectives_are_text() -> None:
    problem = parse(
        """
        var x in 1..9; var y in 1..9; var soft in 0..1
        x + y <= 12
        soft wide: x >= 8 weight 4 because "wide rows are fast"
        soft y >= 7 weight 2
        soft (-x + y) >= 0
        soft <= 1
        maximise x * y; minimise x
        maximise soft
        """
    )
    assert [s.weight for s in problem.soft_constraints] == [4, 2, 1]
    assert [str(o) for o in problem.objectives] == ["maximise x * y", "minimise x", "maximise soft"]
    assert parse(str(problem)) == problem
    answer = solve(problem)
    assert answer.assignment == {"x": 8, "y": 4, "soft": 1}
    assert answer.penalty == 3
    assert [s.weight for s in answer.violated] == [2, 1]
    assert answer.values == (32, 8, 1)


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_soft_constraints_are_written_and_read_back(data: st.DataObject) -> None:
    problem = with_objectives(data, most_soft=4)
    again = parse(str(problem))
    assert again == problem
    assert again.objectives == problem.objectives
    assert again.soft_constraints == problem.soft_constraints
    assert problem.copy() == problem
    assert problem.without_objective() != problem


def test_a_weight_is_a_positive_integer() -> None:
    problem = Problem()
    x = problem.int_var("x", lower=1, upper=3)
    with pytest.raises(UsageError, match="weight"):
        problem.add_soft(x <= 2, 0)
    with pytest.raises(UsageError, match="weight"):
        problem.add_soft(x <= 2, 1.5)
    with pytest.raises(UnknownNameError):
        problem.add_soft(Var("y") <= 2)
    assert problem.soft_constraints == ()


@pytest.mark.parametrize("wide", [False, True], ids=["listed", "positive integers"])
def test_the_lexicographic_optimum_of_a_fused_kernel_is_the_first_solution(wide: bool) -> None:
    cases = [*rnn_problem.cases()[::23], rnn_problem.Case("slstm", "bf16", 768, 16)]
    for case in cases:
        problem = rnn_problem.rnn_problem(case)
        first = next(solutions_in_order(problem, LIMITS), None)
        asked = rnn_problem.with_preferences(problem, wide=wide)
        assert len(asked.objectives) == 28
        answer = solve(asked, LIMITS, "native")
        assert answer.stats.nodes <= 1000
        assert answer.stats.cells <= 100_000
        assert (answer.assignment or None) == first, case
        assert answer.status is (Status.FEASIBLE if first else Status.INFEASIBLE)


@pytest.mark.parametrize(
    "text",
    [
        "var x in 1..100000; var y in 1..100000; var z in 1..100000; x ^ 3 + y ^ 3 == z ^ 3",
        "x ^ 2 + y ^ 2 == 1000000016000000063",
        "var x in 1..100000; var y in 1..100000; x ^ 3 - y ^ 2 == 7; maximise x",
    ],
)
@pytest.mark.parametrize("backend", ["auto", "native"])
def test_hard_equations_end_in_time(text: str, backend: str) -> None:
    problem = parse(text)
    answer = solve(problem, Limits(max_seconds=1), backend)
    if answer.assignment:
        assert all(c.holds(answer.assignment) for c in problem.constraints)
    assert sys.getsizeof(answer.message) or answer.status is not Status.LIMIT_REACHED
    assert math.isfinite(answer.stats.seconds)


@pytest.mark.parametrize("backend", ["native", "numpy", "auto"])
def test_objectives_that_are_variables_order_solutions_as_plain_python_does(backend: str) -> None:
    rng = random.Random(38)
    for _ in range(25):
        values = {name: rng.sample(range(-3, 9), rng.randint(2, 6)) for name in "abcd"}
        lines = [f"var {name} in {{{', '.join(map(str, listed))}}}" for name, listed in values.items()]
        lines += [f"a * b != c + {rng.randint(0, 4)}", f"(a + b + c + d) % 3 != {rng.randint(0, 2)}"]
        chosen = rng.sample("abcd", rng.randint(2, 4))
        signs = [rng.choice((1, -1)) for _ in chosen]
        for name, sign in zip(chosen, signs, strict=True):
            lines.append(rng.choice((f"minimise {name}", f"maximise -{name}") if sign > 0 else (f"maximise {name}",)))
        problem = parse("\n".join(lines))

        def cost(row: dict[str, int], signs: list[int] = signs, chosen: list[str] = chosen) -> list[int]:
            return [sign * row[name] for name, sign in zip(chosen, signs, strict=True)]

        wanted = sorted(map(cost, brute_force(problem)))
        found = best_solutions(problem, 5, backend=backend) if wanted else ()
        assert [cost(dict(answer.assignment)) for answer in found] == wanted[:5]


def test_many_objectives_that_are_variables_of_any_size_are_a_walk() -> None:
    """Implicit variables up to 2^63 - 1, as NX-AI's text has them, in another order than the objectives."""
    text = (
        "1000 <= H; S == H ^ 2; H % R == 0; H % (G * 32) == 0; H * W <= 1024 * G; H % W == 0; H % 16 == 0; "
        "N <= 108; N == G * R; 2 * S + 16 * H + 4 * R * H + 32 * R == U; U <= 165000 * N; "
        "minimise N; minimise W; minimise U; minimise H"
    )
    answer = solve(parse(text), Limits(max_cells=1 << 20), "native")
    assert answer.status is Status.FEASIBLE
    assert (answer["N"], answer["W"], answer["H"], answer["G"], answer["R"]) == (16, 1, 1024, 16, 1)
