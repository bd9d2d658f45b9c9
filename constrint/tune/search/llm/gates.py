"""The gates of a configuration: legal, compiles, right, fast. Each result is a record.

`legal` follows from the intersection (`resolve.py`), `compiles` from the compiler, which needs no GPU. A trial of the
tuner decides `right` and `fast`: it checks a candidate before it times it. Without a GPU the cost model's time of the
compiled kernel replaces `right` and `fast`, and is marked as modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from constrint.select import Candidate, KernelSpec
from constrint.select.as_compiled import Compile, CompileJob, judge, modelled, runs
from constrint.tune.search.interface import SearchTask
from constrint.tune.search.llm.records import Gate, GateResult, PredictedConfig, Resources
from constrint.tune.store.record import TuningRecord, digest

#: Sets of inputs that a candidate is checked on.
NUM_INPUTS: Final = 5
#: Digits of a candidate's digest.
DIGITS: Final = 12
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
NOTHING_TO_COMPILE: Final = "it is no single kernel: nothing to compile"


@dataclass(frozen=True)
class AtCompiler:
    """Result of the gate `compiles`, and the predicted time of the kernel as compiled."""

    result: GateResult
    predicted_s: float


def candidate_id(kernel: str, config: Mapping[str, int]) -> str:
    """A short digest of a configuration."""
    return digest([kernel, dict(config)])[:DIGITS]


def result_of(gate: Gate, one: PredictedConfig, origin: str, *, passed: bool = True, message: str = "") -> GateResult:
    """Make the result of a gate for a configuration."""
    name = candidate_id(one.kernel, one.config)
    config = dict(one.config)
    return GateResult(
        gate=gate, passed=passed, kernel=one.kernel, config=config, message=message, candidate=name, origin=origin
    )


class CompileGate:
    """The gate `compiles` of one task.

    Args:
        task: The workload and the GPU.
        compile_all: Compiles for a GPU that need not be present.
    """

    def __init__(self, task: SearchTask, compile_all: Compile) -> None:
        self._task, self._compile_all = task, compile_all

    def __call__(self, several: Sequence[PredictedConfig], origin: str) -> list[AtCompiler]:
        """Compile configurations; the results in their order."""
        specs = [self._task.operation.spec(one.kernel) for one in several]
        candidates = [self._candidate(spec, one) for spec, one in zip(specs, several, strict=True)]
        kernels = [place for place, candidate in enumerate(candidates) if candidate.resources is not None]
        requests = [CompileJob(specs[i], self._task.gpu, self._task.workload, dict(several[i].config)) for i in kernels]
        compiled = dict(zip(kernels, self._compile_all(requests) if requests else (), strict=True))
        results = []
        for place, (one, candidate) in enumerate(zip(several, candidates, strict=True)):
            if place not in compiled:
                passed = result_of("compiles", one, origin, message=NOTHING_TO_COMPILE)
                results.append(AtCompiler(passed, candidate.cost.seconds))
                continue
            request = requests[kernels.index(place)]
            results.append(_compiled(one, judge(candidate, request, compiled[place]), origin))
        return results

    def _candidate(self, spec: KernelSpec, one: PredictedConfig) -> Candidate:
        task = self._task
        problem = spec.problem(task.gpu, task.workload)
        return modelled(spec, task.gpu, task.workload, dict(one.config), problem)


def _compiled(one: PredictedConfig, after: Candidate, origin: str) -> AtCompiler:
    """The result of a compiled candidate; a kernel that spills passes, with a message."""
    result = result_of("compiles", one, origin, passed=runs(after), message=_one_line(after.problem))
    binary = after.resources.compiled if after.resources is not None else None
    if binary is not None:
        resources = Resources(
            registers=binary.registers_per_thread, spill_bytes=binary.spill_bytes, smem_bytes=binary.smem_bytes
        )
        result = msgspec.structs.replace(result, resources=resources)
    return AtCompiler(result, after.cost.seconds)


def modelled_fast(one: PredictedConfig, compiled: AtCompiler, origin: str) -> GateResult:
    """The cost model's time in place of the gate `fast`, without a GPU."""
    message = "modelled: there is no GPU, so it was neither checked nor timed"
    result = result_of("fast", one, origin, message=message)
    return msgspec.structs.replace(result, seconds=compiled.predicted_s, is_modelled=True)


def measured(
    one: PredictedConfig, record: TuningRecord, origin: str, num_inputs: int = NUM_INPUTS
) -> tuple[GateResult, ...]:
    """The gates that a trial decided, up to the first failure."""
    failure = FAILED_AT.get(record.outcome)
    if failure is not None:
        gate, otherwise = failure
        gate = "compiles" if record.message.startswith(COMPILING) else gate
        return (result_of(gate, one, origin, passed=False, message=_one_line(record.message) or otherwise),)
    error = "" if record.error_over_bound is None else f", error {record.error_over_bound:.3g} of what rounding allows"
    right = result_of("right", one, origin, message=f"on {num_inputs} sets of inputs{error}")
    if record.figures is None:
        return (right,)
    figures = record.figures
    message = f"median of {figures.num_rounds} rounds, L2 {figures.cache}, spread {1e6 * figures.spread_s:.3g} us"
    fast = result_of("fast", one, origin, message=message)
    return right, msgspec.structs.replace(fast, seconds=figures.median_s)


def _one_line(text: str) -> str:
    """A message of a compiler or a check as one printable line of bounded length."""
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:400]
