"""`decide`: from a request to the program that runs it, for every operation.

decide(request)             the decision: from memory, else from disk, else of the operation's first candidate
refuse(decision, refusal)   a device refused a step: remember the refusal, decide again
forget()                    empty the memory, so that everything is decided again; refusals of devices stay

The memory is by `Request.key`. The disk holds decisions for named GPUs under the GPU's model, the kernels, the request
and the tables of winners; it holds none where a kernel comes from outside of this package, since nothing tells that its
code has changed. A stored decision whose program a device of this process has refused is not used. Refusals are
remembered in memory alone, and become rules of the next choice (`Refusal.rule`).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from constrint import cache
from constrint.choose.decision import Decision, Request
from constrint.errors import RESIDENT, InfeasibleError
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import contributor
from constrint.model import Constraint, Var, all_of, any_of
from constrint.select.candidate import Config
from constrint.select.limits import BlockUse, most_registers
from constrint.select.spec import KernelSpec
from constrint.select.toolchain import key_of
from constrint.select.winners import stamp, when_reloaded

#: Decisions in memory, at most.
CAPACITY = 65536
_MEMORY: dict[tuple[Hashable, ...], Decision] = {}
#: Kind of decisions in the cache.
_KIND = "decisions"
#: After two configurations that spilled: registers of the next one by the estimate, in percent of theirs.
WARY_PERCENT = 75
#: `Refusal.what` of a configuration that spills; `required` is then bytes per thread.
REGISTERS = "registers"
#: Refusals in this process by `Request.subject`.
_REFUSED: dict[tuple[Hashable, ...], tuple[Refusal, ...]] = {}
#: (GPU, kernel, configuration) of each refusal: a stored decision that launches one of them is not used.
_REFUSED_STEPS: set[tuple[Hashable, ...]] = set()


def decide(request: Request) -> Decision:
    """The program that runs a request, and the candidates that were passed over.

    Raises:
        InfeasibleError: When nothing fits; carries the conflict.
        UsageError: When the request is malformed, or no implementation takes the workload.
    """
    decision = _MEMORY.get(request.key)
    if decision is None:
        operation: Any = contributor(request.operation)
        specs = operation.implementations(request) if hasattr(operation, "implementations") else None
        place = None if specs is None else _place_of(request, specs)
        decision = _load(place, request)
        if decision is None:
            first, *others = operation.candidates(request, refusals_of(request))
            decision = Decision(request, first, tuple(others))
            _store(place, decision)
        _remember(decision)
    return decision


def refuse(decision: Decision, refusal: Refusal) -> Decision:
    """Remember that a device refused a program, and decide again; later calls of `decide` heed the refusal.

    Args:
        decision: The refused decision; for a layer, the decision of one step alone (`decision.of(role)`).
        refusal: The configuration that the device or the compiler refused, and the reason.

    Raises:
        InfeasibleError: When nothing else fits, with the conflict, or there is no hardware model to choose by.
    """
    request = decision.request
    if request.gpu is None:
        raise InfeasibleError(f"{refusal}; without a hardware model there is no other choice.")
    _add(request, refusal)
    _drop(refusal.kernel, request)
    try:
        return decide(request)
    except InfeasibleError:
        if refusal.what == REGISTERS:
            # A kernel that spills still runs: where no other fits, it stays the choice.
            _take_back(request, refusal)
        raise


@when_reloaded
def forget() -> None:
    """Drop all decisions, so that everything is decided again; refusals of devices stay."""
    _MEMORY.clear()


@dataclass(frozen=True)
class Refusal:
    """A configuration that a device refused, although it satisfies every rule.

    Args:
        kernel: Name of the program: the full name of its implementation.
        config: The configuration.
        what: The resource that is exceeded, in the compiler's words.
        required: Amount that the compiled kernel takes.
        limit: Amount that the device has.
    """

    kernel: str
    config: Config
    what: str
    required: int
    limit: int

    def rule(self, gpu: GpuModel, use: BlockUse, *, together: Sequence[str] = (), is_wary: bool = False) -> Constraint:
        """The constraint that later choices of this kernel satisfy.

        Shared memory: the predicted bytes fit even if they are too few by the same factor as for the refused
        configuration. Blocks that are not resident together: at most the number that was resident; where that number
        is unknown or does not help, another value of a parameter of `together`. Registers: another value of a
        parameter that the estimate of registers depends on; if wary, also at most `WARY_PERCENT` of the refused
        estimate, relative to the registers that a thread may have.
        """
        if self.what == "shared memory" and 0 < self.limit < self.required:
            return use.smem_bytes <= use.smem_bytes.value(self.config) * self.limit // self.required
        if self.what == RESIDENT and use.together is not None and 0 < self.limit < self.required:
            fewer = use.together <= self.limit
            # A launch may have more blocks than its rules count; the refused configuration must not come again.
            if not fewer.holds(self.config):
                return fewer
        other = any_of(*(Var(name) != self.config[name] for name in self._deciding(use, together)))
        if self.what != REGISTERS or not is_wary:
            return other
        most = most_registers(gpu, use.warps)
        refused = use.registers_per_thread.value(self.config), most.value(self.config)
        return all_of(other, 100 * refused[1] * use.registers_per_thread <= WARY_PERCENT * refused[0] * most)

    def _deciding(self, use: BlockUse, together: Sequence[str]) -> list[str]:
        """Parameters of which another value may help; all of the configuration's where none stands out."""
        names: Iterable[str] = together
        if self.what == REGISTERS:
            names = sorted(use.registers_per_thread.variables & self.config.keys()) or ["num_warps"]
        elif self.what != RESIDENT:
            names = ["num_warps"]
        return [name for name in names if name in self.config] or sorted(self.config)

    def __str__(self) -> str:
        """Render as a reason."""
        if self.what == REGISTERS:
            return f"compiled, {dict(self.config)} spills {self.required} bytes a thread"
        return (
            f"the device refused {dict(self.config)}: {self.required} of {self.what} required, "
            f"the limit is {self.limit}"
        )


def refusals_of(request: Request) -> tuple[Refusal, ...]:
    """Refusals of a request by devices of this process, in order."""
    return _REFUSED.get(request.subject, ())


def _add(request: Request, refusal: Refusal) -> None:
    before = _REFUSED.get(request.subject, ())
    if refusal not in before:
        _REFUSED[request.subject] = (*before, refusal)
        _REFUSED_STEPS.add(_step_key(request, refusal.kernel, refusal.config))


def _take_back(request: Request, refusal: Refusal) -> None:
    _REFUSED[request.subject] = tuple(other for other in refusals_of(request) if other != refusal)
    _REFUSED_STEPS.discard(_step_key(request, refusal.kernel, refusal.config))


def _was_refused(request: Request, kernel: str, config: Config) -> bool:
    """Whether a device of this GPU's model refused a configuration of a kernel, for whatever workload."""
    return bool(_REFUSED_STEPS) and _step_key(request, kernel, config) in _REFUSED_STEPS


def has_refused(gpu: GpuModel) -> bool:
    """Whether a device of this GPU's model refused any configuration."""
    return any(name == gpu.name for name, *_ in _REFUSED_STEPS)


def _step_key(request: Request, kernel: str, config: Config) -> tuple[Hashable, ...]:
    return None if request.gpu is None else request.gpu.name, kernel, tuple(sorted(config.items()))


def care_after(refused: Sequence[Refusal]) -> int:
    """Level of care for the next choice, by the number of refused configurations that spilled.

    0, up to one: as usual. 1, after two: nothing with a chance to spill of more than one in ten. 2, after three: also
    far fewer registers.
    """
    return min(2, max(0, sum(refusal.what == REGISTERS for refusal in refused) - 1))


def _remember(decision: Decision) -> None:
    if len(_MEMORY) >= CAPACITY:
        _MEMORY.clear()
    _MEMORY[decision.request.key] = decision


def _drop(kernel: str, request: Request) -> None:
    """Forget the decision of a request, and those with a candidate that has the same kernel for the same workload."""
    _MEMORY.pop(request.key, None)
    for key, decision in list(_MEMORY.items()):
        steps = (step for program in decision.programs for step in program.steps)
        if any(step.kernel == kernel and step.workload == request.workload for step in steps):
            del _MEMORY[key]


def _place_of(request: Request, specs: Sequence[KernelSpec]) -> bytes | None:
    """Key on disk of a request's decision among implementations; None where none is stored."""
    if request.gpu is None or request.device is not None or refusals_of(request):
        return None
    return key_of(request.gpu, specs, request.subject, stamp(request.gpu))


def _load(place: bytes | None, request: Request) -> Decision | None:
    """The decision that some process stored; None where there is none, or this process's device refused it."""
    data = None if place is None else cache.load(_KIND, place)
    if data is not None:
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            decision = Decision.from_plain(json.loads(data), request)
            program = decision.program
            names = [(program.name, step.config) for step in program.steps]
            names += [(step.kernel, step.config) for step in program.steps]
            if names and not any(_was_refused(request, *name) for name in names):
                return decision
    return None


def _store(place: bytes | None, decision: Decision) -> None:
    if place is not None:
        cache.store(_KIND, place, json.dumps(decision.to_plain()).encode())
