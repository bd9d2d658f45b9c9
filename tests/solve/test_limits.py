"""Limits hold in every way of searching: time within a fifth and 0.2 s, memory within a fifth and 20 MB."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from constrint.core import compiled
from constrint.errors import CancelledError, LimitReachedError, UsageError
from constrint.model import Problem, parse
from constrint.model.operations import integer_root
from constrint.solve import Limits, Solution, Status, count, solutions_in_order, solve
from constrint.solve import budget as memory_module
from constrint.solve.budget import Budget, available_bytes
from tests.support.clock import PATIENCE_S, when_worked, within

ROOT = Path(__file__).parents[2]
SECONDS = 0.4


def listed(number: int, exponent: int) -> str:
    return "{" + ", ".join(str(3**exponent + i) for i in range(number)) + "}"


def variables(number: int, domain: str) -> str:
    return "; ".join(f"var v{i} in {domain}" for i in range(number)) + "\n"


SLOW = {
    "towers of powers": "x ^ y ^ z == 9 ^ 9 ^ 9",
    "sums of powers": "x ^ y + y ^ x == 3 ^ 40 + 7; y > 1; x > y",
    "many rows": variables(5, "0..59") + "(" + " + ".join(f"v{i} * v{(i + 1) % 5}" for i in range(5)) + ") % 1009 != 7",
    "few rows of many": variables(8, "0..59") + " + ".join(f"v{i} * v{i}" for i in range(8)) + " % 1000003 == 7",
    "cubes": "var x in 1..100000; var y in 1..100000; var z in 1..100000; x^3 + y^3 == z^3",
    "squares": "x^2 + y^2 == 1000000016000000063",
    "long numbers": f"var x in {listed(60, 8000)}; var y in {listed(60, 7900)}; x ^ 4 * y % (x ^ 2 + y) == 5",
    "long multiples": f"var x in {listed(60, 5000)}; var y in 1..5; lcm(x * y, x + 1, x + 2, x * x + y) % 3 == 1",
    "long roots": f"var x in {listed(60, 8000)}; var y in 2..10; var z; z ^ 7 == x ^ 4 + y",
    "factors": f"x * y == {(2**38 + 7) * (2**39 + 23)}; x > 1; y > x; x * x > y + 99999",
    "a long chain": variables(100, "0..100000000") + "\n".join(f"v{i} < v{(i + 1) % 100}" for i in range(100)),
    "alternatives": "var x in 0..10^15; var y in 0..10^15\n"
    + "\n".join(f"x * {i} + y <= {i}0000000 or y * {i} - x >= {i}00 or x % {i} == 1" for i in range(2, 300)),
    "a product of many": variables(2, "1..10^6") + " * ".join(f"(v0 + {i} * v1)" for i in range(900)) + " == 7",
}
QUESTIONS: dict[str, Callable[[Problem, Limits, str], object]] = {
    "solve": solve,
    "count": count,
    "in order": lambda problem, limits, backend: next(solutions_in_order(problem, limits, backend), None),
}


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", SLOW)
def test_time(name: str, question: str, backend: str) -> None:
    problem = parse(SLOW[name])
    limits = Limits(max_seconds=SECONDS, max_rows=1 << 40, max_cells=1 << 50, max_nodes=1 << 40)

    def message() -> str:
        try:
            found = QUESTIONS[question](problem, limits, backend)
        except LimitReachedError as error:
            return str(error)
        return found.message if isinstance(found, Solution) and found.status is Status.LIMIT_REACHED else ""

    said = within(1.2 * SECONDS + 0.2, message)
    assert "longer than" not in said or f"max_seconds={SECONDS}" in said


#: A table of all five is all that can answer; it grows faster than that of "many rows".
ONE_TABLE = variables(5, "0..59") + "v0 * v1 + v2 * v3 * v4 + v0 * v4 != 7"
MEASURED = """
import resource, sys
from constrint.errors import LimitReachedError
from constrint.model import parse
from constrint.solve import Limits, count, enumerate_space
enumerate_space(parse("var x in 1..3; var y in 1..3; x < y"), backend=sys.argv[2]).columns()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    count(parse(sys.argv[1]), Limits(max_bytes=int(sys.argv[3]), max_rows=1 << 40, max_cells=1 << 40), sys.argv[2])
except LimitReachedError as error:
    print(error, file=sys.stderr)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="getrusage counts memory in another unit here")
@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize(
    "text",
    [
        ONE_TABLE,
        variables(5, "0..249") + "v0 * v1 != v2 + 7; v2 * v3 != v4 + 7; v0 * v4 + v1 * v3 != 11",
        variables(3, "1..2000") + "v0 + v1 != v2 * 7",
        variables(40, "1..4000") + "\n".join(f"v{i} * v{i + 1} != v{(i * 7) % 40} + {i}" for i in range(39)),
    ],
    ids=["one table", "two tables", "three wide variables", "many variables"],
)
def test_memory(text: str, backend: str) -> None:
    taken, said = memory_of_count(text, backend, 60_000_000)
    assert "max_bytes=60000000" in said
    assert taken < 1.2 * 60_000_000 + 20_000_000


def memory_of_count(text: str, backend: str, most: int) -> tuple[int, str]:
    """Bytes by which the memory of a process grew at most while it counted, and what it printed."""
    command = [sys.executable, "-c", MEASURED, text, backend, str(most)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout), ended.stderr


CELLS = [[f"c{row}{column}" for column in range(7)] for row in range(7)]
MEMORY = {
    "a search of many columns": (
        "".join(f"var {name} in 1..7\n" for row in CELLS for name in row)
        + "\n".join(f"all_different({', '.join(line)})" for line in (*CELLS, *zip(*CELLS, strict=True))),
        40_000_000,
    ),
    "blocks of many columns": (
        variables(160, "0..1") + " + ".join(f"v{i} * {1 + i * 37 % 101}" for i in range(160)) + " == 1480",
        150_000_000,
    ),
}


@pytest.mark.skipif(sys.platform != "linux", reason="getrusage counts memory in another unit here")
@pytest.mark.skipif(compiled is None, reason="the compiled core is not built")
@pytest.mark.parametrize("name", MEMORY)
def test_memory_beside_tables(name: str) -> None:
    text, most = MEMORY[name]
    assert memory_of_count(text, "native", most)[0] < max(1.2 * most, most + 20_000_000)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_what_little_memory_answers_more_answers_too(backend: str) -> None:
    """A problem that is listed by tables where there is room, and otherwise by search or as a diagram."""
    text = variables(12, "0..3") + " + ".join(f"v{i}" for i in range(12)) + " <= 9\nv0 * v5 + v11 <= 4"
    number = count(parse(text))

    def is_answered(most: int) -> bool:
        try:
            found = count(parse(text), Limits(max_bytes=most), backend)
        except LimitReachedError:
            return False
        assert found == number
        return True

    answers = [is_answered(10**digits * times) for digits in range(5, 9) for times in (1, 3)]
    assert answers == sorted(answers)
    assert answers[-1]


def test_a_search_is_not_given_up_for_tables_of_very_many_cells() -> None:
    """Bounds prune the sum of at most 3 early, and the remainder late: few of 2^30 combinations are looked at."""
    weights = [(i * 37 + 11) % 101 + 1 for i in range(30)]
    sums = " + ".join(f"{weight} * v{i}" for i, weight in enumerate(weights))
    problem = parse(variables(30, "0..1") + " + ".join(f"v{i}" for i in range(30)) + f" <= 3\n({sums}) % 3 == 1")
    limits = Limits(max_cells=1 << 25)
    assert count(problem, limits) == sum(1 for _ in solutions_in_order(problem, limits)) == 1505


def test_memory_that_is_not_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < available_bytes() < 1 << 50
    wide = parse(ONE_TABLE)
    monkeypatch.setattr(memory_module, "_of_machine", lambda: 20_000_000)
    monkeypatch.setattr(memory_module, "_last", (float("-inf"), 0))
    for backend in ("native", "numpy"):
        with pytest.raises(LimitReachedError, match=r"bytes, and \d+, half of the memory left"):
            count(wide, Limits(max_rows=1 << 40), backend)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_rows": -1},
        {"max_cells": 1.5},
        {"max_nodes": "9"},
        {"max_values": None},
        {"max_bytes": -5},
        {"max_seconds": -1},
        {"max_seconds": float("nan")},
        {"max_seconds": "1"},
        {"cancel": 3},
        {"progress": 3},
    ],
)
def test_what_is_no_limit_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Limits(**wrong)


def test_limits_beyond_64_bits_are_never_reached() -> None:
    limits = Limits(max_rows=1 << 100, max_cells=1 << 100, max_bytes=1 << 100, max_nodes=1 << 100, max_values=1 << 100)
    problem = parse("var x in 1..40; var y in 1..40; x * y % 7 == 3")
    assert (
        count(problem, limits)
        == count(problem, limits, "numpy")
        == sum(x * y % 7 == 3 for x in range(1, 41) for y in range(1, 41))
    )
    assert next(solutions_in_order(problem, limits)) == solve(problem, limits).require() == {"x": 1, "y": 3}


def test_a_step_of_a_search_counts_from_its_start() -> None:
    budget = Budget(Limits(max_seconds=0.05, started=time.perf_counter() - 0.06))
    step = Budget(budget.rest(max_rows=7))
    assert step.limits.max_rows == 7
    with pytest.raises(LimitReachedError, match=r"max_seconds=0\.05"):
        step.check_work()


@pytest.mark.parametrize("name", ["towers of powers", "long numbers", "a long chain", "alternatives"])
def test_a_search_with_python_integers_can_be_cancelled(name: str) -> None:
    problem = parse(SLOW[name])

    stop = threading.Event()
    timer = when_worked(0.2, stop.set)
    answer = within(1.0, lambda: solve(problem, Limits(cancel=stop, max_nodes=1 << 40)))
    timer.join()
    assert answer.status is Status.LIMIT_REACHED
    with pytest.raises(CancelledError):
        count(parse(SLOW["many rows"]), Limits(cancel=stop))


@pytest.mark.parametrize("degree", [1, 2, 3, 5, 7, 64])
def test_integer_roots_are_exact(degree: int) -> None:
    for root in (0, 1, 2, 3, 10, 2**31, 2**53 - 1, 10**40):
        for value in (root**degree - 1, root**degree, root**degree + 1, (root + 1) ** degree - 1):
            if value >= 0:
                found = integer_root(value, degree)
                assert found**degree <= value < (found + 1) ** degree


def test_the_first_of_many_integers_beyond_64_bits_comes_at_once() -> None:
    """One that follows from another and is declared before it: no solution but the first is made."""
    problem = parse(f"var c in {2**64}..{2**65}; var b in {2**64}..{2**64 + 10**6}; c == b + 1")
    found = within(0.3, lambda: next(solutions_in_order(problem, Limits(max_seconds=PATIENCE_S))))
    assert found == {"c": 2**64 + 1, "b": 2**64}
