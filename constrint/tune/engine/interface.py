"""The protocol of an engine: it takes jobs, compiles, checks and times their trials, and answers every one.

Every fault of a candidate (a crash, a hang, all memory taken, endless output) is an answer like any other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from constrint.hwmodels import GpuModel
from constrint.tune.store.record import Compiled, Figures
from constrint.tune.trial import Load, Outcome, Trial

#: Time limits of one compilation, of one trial or finalist on the device, and of the start of a process, in seconds.
COMPILE_PATIENCE_S, RUN_PATIENCE_S, START_PATIENCE_S = 60.0, 30.0, 180.0


@dataclass(frozen=True)
class Setup:
    """Settings of an engine.

    Args:
        load: Finds a kernel by its name, importable in every process.
        gpu: The model of the devices.
        device: `cuda`, or `cpu` for kernels that run there.
        cache: `cold`: the L2 is overwritten before every timed call; `warm`: calls follow each other.
        num_inputs: Sets of random inputs of a check.
        has_unusual: Whether all sets but the first are of the kinds that a kernel may fail on.
        seed: Seed of the random inputs.
        compile_patience_s, run_patience_s: Time limits of one candidate.
        max_memory_bytes: Limit of the host memory of one process; 0 for half of the machine's.
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
        """The same with a time limit of `seconds` on the device, and twice that to compile."""
        return replace(self, run_patience_s=seconds, compile_patience_s=2 * seconds)


@dataclass(frozen=True)
class Job:
    """A request to try one candidate, or to time finalists in turn.

    Args:
        number: Unique number of the job.
        trials: One candidate, or the finalists of one workload.
        is_final: Whether the trials are finalists: tried before, timed in turn with more rounds.
        best_s: Least time of the workload so far; a far slower candidate is not timed to the end.
    """

    number: int
    trials: tuple[Trial, ...]
    is_final: bool = False
    best_s: float = float("inf")


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one trial; `steps` has the seconds of each step on the device, in order."""

    outcome: Outcome
    message: str = ""
    error_over_bound: float | None = None
    figures: Figures | None = None
    compiled: Compiled | None = None
    steps: dict[str, float] = {}


@dataclass(frozen=True)
class JobResult:
    """The answers to a job, one per trial.

    Args:
        job: The job.
        slot: The device that ran it.
        answers: Results of its trials.
        seconds: Their time.
        slot_is_lost: Whether the device is given up; the job was not run then.
        steps: Seconds of each step from the request to the answer, in order; empty where an engine does not tell.
    """

    job: Job
    slot: int
    answers: tuple[TrialAnswer, ...]
    seconds: float
    slot_is_lost: bool = False
    steps: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """Runs jobs on slots, one per device."""

    @property
    def slots(self) -> Sequence[str]:
        """Name of each device: `GPU 0`."""

    @property
    def toolchain(self) -> Mapping[str, str]:
        """Versions of the tools that the devices measure with."""

    def submit(self, slot: int, job: Job) -> None:
        """Queue a job for a slot; it is compiled while it waits."""

    def drop(self, numbers: Set[int]) -> None:
        """Forget jobs, by their numbers: they are not answered any more, and what runs one of them is ended."""

    def poll(self, timeout_s: float) -> list[JobResult]:
        """The results since the last call; waits up to `timeout_s` for one.

        Raises:
            ConstrintError: When no device can be used any more.
        """

    def close(self) -> None:
        """End all processes at once."""


def failed(job: Job, outcome: Outcome, message: str) -> tuple[TrialAnswer, ...]:
    """The same answer for every trial of a job."""
    return tuple(TrialAnswer(outcome=outcome, message=message) for _ in job.trials)
