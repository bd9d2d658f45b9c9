"""Trials: what is timed, when they end, and what runs meanwhile, on a device whose clock the test turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

import torch

from constrint.kernels.launch.plan import trial
from constrint.kernels.launch.plan.trial import (
    BURST_S,
    MOST_ROUNDS,
    CallTrial,
    best_of,
    no_trials,
    rounds_of,
    use_trials,
)


class FakeDevice:
    """A device that runs what it is given after `finish`, each candidate in its own time.

    Args:
        seconds: Times of the candidates, of each round; the last ones repeat.
    """

    def __init__(self, *seconds: Sequence[float]) -> None:
        self.seconds = seconds
        self.log: list[str] = []
        self.host = 0.0
        self.host_seconds = [0.0] * len(seconds)
        self.now = 0.0
        self.is_done = False
        self.is_capturing = False
        self.runs = [0] * len(seconds)

    def run(self, place: int) -> Any:
        def run(*tensors: Any) -> Any:
            times = self.seconds[place]
            self.host += self.host_seconds[place]
            self.now += times[min(self.runs[place], len(times) - 1)]
            self.runs[place] += 1
            self.log.append(f"run {place}")
            return f"result {place} of {tensors}"

        return run

    def event(self) -> Any:
        return FakeEvent(self)

    def pause(self) -> None:
        self.log.append("pause")

    def evict(self) -> None:
        self.log.append("evict")

    def host_s(self) -> float:
        return self.host

    def is_captured(self) -> bool:
        return self.is_capturing


class FakeEvent:
    def __init__(self, device: FakeDevice) -> None:
        self.device, self.at = device, -1.0

    def record(self) -> None:
        self.at = self.device.now
        self.device.log.append("event")

    def query(self) -> bool:
        assert not self.device.is_capturing, "a query would end the capture"
        return self.device.is_done

    def elapsed_time(self, end: Any) -> float:
        return 1e3 * float(end.at - self.at)


def begun(device: FakeDevice, rounds: int = 2) -> tuple[CallTrial, list[tuple[Any, ...]]]:
    settled: list[tuple[Any, ...]] = []
    made = CallTrial(
        [device.run(place) for place in range(len(device.seconds))],
        rounds,
        lambda *given: settled.append(given),
        device,
    )
    return made, settled


def test_the_fastest_of_the_burst_takes_over_once_the_device_has_run_it() -> None:
    # The first run of each loads its code; then two rounds, warm and cold each. The least time of a candidate counts.
    device = FakeDevice([9.0, 2.0, 8.0, 2.0, 8.0], [30.0, 5.0, 4.0, 1.0, 9.0], [0.5, 3.0, 3.0])
    tried, settled = begun(device)
    assert tried("a", "b") == "result 0 of ('a', 'b')"
    warm = [step for place in range(3) for step in ("event", f"run {place}", "event")]
    cold = [step for place in range(3) for step in ("evict", "event", f"run {place}", "event")]
    assert device.log == ["run 0", "run 1", "run 2", "pause", *warm, *cold, *warm, *cold, "run 0"]
    device.log.clear()
    assert tried("c", "d") == "result 0 of ('c', 'd')"
    assert device.log == ["run 0"], "until the device is done the predicted one runs, and nothing waits"
    assert not settled
    device.is_done = True
    assert tried("e", "f") == "result 1 of ('e', 'f')"
    ((tensors, seconds, place),) = settled
    assert (tensors, place) == (("e", "f"), 1)
    assert seconds == pytest.approx([4.0, 2.0, 3.0]), "geometric means of the least warm and the least cold time"
    assert tried("g", "h") == "result 0 of ('g', 'h')", "the table holds another entry by now"
    assert len(settled) == 1


def test_the_host_bounds_calls_that_follow_each_other() -> None:
    device = FakeDevice([1.0], [0.5])
    device.host_seconds = [2.0, 8.0]
    tried, settled = begun(device)
    tried("a")
    device.is_done = True
    tried("a")
    ((_, seconds, place),) = settled
    assert place == 0
    assert seconds == pytest.approx([2.0**0.5, 2.0])


def test_no_trial_begins_or_ends_while_a_graph_is_captured() -> None:
    device = FakeDevice([2.0], [1.0])
    tried, settled = begun(device)
    device.is_capturing = True
    tried("a")
    assert device.log == ["run 0"]
    device.is_capturing = False
    tried("a")
    device.is_done = device.is_capturing = True
    tried("a")
    assert not settled
    device.is_capturing = False
    tried("a")
    assert len(settled) == 1


def test_a_candidate_that_does_not_run_ends_the_trial() -> None:
    device = FakeDevice([2.0], [1.0])
    settled: list[Any] = []
    for missing in (None, False):
        tried = CallTrial(
            [device.run(0), lambda *_, made=missing: made], 2, lambda *given: settled.append(given), device
        )
        device.is_done = True
        for _ in range(3):
            assert tried("a") == "result 0 of ('a',)"
    assert not settled
    assert "pause" not in device.log


def test_too_little_memory_ends_the_trial() -> None:
    device = FakeDevice([2.0], [1.0])
    calls = []

    def full(*_: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise torch.cuda.OutOfMemoryError("no")
        return "result"

    tried = CallTrial([device.run(0), full], 2, lambda *_: pytest.fail("nothing was measured"), device)
    device.is_done = True
    for _ in range(3):
        assert tried("a") == "result 0 of ('a',)"


def test_long_calls_have_short_bursts() -> None:
    assert rounds_of([1e-6, 2e-6]) == MOST_ROUNDS
    assert rounds_of([BURST_S]) == rounds_of([1.0, 1.0]) == 1
    assert rounds_of([]) == MOST_ROUNDS
    middle = rounds_of([1e-4, 2e-4, 2e-4])
    assert 1 < middle < MOST_ROUNDS


def test_ties_go_to_the_predicted_one() -> None:
    assert best_of([1.0, 0.975, 2.0]) == 0
    assert best_of([1.0, 0.95, 0.94]) == 2
    assert best_of([3.0]) == 0


def test_trials_are_switched_off() -> None:
    use_trials(True)
    try:
        assert trial.trials_are_on()
        with no_trials(), no_trials():
            assert not trial.trials_are_on()
        assert trial.trials_are_on()
        use_trials(False)
        assert not trial.trials_are_on()
    finally:
        use_trials(False)
