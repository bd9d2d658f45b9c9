"""Times of configurations that are measured when somebody asks for them, once each, by the tuner's engine.

Several proposers ask at the same time, each in a thread of its own, so that what one waits for compiles beside what
the others wait for. What is known to be wanted later is measured while nobody waits.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel
from constrint.select import Operation, Workload
from constrint.select.candidates import Candidates
from constrint.tune.engine.interface import Engine, Job, JobResult, TrialAnswer
from constrint.tune.search.interface import Proposal
from constrint.tune.trial import Outcome, Trial

POLL_S = 0.1
#: What tells a configuration of any layer: the layer's number, and the row.
Place = tuple[int, int]


class OutOfTime(Exception):
    """Raised to who waits for a measurement where the time is up."""


@dataclass(frozen=True)
class Whole:
    """Every valid configuration of a workload, numbered through all kernels.

    Args:
        gpu: The hardware model.
        workload: What is asked.
    """

    gpu: GpuModel
    workload: Workload

    @cached_property
    def operation(self) -> Operation:
        """What is tuned."""
        return load_kernel(self.workload.operation)

    @cached_property
    def candidates(self) -> Candidates:
        """Every valid configuration; spaces that are too large to be listed whole are no matter of this program."""
        found = Candidates.of(self.operation, self.gpu, self.workload)
        if any(kernel.space is not None for kernel in found.kernels):
            raise ValueError(f"{self.workload} has too many configurations to number them all")
        return found

    @cached_property
    def rows(self) -> dict[str, NDArray[np.int64]]:
        """Of every kernel its rows."""
        firsts = np.cumsum([0, *(kernel.num_rows for kernel in self.candidates.kernels)])
        return {
            kernel.spec.full_name: np.arange(first, first + kernel.num_rows)
            for kernel, first in zip(self.candidates.kernels, firsts.tolist(), strict=False)
        }

    def row_of(self, proposal: Proposal) -> int:
        """The row of a proposal."""
        kernel = self.candidates.kernels[self.candidates.by_name[proposal.kernel]]
        row = kernel.find(proposal.config)
        if row is None:
            raise ValueError(f"{proposal} is no valid configuration")
        return int(self.rows[proposal.kernel][row])

    def trial(self, row: int) -> Trial:
        """The trial of a row."""
        for kernel in self.candidates.kernels:
            name = kernel.spec.full_name
            first = int(self.rows[name][0])
            if first <= row < first + kernel.num_rows:
                return Trial(name, self.workload, kernel.config(row - first))
        raise IndexError(row)

    def predicted_s(self, row: int) -> float:
        """What the cost model says of a row."""
        return float(np.concatenate([kernel.seconds for kernel in self.candidates.kernels])[row])


def microseconds(answer: TrialAnswer) -> float:
    """The time of an answer; infinite where the configuration failed."""
    is_timed = answer.outcome == Outcome.OK and answer.figures is not None
    return 1e6 * answer.figures.median_s if is_timed and answer.figures else math.inf


@dataclass
class Bench:
    """Measures configurations of several layers, each once, and keeps what came of them.

    Args:
        engine: Runs trials; layers are dealt to its devices.
        layers: The configurations that can be asked for.
        most_open: Jobs that the engine has at once; what waits in it cannot be overtaken.
        until: When nothing new is begun, by `time.monotonic`.
        keep: Told each answer as it comes.

    Attributes:
        why_lost: Why a device could not be used any more, which ends everything; empty where all could.
    """

    engine: Engine
    layers: Sequence[Whole]
    most_open: int
    until: float = math.inf
    keep: Callable[[int, int, TrialAnswer], None] = lambda layer, row, answer: None
    answers: dict[Place, TrialAnswer] = field(default_factory=dict)
    why_lost: str = ""
    _asked: deque[Place] = field(default_factory=deque)
    _later: deque[Place] = field(default_factory=deque)
    _open: dict[int, tuple[Place, ...]] = field(default_factory=dict)
    _begun: set[Place] = field(default_factory=set)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _is_over: bool = False

    def ahead(self, layer: int, rows: Iterable[int]) -> None:
        """Measure rows while nobody waits for others."""
        self._later += [(layer, row) for row in rows]

    def times_us(self, layer: int, rows: Sequence[int]) -> NDArray[np.float64]:
        """Microseconds of rows, infinite where one failed; waits until they are known.

        Raises:
            OutOfTime: When the time is up before.
        """
        places = [(layer, row) for row in rows]
        with self._news:
            self._asked += [place for place in places if place not in self.answers]
            self._news.wait_for(lambda: self._is_over or all(place in self.answers for place in places))
            if any(place not in self.answers for place in places):
                raise OutOfTime
            return np.array([microseconds(self.answers[place]) for place in places])

    def serve(self, threads: Sequence[threading.Thread]) -> None:
        """Measure what is asked for until nobody asks any more and nothing is left, or the time is up."""
        try:
            while True:
                with self._news:
                    self._submit()
                    if not self._open and not any(thread.is_alive() for thread in threads):
                        return
                if time.monotonic() > self.until:
                    return
                if self._open:
                    self._hear(self.engine.poll(POLL_S))
                else:
                    time.sleep(POLL_S / 10)
        finally:
            with self._news:
                self._is_over = True
                self._news.notify_all()

    def in_turn(self, layer: int, rows: Sequence[int], patience_s: float) -> dict[int, TrialAnswer]:
        """Time rows once more, all in turn; those of which nothing is known within so many seconds are left out."""
        if not rows or self.why_lost:
            return {}
        number = next(self._numbers)
        trials = tuple(self.layers[layer].trial(row) for row in rows)
        self.engine.submit(self._slot(layer), Job(number, trials, is_final=True))
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            # Jobs that were open when the time was up may end meanwhile.
            several = self.engine.poll(POLL_S)
            self._hear([done for done in several if done.job.number != number])
            for done in several:
                if done.job.number == number:
                    answers = dict(zip(rows, done.answers, strict=True))
                    return {row: answer for row, answer in answers.items() if answer.outcome != Outcome.NOT_RUN}
        return {}

    def _slot(self, layer: int) -> int:
        """All configurations of a layer are timed on one device."""
        return layer % len(self.engine.slots)

    def _submit(self) -> None:
        """Hand the engine what is asked for, then what is wanted later, as far as it has room."""
        while len(self._open) < self.most_open and time.monotonic() < self.until:
            waiting = self._asked or self._later
            # Whoever asks next finds half of the places free.
            if not waiting or (not self._asked and 2 * len(self._open) >= self.most_open):
                return
            place = waiting.popleft()
            if place in self.answers or place in self._begun:
                continue
            self._begun.add(place)
            layer, row = place
            number = next(self._numbers)
            self._open[number] = (place,)
            trials = (self.layers[layer].trial(row),)
            self.engine.submit(self._slot(layer), Job(number, trials, best_s=1e-6 * self.best_us(layer)))

    def best_us(self, layer: int) -> float:
        """The least time of a layer so far."""
        own = [microseconds(answer) for (of, _), answer in self.answers.items() if of == layer]
        return min(own, default=math.inf)

    def _hear(self, several: Sequence[JobResult]) -> None:
        with self._news:
            for done in several:
                for place, answer in zip(self._open.pop(done.job.number, ()), done.answers, strict=False):
                    if answer.outcome == Outcome.NOT_RUN:
                        # Through no fault of the configuration's: it stays unknown.
                        if done.slot_is_lost:
                            self.until, self.why_lost = -math.inf, answer.message
                        self._begun.discard(place)
                        self._later.append(place)
                        continue
                    self.answers[place] = answer
                    self.keep(*place, answer)
            self._news.notify_all()


@dataclass(frozen=True)
class Asking:
    """The times of one layer, as searches and proposers ask for them."""

    bench: Bench
    layer: int

    def __getitem__(self, rows: list[int], /) -> NDArray[np.float64]:
        """Microseconds of rows."""
        return self.bench.times_us(self.layer, rows)
