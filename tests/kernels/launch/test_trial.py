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
    LEAST_ROUNDS,
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
        self.pauses: list[float] = []
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

    def pause(self, seconds: float) -> None:
        self.log.append("pause")
        self.pauses.append(seconds)

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


def begun(
    device: FakeDevice, rounds: int = 2, standards: Sequence[int] = ()
) -> tuple[CallTrial, list[tuple[Any, ...]]]:
    settled: list[tuple[Any, ...]] = []
    made = CallTrial(
        [device.run(place) for place in range(len(device.seconds))],
        rounds,
        lambda *given: settled.append(given),
        device,
        standards,
    )
    return made, settled


def test_the_fastest_of_the_burst_takes_over_once_the_device_has_run_it() -> None:
    # The first run of each loads its code; then three rounds, warm and cold each, of which the first does not count.
    device = FakeDevice([9.0, 9.0, 9.0, 2.0, 8.0], [30.0, 0.1, 0.1, 5.0, 4.0, 1.0, 9.0], [0.5, 0.1, 0.1, 3.0, 3.0])
    tried, settled = begun(device)
    assert tried("a", "b") == "result 0 of ('a', 'b')"
    warm = [step for place in range(3) for step in ("event", f"run {place}", "event")]
    cold = [step for place in range(3) for step in ("evict", "event", f"run {place}", "event")]
    assert device.log == [
        "run 0", "run 1", "run 2", *warm, *cold, "pause", *warm, *cold, "pause", *warm, *cold, "run 0",
    ]  # fmt: skip
    device.log.clear()
    assert tried("c", "d") == "result 0 of ('c', 'd')"
    assert device.log == ["run 0"], "until the device is done the predicted one runs, and nothing waits"
    assert not settled
    device.is_done = True
    assert tried("e", "f") == "result 1 of ('e', 'f')"
    ((tensors, seconds, place),) = settled
    assert (tensors, place) == (("e", "f"), 1)
    assert seconds == pytest.approx([4.0, 2.0, 3.0]), "geometric means of warm and cold times"
    assert tried("g", "h") == "result 0 of ('g', 'h')", "the table holds another entry by now"
    assert len(settled) == 1


def test_a_few_disturbed_rounds_do_not_count() -> None:
    steady, disturbed = [1.0], [1.0, 1.0, 1.0, *[0.9, 0.9] * 2, *[5.0, 5.0] * 3]
    device = FakeDevice(steady, disturbed)
    tried, settled = begun(device, rounds=5)
    tried("a")
    device.is_done = True
    tried("a")
    ((_, seconds, place),) = settled
    assert place == 1
    assert seconds == pytest.approx([1.0, 0.9])


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


def test_pauses_are_longer_than_the_host_takes_for_a_round() -> None:
    device = FakeDevice([1e-5], [1e-5])
    device.host_seconds = [1e-5, 4e-5]
    tried, _ = begun(device, rounds=3)
    tried("a")
    assert device.pauses == pytest.approx([trial.PAUSE_SHARE * 1e-4] * 3)
    device = FakeDevice([1e-5], [1e-5])
    device.host_seconds = [0.0, 10.0]
    tried, _ = begun(device, rounds=2)
    tried("a")
    assert device.pauses == [trial.MOST_PAUSE_S] * 2


def test_what_is_slower_than_the_standard_warm_or_cold_does_not_run() -> None:
    # The second is the quickest by the mean, but slower than the library when the L2 is cold.
    assert best_of([10.0, 5.0, 8.0], [6.0, 6.6, 6.0]) == 1
    assert best_of([10.0, 5.0, 8.0], [6.0, 6.6, 6.0], standards=(0,)) == 2
    assert best_of([10.0, 5.0, 8.0], [6.0, 6.05, 6.0], standards=(0,)) == 1, "the same within the noise"
    # The best of several standards counts, and one of them runs where nothing else is as fast.
    assert best_of([9.0, 8.0, 10.0], [6.0, 7.0, 6.5], standards=(1, 2)) == 1
    assert best_of([1.0, 3.0], [2.0, 1.0], standards=(1,)) == 1


def test_the_standards_of_a_trial_count() -> None:
    device = FakeDevice([1.0, 1.0, 1.0, *[0.5, 1.2] * 2], [1.0])
    for standards, expected in (((), 0), ((1,), 1)):
        device.runs, device.is_done = [0, 0], False
        tried, settled = begun(device, standards=standards)
        tried("a")
        device.is_done = True
        tried("a")
        assert settled[0][2] == expected


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


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError("no"), RuntimeError("a library refuses")])
def test_a_failure_ends_the_trial_and_the_call_runs(error: RuntimeError) -> None:
    device = FakeDevice([2.0], [1.0])
    calls = []

    def full(*_: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            raise error
        return "result"

    tried = CallTrial([device.run(0), full], 2, lambda *_: pytest.fail("nothing was measured"), device)
    device.is_done = True
    for _ in range(3):
        assert tried("a") == "result 0 of ('a',)"


def test_long_calls_have_short_bursts() -> None:
    assert rounds_of([1e-6, 2e-6]) == MOST_ROUNDS
    assert rounds_of([BURST_S]) == rounds_of([1.0, 1.0]) == LEAST_ROUNDS
    assert rounds_of([]) == MOST_ROUNDS
    middle = rounds_of([1e-4, 2e-4, 2e-4])
    assert LEAST_ROUNDS < middle < MOST_ROUNDS


def test_ties_go_to_the_predicted_one() -> None:
    times = [1.0, 0.995, 2.0]
    assert best_of(times, times) == 0
    times = [1.0, 0.95, 0.94]
    assert best_of(times, times) == 2
    assert best_of([3.0], [3.0]) == 0


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


def test_a_trial_may_wait_and_time_more_than_the_call() -> None:
    device, is_ready = FakeDevice([1.0], [1.0], [4.0], [3.0]), False
    settled: list[Any] = []

    def timed(run: Any) -> Any:
        return device.run(2 + runs.index(run))

    runs = [device.run(0), device.run(1)]
    tried = CallTrial(runs, 2, lambda *given: settled.append(given), device, timed=timed, is_ready=lambda: is_ready)
    for _ in range(3):
        assert tried("a") == "result 0 of ('a',)"
    assert device.runs == [3, 0, 0, 0], "nothing is timed yet"
    is_ready = True
    assert tried("a") == "result 0 of ('a',)"
    assert device.runs[:2] == [4, 0], "results are those of calls"
    assert min(device.runs[2:]) > 2
    device.is_done = True
    assert tried("b") == "result 1 of ('b',)"
    ((tensors, seconds, place),) = settled
    assert (tensors, place) == (("b",), 1)
    assert seconds == pytest.approx([4.0, 3.0])
