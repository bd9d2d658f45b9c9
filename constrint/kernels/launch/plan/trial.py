"""Trials: several plans of one call, timed in turn on the user's operands while the first calls run.

The first call enqueues a burst: every candidate once, so that its code is loaded, then all in turn with events around
each, with operands in the L2 as calls that follow each other find them, and with an L2 that something else has used,
as a call among others finds it. Nothing waits for it. Calls run the candidate that was chosen by its prediction until
the events are complete; then the best one takes the place of the trial in the table: the one with the least geometric
mean of both times among those that are not slower, in either, than a standard of the call, which is what would run
without this package. Calls that follow each other take the host's time where it is the longer one, so that it is
measured, too, and bounds the warm time. Each round of the burst begins behind a pause of the device during which the
host gets ahead, so that times are the device's; of several rounds the lower quartile counts. A trial is never begun
while a graph is captured, and never looked at then.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import torch

#: Environment variable that switches trials off: `0`.
VARIABLE = "CONSTRINT_TRIALS"
#: Clocks of the device in a second, about, of which a pause is counted.
CLOCKS_PER_S = 1.9e9
#: The same on AMD GPUs, where a counter of 100 MHz may be meant: pauses are then too short, not 20 times as long.
AMD_CLOCKS_PER_S = 1e8
#: Times of the host's that a pause lasts which it took for the round before, and the shortest and the longest pause.
PAUSE_SHARE, LEAST_PAUSE_S, MOST_PAUSE_S = 1.5, 5e-5, 3e-3
#: Bytes of an L2 where torch does not state its size, and how many times as much is written to empty it.
UNSTATED_L2_BYTES, EVICTED = 1 << 26, 2
#: Rounds of a burst, at most and at least; the time that a burst may take beyond the least.
MOST_ROUNDS, LEAST_ROUNDS, BURST_S = 9, 2, 6e-3
#: Time that emptying the L2 takes, about.
EVICT_S = 4e-5
#: A candidate has to be faster than the one chosen by prediction by this share.
LEAST_GAIN = 0.01
#: Measured times that differ by no more than this share are the same.
SAME = 0.01

_is_on = os.environ.get(VARIABLE, "") != "0"
_HELD = threading.local()


def use_trials(is_on: bool) -> None:
    """Switch trials on or off in this process; `CONSTRINT_TRIALS=0` switches them off from the start."""
    global _is_on
    _is_on = is_on


def trials_are_on() -> bool:
    """Whether new calls of this thread may be tried."""
    return _is_on and not getattr(_HELD, "depth", 0)


@contextmanager
def no_trials() -> Iterator[None]:
    """New calls of this thread inside are not tried."""
    _HELD.depth = getattr(_HELD, "depth", 0) + 1
    try:
        yield
    finally:
        _HELD.depth -= 1


class Rivals(NamedTuple):
    """Further plans of a call, which are tried beside the one that was chosen by its prediction.

    Args:
        recipes: Their recipes.
        labels: Names of all candidates, the chosen one first.
        seconds: Predicted times of all candidates.
        settled: Takes the measured seconds of all candidates, and the place of the one that runs from then on.
        standards: Places of candidates that are what would run without this package: nothing slower than these runs.
        timed: Makes of a candidate's function the one that is timed, which may do more; None: the call itself.
        is_ready: Whether the trial may begin, asked at each call; None: at the first one.
        preferred: Place of the candidate that runs unless another one is faster by `least_gain`, a share.
    """

    recipes: Sequence[Any]
    labels: Sequence[str]
    seconds: Sequence[float]
    settled: Callable[[Sequence[float], int], None]
    standards: Sequence[int] = ()
    timed: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None
    is_ready: Callable[[], bool] | None = None
    preferred: int = 0
    least_gain: float = LEAST_GAIN


class Event(Protocol):
    """An event of the device: `torch.cuda.Event`."""

    def record(self) -> None:
        """Enqueue it on the current stream."""

    def query(self) -> bool:
        """Whether the device has passed it."""

    def elapsed_time(self, end_event: Any) -> float:
        """Milliseconds from this event to another."""


class TimedDevice(Protocol):
    """The device that a trial runs on."""

    def event(self) -> Event:
        """A new event that is timed."""

    def pause(self, seconds: float) -> None:
        """Let the device wait for about so long, while the host enqueues a round."""

    def evict(self) -> None:
        """Enqueue what takes the place of the operands in the L2."""

    def host_s(self) -> float:
        """Seconds of the host's clock."""

    def is_captured(self) -> bool:
        """Whether launches are captured into a graph."""


class CurrentDevice:
    """The current GPU and stream."""

    def __init__(self) -> None:
        self._written: torch.Tensor | None = None

    def event(self) -> Any:
        """See `TimedDevice`."""
        make: Any = torch.cuda.Event
        return make(enable_timing=True)

    def pause(self, seconds: float) -> None:
        """See `TimedDevice`."""
        pause: Any = torch.cuda._sleep
        pause(int(seconds * (CLOCKS_PER_S if torch.version.hip is None else AMD_CLOCKS_PER_S)))

    def evict(self) -> None:
        """See `TimedDevice`."""
        if self._written is None:
            facts = torch.cuda.get_device_properties(torch.cuda.current_device())
            size = EVICTED * (getattr(facts, "L2_cache_size", 0) or UNSTATED_L2_BYTES)
            self._written = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._written.zero_()

    def host_s(self) -> float:
        """See `TimedDevice`."""
        return time.perf_counter()

    def is_captured(self) -> bool:
        """See `TimedDevice`."""
        return torch.cuda.is_current_stream_capturing()


def rounds_of(seconds: Sequence[float]) -> int:
    """Timed rounds of a burst, by the predicted times of the candidates."""
    of_round = 2 * sum(seconds) + len(seconds) * EVICT_S
    return max(LEAST_ROUNDS, min(MOST_ROUNDS, int(BURST_S / max(of_round, 1e-9))))


class CallTrial:
    """The entry of a call in a table while its candidates are tried: a function of the call's tensors.

    Args:
        runs: Run a candidate on the call's tensors, the chosen one first.
        rounds: Timed rounds of the burst.
        settle: Takes the call's tensors, the measured seconds of the candidates and the place of the one that takes
            the trial's place in the table.
        device: The device.
        standards: Places of the candidates that would run without this package.
        timed, is_ready, preferred, least_gain: See `Rivals`.
    """

    def __init__(
        self,
        runs: Sequence[Callable[..., Any]],
        rounds: int,
        settle: Callable[[tuple[Any, ...], Sequence[float], int], None],
        device: TimedDevice | None = None,
        standards: Sequence[int] = (),
        timed: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
        is_ready: Callable[[], bool] | None = None,
        preferred: int = 0,
        least_gain: float = LEAST_GAIN,
    ) -> None:
        self._runs = list(runs)
        self._timed_runs = self._runs if timed is None else [timed(run) for run in runs]
        self._is_ready = is_ready
        self._preference = preferred, least_gain
        self._rounds = rounds
        self._settle = settle
        self._standards = tuple(standards)
        self._make_device: Callable[[], TimedDevice] = CurrentDevice if device is None else lambda: device
        self._device: TimedDevice = self._make_device()
        self._events: list[list[tuple[Event, Event]]] | None = None  # of a round: all warm, then all cold
        self._host_s: list[list[float]] = [[] for _ in self._runs]  # times that calls took the host
        self._is_over = False

    def __call__(self, *tensors: Any) -> Any:
        """Run the call; begin the trial, or end it where its events are complete."""
        if not self._is_over and not self._device.is_captured():
            if self._events is None:
                if self._is_ready is None or self._is_ready():
                    self._begin(tensors)
            elif self._events and self._events[-1][-1][1].query():
                return self._end(tensors)
        return self._run(0, tensors)

    def _begin(self, tensors: tuple[Any, ...]) -> None:
        self._events = []
        # Whatever fails here, the call itself runs: memory for one more result may be missing, a library may refuse.
        with suppress(RuntimeError):
            for place in range(len(self._runs)):
                if self._run(place, tensors, is_timed=True) is None:
                    break  # a plan does not run in this context
            else:
                self._time(tensors)
        self._is_over = not self._events
        self._device = self._make_device()  # frees the memory that was written

    def _time(self, tensors: tuple[Any, ...]) -> None:
        """Enqueue the timed rounds; the first one is not counted, and tells how long the host takes for one."""
        assert self._events is not None
        host_s = self._round(tensors)[1]
        for _ in range(self._rounds):
            self._device.pause(min(MOST_PAUSE_S, max(LEAST_PAUSE_S, PAUSE_SHARE * host_s)))
            of_round, host_s = self._round(tensors)
            self._events.append(of_round)

    def _round(self, tensors: tuple[Any, ...]) -> tuple[list[tuple[Event, Event]], float]:
        """Enqueue every candidate, warm and cold, between events; with the time that it took the host."""
        before = self._device.host_s()
        of_round = [self._timed(place, tensors) for place in range(len(self._runs))]
        for place in range(len(self._runs)):
            self._device.evict()
            of_round.append(self._timed(place, tensors))
        return of_round, self._device.host_s() - before

    def _timed(self, place: int, tensors: tuple[Any, ...]) -> tuple[Event, Event]:
        start, end = self._device.event(), self._device.event()
        start.record()
        before = self._device.host_s()
        self._run(place, tensors, is_timed=True)
        self._host_s[place].append(self._device.host_s() - before)
        end.record()
        return start, end

    def _end(self, tensors: tuple[Any, ...]) -> Any:
        self._is_over = True
        events, number = self._events or [], len(self._runs)
        times = [
            1e-3 * lower_quartile([start.elapsed_time(end) for start, end in (of_round[at] for of_round in events)])
            for at in range(2 * number)
        ]
        host = map(lower_quartile, self._host_s)
        warm, cold = [max(pair) for pair in zip(times[:number], host, strict=True)], times[number:]
        place = best_of(warm, cold, self._standards, *self._preference)
        result = self._run(place, tensors)
        self._settle(tensors, mean_of(warm, cold), place)
        return result

    def _run(self, place: int, tensors: tuple[Any, ...], *, is_timed: bool = False) -> Any:
        result = (self._timed_runs if is_timed else self._runs)[place](*tensors)
        return None if result is False else result  # dropped from the table: the call has no plan


def lower_quartile(values: Sequence[float]) -> float:
    """The value of which a quarter of the others is less: noise makes times longer."""
    return sorted(values)[len(values) // 4]


def mean_of(warm: Sequence[float], cold: Sequence[float]) -> list[float]:
    """Geometric means of warm and cold times."""
    return [math.sqrt(one * other) for one, other in zip(warm, cold, strict=True)]


def best_of(
    warm: Sequence[float], cold: Sequence[float], standards: Sequence[int] = (), preferred: int = 0,
    least_gain: float = LEAST_GAIN,
) -> int:  # fmt: skip
    """The place of the least mean of both times, among those that are not slower than the standards in either.

    Of the standards' times the least ones count. Where nothing is as fast as these in both, the candidate runs that
    is slower by the least share. The preferred candidate runs where no other is faster by the least gain.
    """
    means = mean_of(warm, cold)
    able = list(range(len(means)))
    if standards:
        least_warm, least_cold = (min(times[place] for place in standards) for times in (warm, cold))
        slowness = [max(warm[place] / least_warm, cold[place] / least_cold) for place in able]
        able = [place for place in able if slowness[place] <= 1 + SAME]
        if not able:
            return slowness.index(min(slowness))
    best = min(able, key=means.__getitem__)
    return preferred if preferred in able and means[best] > (1 - least_gain) * means[preferred] else best
