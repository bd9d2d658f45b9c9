"""Time calls on a device: in turn, in several rounds, medians and spread.

*cold* is one call after the L2 was overwritten; *warm* is calls back to back on the same operands; both are timed by
events. *From Python* is wall time per call, Python's share included, with the device waited for at the end of a run of
calls. `graph` takes Python out of a call: what it launches is captured once and replayed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

Call = Callable[[], object]
#: Bytes overwritten before a cold call; more than any L2 holds.
FLUSH_BYTES = 256 * 2**20
#: Memory reserved by torch beyond which its cache is emptied.
CACHE_BYTES = 50 * 2**30
#: Time of all rounds of one cold call, without flushing, in seconds; and the fewest rounds.
COLD_BUDGET_S = 3e-3
FEWEST_ROUNDS = 7
QUICK_ROUNDS = 3
#: Rounds of the first figures of a candidate, and of the final ones.
ROUNDS, FINAL_ROUNDS = 15, 45
#: Length of a warm run or a run from Python, in seconds, and its most calls.
RUN_S, MAX_CALLS = 1e-3, 50


@dataclass(frozen=True)
class Measurement:
    """Times of one call.

    Args:
        median_s: The median of the rounds.
        spread_s: The 80th less the 20th percentile.
        num_rounds: Number of rounds.
    """

    median_s: float
    spread_s: float
    num_rounds: int

    @staticmethod
    def of(times: Sequence[float]) -> Measurement:
        """Summarise one time per round."""
        ordered, num = sorted(times), len(times)
        return Measurement(
            statistics.median(ordered), ordered[int(0.8 * (num - 1))] - ordered[int(0.2 * (num - 1))], num
        )


class Timer:
    """Times calls on one device; on the CPU by the clock, with nothing to overwrite and nothing to capture."""

    def __init__(self, device: str = "cuda") -> None:
        self._has_gpu = device != "cpu"
        if self._has_gpu:
            import torch

            cuda: Any = torch.cuda
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device=device)
            self._stream: Any = cuda.Stream()

    def graph(self, call: Call, repeats: int = 1) -> Call:
        """A call that replays what `repeats` calls launch; the first call is made outside, so that all is compiled.

        `torch.cuda.graph` would empty torch's cache each time.
        """
        if not self._has_gpu:
            return lambda: [call() for _ in range(repeats)]
        import torch

        call()
        torch.cuda.synchronize()
        if torch.cuda.memory_reserved() > CACHE_BYTES:
            torch.cuda.empty_cache()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin()
            try:
                for _ in range(repeats):
                    call()
            finally:
                graph.capture_end()
        replay: Call = graph.replay
        return replay

    def quick(self, call: Call) -> Measurement:
        """Time a few cold calls, enough to recognise a far too slow candidate."""
        return Measurement.of(self._cold_times([call] * QUICK_ROUNDS))

    def cold(self, calls: Sequence[Call], rounds: int = 31) -> list[Measurement]:
        """Time calls that take turns, each beginning a turn as often, so that drift favours none."""
        slowest = max(self._cold_times([call, call])[1] for call in calls)
        rounds = max(FEWEST_ROUNDS, min(rounds, int(COLD_BUDGET_S / max(slowest, 1e-9))))
        turns = [(turn + i) % len(calls) for turn in range(rounds) for i in range(len(calls))]
        times = self._cold_times([calls[i] for i in turns])
        return [
            Measurement.of([t for i, t in zip(turns, times, strict=True) if i == place]) for place in range(len(calls))
        ]

    def warm(self, calls: Sequence[Call], about_s: float, rounds: int = 3) -> list[Measurement]:
        """Time graphs of calls back to back, in turn; `about_s` is the rough time of one call."""
        repeats = max(2, min(MAX_CALLS, int(RUN_S / max(about_s, 1e-6))))
        graphs = [self.graph(call, repeats) for call in calls]
        return self._in_turn([partial(self._per_call_s, graph, repeats) for graph in graphs], rounds)

    def from_python(self, calls: Sequence[Call], rounds: int = 7) -> list[Measurement]:
        """Wall time per call, in turn; the calls of a round are made back to back."""

        def run(call: Call, repeats: int) -> float:
            self.synchronize()
            started = time.perf_counter()
            for _ in range(repeats):
                call()
            self.synchronize()
            return (time.perf_counter() - started) / repeats

        about = [min(run(call, 1) for _ in range(2)) for call in calls]
        repeats = [max(1, min(MAX_CALLS, int(5 * RUN_S / max(once, 1e-6)))) for once in about]
        return self._in_turn([partial(run, call, n) for call, n in zip(calls, repeats, strict=True)], rounds)

    def shown_to_profiler(self) -> AbstractContextManager[object]:
        """The range of a profiler that waits for `cudaProfilerStart`."""
        if not self._has_gpu:
            return nullcontext()
        import torch

        cuda: Any = torch.cuda
        profile: AbstractContextManager[object] = cuda.profiler.profile()
        return profile

    def synchronize(self) -> None:
        """Wait for the device."""
        if self._has_gpu:
            import torch

            torch.cuda.synchronize()

    @staticmethod
    def _in_turn(runs: Sequence[Callable[[], float]], rounds: int) -> list[Measurement]:
        times: list[list[float]] = [[] for _ in runs]
        for turn in range(rounds):
            for i in range(len(runs)):
                place = (turn + i) % len(runs)
                times[place].append(runs[place]())
        return [Measurement.of(of_one) for of_one in times]

    def _cold_times(self, calls: Sequence[Call]) -> list[float]:
        """Seconds of each call; the device is waited for once, so that it never waits for Python."""
        pairs = []
        for call in calls:
            if self._has_gpu:
                self._flush.zero_()
            start = self._stamp()
            call()
            pairs.append((start, self._stamp()))
        self.synchronize()
        return [self._between_s(start, end) for start, end in pairs]

    def _per_call_s(self, graph: Call, repeats: int) -> float:
        start = self._stamp()
        graph()
        end = self._stamp()
        self.synchronize()
        return self._between_s(start, end) / repeats

    def _stamp(self) -> Any:
        if not self._has_gpu:
            return time.perf_counter()
        import torch

        cuda: Any = torch.cuda
        event = cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between_s(self, start: Any, end: Any) -> float:
        return float(1e-3 * start.elapsed_time(end)) if self._has_gpu else float(end - start)


def call_of(launches: Sequence[Any]) -> Call:
    """All launches as one call."""

    def call() -> None:
        for launch in launches:
            launch.run()

    return call
