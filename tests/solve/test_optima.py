"""All optima, and better solutions as they are found."""

import random
import threading

import pytest

from constrint.model import Problem, parse
from constrint.solve import Limits, Solution, Status, all_optima, brute_force, solve
from tests.support.clock import PATIENCE_S


def _costs(problem: Problem, row: dict[str, int]) -> tuple[int, ...]:
    penalty = sum(s.weight for s in problem.soft_constraints if not s.constraint.holds(row))
    return (penalty, *(o.expr.value(row) * (-1 if o.maximise else 1) for o in problem.objectives))


def test_all_optima_are_those_of_brute_force() -> None:
    rng = random.Random(1)
    for _ in range(40):
        problem = Problem()
        x = problem.int_vars("x", 3, lower=-1, upper=3)
        problem.add(sum(rng.randint(-2, 2) * v for v in x) + x[0] <= rng.randint(-2, 6))
        for _ in range(rng.randint(0, 2)):
            problem.add_soft(rng.choice(x) * rng.choice(x) >= rng.randint(0, 9), weight=rng.randint(1, 3))
        for _ in range(rng.randint(0, 2)):
            problem.maximise(rng.choice(x) * rng.randint(-1, 2) + rng.choice(x))
        rows = brute_force(problem.without_objective())
        best = min((_costs(problem, row) for row in rows), default=None)
        expected = sorted(tuple(row.values()) for row in rows if _costs(problem, row) == best)
        assert sorted(tuple(row.values()) for row in all_optima(problem)) == expected


@pytest.mark.parametrize("backend", ["auto", "native", "numpy", "cpsat"])
def test_better_solutions_are_told_in_this_thread_each_better_than_the_last(backend: str) -> None:
    problem = parse("var x[4] in 0..9\nsum(x) <= 20\nsoft x[0] >= 12 weight 3\nmaximise x[0] * x[1] - x[2]")
    seen: list[Solution] = []
    threads = set()

    def told(better: Solution) -> None:
        seen.append(better)
        threads.add(threading.get_ident())

    answer = solve(problem, backend=backend, on_better=told)
    costs = [_costs(problem, s.assignment) for s in seen]
    assert costs == sorted(set(costs), reverse=True)
    assert seen[-1].assignment == answer.assignment
    assert all(s.status is Status.LIMIT_REACHED for s in seen)
    assert threads == {threading.get_ident()}


def test_an_error_of_the_callback_ends_the_search() -> None:
    problem = parse(
        "var x[30] in 0..9\nsum(i in 0..28) (x[i] * x[i + 1]) <= 300\nmaximise sum(i in 0..29) (x[i] * (i % 7))"
    )

    def stop(better: Solution) -> None:
        raise RuntimeError(str(better.value))

    with pytest.raises(RuntimeError):
        solve(problem, Limits(max_seconds=PATIENCE_S), on_better=stop)


def test_values_that_are_no_integers_are_told_as_they_are() -> None:
    problem = parse('var s in {0.5, 1.5}; var t in {"a", "b"}\ns == 1.5 -> t == "a"\nmaximise s')
    seen: list[Solution] = []
    solve(problem, on_better=seen.append)
    assert seen[-1].assignment == {"s": 1.5, "t": "a"}
    assert [dict(row) for row in all_optima(problem)] == [{"s": 1.5, "t": "a"}]
