"""A candidate is worth nothing unless it is right and honest, then as much as it is faster; no time beats physics."""

from __future__ import annotations

import math

import pytest

from constrint.hwmodels import load_gpu
from constrint.propose import fast_p, find_task, order
from constrint.propose.honesty import floor_s
from constrint.propose.score import GATES, Examined
from constrint.tune.search.llm.records import GateResult
from tests.support.needs import needs_torch


def examined(*passed: bool, speed_up: float | None = None) -> Examined:
    gates = zip(GATES, passed, strict=False)
    return Examined(tuple(GateResult(gate=g, passed=p, kernel="softmax") for g, p in gates), speed_up)  # type: ignore[arg-type]


FAST, SLOW = examined(*[True] * 5, speed_up=2.0), examined(*[True] * 5, speed_up=0.5)
UNTIMED = examined(*[True] * 5)
DISHONEST, WRONG = examined(True, True, True, False), examined(True, True, False)
#: Refused when it was timed, whatever the time was.
TOO_FAST = examined(True, True, True, True, False, speed_up=900.0)


def test_score_is_nothing_unless_right_and_honest() -> None:
    assert [one.score for one in (FAST, SLOW, UNTIMED, DISHONEST, WRONG, TOO_FAST)] == [2.0, 0.5, None, 0, 0, 0]
    assert [one.refused_by for one in (FAST, DISHONEST, WRONG, TOO_FAST)] == ["", "honest", "right", "fast"]
    assert Examined(()).score == 0


def test_order_puts_sound_candidates_first() -> None:
    assert order([WRONG, TOO_FAST, SLOW, DISHONEST, FAST]) == [4, 2, 1, 3, 0]
    assert order([]) == []


def test_fast_p_counts_tasks() -> None:
    tasks = [FAST, SLOW, UNTIMED, DISHONEST, TOO_FAST]
    assert fast_p(tasks, 0) == pytest.approx(3 / 5)
    assert fast_p(tasks, 1) == pytest.approx(1 / 5)
    assert fast_p(tasks, 2.0) == 0
    assert math.isnan(fast_p([], 1))


def test_one_task_that_takes_no_time_at_all_counts_as_one_task() -> None:
    """A geometric mean collapses, or soars, with one shape that was driven to nothing; a share does not."""
    absurd = examined(*[True] * 5, speed_up=1e12)
    others = [SLOW] * 5
    assert fast_p([absurd, *others], 1) == pytest.approx(fast_p([FAST, *others], 1)) == pytest.approx(1 / 6)


@needs_torch
def test_floor_is_what_the_bytes_take() -> None:
    """16,384 rows of 8,192 bf16 are read and written: 0.5 GiB, of which twice 60 MiB may lie in the L2."""
    task, gpu = find_task("softmax"), load_gpu("h200")
    one = floor_s(task, task.timed_sizes, "bf16", gpu)
    moved = 2 * 2 * 16384 * 8192
    assert task.moved_bytes(task.timed_sizes, "bf16") == moved
    assert one == pytest.approx((moved - 2 * 60 * 2**20) / 4.8e12)
    # The L2 helps once, not in every call.
    assert floor_s(task, task.timed_sizes, "bf16", gpu, 8) == pytest.approx((8 * moved - 2 * 60 * 2**20) / 8 / 4.8e12)
    small = {"m": 1, "n": 1}
    assert 0 < floor_s(task, small, "bf16", gpu) < 1e-9
