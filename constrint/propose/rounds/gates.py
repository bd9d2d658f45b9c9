"""The gates that a configuration passes: legal, compiles, right, fast. Each result is a record.

The first follows from the intersection (`resolve.py`), the second from the compiler, which needs no GPU. The other two
are a trial of the tuner, which checks a candidate before it times it; where there is no GPU, the cost model's time of
the compiled kernel stands in for the last one and is marked as modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from constrint.propose.records import Gate, GateResult, Ranked, Resources
from constrint.select import Candidate, KernelSpec
from constrint.select.as_compiled import Compile, CompileJob, judge, modelled, runs
from constrint.tune.search.interface import Task
from constrint.tune.store.record import TuningRecord, digest

#: Sets of inputs that a candidate is checked on.
NUM_INPUTS: Final = 5
#: Digits by which a candidate is told from others.
DIGITS: Final = 12
#: Outcome of a trial -> the gate that it did not pass, and what is said where the trial says nothing.
FAILED_AT: Final[Mapping[str, tuple[Gate, str]]] = {
    "compile_failed": ("compiles", "the compiler refuses it"),
    "launch_failed": ("right", "it cannot be launched"),
    "wrong_result": ("right", "its result is wrong"),
    "timed_out": ("right", "it takes too long, or hangs"),
    "crashed": ("right", "its process ended"),
}
#: How an engine's message begins where a compiler crashed or hung.
COMPILING: Final = "compiling: "
NOTHING_TO_COMPILE: Final = "it is no single kernel: nothing to compile"


@dataclass(frozen=True)
class Compiled:
    """A candidate at the gate `compiles`: what came of it, and the time that the model predicts as compiled."""

    result: GateResult
    predicted_s: float


def candidate_id(kernel: str, config: Mapping[str, int]) -> str:
    """What tells a configuration from others, in a few digits."""
    return digest([kernel, dict(config)])[:DIGITS]


def result_of(gate: Gate, one: Ranked, origin: str, *, passed: bool = True, message: str = "") -> GateResult:
    """The result of a gate for a configuration."""
    name = candidate_id(one.kernel, one.config)
    config = dict(one.config)
    return GateResult(
        gate=gate, passed=passed, kernel=one.kernel, config=config, message=message, candidate=name, origin=origin
    )


class CompileGate:
    """The gate `compiles` of one task.

    Args:
        task: The workload and the GPU.
        compile_all: Compiles for a GPU that need not be there.
    """

    def __init__(self, task: Task, compile_all: Compile) -> None:
        self._task, self._compile_all = task, compile_all

    def __call__(self, several: Sequence[Ranked], origin: str) -> list[Compiled]:
        """Compile configurations; in their order what came of it."""
        specs = [self._task.operation.spec(one.kernel) for one in several]
        candidates = [self._candidate(spec, one) for spec, one in zip(specs, several, strict=True)]
        kernels = [place for place, candidate in enumerate(candidates) if candidate.resources is not None]
        asked = [CompileJob(specs[i], self._task.gpu, self._task.workload, dict(several[i].config)) for i in kernels]
        told = dict(zip(kernels, self._compile_all(asked) if asked else (), strict=True))
        found = []
        for place, (one, candidate) in enumerate(zip(several, candidates, strict=True)):
            if place not in told:
                passed = result_of("compiles", one, origin, message=NOTHING_TO_COMPILE)
                found.append(Compiled(passed, candidate.cost.seconds))
                continue
            at = asked[kernels.index(place)]
            found.append(_compiled(one, judge(candidate, at, told[place]), origin))
        return found

    def _candidate(self, spec: KernelSpec, one: Ranked) -> Candidate:
        task = self._task
        problem = spec.problem(task.gpu, task.workload)
        return modelled(spec, task.gpu, task.workload, dict(one.config), problem)


def _compiled(one: Ranked, after: Candidate, origin: str) -> Compiled:
    """The result for a candidate as compiled; what spills may run, and says so."""
    result = result_of("compiles", one, origin, passed=runs(after), message=_one_line(after.problem))
    binary = after.resources.compiled if after.resources is not None else None
    if binary is not None:
        taken = Resources(
            registers=binary.registers_per_thread, spill_bytes=binary.spill_bytes, smem_bytes=binary.smem_bytes
        )
        result = msgspec.structs.replace(result, resources=taken)
    return Compiled(result, after.cost.seconds)


def modelled_fast(one: Ranked, compiled: Compiled, origin: str) -> GateResult:
    """The cost model's word in place of the gate `fast`, where there is no GPU."""
    told = "modelled: there is no GPU, so it was neither checked nor timed"
    result = result_of("fast", one, origin, message=told)
    return msgspec.structs.replace(result, seconds=compiled.predicted_s, is_modelled=True)


def measured(one: Ranked, record: TuningRecord, origin: str) -> tuple[GateResult, ...]:
    """The gates that a trial of the tuner decided, up to the first that was not passed."""
    failed = FAILED_AT.get(record.outcome)
    if failed is not None:
        gate, otherwise = failed
        gate = "compiles" if record.message.startswith(COMPILING) else gate
        return (result_of(gate, one, origin, passed=False, message=_one_line(record.message) or otherwise),)
    error = "" if record.error_over_bound is None else f", error {record.error_over_bound:.3g} of what rounding allows"
    right = result_of("right", one, origin, message=f"on {NUM_INPUTS} sets of inputs{error}")
    if record.figures is None:
        return (right,)
    figures = record.figures
    told = f"median of {figures.num_rounds} rounds, L2 {figures.cache}, spread {1e6 * figures.spread_s:.3g} us"
    fast = result_of("fast", one, origin, message=told)
    return right, msgspec.structs.replace(fast, seconds=figures.median_s)


def _one_line(text: str) -> str:
    """What a compiler or a check said, in one printable line of a bearable length."""
    line = " ".join(text.split())
    return "".join(letter if letter.isprintable() else "?" for letter in line)[:400]
