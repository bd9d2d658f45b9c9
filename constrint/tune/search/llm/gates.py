"""A round's candidates and the gates that each reached: legal, compiles, right, fast. Each result is a record.

`legal` follows from the intersection (`resolve.py`), `compiles` from the compiler, which needs no GPU. A trial of the
tuner decides `right` and `fast`: it checks a candidate before it times it. Without a GPU the cost model's time of the
compiled kernel replaces `right` and `fast`, and is marked as modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from constrint.errors import printed_line
from constrint.select import Candidate
from constrint.select.compiled import Compile, CompileJob, judge, modelled
from constrint.select.ranking import runs
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.answer import Response
from constrint.tune.search.llm.records import (
    Gate,
    GateResult,
    PredictedConfig,
    Proposal,
    ProposalRefusal,
    Resources,
    Verdict,
)
from constrint.tune.search.llm.resolve import Key, key_of
from constrint.tune.store.record import TuningRecord, digest

#: Origin of the cost model's first choice, the baseline that every gain is counted from.
BASELINE: Final = "cost model"
#: Sets of inputs that a candidate is checked on.
NUM_INPUTS: Final = 5
#: Digits of a candidate's digest, and characters of a message.
DIGITS, MAX_MESSAGE = 12, 400
#: Outcome of a failed trial -> the gate that failed, and the message where the trial has none.
FAILED_AT: Final[Mapping[str, tuple[Gate, str]]] = {
    "compile_failed": ("compiles", "the compiler refuses it"),
    "launch_failed": ("right", "it cannot be launched"),
    "wrong_result": ("right", "its result is wrong"),
    "timed_out": ("right", "it takes too long, or hangs"),
    "crashed": ("right", "its process ended"),
    "implausible": ("right", "no GPU of this model is as fast"),
}
#: Prefix of an engine's message where the compiler crashed or hung.
COMPILING: Final = "compiling: "
MODELLED: Final = "modelled: there is no GPU, so it was neither checked nor timed"
NOTHING_TO_COMPILE: Final = "it is no single kernel: nothing to compile"


@dataclass
class Attempt:
    """A candidate of a round, its origin, and the gates that it reached.

    Args:
        candidate: The configuration with its predicted time.
        origin: Name of the proposer, or `BASELINE`.
        proposal: The proposal that the candidate belongs to; None for the baseline.
        round: Number of its round, from 0.
        gates: Results in the order of the gates.
        verdict: The judge's verdict; None until the last gate is decided.
        record: The measurement; None where nothing was measured.
        metrics: Metrics of a profiler by name.
    """

    candidate: PredictedConfig
    origin: str
    proposal: Proposal | None
    round: int
    gates: list[GateResult] = field(default_factory=list)
    verdict: Verdict | None = None
    record: TuningRecord | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """Kernel and configuration, hashable."""
        return key_of(self.candidate.kernel, self.candidate.config)

    @property
    def seconds(self) -> float | None:
        """Measured or modelled time; None unless every gate was passed."""
        last = self.gates[-1] if self.gates else None
        return last.seconds if last is not None and last.gate == "fast" and last.passed else None

    def came_to(self, gate: Gate, message: str = "", *, passed: bool = True, **figures: Any) -> None:
        """Add the result of a gate; the message is a compiler's or a check's, and becomes one printable line."""
        kernel, config = self.candidate.kernel, dict(self.candidate.config)
        name = digest([kernel, config])[:DIGITS]
        line = printed_line(message, MAX_MESSAGE)
        result = GateResult(
            gate=gate, passed=passed, kernel=kernel, config=config, message=line, candidate=name, origin=self.origin,
            **figures,
        )  # fmt: skip
        self.gates.append(result)

    def compiled(self, after: Candidate, *, is_modelled: bool) -> None:
        """Decide the gates before a trial by the compiler's result; without a GPU the last one, too.

        A kernel that spills passes, with a message.
        """
        self.came_to("legal")
        binary = None if after.resources is None else after.resources.compiled
        used = None
        if binary is not None:
            registers, spilled = binary.registers_per_thread, binary.spill_bytes
            used = Resources(registers=registers, spill_bytes=spilled, smem_bytes=binary.smem_bytes)
        message = NOTHING_TO_COMPILE if after.resources is None else after.problem
        self.came_to("compiles", message, passed=runs(after), resources=used)
        if is_modelled and runs(after):
            self.came_to("fast", MODELLED, seconds=after.cost.seconds, is_modelled=True)

    def measured(self, record: TuningRecord, num_inputs: int) -> None:
        """Decide the last gates by a trial, up to the first failure."""
        self.record = record
        if record.outcome in FAILED_AT:
            gate, otherwise = FAILED_AT[record.outcome]
            gate = "compiles" if record.message.startswith(COMPILING) else gate
            self.came_to(gate, record.message.strip() or otherwise, passed=False)
            return
        error = record.error_over_bound
        of_bound = "" if error is None else f", error {error:.3g} of what rounding allows"
        self.came_to("right", f"on {num_inputs} sets of inputs{of_bound}")
        if (figures := record.figures) is not None:
            spread = f"spread {1e6 * figures.spread_s:.3g} us"
            message = f"median of {figures.num_rounds} rounds, L2 {figures.cache}, {spread}"
            self.came_to("fast", message, seconds=figures.median_s)


@dataclass
class Round:
    """One question and everything that followed from the answer.

    Args:
        number: From 0.
        answer: The speaker's answer.
        proposals: The proposals that could be read.
        refusals: Reasons for which a proposal, or a part of one, was refused; with the proposal's number, or None for
            the reply as a whole.
        attempts: The candidates.
    """

    number: int
    answer: Response
    proposals: Sequence[Proposal] = ()
    refusals: list[tuple[int | None, ProposalRefusal]] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)

    def refuse(self, message: str, number: int | None = None, where: str = "") -> None:
        """Add a refusal."""
        self.refusals.append((number, ProposalRefusal(where=where, message=message)))


def fastest(attempts: Sequence[Attempt]) -> Attempt | None:
    """The fastest candidate that passed every gate."""
    timed = [attempt for attempt in attempts if attempt.seconds is not None]
    return min(timed, key=lambda attempt: attempt.seconds or 0.0, default=None)


class CompileGate:
    """The gate `compiles` of one task.

    Args:
        task: The workload and the GPU.
        compile_all: Compiles for a GPU that need not be present.
    """

    def __init__(self, task: SearchTask, compile_all: Compile) -> None:
        self._task, self._compile_all = task, compile_all

    def __call__(self, several: Sequence[PredictedConfig]) -> list[Candidate]:
        """The configurations as compiled, in their order; those without a single kernel as they were modelled."""
        task, jobs, results = self._task, {}, []
        for place, one in enumerate(several):
            spec, config = task.operation.spec(one.kernel), dict(one.config)
            results.append(modelled(spec, task.gpu, task.workload, config, spec.problem(task.gpu, task.workload)))
            if results[-1].resources is not None:
                jobs[place] = CompileJob(spec, task.gpu, task.workload, config)
        compiled = self._compile_all(list(jobs.values())) if jobs else ()
        for (place, job), outcome in zip(jobs.items(), compiled, strict=True):
            results[place] = judge(results[place], job, outcome)
        return results
