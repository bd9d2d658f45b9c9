"""Refusals of a device: configurations that spill, do not fit or do not compile, and the rules that follow.

A process remembers its refusals in memory; a stored decision that contradicts them is not used.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from constrint.choose.decision import Request
from constrint.errors import RESIDENT
from constrint.hwmodels import GpuModel
from constrint.model import Constraint, Var, all_of, any_of
from constrint.select.candidate import Config
from constrint.select.limits import BlockUse, most_registers

#: After two configurations that spilled: registers of the next one by the estimate, in percent of theirs.
WARY_PERCENT = 75
#: `Refusal.what` of a configuration that spills; `required` is then bytes per thread.
REGISTERS = "registers"


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


def care_after(refused: Sequence[Refusal]) -> int:
    """Level of care for the next choice, by the number of refused configurations that spilled.

    0, up to one: as usual. 1, after two: nothing with a chance to spill of more than one in ten. 2, after three: also
    far fewer registers.
    """
    return min(2, max(0, sum(refusal.what == REGISTERS for refusal in refused) - 1))


#: Refusals in this process by `Request.subject`.
_REFUSED: dict[tuple[Hashable, ...], tuple[Refusal, ...]] = {}
#: (GPU, kernel, configuration) of each refusal: a stored decision that launches one of them is not used.
_REFUSED_STEPS: set[tuple[Hashable, ...]] = set()


def refusals_of(request: Request) -> tuple[Refusal, ...]:
    """Refusals of a request by devices of this process, in order."""
    return _REFUSED.get(request.subject, ())


def add(request: Request, refusal: Refusal) -> None:
    """Remember a refusal."""
    before = _REFUSED.get(request.subject, ())
    if refusal not in before:
        _REFUSED[request.subject] = (*before, refusal)
        _REFUSED_STEPS.add(_step_key(request, refusal.kernel, refusal.config))


def take_back(request: Request, refusal: Refusal) -> None:
    """Forget a refusal: a kernel that spills runs where there is no other one."""
    _REFUSED[request.subject] = tuple(other for other in refusals_of(request) if other != refusal)
    _REFUSED_STEPS.discard(_step_key(request, refusal.kernel, refusal.config))


def was_refused(request: Request, kernel: str, config: Config) -> bool:
    """Whether a device of this GPU's model refused a configuration of a kernel, for whatever workload."""
    return bool(_REFUSED_STEPS) and _step_key(request, kernel, config) in _REFUSED_STEPS


def has_refused(gpu: GpuModel) -> bool:
    """Whether a device of this GPU's model refused any configuration."""
    return any(name == gpu.name for name, *_ in _REFUSED_STEPS)


def _step_key(request: Request, kernel: str, config: Config) -> tuple[Hashable, ...]:
    return None if request.gpu is None else request.gpu.name, kernel, tuple(sorted(config.items()))
