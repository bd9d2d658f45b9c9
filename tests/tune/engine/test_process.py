"""A worker process is lost when it hangs, not when the machine is busy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from constrint.tune.engine import process
from constrint.tune.engine.process import Lost, Worker
from constrint.tune.keeper import MOST_DELAY
from constrint.tune.trial import Outcome
from tests.support.clock import PATIENCE_S, wait_until

LIMIT_S = 10.0


class Clock:
    """The time of the parent, and how long a thread of the process has waited for a processor."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.delay = 0.0, 3.0
        monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(process, "delays_of", lambda pid: {1: self.delay, 2: 0.0})


def waits_for_file() -> Callable[[str], str]:
    def answer(path: str) -> str:
        while not Path(path).exists():
            time.sleep(0.01)
        return "done"

    return answer


@pytest.fixture
def worker() -> Iterator[Worker[str, str]]:
    worker = Worker(waits_for_file, (), str, str, start_s=PATIENCE_S, max_memory_bytes=1 << 40)
    yield worker
    worker.forget()


def begun(worker: Worker[str, str], path: Path, clock: Clock) -> None:
    """Ask, and return once the process works on it."""
    worker.ask(str(path), LIMIT_S)
    wait_until(lambda: worker.poll() or worker._is_ready, "the start of the process")
    clock.delay = 3.0


@pytest.mark.parametrize(("waited", "allowed"), [(0.0, 0.0), (7.0, 7.0), (1000.0, MOST_DELAY * LIMIT_S)])
def test_a_request_has_the_time_besides_its_limit_in_which_it_waited_for_a_processor(
    worker: Worker[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited: float, allowed: float
) -> None:
    clock = Clock(monkeypatch)
    begun(worker, tmp_path / "never", clock)
    clock.delay += waited
    clock.now = LIMIT_S + allowed - 0.1
    assert worker.poll() is None
    clock.now = LIMIT_S + allowed + 0.1
    with pytest.raises(Lost) as lost:
        worker.poll()
    assert lost.value.outcome == Outcome.TIMED_OUT


def test_what_a_process_answers_late_on_a_busy_machine_counts(
    worker: Worker[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    begun(worker, tmp_path / "file", clock)
    clock.delay += 25.0
    clock.now = LIMIT_S + 20.0
    assert worker.poll() is None
    (tmp_path / "file").touch()
    wait_until(lambda: worker.poll() == "done", "the answer")


def test_memory_comes_before_the_clock(
    worker: Worker[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    begun(worker, tmp_path / "never", clock)
    worker._max_memory = 1
    clock.now = 100 * LIMIT_S
    with pytest.raises(Lost, match="memory") as lost:
        worker.poll()
    assert lost.value.outcome == Outcome.CRASHED
