"""The limits that decide whether a configuration can run: of a kernel's spec or a stated space, on a GPU, for a call.

A user's names may differ from ours: `rename` maps them, and names that differ only in capitals count as the same.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import NoDeviceError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, detect, load_gpu
from constrint.kernels.launch.autotune.call import DTYPE_NAMES
from constrint.kernels.launch.autotune.call_space import USUAL_WARPS, Space
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_kernel
from constrint.model import Constraint, Domain, Expr, Problem, Var, const
from constrint.model.constraint import Comparison
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.spec import KernelSpec, Operation
from constrint.select.stated import ELEMENT_BYTES_NAME, GPU_NAMES, gpu_names
from constrint.select.workload import SIZE_DIVISOR, Workload, check_all_sizes, workload_of

#: The options of a launch that are parameters under the same name in every kernel.
LAUNCH_PARAMS = ("num_warps", "num_stages")
#: A user's `spec` argument, and the operation or space that it stands for.
Spec = str | KernelSpec | Operation | Space
Target = Operation | Space
#: What tiles of a product are often called: `BLOCK_M`, `BLOCK_SIZE_M`, `TILE_M`.
_USUAL_TILE = re.compile(r"(?:BLOCK|TILE)_?(?:SIZE_?)?([MNK])", re.IGNORECASE)
#: Names of the rules that `add_block_limits` makes of hardware limits; the limited amount is on the left side.
_OF_HARDWARE = ("threads", "smem")


def target_of(spec: object) -> Target:
    """Return the operation or the space that a `spec` argument stands for.

    Raises:
        UsageError: For any other value.
        UnknownNameError: When there is no kernel of that name.
    """
    if isinstance(spec, str):
        return load_kernel(spec)
    if isinstance(spec, KernelSpec):
        return Operation(spec.full_name, (spec,))
    if isinstance(spec, Operation | Space):
        return spec
    raise UsageError(
        f"spec takes a kernel's name such as 'gemm.pointer', a KernelSpec or constrint.space(...), got {spec!r}."
    )


@dataclass(frozen=True)
class Names:
    """The mapping of a user's names to the kernel's names.

    Args:
        rename: The kernel's name by the user's name.
        known: The kernel's names.
    """

    rename: Mapping[str, str]
    known: frozenset[str]

    @staticmethod
    def of(rename: Mapping[str, str] | None, kernel_names: frozenset[str]) -> Names:
        """Check a user's mapping.

        Raises:
            UsageError: When two names are mapped to the same name.
            UnknownNameError: When a name is mapped to one that the kernel lacks.
        """
        renamed = dict(rename or {})
        for theirs, ours in renamed.items():
            if ours not in kernel_names:
                raise UnknownNameError("name", str(ours), kernel_names, f"rename says that {theirs!r} stands for it.")
        twice = sorted({ours for ours in renamed.values() if list(renamed.values()).count(ours) > 1})
        if twice:
            raise UsageError(f"rename gives several names for {', '.join(twice)}; one of yours stands for one of ours.")
        return Names(renamed, kernel_names)

    def ours(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by the kernel's names; values of other names are left out."""
        taken = {*self.rename.values(), *(self.known & values.keys())}
        renamed: dict[str, Any] = {}
        for name, value in values.items():
            if name in self.rename:
                renamed[self.rename[name]] = value
            elif name in self.known:
                renamed.setdefault(name, value)
            elif name.lower() in self.known - taken:
                renamed[name.lower()] = value
        return renamed

    def check_used(self, seen: set[str], where: str) -> None:
        """Check that every name in `rename` occurs among the names that were seen.

        Raises:
            UnknownNameError: For a name that does not occur; it may be misspelt.
        """
        for theirs in self.rename:
            if theirs not in seen:
                raise UnknownNameError("name", theirs, seen, f"rename speaks of it; {where} no such name.")


def usual_names(theirs: Iterable[str], rename: Mapping[str, str], target: Target, gpu: GpuModel) -> dict[str, str]:
    """The kernel's names by the user's, as far as `rename`, equal names and usual names of tiles tell.

    Args:
        theirs: Names of a configuration's parameters.
        rename: The kernel's name by the user's name; it comes first.
        target: The operation or space.
        gpu: The GPU, which decides which implementations count.
    """
    names = names_for(target, rename, gpu)
    found = dict(rename)
    for name in theirs:
        match = _USUAL_TILE.fullmatch(name)
        ours = next((one for one in (name, name.lower()) if one in names.known), None)
        ours = ours or (f"tile_{match[1].lower()}" if match else None)
        if name not in found and ours in names.known and ours not in found.values():
            found[name] = ours
    return found


def names_for(target: Target, rename: Mapping[str, str] | None, gpu: GpuModel) -> Names:
    """Return the mapping to the parameters and sizes of an operation or a space."""
    if isinstance(target, Space):
        names = {*target.stated.domains, *LAUNCH_PARAMS, *(rename or {}).values()}
    else:
        names = {*LAUNCH_PARAMS, *(size.name for size in (*target.sizes, *target.options))}
        for spec in target.implementations:
            with suppress(UnsupportedError):  # one for other GPUs
                names |= {param.name for param in spec.params(gpu, spec.default_workload(gpu))}
    return Names.of(rename, frozenset(names))


@dataclass(frozen=True)
class CallFacts:
    """Facts of one call of a kernel.

    Args:
        numbers: The call's whole numbers by argument.
        dtype: Type of the first tensor; empty for a call without tensors.
        element_bytes: Bytes of an element of the first tensor.
        gpu: The model of the first tensor's device; None on the CPU and on a GPU without a model.
        is_aligned: Whether addresses and strides of all tensors are multiples of 16, Triton's divisor.
        is_on_unknown: Whether the first tensor is on a GPU without a model.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""
    element_bytes: int = 0
    gpu: GpuModel | None = None
    is_aligned: bool = True
    is_on_unknown: bool = False

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> CallFacts:
        """Read the facts of a call off its arguments by name."""
        tensors = [value for value in arguments.values() if hasattr(value, "data_ptr")]
        numbers = {
            name: int(value)
            for name, value in arguments.items()
            if hasattr(value, "__index__") and not hasattr(value, "data_ptr") and not isinstance(value, bool)
        }
        if not tensors:
            return CallFacts(numbers)
        first = tensors[0]
        name = str(first.dtype).removeprefix("torch.")
        is_on_gpu = first.device.type == "cuda"
        gpu = gpu_of(first.device) if is_on_gpu else None
        dtype = DTYPE_NAMES.get(name, name)
        is_aligned = all(map(_is_aligned, tensors))
        return CallFacts(numbers, dtype, first.element_size(), gpu, is_aligned, is_on_gpu and gpu is None)


def _is_aligned(tensor: Any) -> bool:
    steps = [stride for stride in tensor.stride() if stride > 1]
    return tensor.data_ptr() % SIZE_DIVISOR == 0 and all(step % SIZE_DIVISOR == 0 for step in steps)


def model_of(gpu: str | GpuModel | None, facts: CallFacts) -> GpuModel:
    """Return the model of the named GPU, else of the call's tensors' GPU, else of this machine's GPU.

    Raises:
        UsageError: When none was named and this machine has none, or none with a model.
    """
    if gpu is not None:
        return load_gpu(gpu) if isinstance(gpu, str) else gpu
    if facts.gpu is not None:
        return facts.gpu
    try:
        devices = detect()
    except NoDeviceError as error:
        raise UsageError(f"say which GPU is meant, gpu='h200': {error}") from None
    models = {device.model for device in devices}
    (only,) = models if len(models) == 1 else (None,)
    if only is None:
        seen = ", ".join(device.name for device in devices)
        raise UsageError(f"say which GPU is meant, gpu='h200': this machine has {seen}.")
    return load_gpu(only)


def workload_for(
    operation: Operation, gpu: GpuModel, names: Names, numbers: Mapping[str, Any], dtype: str | None
) -> Workload:
    """Return the workload of sizes under the user's names; the default workload where none is stated.

    Raises:
        UsageError: When some sizes are stated and others are not, or one is no whole number.
    """
    sizes = {size.name for size in (*operation.sizes, *operation.options)}
    stated = {name: value for name, value in names.ours(numbers).items() if name in sizes}
    if any(size.name in stated for size in operation.sizes):
        check_all_sizes(operation, stated, 'rename={"YOUR_NAME": "m"} says which of your names stands for one of them.')
    return workload_of(operation, gpu, stated, dtype)


def is_surely_wide(workload: Workload) -> bool:
    """Whether all sizes are multiples of 16, as Triton sees; otherwise loads are narrow and not pipelined."""
    return all(size % SIZE_DIVISOR == 0 for size in workload.sizes.values())


@dataclass(frozen=True)
class ConfigLimits:
    """Limits of one kernel on one GPU.

    Args:
        rules: The rules, each with its reason.
        domains: The values of each parameter, or the values that codes stand for.
        exact: Names of parameters for which the rules hold beyond the largest value, too.
    """

    rules: tuple[Constraint, ...]
    domains: Mapping[str, Domain]
    exact: frozenset[str]

    @property
    def of_threads(self) -> ConfigLimits:
        """The limits without those on shared memory."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.name == _OF_HARDWARE[0]))

    def broken(self, configs: Sequence[Mapping[str, Any]]) -> list[Constraint | None]:
        """The first limit that each configuration breaks for certain; None where it breaks none."""
        first_broken: list[Constraint | None] = [None] * len(configs)
        for rule in self.rules:
            for at, holds in enumerate(self._may_hold(rule, configs)):
                if first_broken[at] is None and not holds:
                    first_broken[at] = rule
        return first_broken

    def reason(self, rule: Constraint, config: Mapping[str, Any]) -> str:
        """Why a configuration breaks a limit, with the least that it takes."""
        if not isinstance(rule, Comparison) or rule.name not in _OF_HARDWARE:
            return rule.because
        codes = {name: code for name in rule.variables & config.keys() if (code := self._judged(name, config[name]))}
        columns = self._columns(rule, tuple(codes), [list(codes.values())])
        taken = rule.left.columns(columns) if columns else rule.left.value({})
        return f"{rule.because}, and this takes {int(np.min(taken)):,}"

    def _may_hold(self, rule: Constraint, configs: Sequence[Mapping[str, Any]]) -> NDArray[np.bool_]:
        """Whether each configuration keeps a rule under some values of the parameters that it does not name."""
        result = np.ones(len(configs), dtype=bool)
        groups: dict[tuple[str, ...], list[tuple[int, list[int]]]] = {}
        for at, config in enumerate(configs):
            values = {n: self._judged(n, config[n]) for n in sorted(rule.variables) if n in config}
            if None not in values.values():
                groups.setdefault(tuple(values), []).append((at, [v for v in values.values() if v is not None]))
        for names, rows in groups.items():
            columns = self._columns(rule, names, [values for _, values in rows])
            holds = rule.holds_columns(columns) if columns else np.full(len(rows), rule.holds({}))
            result[[at for at, _ in rows]] = holds.reshape(len(rows), -1).any(axis=1)
        return result

    def _columns(
        self, rule: Constraint, names: tuple[str, ...], rows: Sequence[Sequence[int]]
    ) -> dict[str, NDArray[np.int64]]:
        """A rule's parameters as columns: each row of values of `names` with every value of the others."""
        others = sorted(rule.variables - set(names))
        every = list(itertools.product(*(tuple(self.domains[name]) for name in others)))
        combos = np.array(every, dtype=np.int64).reshape(len(every), len(others))
        values = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
        columns = {name: np.repeat(values[:, i], len(combos)) for i, name in enumerate(names)}
        return columns | {name: np.tile(combos[:, i], len(rows)) for i, name in enumerate(others)}

    def _judged(self, name: str, value: Any) -> int | None:
        """The code by which a value of a parameter is judged; None where nothing is certain."""
        domain = self.domains[name]
        if domain.labels is not None:
            return domain.code_of(value)
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return None
        code = domain.code_of(value)
        if code is not None:
            return code
        if name in self.exact and int(value) > max(domain):
            return int(value)
        return max((code for code in domain if code <= int(value)), default=None)


def limits_of_spec(spec: KernelSpec, gpu: GpuModel, workload: Workload) -> ConfigLimits:
    """Return the hardware limits on a block of a kernel; none for an implementation that is no single kernel."""
    problem = Problem(spec.full_name)
    params = {param.name: param.values for param in spec.params(gpu, workload)}
    v = {name: problem.int_var(name, values=list(values)) for name, values in params.items()}
    use = spec.use(gpu, workload, v)
    if use is None:
        return ConfigLimits((), problem.variables, frozenset())
    _add_certain(problem, gpu, use)
    return ConfigLimits(
        tuple(problem.constraints), problem.variables, frozenset(LAUNCH_PARAMS) & problem.variables.keys()
    )


def limits_of_space(space: Space, gpu: GpuModel, numbers: Mapping[str, int], element_bytes: int) -> ConfigLimits:
    """Return the rules of a user's space, and the hardware limits on the resources that the user states.

    Raises:
        UsageError: When a text names something that is neither a parameter, a size nor a fact of the GPU.
    """
    stated = space.stated
    values = {**numbers, **gpu_names(gpu), **({ELEMENT_BYTES_NAME: element_bytes} if element_bytes else {})}
    names = {*stated.domains, *values}
    try:
        stated.check_rules(names)
        stated.check_text(space.smem_bytes, "smem_bytes", names)
    except UsageError as error:
        hint = f"Give sizes by name, and dtype for {ELEMENT_BYTES_NAME}; of the GPU there are {', '.join(GPU_NAMES)}."
        raise UsageError(f"{error} {hint}") from None
    of_rules = stated.problem("space", values)
    problem = Problem("limits")
    for name, domain in of_rules.variables.items():
        problem.declare(name, domain)
    if "num_warps" not in stated.domains:
        problem.int_var("num_warps", values=[USUAL_WARPS])
    warps: Expr = Var("num_warps")
    if "num_warps" in stated.domains:
        warps = stated.number("num_warps", {}, "warps")
    _add_certain(problem, gpu, BlockUse(warps, const(0), stated.number(space.smem_bytes, values, "smem_bytes")))
    # A user's rules hold for any value, not only for those of the space.
    return ConfigLimits((*of_rules.constraints, *problem.constraints), problem.variables, frozenset(problem.variables))


def _add_certain(problem: Problem, gpu: GpuModel, use: BlockUse) -> None:
    """Add the limits of threads and shared memory; estimates of registers serve ranking alone."""
    add_block_limits(problem, gpu, replace(use, least_registers=None, spilling=None))


def broken_by_all(limits: Sequence[ConfigLimits], configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return why no implementation can run each configuration; empty where one of them may run it."""
    every = [one.broken(configs) for one in limits]
    return [_reason(limits, rules, config) for rules, config in zip(zip(*every, strict=True), configs, strict=True)]


def _reason(limits: Sequence[ConfigLimits], rules: Sequence[Constraint | None], config: Mapping[str, Any]) -> str:
    """Return the reason of the last implementation, which is the most general one."""
    reason = ""
    for one, rule in zip(limits, rules, strict=True):
        if rule is None:
            return ""
        reason = one.reason(rule, config)
    return reason
