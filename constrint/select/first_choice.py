"""The first choice for a workload: made once, handed on to the launch, made again where a device refuses it.

`choose` ranks a kernel's whole space, and keeps the choice on disk for other processes. An operation that has to choose
in microseconds keeps tables beside this (`kernels/gemm/first_choice.py`) and gives the same `Choice`. What a device
refused is known to the process alone, and no choice on disk goes against it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from constrint import cache
from constrint.errors import RESIDENT, ConstrintError, InfeasibleError
from constrint.hwmodels import GpuModel
from constrint.model import Constraint, Var, all_of, any_of
from constrint.model.constraint import CERTAIN
from constrint.select.candidate import Config
from constrint.select.kept import key_of
from constrint.select.limits import SPILLS, BlockUse, most_registers
from constrint.select.rank import KernelProblem, rank_requests, requests
from constrint.select.spec import KernelSpec, Operation
from constrint.select.tuned import TunedEntry
from constrint.select.winners import when_reloaded, winner
from constrint.select.workload import Workload


@dataclass(frozen=True)
class Choice:
    """A configuration of a kernel that was chosen for a workload.

    Args:
        gpu: The model it was chosen for; None where there is none of the device.
        kernel: The implementation's full name.
        config: Its parameters.
        seconds: The predicted time, or the measured one of a winner; 0 where neither is known.
        workload: What it was chosen for.
        fixed: Parameters whose values were given.
        is_measured: Whether it is a winner: what was fastest is launched even if it spills.
    """

    gpu: GpuModel | None
    kernel: str
    config: Config
    seconds: float = 0.0
    workload: Workload | None = None
    fixed: Mapping[str, int] = field(default_factory=dict)
    is_measured: bool = False

    def to_plain(self) -> dict[str, Any]:
        """Everything but the model as plain values, for JSON."""
        workload = None if self.workload is None else asdict(self.workload)
        stated = {"kernel": self.kernel, "config": dict(self.config), "seconds": self.seconds}
        return stated | {"workload": workload, "fixed": dict(self.fixed), "is_measured": self.is_measured}

    @staticmethod
    def of_winner(
        entry: TunedEntry, gpu: GpuModel, workload: Workload, fixed: Mapping[str, int] | None = None
    ) -> Choice:
        """The choice that was measured to be the best."""
        config = {name: value for name, value in entry.config.items() if isinstance(value, int)}
        return Choice(gpu, entry.kernel, config, entry.seconds, workload, dict(fixed or {}), is_measured=True)

    @staticmethod
    def from_plain(plain: Mapping[str, Any], gpu: GpuModel) -> Choice:
        """What `to_plain` gave.

        Raises:
            KeyError, TypeError, ValueError: When it gave no such thing.
        """
        workload = None if plain["workload"] is None else Workload(**plain["workload"])
        config, fixed = ({str(name): int(value) for name, value in plain[key].items()} for key in ("config", "fixed"))
        seconds, is_measured = float(plain["seconds"]), bool(plain["is_measured"])
        return Choice(gpu, str(plain["kernel"]), config, seconds, workload, fixed, is_measured)


@dataclass(frozen=True)
class Refusal:
    """A configuration that a device refused, although every rule holds.

    Args:
        config: The configuration.
        what: The compiler's name of what there is too little of.
        required: How much of it the compiled kernel takes.
        limit: How much there is.
    """

    config: Config
    what: str
    required: int
    limit: int

    def rule(self, gpu: GpuModel, use: BlockUse, *, together: Sequence[str] = (), is_wary: bool = False) -> Constraint:
        """The rule that further choices keep, from what was refused.

        For shared memory: it still fits if the prediction is as many bytes too small as for the refused configuration.
        For blocks that are not resident together: no more of them than were, or where nobody says how many, or the
        refused configuration has no more, another value of a parameter of `together`.
        For registers: another value of a parameter that the registers depend on; if wary, far fewer registers by the
        estimate, of those that a thread may have.
        """
        if self.what == "shared memory" and 0 < self.limit < self.required:
            return use.smem_bytes <= use.smem_bytes.value(self.config) * self.limit // self.required
        if self.what == RESIDENT and use.together is not None and 0 < self.limit < self.required:
            fewer = use.together <= self.limit
            # A launch may have more blocks than those that its rules know of; what was refused is not chosen again.
            if not fewer.holds(self.config):
                return fewer
        other = any_of(*(Var(name) != self.config[name] for name in self._deciding(use, together)))
        if self.what != REGISTERS:
            return other
        if not is_wary:
            return other
        most = most_registers(gpu, use.warps)
        of_refused = use.registers_per_thread.value(self.config), most.value(self.config)
        return all_of(other, 100 * of_refused[1] * use.registers_per_thread <= WARY_PERCENT * of_refused[0] * most)

    def _deciding(self, use: BlockUse, together: Sequence[str]) -> list[str]:
        """The parameters of which another value may help; all where nothing tells."""
        named: Iterable[str] = together
        if self.what == REGISTERS:
            named = sorted(use.registers_per_thread.variables & self.config.keys()) or ["num_warps"]
        elif self.what != RESIDENT:
            named = ["num_warps"]
        return [name for name in named if name in self.config] or sorted(self.config)

    def __str__(self) -> str:
        """Render as a reason."""
        if self.what == REGISTERS:
            return f"compiled, {dict(self.config)} spills {self.required} bytes a thread"
        return (
            f"the device refused {dict(self.config)}: {self.required} of {self.what} required, "
            f"the limit is {self.limit}"
        )


#: Registers that a choice may be estimated to take after two that spilled, in percent of those of each, as shares of
#: what a thread may have.
WARY_PERCENT = 75
#: What a refusal says where registers went to memory; `required` is then the bytes of a thread.
REGISTERS = "registers"

_Key = tuple[object, ...]
#: What devices refused, and first choices, by everything that was asked. An entry keeps its GPU model, since a model of
#: the same name from another file must not get this one's choice.
_REFUSED: dict[_Key, tuple[Refusal, ...]] = {}
_CHOSEN: dict[_Key, Choice] = {}
#: What choices are kept as.
_KIND = "choices"


def choose(
    kernel: Operation | KernelSpec,
    gpu: GpuModel,
    workload: Workload,
    *,
    fixed: Mapping[str, int] | None = None,
    because: str = "it is given",
) -> Choice:
    """The measured winner where there is one, else the configuration with the least predicted time; remembered.

    Args:
        kernel: An operation, or one implementation of it.
        gpu: The hardware model.
        workload: What it is for.
        fixed: Parameters that must have given values.
        because: Why they must.

    Raises:
        InfeasibleError: When nothing fits; carries the conflict.
        UsageError: When the workload is not one that the kernel takes.
    """
    operation = kernel if isinstance(kernel, Operation) else Operation(kernel.full_name, (kernel,))
    fixed = fixed or {}
    key = _key(operation.name, gpu, workload, fixed)
    known = _CHOSEN.get(key)
    if known is not None and known.gpu is gpu:
        return known
    refused = _REFUSED.get(key, ())
    entry = winner(operation.implementations, gpu, workload, fixed)
    if entry is not None and all(refusal.config != entry.config for refusal in refused):
        choice = _CHOSEN[key] = Choice.of_winner(entry, gpu, workload, fixed)
        return choice
    where = None if refused else key_of(gpu, operation.implementations, *key)
    kept = _load(where, operation, gpu, workload, fixed)
    choice = kept or _best(operation, gpu, workload, fixed, because, refused)
    if kept is None and where is not None:
        cache.store(_KIND, where, json.dumps(choice.to_plain()).encode())
    _CHOSEN[key] = choice
    return choice


@when_reloaded
def forget() -> None:
    """Choose again when it is asked next; what devices refused is not forgotten."""
    _CHOSEN.clear()


def has_refused(gpu: GpuModel) -> bool:
    """Whether a device of this model has refused any choice in this process."""
    return any(name == gpu.name for _, name, *_ in _REFUSED)


def _load(
    where: bytes | None, operation: Operation, gpu: GpuModel, workload: Workload, fixed: Mapping[str, int]
) -> Choice | None:
    """The choice that some process has kept; None where there is none."""
    data = None if where is None else cache.load(_KIND, where)
    if data is None:
        return None
    with suppress(AttributeError, KeyError, TypeError, ValueError):
        choice = Choice.from_plain(json.loads(data), gpu)
        known = {spec.full_name: spec for spec in operation.implementations}
        names = {param.name for param in known[choice.kernel].params(gpu, workload)}
        if names == choice.config.keys() and (choice.workload, choice.fixed) == (workload, fixed):
            return choice
    return None


def _best(
    operation: Operation,
    gpu: GpuModel,
    workload: Workload,
    fixed: Mapping[str, int],
    because: str,
    refused: tuple[Refusal, ...],
) -> Choice:
    """Rank the whole spaces, at first without what is likely to spill as others did."""
    for care in range(_care(refused), 0, -1):
        with suppress(InfeasibleError):
            return _best_of(operation, gpu, workload, fixed, because, refused, care=care)
    return _best_of(operation, gpu, workload, fixed, because, refused, care=0)


def _care(refused: Sequence[Refusal]) -> int:
    """How carefully to choose after so many that spilled.

    After two (1), nothing that spills with a chance of more than one in ten; after three (2), far fewer registers, too.
    """
    return min(2, max(0, sum(refusal.what == REGISTERS for refusal in refused) - 1))


def is_wary(refused: Sequence[Refusal]) -> bool:
    """Whether two choices have spilled already, so that the next one is to be of another kind."""
    return _care(refused) > 0


def _best_of(
    operation: Operation,
    gpu: GpuModel,
    workload: Workload,
    fixed: Mapping[str, int],
    because: str,
    refused: tuple[Refusal, ...],
    *,
    care: int,
) -> Choice:
    able, refusals = requests(operation, gpu, workload)
    for request in able:
        for name, value in fixed.items():
            if name in request.problem.variables:
                request.problem.add(Var(name) == value, because=because)
        if refused:
            _exclude(request, refused, care=care)
    best = rank_requests(operation, able, refusals, top=1).candidates[0]
    return Choice(gpu, best.kernel, best.config, best.cost.seconds, workload, fixed)


def refuse(kernel: Operation | KernelSpec, choice: Choice, refusal: Refusal) -> Choice:
    """Remember that a device refused a choice, and choose again; later calls of `choose` follow.

    Raises:
        InfeasibleError: When nothing else fits; carries the conflict.
    """
    if choice.gpu is None or choice.workload is None:
        raise ConstrintError(f"{refusal}; without a hardware model there is no other choice.")
    name = kernel.name if isinstance(kernel, Operation) else kernel.full_name
    key = _key(name, choice.gpu, choice.workload, choice.fixed)
    before = _REFUSED.get(key, ())
    if refusal not in before:
        _REFUSED[key] = (*before, refusal)
        _CHOSEN.pop(key, None)
    try:
        return choose(kernel, choice.gpu, choice.workload, fixed=choice.fixed)
    except InfeasibleError:
        if refusal.what == REGISTERS:
            # What spills runs: where there is nothing else it stays the choice.
            _REFUSED[key] = before
        raise


def _exclude(request: KernelProblem, refused: tuple[Refusal, ...], *, care: int) -> None:
    problem = request.problem
    for rule in problem.estimates if care else ():
        if rule.name == SPILLS:
            problem.add(rule, kind=CERTAIN)
    use = request.spec.use(request.gpu, request.workload, {name: Var(name) for name in problem.variables})
    for refusal in refused:
        if use is not None and refusal.config.keys() <= problem.variables.keys():
            rule = refusal.rule(request.gpu, use, together=request.spec.resident_params, is_wary=care > 1)
            problem.add(rule, because=str(refusal))


def _key(name: str, gpu: GpuModel, workload: Workload, fixed: Mapping[str, int]) -> _Key:
    numbers = tuple(workload.sizes.values()), tuple(sorted(workload.options.items()))
    return name, gpu.name, workload.dtype, *numbers, tuple(sorted(fixed.items()))
