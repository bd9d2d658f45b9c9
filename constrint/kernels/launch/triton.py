"""A launch of a Triton (or Gluon) kernel, which runs on a device or compiles for a named GPU from the same arguments.

A compiled check is therefore a check of the kernel that is launched. Triton's rules decide which arguments become
compile-time constants and which count as multiples of 16. They are restated here, because Triton applies its own rules
only where there is a driver.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.select.candidate import CompiledKernel, Config
from constrint.select.spec import KernelSpec, Launch
from constrint.select.workload import Workload
from constrint.tune.compile import TritonSource, compile_triton

#: The only divisor of sizes, strides and addresses that Triton tells its compiler.
DIVISOR = 16
#: Triton's names of torch's dtypes, where they are not torch's own.
TYPE_NAMES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "bool": "i1",
}


@dataclass(frozen=True)
class TritonLaunch:
    """One launch of a jitted function.

    Args:
        function: The `triton.jit` (or `gluon.jit`) function.
        grid: Blocks along each grid dimension.
        arguments: Every argument by name: tensors, numbers, tensor descriptors, None.
        options: Options of Triton's back-end: `num_warps`, `num_stages` and the like.
    """

    function: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]

    def run(self) -> None:
        """Enqueue the kernel on the current stream of its tensors' device."""
        with self._on_device():
            self.function[self.grid](**self.arguments, **self.options)

    def warm_up(self) -> None:
        """Compile the kernel into Triton's cache on the device of its tensors; launch nothing."""
        with self._on_device():
            self.function.warmup(**self.arguments, **self.options, grid=self.grid)

    def compiled(self) -> Any:
        """Compile and load the kernel on the device of its tensors; None in Triton's interpreter.

        Raises:
            triton.runtime.errors.OutOfResources: When it does not fit the device.
        """
        with self._on_device():
            kernel = self.function.warmup(**self.arguments, **self.options, grid=self.grid)
            if hasattr(kernel, "result"):
                kernel = kernel.result()
            if kernel is not None:
                kernel._init_handles()
        return kernel

    def values(self) -> dict[str, Any]:
        """Every argument of the function by name, defaults included."""
        preset = {param.name: param.default for param in self.function.params if param.has_default}
        return preset | dict(self.arguments)

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """Compile the kernel for a named GPU; see `compile_triton`."""
        return compile_triton(gpu, self.source())

    def source(self) -> TritonSource:
        """Return the kernel as Triton's compiler takes it: types, constants, and arguments that are multiples of 16."""
        types: dict[str, str] = {}
        constants: dict[str, Any] = {}
        aligned: set[str] = set()
        for param in self.function.params:
            value = self.arguments.get(param.name, param.default if param.has_default else None)
            if param.is_constexpr or value is None or (_is_one(value) and not param.do_not_specialize):
                constants[param.name] = value
                continue
            types[param.name] = _type_of(value)
            if _is_divisible(value) and not (param.do_not_specialize or param.do_not_specialize_on_alignment):
                aligned.add(param.name)
        return TritonSource(self.function, types, constants, frozenset(aligned), self.options)

    def _on_device(self) -> AbstractContextManager[Any]:
        import torch

        for value in self.arguments.values():
            tensor = getattr(value, "base", value)
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                return torch.cuda.device(tensor.device)
        return nullcontext()


class TritonKernelSpec(KernelSpec):
    """A kernel that is one launch of one Triton function.

    The function's arguments are taken by name from inputs, outputs, sizes, options and parameters. Other parameters
    (`num_warps`, `num_stages`, `waves_per_eu`) are options of Triton's back-end.

    Attributes:
        function: The `triton.jit` function.
    """

    function: Any

    @abstractmethod
    def grid(self, workload: Workload, config: Config) -> tuple[int, ...]:
        """Blocks along each grid dimension."""

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The one launch."""
        names = set(self.function.arg_names)
        preset = {option.name: option.default for option in self.options}
        values = self.values_of(config)
        named = {**inputs, **outputs, **workload.sizes, **preset, **workload.options, **values}
        arguments = {name: value for name, value in named.items() if name in names}
        options = {name: value for name, value in values.items() if name not in names}
        return [TritonLaunch(self.function, self.grid(workload, config), arguments, options)]


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 1


def _is_divisible(value: Any) -> bool:
    if hasattr(value, "data_ptr"):
        return bool(value.data_ptr() % DIVISOR == 0)
    return isinstance(value, int) and not isinstance(value, bool) and value % DIVISOR == 0


def _type_of(value: Any) -> str:
    """Triton's name of an argument's type."""
    if isinstance(value, bool):
        return "u1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    if hasattr(value, "block_shape"):
        element, block = _element_name(value.base.dtype), list(value.block_shape)
        layout = getattr(value, "layout", None)
        if layout is not None:
            return f"tensordesc<{element}{block},{layout!r}>"
        return f"tensordesc<{element}[{','.join(map(str, block))}]>"
    return f"*{_element_name(value.dtype)}"


def _element_name(dtype: Any) -> str:
    return TYPE_NAMES[str(dtype).removeprefix("torch.")]
