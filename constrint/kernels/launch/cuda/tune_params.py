"""Kernels in CUDA C++ described as Kernel Tuner describes them: `tune_params`, `restrictions`, divisors of the grid.

Beside the parameters the source finds these macros, as under Kernel Tuner: `block_size_x/y/z`, `grid_size_x/y/z`, and
`kernel_tuner`, which is 1.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda.nvrtc import MacroValue
from constrint.kernels.launch.cuda.source_spec import POINTER, CudaKernelSpec
from constrint.model import Domain, Expr, Problem, ceildiv, const
from constrint.model.python.expression import read_number
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, GridLoad, grid_cost
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.spec import Columns, Param, Rule, Vars
from constrint.select.stated import GPU_NAMES, StatedRule, StatedSpace, gpu_names
from constrint.select.workload import Size, Workload

#: An argument: ("float32", "n") for n random elements, "int32" for a number that is a size, or numpy's own.
Argument = tuple[str, int | str] | str | Any
Divisors = Sequence[str | int] | None
Reference = Callable[[Mapping[str, Any]], Mapping[str, Any]]

#: Static shared memory that any NVRTC takes; 13.5 takes more for some targets.
MAX_STATIC_SMEM_BYTES = 48 * 1024
BLOCK_SIZE_NAMES = ("block_size_x", "block_size_y", "block_size_z")
#: Threads of a block along x where no parameter states them: Kernel Tuner's default.
USUAL_BLOCK_SIZE = 256
#: Registers of a thread where nothing is stated: few enough for any block.
USUAL_REGISTERS = 32
#: Names of operand types by numpy's names.
_DTYPES = {"float64": "fp64", "float32": "fp32", "float16": "fp16"}
_AXES = ("x", "y", "z")


@dataclass(frozen=True, kw_only=True)
class Description:
    """The description of a kernel; fields have Kernel Tuner's names where it has the same field.

    Args:
        kernel_name: The kernel, as the source names it.
        kernel_source: A path that ends in `.cu`, or the text.
        problem_size: Along each dimension, in elements: numbers, or expressions over `sizes`.
        arguments: In the kernel's order, by names of your choice: `("float32", "n")` is a tensor of n random elements,
            `"int32"` a number that is the size of that name, and numpy's arrays and scalars are taken as they are.
        tune_params: The values of each parameter.
        home: Module that describes the kernel, from which other processes import it; the caller's if left out.
        sizes: Default values of the names in `problem_size` and `arguments`; `x`, `y`, `z` of the problem if None.
        outputs: Names of the arguments that the kernel writes; the first array if none are named.
        restrictions: Python expressions over the parameters, or functions of them.
        grid_div_x, grid_div_y, grid_div_z: Factors that the problem's size is divided by; the block's size if None.
        block_size_names: Parameters that are the sizes of a block.
        cmem_args: Values of `__constant__` variables by their names, described like arguments.
        smem_bytes: Static shared memory of a block, an expression; once compiled, the compiler's figure counts.
        dynamic_smem_bytes: Dynamic shared memory of a block, an expression.
        registers: Registers of a thread, an expression.
        operations: Floating operations, an expression over the sizes.
        compiler_options: Further options of NVRTC.
        reference: Computes the expected outputs by name from the arguments and sizes by name.
    """

    kernel_name: str
    kernel_source: str | Path
    problem_size: Sequence[str | int] | str | int
    arguments: Mapping[str, Argument]
    tune_params: Mapping[str, Iterable[object]]
    home: str
    sizes: Mapping[str, int] | None = None
    outputs: Iterable[str] = ()
    restrictions: StatedRule | Sequence[StatedRule] | None = ()
    grid_div_x: Divisors = None
    grid_div_y: Divisors = None
    grid_div_z: Divisors = None
    block_size_names: Sequence[str] = BLOCK_SIZE_NAMES
    cmem_args: Mapping[str, Argument] = field(default_factory=dict)
    smem_bytes: str | int = 0
    dynamic_smem_bytes: str | int = 0
    registers: str | int = USUAL_REGISTERS
    operations: str | int = 0
    compiler_options: Sequence[str] = ()
    reference: Reference | None = None

    @property
    def rules(self) -> list[StatedRule]:
        """The restrictions as a list."""
        stated = self.restrictions
        return [stated] if isinstance(stated, str) or callable(stated) else list(stated or ())

    @property
    def problem(self) -> tuple[str | int, ...]:
        """The problem's size along each dimension."""
        size = self.problem_size
        return (size,) if isinstance(size, str | int) else tuple(size)


def spec_from_tune_params(
    kernel_name: str,
    kernel_source: str | Path,
    problem_size: Sequence[str | int] | str | int,
    arguments: Mapping[str, Argument],
    tune_params: Mapping[str, Iterable[object]],
    **further: Any,
) -> TuneParamsSpec:
    """Make a spec of a kernel that is described as for Kernel Tuner; `further` are other fields of `Description`.

    Raises:
        UsageError: For an invalid field; names it.
    """
    required = {"kernel_name": kernel_name, "kernel_source": kernel_source, "problem_size": problem_size}
    for name in further:
        if name not in Description.__dataclass_fields__:
            raise UnknownNameError("property of a kernel", name, Description.__dataclass_fields__)
    further.setdefault("home", str(sys._getframe(1).f_globals.get("__name__", "")))
    return TuneParamsSpec(Description(**required, arguments=arguments, tune_params=tune_params, **further))  # type: ignore[arg-type]


class TuneParamsSpec(CudaKernelSpec):
    """A kernel that is described by its tunable parameters.

    Args:
        described: The description.

    Raises:
        UsageError: For an invalid field; names it.
    """

    summary = "a kernel in CUDA C++, described by its tunable parameters"

    def __init__(self, described: Description) -> None:
        self.described, self.source, self.function = described, described.kernel_source, described.kernel_name
        self.operation = _operation(described.kernel_name)
        problem = described.problem
        named = dict(zip(_AXES, problem, strict=False)) if described.sizes is None else described.sizes
        self._problem_size = problem if described.sizes is not None else _AXES[: len(problem)]
        self.sizes = tuple(Size(name, int(value), "of the problem") for name, value in named.items())
        self.stated = StatedSpace(described.tune_params, described.rules, self.operation)
        own = tuple(described.block_size_names)
        self.block_names = (*own, *BLOCK_SIZE_NAMES[len(own) :])[:3]
        divisors = described.grid_div_x, described.grid_div_y, described.grid_div_z
        self._divisors = [[n] if d is None else list(d) for n, d in zip(self.block_names, divisors, strict=True)]
        self._arguments = _described(described.arguments, self.size_names, self.operation)
        self._constants = _described(described.cmem_args, self.size_names, self.operation)
        self.arguments = {name: _kind(value) for name, value in self._arguments.items()}
        self.constants, self.compile_options = tuple(self._constants), tuple(described.compiler_options)
        self._outputs = self._named_outputs(described.outputs)
        first = self._arguments[self._outputs[0]]
        element = first[0] if isinstance(first, tuple) else str(first.dtype)
        self.dtypes = (_DTYPES.get(element, element),)
        self._check()

    @property
    def home(self) -> str:
        """Name of the module that describes it."""
        return self.described.home

    # The space.

    def params(self, gpu: GpuModel, workload: Workload) -> Iterable[Param]:
        """The tunable parameters."""
        return self.stated.params()

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """None; the restrictions are in `problem`, which knows the values of all parameters."""
        return iter(())

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """The restrictions, and the limits of the hardware."""
        values = {**workload.sizes, **gpu_names(gpu)}
        problem = self.stated.problem(self.full_name, values)
        problem.add(
            self.stated.number(self.described.smem_bytes, values, "smem_bytes") <= MAX_STATIC_SMEM_BYTES,
            name="static_smem",
            because="CUDA gives a kernel at most 48 KB of static shared memory; more has to be dynamic",
        )
        add_block_limits(problem, gpu, self.use(gpu, workload, {}))
        return problem

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """The block's threads; registers and shared memory as stated."""
        values = {**workload.sizes, **gpu_names(gpu)}
        smem = self.stated.number(self.described.smem_bytes, values, "smem_bytes")
        dynamic = self.stated.number(self.described.dynamic_smem_bytes, values, "dynamic_smem_bytes")
        registers = self.stated.number(self.described.registers, values, "registers")
        return BlockUse(ceildiv(self._threads(), gpu.sm.warp_size), registers, smem + dynamic)

    def values_of(self, config: Config) -> dict[str, Any]:
        """Return the values that the codes of a configuration stand for."""
        return self.stated.decoded(config)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of all arrays."""
        return sum(
            self._bytes_of(self._arguments[name], workload) for name, kind in self.arguments.items() if kind == POINTER
        )

    def num_operations(self, workload: Workload) -> int:
        """The described number of operations."""
        return self._of_sizes(self.described.operations, workload, "operations")

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time of a kernel whose memory traffic and grid are known."""
        blocks: Any = 1.0
        for along in self._grid(workload):
            blocks = blocks * along.columns(columns)
        work = self.moved_bytes(workload), self.num_operations(workload), workload.dtype
        return grid_cost(gpu, GridLoad(*work, blocks, self._threads().columns(columns)), blocks_per_sm)

    # The launch.

    def grid(self, workload: Workload, config: Config) -> tuple[int, ...]:
        """The problem's size over the product of the divisors, rounded up, along each dimension."""
        return tuple(along.value(config) for along in self._grid(workload))

    def block(self, workload: Workload, config: Config) -> tuple[int, ...]:
        """The block's sizes."""
        return tuple(self._block_size(axis).value(config) for axis in range(3))

    def dynamic_smem_bytes(self, workload: Workload, config: Config) -> int:
        """The described dynamic shared memory of a block."""
        stated = self.stated.number(self.described.dynamic_smem_bytes, workload.sizes, "dynamic_smem_bytes")
        return stated.value(config)

    def macros(self, workload: Workload, config: Config) -> Mapping[str, MacroValue]:
        """The parameters, and the macros that Kernel Tuner defines beside them."""
        block, grid = self.block(workload, config), (*self.grid(workload, config), 1, 1, 1)
        sizes = {f"grid_size_{axis}": grid[place] for place, axis in enumerate(_AXES)}
        return {**sizes, **dict(zip(self.block_names, block, strict=True)), "kernel_tuner": 1, **self.values_of(config)}

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """Random tensors for described arrays; numpy's arrays and scalars as they are."""
        read = {name: value for name, value in self._arguments.items() if name not in self._outputs} | self._constants
        return {n: self._made(v, workload, device, is_random=True) for n, v in read.items() if not isinstance(v, str)}

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Empty tensors."""
        device = next((value.device for value in inputs.values() if hasattr(value, "device")), "meta")
        return {name: self._made(self._arguments[name], workload, device, is_random=False) for name in self._outputs}

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs that the reference computes from the inputs."""
        if self.described.reference is None:
            return super().reference(workload, inputs)
        return dict(self.described.reference({**workload.sizes, **inputs}))

    def _threads(self) -> Expr:
        return self._block_size(0) * self._block_size(1) * self._block_size(2)

    def _block_size(self, axis: int) -> Expr:
        name = self.block_names[axis]
        if name not in self.stated.domains:
            return const(1 if axis else USUAL_BLOCK_SIZE)
        return self.stated.number(name, {}, name)

    def _grid(self, workload: Workload) -> list[Expr]:
        grid = []
        for axis, size in enumerate(self._problem_size):
            divisor: Expr = const(1)
            for text in self._divisors[axis]:
                if text == self.block_names[axis] and text not in self.stated.domains:
                    divisor = divisor * self._block_size(axis)
                else:
                    divisor = divisor * self.stated.number(text, workload.sizes, f"grid_div_{_AXES[axis]}")
            grid.append(ceildiv(const(self._of_sizes(size, workload, "problem_size")), divisor))
        return grid

    def _of_sizes(self, text: str | int, workload: Workload, what: str) -> int:
        """A number that depends on the sizes alone."""
        domains = {name: Domain.from_values([value]) for name, value in workload.sizes.items()}
        return int(read_number(str(text), domains, f"{self.operation}: {what}").value(workload.sizes))

    def _bytes_of(self, value: Any, workload: Workload) -> int:
        if isinstance(value, tuple):
            return np.dtype(value[0]).itemsize * self._of_sizes(value[1], workload, "arguments")
        return int(value.nbytes)

    def _made(self, value: Any, workload: Workload, device: Any, *, is_random: bool) -> Any:
        """A tensor of a description, or of a numpy array; numpy's scalars stay."""
        import torch

        if not isinstance(value, tuple):
            return torch.from_numpy(np.array(value)).to(device) if np.ndim(value) else value
        dtype, number = getattr(torch, value[0]), self._of_sizes(value[1], workload, "arguments")
        if not is_random:
            return torch.empty(number, dtype=dtype, device=device)
        if dtype.is_floating_point:
            return torch.randn(number, dtype=dtype, device=device)
        return torch.randint(0, 100, (number,), dtype=dtype, device=device)

    def _named_outputs(self, outputs: Iterable[str]) -> tuple[str, ...]:
        arrays = [name for name, kind in self.arguments.items() if kind == POINTER]
        if not arrays:
            raise UsageError(f"{self.operation}: no argument is an array, so there is nothing to write.")
        names = ((outputs,) if isinstance(outputs, str) else tuple(outputs)) or (arrays[0],)
        for name in names:
            if name not in arrays:
                raise UnknownNameError("array", name, arrays, f"It is named by outputs of {self.operation}.")
        return names

    def _check(self) -> None:
        """Read every text once, so that mistakes are reported early."""
        names = {*self.stated.domains, *self.size_names, *GPU_NAMES}
        self.stated.check_rules(names)
        described = self.described
        texts: dict[str, Any] = {"smem_bytes": described.smem_bytes, "registers": described.registers}
        texts["dynamic_smem_bytes"] = described.dynamic_smem_bytes
        for axis, divisors in zip(_AXES, self._divisors, strict=True):
            texts |= {f"grid_div_{axis}[{place}]": text for place, text in enumerate(divisors)}
        for what, text in texts.items():
            self.stated.check_text(text, what, {*names, *self.block_names})
        of_sizes: dict[str, Any] = {f"problem_size[{place}]": text for place, text in enumerate(self._problem_size)}
        every = {**self._arguments, **self._constants}
        of_sizes |= {name: value[1] for name, value in every.items() if isinstance(value, tuple)}
        for what, text in {**of_sizes, "operations": described.operations}.items():
            self.stated.check_text(text, what, self.size_names)


def _operation(kernel_name: str) -> str:
    """The operation's name: that of the kernel, without template arguments and namespaces, in lower case."""
    words = re.findall(r"\w+", kernel_name.partition("<")[0])
    if not words:
        raise UsageError(f"{kernel_name!r} cannot be the name of a kernel.")
    return str(words[-1]).lower()


def _described(arguments: Mapping[str, Argument], sizes: Sequence[str], where: str) -> dict[str, Any]:
    """The arguments, each one checked."""
    if not isinstance(arguments, Mapping):
        raise UsageError(
            f"{where}: arguments must map the name of each argument to its description, got {arguments!r}."
        )
    for name, value in arguments.items():
        dtype = (
            value[0] if isinstance(value, tuple) else value if isinstance(value, str) else getattr(value, "dtype", None)
        )
        try:
            kind = np.dtype(dtype).kind if dtype is not None else ""
        except TypeError:
            kind = ""
        if kind not in "iufb" or not kind or (isinstance(value, tuple) and len(value) != 2):
            raise UsageError(
                f"{where}: the argument {name!r} is {value!r}; write ('float32', 'n') for a tensor of n elements, "
                "'int32' for a size, or give numpy's array or scalar."
            )
        if isinstance(value, str) and name not in sizes:
            raise UnknownNameError("size", name, sizes, f"The argument {name!r} of {where} is a number of that name.")
    return dict(arguments)


def _kind(value: Any) -> str:
    """An argument's type as `CudaKernelSpec` takes it."""
    if isinstance(value, str):
        return value
    return POINTER if isinstance(value, tuple) or np.ndim(value) else str(value.dtype)
