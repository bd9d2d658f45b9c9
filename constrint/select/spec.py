"""The specification of a kernel: sizes, parameters, rules, resources, cost, launches and checks.

A user requests an operation (gemm, lstm); each of its implementations is a `KernelSpec`. A spec holds
knowledge, never results: `rank` does the work. The base class has defaults for all but parameters, rules, resources.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.model import Expr, Problem, Var
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.cost import CostColumns, streaming_cost
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.workload import ELEMENT_BYTES, MAX_SIZE, Size, Workload

Columns = Mapping[str, NDArray[Any]]

Vars = Mapping[str, Expr]


@dataclass(frozen=True)
class Param:
    """One tunable parameter: its admissible values, the preferred ones first.

    Args:
        name: The field's standard name (`tile_m`, `num_warps`).
        values: Values in order of preference; ties in predicted time are settled by this order.
        meaning: Meaning of the parameter, in a phrase.
        because: Reason for exactly these values.
        title: Title of its column in a table, a few letters; the name if empty.
    """

    name: str
    values: tuple[int, ...]
    meaning: str
    because: str
    title: str = ""


class Rule(NamedTuple):
    """A condition (a constraint, or a column of booleans) with its name, its reason and its kind.

    A configuration that breaks a CERTAIN rule cannot run as intended; one that breaks a REDUNDANT rule does the work of
    another configuration that is kept; an ESTIMATED rule may be wrong, and removes nothing. "" states no kind.
    """

    condition: Any
    name: str
    because: str
    kind: str = ""


class Launch(Protocol):
    """One launch of a device function with all its arguments; with meta tensors it can only be compiled."""

    def run(self) -> None:
        """Enqueue it on the current stream."""

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """Compile the device function with these arguments for a named GPU; no GPU is needed."""


class KernelSpec(ABC):
    """Specification of one implementation of an operation.

    Attributes:
        operation: The operation's name, `gemm`; an operation may have several implementations.
        name: Name of the implementation, `pointer`; "" for the only one.
        summary: Its result and its method, in a phrase.
        sizes: The sizes of a workload.
        options: Further properties of a workload, with defaults (a bias, the order of axes).
        dtypes: Supported operand types.
        order_params: Parameters that change only the traffic between memory levels.
        free_params: Parameters of the compiler: the cost model cannot tell their values apart.
        resident_params: Parameters that determine the number of blocks that have to be resident at the same time.
        dtype_hints: Error messages for dtypes that the kernel does not have, by dtype.
        harmless_spill_bytes: Spilled bytes per thread that were measured to cost no time.
        num_roundings: Roundings of a value to the dtype on its way to an output (states of a recurrence).
        actions: Parameters that each macro action of a proposal moves (`tile`, `pipeline`, ...), the usual one first;
            other actions follow the parameters' names (`constrint/tune/search/llm/actions.py`).
    """

    operation: str
    name: str = ""
    summary: str
    sizes: tuple[Size, ...]
    options: tuple[Size, ...] = ()
    dtypes: tuple[str, ...]
    order_params: tuple[str, ...] = ()
    free_params: tuple[str, ...] = ()
    resident_params: tuple[str, ...] = ()
    harmless_spill_bytes: int = 0
    num_roundings: int = 0
    dtype_hints: ClassVar[Mapping[str, str]] = {}
    actions: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    @property
    def full_name(self) -> str:
        """Unique name of the kernel: `gemm.pointer`, or `softmax` for the only implementation."""
        return f"{self.operation}.{self.name}" if self.name else self.operation

    @property
    def home(self) -> str:
        """Module that defines the kernel: that of its class, or the one for which a function makes specs."""
        return type(self).__module__

    @property
    def device_files(self) -> tuple[Path, ...]:
        """Files of device code besides the module `home`."""
        return ()

    @property
    def text_key(self) -> str:
        """The cause of `device_texts` besides the package's files; empty where all device code stands in files."""
        return ""

    def device_texts(self) -> Sequence[str]:
        """Device code that Python writes for this kernel, and macros that follow from it."""
        return ()

    @property
    def compilers(self) -> Mapping[str, str]:
        """Versions by name of compilers beyond those of every kernel; absent tools are left out."""
        return {}

    @property
    def size_names(self) -> tuple[str, ...]:
        """Names of the sizes, in order."""
        return tuple(size.name for size in self.sizes)

    # Abstract: parameters, rules, resources.

    @abstractmethod
    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The tunable parameters on this GPU."""

    @abstractmethod
    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """The kernel's own constraints over the parameters `v`; the hardware's limits follow from `use`."""

    @abstractmethod
    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse | None:
        """Resources of one block, as expressions over parameters that are neither order nor free parameters.

        None for an implementation that is no single kernel: no hardware limit applies.
        """

    # Workloads.

    def default_workload(self, gpu: GpuModel) -> Workload:
        """The workload where the user names none: default sizes and the first dtype that the GPU supports."""
        sizes = {size.name: size.default for size in self.sizes}
        for dtype in self.dtypes:
            workload = Workload(self.operation, sizes, dtype)
            try:
                self.check_dtype(gpu, workload)
            except UnsupportedError:
                continue
            return workload
        return Workload(self.operation, sizes, self.dtypes[0])

    def check_workload(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse a workload that this kernel or this GPU does not support, with the reason.

        Raises:
            UnknownNameError: For a dtype that the kernel does not have.
            UsageError: For a size out of range.
            UnsupportedError: When the GPU has no unit for the dtype.
            InfeasibleError: When the data does not fit the GPU's memory.
        """
        if workload.dtype not in self.dtypes:
            raise UnknownNameError("dtype", workload.dtype, self.dtypes, self.dtype_hints.get(workload.dtype, ""))
        numbers = {**workload.sizes, **workload.options}
        for size in (*self.sizes, *self.options):
            value = numbers.get(size.name, size.default)
            if not size.least <= value <= size.most:
                width = " (32-bit sizes)" if size.most == MAX_SIZE else ""
                raise UsageError(f"{size.name} must be between {size.least} and {size.most}{width}, got {value}.")
        self.check_dtype(gpu, workload)
        self.check_memory(gpu, workload)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:  # noqa: B027  every GPU takes every dtype
        """Raise UnsupportedError where the GPU has no unit for the workload's dtype."""

    def check_memory(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise InfeasibleError where the GPU's memory cannot hold the workload's data."""
        needed, there = self.moved_bytes(workload), gpu.memory.dram.size_bytes
        if needed > there:
            raise InfeasibleError(
                f"{workload} does not fit {gpu.name}: its data takes {needed / 1e9:,.1f} GB, "
                f"the device has {there / 1e9:,.1f} GB. Split the work or choose a larger GPU."
            )

    # The space and its costs.

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """State the space; every limit comes from the GPU model, every rule carries its reason."""
        problem = Problem(self.full_name)
        v: dict[str, Var] = {}
        for param in self.params(gpu, workload):
            v[param.name] = problem.int_var(param.name, values=list(param.values), because=param.because)
        for rule in self.rules(gpu, workload, v):
            problem.add(rule.condition, name=rule.name, because=rule.because, kind=rule.kind)
        use = self.use(gpu, workload, v)
        if use is not None:
            add_block_limits(problem, gpu, use)
        return problem

    def stated_problem(self, gpu: GpuModel, workload: Workload) -> Problem | None:
        """The part of `problem` that many workloads share, as one object for all of them; None if there is none.

        `problem` returns a copy of it with further rules. None of these rules may mention a free parameter.
        """
        return None

    def moved_bytes(self, workload: Workload) -> int:
        """Compulsory traffic to and from memory in bytes: by default one input and one output of all sizes."""
        elements = int(np.prod([workload.sizes[name] for name in self.size_names], dtype=object))
        return 2 * elements * ELEMENT_BYTES[workload.dtype]

    def num_operations(self, workload: Workload) -> int:
        """Least floating or integer operations of the workload, a multiply-add being two; 0 if uncounted."""
        return 0

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time of every row; without the order parameters, a lower bound over their values.

        By default the time of a kernel that streams `moved_bytes` through DRAM.
        """
        threads = np.asarray(blocks_per_sm, dtype=np.float64)
        use = self.use(gpu, workload, {name: Var(name) for name in columns})
        if use is not None:
            threads = threads * use.warps.columns(columns) * gpu.sm.warp_size
        return streaming_cost(gpu, self.moved_bytes(workload), threads)

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """The least time any implementation could take on this GPU."""
        return self.moved_bytes(workload) / gpu.memory.dram.bandwidth_bytes_per_s

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Assumptions of the cost model in place of values that no source states."""
        return ()

    def evidence(self, gpu: GpuModel, workload: Workload) -> str:
        """Measurements that the predicted times are made of or were held against, and whose; empty without any."""
        return ""

    def figures(self, gpu: GpuModel, workload: Workload, config: Config) -> Mapping[str, float]:
        """Figures behind a configuration's predicted time, by names with units; `explain` shows them."""
        return {}

    @property
    def has_figures(self) -> bool:
        """Whether the kernel states such figures."""
        return type(self).figures is not KernelSpec.figures

    def values_of(self, config: Config) -> Mapping[str, Any]:
        """Values that a configuration's numbers code; by default the numbers themselves."""
        return config

    # Launch and check: these methods import torch and triton when they are called.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """Input tensors by name: random on a device, without data on `meta`."""
        raise UnsupportedError(f"kernel {self.full_name!r} does not say what its inputs are.")

    def unusual_inputs(self, workload: Workload, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Adversarial inputs derived from random ones: unusual strides, magnitudes and signs; variant 0 is unchanged.

        By default every variant is the random inputs themselves.
        """
        return dict(inputs)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Empty output tensors by name, on the inputs' device; a checker fills them with poison."""
        raise UnsupportedError(f"kernel {self.full_name!r} does not say what its outputs are.")

    def launches(
        self,
        gpu: GpuModel,
        workload: Workload,
        config: Config,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> Sequence[Launch]:
        """The launches that compute the outputs, in order; the last one is the kernel whose resources are stated."""
        raise UnsupportedError(f"kernel {self.full_name!r} does not say how it is launched.")

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Reference outputs in higher precision, in plain PyTorch."""
        raise UnsupportedError(f"kernel {self.full_name!r} has no reference.")

    def num_terms(self, workload: Workload) -> int:
        """Most terms that one output element sums; the tolerance of a check follows from it."""
        return max(workload.sizes.values())

    def checked_as(self, workload: Workload) -> Workload:
        """Workload of the same code path on which the kernel is checked: by default the same one."""
        return workload

    def bucket(self, workload: Workload) -> Workload:
        """Representative workload that is tuned for all that share its winner: by default each workload itself."""
        return workload

    def usual_workloads(self, gpu: GpuModel) -> Iterable[Workload]:
        """Workloads that are tuned at install time where none is named: by default that of `default_workload`."""
        return (self.default_workload(gpu),)

    def ways(self, workload: Workload) -> Iterable[Mapping[str, int]]:
        """Sets of parameter values that callers fix, each tuned separately; by default one empty set."""
        return ({},)

    def roundings(self, workload: Workload) -> float:
        """Roundings of the dtype that an output may be off by beyond those of its sum: by default a fixed number."""
        return self.num_roundings

    def compiled_as(self, workload: Workload) -> Workload:
        """Representative of all workloads that compile to the same code: by default each workload itself."""
        return workload

    def compile(self, gpu: GpuModel, workload: Workload, config: Config) -> CompiledKernel:
        """Compile one configuration for a named GPU, as it would be launched for this workload; no GPU is needed.

        Raises:
            UsageError: When triton or torch is not installed.
            UnsupportedError: When the GPU lacks the dtype, or the compiler refuses.
        """
        inputs = self.inputs(gpu, workload)
        outputs = self.outputs(gpu, workload, inputs)
        return self.launches(gpu, workload, config, inputs, outputs)[-1].compile(gpu)


@dataclass(frozen=True)
class Operation:
    """An operation that users name, and the implementations that compute it.

    Args:
        name: `gemm`; `gemm.pointer` where one implementation was named.
        implementations: Its kernels, in order of preference among equals.
    """

    name: str
    implementations: tuple[KernelSpec, ...]

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Sizes of a workload: the same for all implementations."""
        return self.implementations[0].sizes

    @property
    def options(self) -> tuple[Size, ...]:
        """Options of a workload: those of any implementation."""
        every = {option.name: option for spec in self.implementations for option in spec.options}
        return tuple(every.values())

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Operand types that some implementation takes."""
        return tuple(dict.fromkeys(dtype for spec in self.implementations for dtype in spec.dtypes))

    def default_workload(self, gpu: GpuModel) -> Workload:
        """The workload that stands for the operation when the user names none."""
        return self.implementations[-1].default_workload(gpu)

    def spec(self, full_name: str) -> KernelSpec:
        """The implementation of that full name.

        Raises:
            UnknownNameError: When there is no such implementation.
        """
        for spec in self.implementations:
            if spec.full_name == full_name:
                return spec
        raise UnknownNameError("kernel", full_name, [spec.full_name for spec in self.implementations])
