"""Long calls end when a signal comes, whatever they compute, and let other threads run meanwhile."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from constrint.core import compiled
from constrint.errors import CancelledError, LimitReachedError
from constrint.model import Var, minimum, parse
from constrint.model.python.restrictions import problem_from_space
from constrint.solve import Limits, enumerate_space, solutions_in_order
from tests.support.clock import PATIENCE_S, ticks_beside, within

#: Seconds of work until the signal comes, and from then until it must have been seen.
WAIT, REACTION = 0.3, 0.15
ROOT = Path(__file__).parents[2]
HUGE = Limits(max_cells=1 << 60, max_rows=1 << 30)

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled core was not built (no C++ compiler)")


class Alarm(Exception):
    """Raised by the signal's handler."""


def enumerating(limits: Limits) -> None:
    params = {n: list(range(1, 200)) for n in "abcd"}
    enumerate_space(problem_from_space(params, ["a * b + c * d >= 40", "a * d != b * c"]), limits)


def pruning(limits: Limits) -> None:
    params = {n: list(range(1, 3000)) for n in "abc"}
    enumerate_space(problem_from_space(params, ["a * a + b * b == c * c + 1000003 * (a % 2 + 2)"]), limits)


def walking(limits: Limits) -> None:
    problem = parse("var x in 1..3000; var y in 1..3000; var z in 1..3000; x * x * x + y * y * y == z * z * z")
    assert list(solutions_in_order(problem, limits)) == []


EXPR = minimum(*(Var("a") % (i + 2) * Var("b") for i in range(2000)))


def evaluating(limits: Limits) -> None:
    columns = {n: np.arange(4_000_000, dtype=np.int64) % 1000 for n in "ab"}
    EXPR.columns(columns)


LONG = [enumerating, pruning, walking, evaluating]


def ended_by_signal(work: Callable[[Limits], None]) -> float:
    """Seconds of work until a search was ended by a signal that came after WAIT of them."""

    def ring(*_: object) -> None:
        raise Alarm

    before = signal.signal(signal.SIGPROF, ring)
    # An exception that is raised while garbage is collected is lost.
    gc.disable()
    started = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, WAIT)
    try:
        with pytest.raises(Alarm):
            work(HUGE)
        return time.process_time() - started
    finally:
        gc.enable()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.mark.parametrize("work", LONG)
def test_a_signal_ends_a_long_call(work: Callable[[Limits], None]) -> None:
    if threading.current_thread() is not threading.main_thread():
        pytest.skip("signals reach the main thread only, and this is another one")
    # Another process may take the CPU away for a moment: the best of three counts.
    took: list[float] = []
    while len(took) < 3 and min(took, default=9.0) > WAIT + REACTION:
        took.append(ended_by_signal(work))
    assert min(took) < WAIT + REACTION


@pytest.mark.parametrize("work", LONG[:3])
def test_other_threads_run_during_a_long_call(work: Callable[[Limits], None]) -> None:
    ended: list[CancelledError] = []

    def working(stop: threading.Event) -> None:
        try:
            work(replace(HUGE, cancel=stop, max_seconds=PATIENCE_S))
        except CancelledError as error:
            ended.append(error)

    assert ticks_beside(working, 100) == 100
    assert len(ended) == 1


@pytest.mark.parametrize("work", LONG[:3])
def test_a_time_limit_is_kept(work: Callable[[Limits], None]) -> None:
    def ask() -> None:
        with pytest.raises(LimitReachedError, match=r"max_seconds=0\.3"):
            work(replace(HUGE, max_seconds=0.3))

    within(0.3 * 1.2 + 0.2, ask)


ENDING = """
import threading, time
from constrint.model import parse
from constrint.solve import Limits, enumerate_space, solutions_in_order
limits = Limits(max_cells=1 << 60, max_rows=1 << 30)
wide = parse("var a in 1..199; var b in 1..199; var c in 1..199; var d in 1..199; a * b + c * d >= 40; a * d != b * c")
cubes = parse("var x in 1..3000; var y in 1..3000; var z in 1..3000; x * x * x + y * y * y == z * z * z")
def listing():
    while True:
        enumerate_space(parse("var x in 1..300; var y in 1..300; x * y % 7 == 3")).columns()
works = (lambda: enumerate_space(wide, limits), lambda: list(solutions_in_order(cubes, limits)), listing, listing)
for work in works:
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
"""


def test_threads_may_search_while_the_interpreter_ends() -> None:
    for _ in range(3):
        command = [sys.executable, "-X", "faulthandler", "-c", ENDING]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert ended.returncode == 0, ended.stderr
