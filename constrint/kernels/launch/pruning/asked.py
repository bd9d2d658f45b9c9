"""What a list of configurations is judged by: a kernel's spec or a stated space, the GPU, and the call's own numbers.

A user's names need not be ours: `rename` maps them, and names that differ in capitals alone are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from constrint.errors import NoDeviceError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, detect, load_gpu
from constrint.kernels.launch.autotune.call import DTYPE_NAMES
from constrint.kernels.launch.autotune.call_space import Space
from constrint.kernels.launch.device import gpu_of
from constrint.kernels.registry import load_kernel
from constrint.select.spec import KernelSpec, Operation
from constrint.select.workload import SIZE_DIVISOR, Workload, check_all_sizes, workload_of

#: The options of a launch that are parameters under the same name in every kernel.
LAUNCH_PARAMS = ("num_warps", "num_stages")
#: What a user may say that configurations are of, and what it is made into.
Spec = str | KernelSpec | Operation | Space
Asked = Operation | Space


def asked_of(spec: object) -> Asked:
    """The operation or the space that a user means.

    Raises:
        UsageError: For what is neither; says what is taken.
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
    """How a user's names become ours.

    Args:
        rename: Our name by the user's.
        known: Our names.
    """

    rename: Mapping[str, str]
    known: frozenset[str]

    @staticmethod
    def of(rename: Mapping[str, str] | None, known: frozenset[str]) -> Names:
        """The names, checked.

        Raises:
            UsageError: When two names become one.
            UnknownNameError: When a name becomes one that is not ours.
        """
        given = dict(rename or {})
        for theirs, ours in given.items():
            if ours not in known:
                raise UnknownNameError("name", str(ours), known, f"rename says that {theirs!r} stands for it.")
        twice = sorted({ours for ours in given.values() if list(given.values()).count(ours) > 1})
        if twice:
            raise UsageError(f"rename gives several names for {', '.join(twice)}; one of yours stands for one of ours.")
        return Names(given, known)

    def ours(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values by our names; those that are not ours are left out."""
        taken = {*self.rename.values(), *(self.known & values.keys())}
        found: dict[str, Any] = {}
        for name, value in values.items():
            if name in self.rename:
                found[self.rename[name]] = value
            elif name in self.known:
                found.setdefault(name, value)
            elif name.lower() in self.known - taken:
                found[name.lower()] = value
        return found

    def check_used(self, seen: set[str], where: str) -> None:
        """Refuse a name of the user's that stands nowhere.

        Raises:
            UnknownNameError: For such a name: it is misspelt, perhaps.
        """
        for theirs in self.rename:
            if theirs not in seen:
                raise UnknownNameError("name", theirs, seen, f"rename speaks of it; {where} no such name.")


def names_for(asked: Asked, rename: Mapping[str, str] | None, gpu: GpuModel) -> Names:
    """The names of the parameters and sizes that the user's are mapped to."""
    if isinstance(asked, Space):
        known = {*asked.stated.domains, *LAUNCH_PARAMS, *(rename or {}).values()}
    else:
        known = {*LAUNCH_PARAMS, *(size.name for size in (*asked.sizes, *asked.options))}
        for spec in asked.implementations:
            with suppress(UnsupportedError):  # one for other GPUs
                known |= {param.name for param in spec.params(gpu, spec.default_workload(gpu))}
    return Names.of(rename, frozenset(known))


@dataclass(frozen=True)
class CallFacts:
    """What one call of a kernel shows: numbers, the operands' type, the device, how well its tensors are aligned.

    Args:
        numbers: Its whole numbers by argument.
        dtype: Type of its first tensor; empty where it has none.
        element_bytes: Bytes of an element of it.
        gpu: The model of its first tensor's device; None where it is on none.
        is_aligned: Whether every tensor begins at, and strides by, multiples of what Triton looks for.
        is_on_unknown: Whether that device is one that has no model.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""
    element_bytes: int = 0
    gpu: GpuModel | None = None
    is_aligned: bool = True
    is_on_unknown: bool = False

    @staticmethod
    def of(arguments: Mapping[str, Any]) -> CallFacts:
        """The facts of a call's arguments by name."""
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
    """The GPU that was named, else that of the call's tensors, else the one of this machine.

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
    """The workload of sizes under the user's names; the default one where no size is given.

    Raises:
        UsageError: When some sizes are given and others not, or one is no whole number.
    """
    sizes = {size.name for size in (*operation.sizes, *operation.options)}
    given = {name: value for name, value in names.ours(numbers).items() if name in sizes}
    if any(size.name in given for size in operation.sizes):
        check_all_sizes(operation, given, 'rename={"YOUR_NAME": "m"} says which of your names stands for one of them.')
    return workload_of(operation, gpu, given, dtype)


def is_known_wide(workload: Workload) -> bool:
    """Whether Triton knows all sizes to be multiples of 16: loads of others are narrow, and not pipelined."""
    return all(size % SIZE_DIVISOR == 0 for size in workload.sizes.values())
