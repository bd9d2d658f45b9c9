"""A process ends with all that it started, however and whenever it is ended."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from constrint.propose.limits import exceeded
from constrint.tune.keeper import delays_of, descendants, is_larger, keep
from tests.support.clock import wait_until

if sys.platform != "linux":
    pytest.skip("the tree of processes is read from /proc", allow_module_level=True)


@contextmanager
def kept(work: Callable[[], None]) -> Iterator[int]:
    """The keeper of a work, in a child of this process."""
    pid = os.fork()
    if pid == 0:
        try:
            keep(work)
        finally:
            os._exit(1)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def leave(number: int) -> None:
    """Start processes that leave their session and their parent."""
    for _ in range(number):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)
            os._exit(0)


def stay() -> None:
    leave(3)
    time.sleep(1000)


def code_of(work: Callable[[], None]) -> int:
    """The exit code of a keeper whose work ends by itself."""
    pid = os.fork()
    if pid == 0:
        try:
            keep(work)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_all_that_was_started_ends_with_its_keeper() -> None:
    with kept(stay) as pid:
        # The work, what it forked and does not wait for, and what left.
        wait_until(lambda: len(list(descendants(pid))) >= 7, "three processes that left")
        inside = list(descendants(pid))
    assert are_gone(inside)


def test_the_end_of_the_work_is_the_end_of_all_and_its_exit_code_is_told(tmp_path: Path) -> None:
    def exits() -> None:
        leave(2)
        os._exit(7)

    assert code_of(exits) == 7
    assert code_of(lambda: os.kill(os.getpid(), signal.SIGKILL)) == 128 + signal.SIGKILL
    assert code_of(lambda: None) == 0


@pytest.mark.parametrize("delay_us", range(0, 4000, 250))
def test_an_end_that_comes_while_it_starts_is_not_lost(delay_us: int) -> None:
    """At a fork Python runs functions of its own, in which an exception would be swallowed."""
    with kept(stay):
        time.sleep(delay_us * 1e-6)


def test_processes_are_counted_over_all_below_one() -> None:
    with kept(stay) as pid:
        wait_until(lambda: len(list(descendants(pid))) >= 7, "three processes that left")
        assert exceeded(pid, {"memory_bytes": 64 << 30, "processes": 128}) == ""
        assert exceeded(pid, {"memory_bytes": 64 << 30, "processes": 6}) == "it started 7 processes"


def test_memory_is_counted_over_all_processes_below_one() -> None:
    kept_bytes = 64 << 20

    def takes() -> None:
        if os.fork() == 0:
            held = bytearray(os.urandom(1 << 20) * (kept_bytes >> 20))
            time.sleep(1000 if held else 0)
        time.sleep(1000)

    with kept(takes) as pid:
        wait_until(lambda: is_larger(pid, kept_bytes), "what a process below the first one takes")
        assert not is_larger(pid, 64 << 30)


def test_a_wait_for_a_processor_is_told_by_thread() -> None:
    """Two processes that compute on one processor wait for each other."""

    def computes() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        os.fork()
        while True:
            pass

    with kept(computes) as pid:
        wait_until(lambda: sum(delay > 0.2 for delay in delays_of(pid).values()) == 2, "two processes that waited")
