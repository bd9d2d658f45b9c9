"""Trials: several plans of one call, timed in turn on the user's operands while the first calls run.

The first call enqueues a burst: every candidate once, so that its code is loaded, then all in turn with events around
each, with operands in the L2 as calls that follow each other find them, and with an L2 that something else has used,
as a call among others finds it. Nothing waits for it. Calls run the candidate that was chosen by its prediction until
the events are complete; then the one with the least geometric mean of both times takes the place of the trial in the
table. Calls that follow each other take the host's time where it is the longer one, so that it is measured, too, and
bounds the warm time. The burst begins behind a pause of the device during which the host gets ahead, so that times are
the device's. A trial is never begun while a graph is captured, and never looked at then.
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
#: Clocks of the device's pause, in which the host enqueues the burst.
PAUSE_CLK = 1_000_000
#: Bytes that are written where torch does not state the size of the L2.
UNSTATED_L2_BYTES = 1 << 26
#: Rounds of a burst, at most and at least; the time that a burst may take beyond the least.
MOST_ROUNDS, LEAST_ROUNDS, BURST_S = 5, 1, 4e-3
#: Time that emptying the L2 takes, about.
EVICT_S = 2e-5
#: A candidate has to be faster than the one chosen by prediction by this share.
LEAST_GAIN = 0.03

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
    """

    recipes: Sequence[Any]
    labels: Sequence[str]
    seconds: Sequence[float]
    settled: Callable[[Sequence[float], int], None]


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

    def pause(self) -> None:
        """Let the device wait while the host enqueues the burst."""

    def evict(self) -> None:
        """Enqueue what takes the place of the operands in the L2."""

    def host_s(self) -> float:
        """Seconds of the host's clock."""

    def is_captured(self) -> bool:
        """Whether launches are captured into a graph."""


class CurrentDevice:
    """The current GPU and stream."""

    def event(self) -> Any:
        """See `TimedDevice`."""
        make: Any = torch.cuda.Event
        return make(enable_timing=True)

    def pause(self) -> None:
        """See `TimedDevice`."""
        pause: Any = torch.cuda._sleep
        pause(PAUSE_CLK)

    def evict(self) -> None:
        """See `TimedDevice`."""
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        size = getattr(facts, "L2_cache_size", 0) or UNSTATED_L2_BYTES
        torch.empty(size, dtype=torch.uint8, device="cuda").zero_()

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
    """

    def __init__(
        self,
        runs: Sequence[Callable[..., Any]],
        rounds: int,
        settle: Callable[[tuple[Any, ...], Sequence[float], int], None],
        device: TimedDevice | None = None,
    ) -> None:
        self._runs = list(runs)
        self._rounds = rounds
        self._settle = settle
        self._device: TimedDevice = device or CurrentDevice()
        self._events: list[list[tuple[Event, Event]]] | None = None  # of a round: all warm, then all cold
        self._host_s = [math.inf] * len(self._runs)  # least time that a call took the host
        self._is_over = False

    def __call__(self, *tensors: Any) -> Any:
        """Run the call; begin the trial, or end it where its events are complete."""
        if not self._is_over and not self._device.is_captured():
            if self._events is None:
                self._begin(tensors)
            elif self._events and self._events[-1][-1][1].query():
                return self._end(tensors)
        return self._run(0, tensors)

    def _begin(self, tensors: tuple[Any, ...]) -> None:
        self._events = []
        # Whatever fails here, the call itself runs; memory for one more result may be missing.
        with suppress(torch.cuda.OutOfMemoryError):
            for place in range(len(self._runs)):
                if self._run(place, tensors) is None:
                    break  # a plan does not run in this context
            else:
                self._time(tensors)
        self._is_over = not self._events or len(self._events[-1]) < 2 * len(self._runs)

    def _time(self, tensors: tuple[Any, ...]) -> None:
        """Enqueue the timed rounds."""
        assert self._events is not None
        self._device.pause()
        for _ in range(self._rounds):
            of_round = [self._timed(place, tensors) for place in range(len(self._runs))]
            for place in range(len(self._runs)):
                self._device.evict()
                of_round.append(self._timed(place, tensors))
            self._events.append(of_round)

    def _timed(self, place: int, tensors: tuple[Any, ...]) -> tuple[Event, Event]:
        start, end = self._device.event(), self._device.event()
        start.record()
        before = self._device.host_s()
        self._run(place, tensors)
        self._host_s[place] = min(self._host_s[place], self._device.host_s() - before)
        end.record()
        return start, end

    def _end(self, tensors: tuple[Any, ...]) -> Any:
        self._is_over = True
        events, number = self._events or [], len(self._runs)
        times = [
            1e-3 * min(start.elapsed_time(end) for start, end in (of_round[at] for of_round in events))
            for at in range(2 * number)
        ]
        warm = [max(pair) for pair in zip(times[:number], self._host_s, strict=True)]
        seconds = [math.sqrt(one * other) for one, other in zip(warm, times[number:], strict=True)]
        place = best_of(seconds)
        result = self._run(place, tensors)
        self._settle(tensors, seconds, place)
        return result

    def _run(self, place: int, tensors: tuple[Any, ...]) -> Any:
        result = self._runs[place](*tensors)
        return None if result is False else result  # dropped from the table: the call has no plan


def best_of(seconds: Sequence[float]) -> int:
    """The place of the least time; the first where no other is faster by `LEAST_GAIN`."""
    least = min(seconds)
    return 0 if least > (1 - LEAST_GAIN) * seconds[0] else list(seconds).index(least)
