"""What an engine is: it is given jobs, compiles, checks and times what they name, and always answers.

Whatever a candidate does - crash, hang, take all memory, print, write elsewhere - is an answer like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from constrint.hwmodels import GpuModel
from constrint.tune.store.record import Compiled, Figures
from constrint.tune.trial import Load, Outcome, Trial

#: How long one kernel may take to compile, a trial or one finalist on the device, and a process to start.
COMPILE_PATIENCE_S, RUN_PATIENCE_S, START_PATIENCE_S = 60.0, 30.0, 180.0


@dataclass(frozen=True)
class Setup:
    """How trials are run.

    Args:
        load: Finds a kernel by its name, in whatever process.
        gpu: The model of the devices.
        device: `cuda`, or `cpu` for kernels that run there.
        cache: `cold`: the L2 is overwritten before every call that is timed; `warm`: calls follow each other.
        num_inputs: Sets of random inputs that a candidate is checked on.
        has_unusual: Whether all sets but the first are of the kinds that a kernel may go wrong on.
        seed: Of the random inputs.
        compile_patience_s, run_patience_s: How long one candidate may take.
        max_memory_bytes: Memory of the host that one process may take; 0 for half of the machine's.
    """

    load: Load
    gpu: GpuModel
    device: str = "cuda"
    cache: str = "cold"
    num_inputs: int = 2
    has_unusual: bool = False
    seed: int = 0
    compile_patience_s: float = COMPILE_PATIENCE_S
    run_patience_s: float = RUN_PATIENCE_S
    max_memory_bytes: int = 0

    def with_patience(self, seconds: float) -> Setup:
        """The same with so many seconds for a candidate on the device, and twice as many to compile it."""
        return replace(self, run_patience_s=seconds, compile_patience_s=2 * seconds)


@dataclass(frozen=True)
class Job:
    """What is asked: to try one candidate, or to time several in turn.

    Args:
        number: Tells it from every other job.
        trials: One candidate, or the finalists of one workload.
        is_final: Whether these are finalists, which were tried before: they are timed in turn, with more rounds.
        best_s: The least time of the workload so far; a candidate that is far slower is not timed to the end.
    """

    number: int
    trials: tuple[Trial, ...]
    is_final: bool = False
    best_s: float = float("inf")


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one candidate."""

    outcome: Outcome
    message: str = ""
    error_over_bound: float | None = None
    figures: Figures | None = None
    compiled: Compiled | None = None


@dataclass(frozen=True)
class JobResult:
    """The answers to a job, one for each of its trials.

    Args:
        job: The job.
        slot: The device that it was given to.
        answers: What came of its trials.
        seconds: What they took.
        slot_is_lost: Whether nothing can be run on that device any more; the job was not run then.
    """

    job: Job
    slot: int
    answers: tuple[TrialAnswer, ...]
    seconds: float
    slot_is_lost: bool = False


class Engine(Protocol):
    """Runs jobs on slots, of which each is one device."""

    @property
    def slots(self) -> Sequence[str]:
        """A name for each device: `GPU 0`."""

    @property
    def toolchain(self) -> Mapping[str, str]:
        """The tools by which the devices measure."""

    def submit(self, slot: int, job: Job) -> None:
        """Take a job for a slot; it waits its turn there, and is compiled meanwhile."""

    def poll(self, timeout_s: float) -> list[JobResult]:
        """The jobs that are done since the last call; waits for one, but no longer than so many seconds.

        Raises:
            ConstrintError: When no device can be used any more.
        """

    def close(self) -> None:
        """End everything at once, whatever it is at."""


def failed(job: Job, outcome: Outcome, message: str) -> tuple[TrialAnswer, ...]:
    """The same answer for every trial of a job."""
    return tuple(TrialAnswer(outcome=outcome, message=message) for _ in job.trials)
