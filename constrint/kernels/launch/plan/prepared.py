"""Prepared launches: one compiled kernel, launched again and again at little cost to the host.

`prepare` takes a Triton kernel. Triton inspects every argument of every launch to find the compiled variant; a
prepared launch holds the variant and checks only that it still fits. `prepare_cuda` takes a CUDA or HIP
kernel that is already loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.core import compiled
from constrint.errors import UsageError
from constrint.kernels.launch.plan.arguments import (
    ADDRESS_BYTES,
    INTEGER_BYTES,
    NUM_SCRATCH,
    Argument,
    check_layout,
    descriptor_arguments,
    integer,
)
from constrint.kernels.launch.plan.driver import driver, reads_tensors
from constrint.kernels.launch.plan.shape import LaunchShape, NotPlannedError
from constrint.kernels.launch.plan.table import is_heard
from constrint.kernels.launch.triton import DIVISOR, TritonLaunch

Grid = tuple[int, ...] | Callable[[Mapping[str, Any]], tuple[int, ...]]


def prepare(kernel: Any, grid: Grid, *args: Any, **kwargs: Any) -> PreparedLaunch:
    """Compile a Triton kernel for these arguments and prepare its launch; launches nothing.

    Args:
        kernel: A `triton.jit` (or `gluon.jit`) function.
        grid: Blocks along each grid dimension, or a function of the arguments by name that gives them.
        args: The kernel's arguments as for `kernel[grid](...)`: tensors, tensor descriptors, numbers, None.
        kwargs: Arguments by name, compile-time constants, and options such as `num_warps`.

    Returns:
        The launcher, called with the arguments that are no compile-time constants, in the kernel's order.

    Raises:
        UsageError: When `kernel` is no jitted function, and for missing or unknown arguments.
        triton.runtime.errors.OutOfResources: When the kernel does not fit the device.
    """
    if not hasattr(kernel, "params") or not hasattr(kernel, "warmup"):
        raise UsageError(
            f"prepare takes a function decorated with triton.jit, got {type(kernel).__name__}. Of an autotuned kernel "
            "take the function inside (kernel.fn) and give its configuration as keywords."
        )
    names = list(kernel.arg_names)
    if len(args) > len(names):
        raise UsageError(f"{kernel.__name__} takes {len(names)} arguments, got {len(args)}.")
    values = dict(zip(names, args, strict=False))
    twice = values.keys() & kwargs.keys()
    if twice:
        raise UsageError(f"{kernel.__name__}: {', '.join(sorted(twice))} is given twice.")
    values |= {name: value for name, value in kwargs.items() if name in names}
    options = {name: value for name, value in kwargs.items() if name not in names}
    preset = {param.name for param in kernel.params if param.has_default}
    missing = [name for name in names if name not in values and name not in preset]
    if missing:
        raise UsageError(f"{kernel.__name__} needs {', '.join(missing)}, too.")
    return PreparedLaunch(kernel, grid, values, options)


class PreparedLaunch:
    """A Triton kernel that is ready to be launched; see `prepare`."""

    def __init__(self, function: Any, grid: Grid, values: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        preset = {param.name: param.default for param in function.params if param.has_default}
        whole = preset | dict(values)
        self._function, self._grid, self._options = function, grid, dict(options)
        self._names = [param.name for param in function.params if not param.is_constexpr]
        self._constants = {param.name: whole[param.name] for param in function.params if param.is_constexpr}
        tensors = [getattr(value, "base", value) for value in whole.values()]
        device = next((tensor.device for tensor in tensors if isinstance(tensor, Tensor) and tensor.is_cuda), None)
        self._index = torch.cuda.current_device() if device is None else device.index
        from triton import knobs

        self._runtime: Any = knobs.runtime
        self.kernel: Any = None
        self._plans: dict[tuple[int, ...], Any] = {}
        self._layout: tuple[list[Argument], list[tuple[str, int, int]]] | None = None
        self._dtypes: list[tuple[int, torch.dtype]] = []
        self._types: list[tuple[int, type]] = []
        self._descriptors: list[tuple[int, Any]] = []
        with torch.cuda.device(self._index):
            first = TritonLaunch(function, self._grid_of(whole), whole, self._options)
            self.kernel = first.compiled()
            try:
                self._layout = self._lay_out(whole)
                self._plan(first.grid)
            except NotPlannedError:
                self._layout = None

    def __call__(self, *args: Any) -> None:
        """Launch the kernel on the current stream of its device.

        Args:
            args: The arguments that are no compile-time constants, in the kernel's order. Where they need another
                variant of the kernel (another dtype, a number or an address that is no longer a multiple of 16), Triton
                finds and launches it.

        Raises:
            UsageError: For another number of arguments.
        """
        if len(args) != len(self._names):
            raise UsageError(f"{self._function.__name__} takes {', '.join(self._names)}; got {len(args)} arguments.")
        knobs = self._runtime
        is_seen = is_heard(knobs.launch_enter_hook) or is_heard(knobs.launch_exit_hook)
        if self._layout is None or is_seen or not self._fits(args):
            self._through_triton(args)
            return
        grid = self._grid if isinstance(self._grid, tuple) else self._grid_of(self._by_name(args))
        plan = self._plans.get(grid) or self._plan(grid)
        arguments: Sequence[Any] = args
        if self._descriptors:
            arguments = list(args)
            for place, _ in self._descriptors:
                arguments[place] = args[place].base
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        assert compiled is not None
        if not compiled.launch(plan, stream, *arguments):
            self._through_triton(args)

    def _fits(self, args: Sequence[Any]) -> bool:
        for place, dtype in self._dtypes:
            if getattr(args[place], "dtype", None) is not dtype:
                return False
        for place, kind in self._types:
            if type(args[place]) is not kind:
                return False
        for place, seen in self._descriptors:
            descriptor = args[place]
            if descriptor is not seen and _facts(descriptor) != _facts(seen):
                return False
        return True

    def _by_name(self, args: Sequence[Any]) -> dict[str, Any]:
        return self._constants | dict(zip(self._names, args, strict=True))

    def _grid_of(self, values: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(self._grid(values)) if callable(self._grid) else tuple(self._grid)

    def _through_triton(self, args: Sequence[Any]) -> None:
        values = self._by_name(args)
        with torch.cuda.device(self._index) if torch.cuda.is_available() else nullcontext():
            self._function[self._grid_of(values)](**values, **self._options)

    def _lay_out(self, values: Mapping[str, Any]) -> tuple[list[Argument], list[tuple[str, int, int]]]:
        if compiled is None or driver() is None:
            raise NotPlannedError("there is no driver")
        reads_tensors()
        signature, attributes = self.kernel.src.signature, self.kernel.src.attrs
        metas = iter(getattr(self.kernel.metadata, "tensordesc_meta", None) or ())
        laid: list[Argument] = []
        demands: list[tuple[str, int, int]] = []
        for place, (name, kind) in enumerate(signature.items()):
            if name in self._constants:
                continue
            slot, value = self._names.index(name), values[name]
            if kind == "constexpr":  # None, or the number 1
                demands.append(("equal", slot, 0 if value is None else int(value)))
                self._types.append((slot, type(value)))
                continue
            if not isinstance(kind, str):
                raise NotPlannedError(f"{name} is a tuple")
            if kind.startswith("tensordesc"):
                laid += descriptor_arguments(value, next(metas, None), (slot, 0))
                self._descriptors.append((slot, value))
                demands.append(("multiple", slot, DIVISOR))
                continue
            if kind.startswith("*"):
                laid.append(("integer", ADDRESS_BYTES, slot, 0))
                self._dtypes.append((slot, value.dtype))
            elif kind in INTEGER_BYTES:
                laid.append(("integer", INTEGER_BYTES[kind], slot, 0))
                self._types.append((slot, type(value)))
                if kind == "i32":
                    demands.append(("int32", slot, 0))
            elif kind in ("fp32", "fp64"):
                laid.append((kind, slot))
                self._types.append((slot, float))
            else:
                raise NotPlannedError(f"{name} is of type {kind}")
            if attributes.get((place,)):
                demands.append(("multiple", slot, DIVISOR))
        laid += [integer(0, ADDRESS_BYTES)] * NUM_SCRATCH
        check_layout(laid, compiled.parameter_bytes(driver(), self.kernel.function), self.kernel.asm)
        return laid, demands

    def _plan(self, grid: tuple[int, ...]) -> Any:
        """The core's plan for a grid."""
        assert self._layout is not None
        assert compiled is not None
        shape = LaunchShape.of(self.kernel, grid)
        if min(shape.grid) < 1:
            raise NotPlannedError("an empty grid")
        laid, demands = self._layout
        step = ("kernel", int(self.kernel.function), *shape.for_core(), laid)
        with torch.cuda.device(self._index):
            self._plans[grid] = compiled.plan(driver(), len(self._names), [step], demands)
        return self._plans[grid]


def _facts(descriptor: Any) -> tuple[Any, ...]:
    sizes = list(descriptor.shape), list(descriptor.strides), list(descriptor.block_shape)
    return *sizes, getattr(descriptor, "padding", "zero"), descriptor.base.dtype


def prepare_cuda(
    function: Any, grid: tuple[int, ...], block: tuple[int, ...], *args: Any, shared_bytes: int = 0
) -> PreparedCuda:
    """Prepare the launch of a loaded CUDA or HIP kernel; launches nothing.

    Args:
        function: The kernel's handle (a CUfunction, CUkernel or hipFunction_t) as an integer, or what has one as
            `handle`, such as a kernel of cuda.core.
        grid: Blocks along each grid dimension.
        block: Threads along each dimension of a block; one.
        args: Its arguments: tensors for addresses, and numbers of numpy's types, whose sizes the kernel expects.
        shared_bytes: Dynamic shared memory of a block.

    Returns:
        The launcher, called with tensors and numbers in the same order.

    Raises:
        UsageError: For arguments of other types, and where there is no driver.
    """
    if compiled is None or driver() is None:
        raise UsageError("prepare_cuda needs a GPU and the compiled core.")
    if len(block) != 1:
        raise UsageError(f"prepare_cuda launches blocks of one dimension, got {block}.")
    reads_tensors()
    handle = int(getattr(function, "handle", function))
    laid: list[Argument] = []
    floats = []
    for slot, value in enumerate(args):
        if isinstance(value, Tensor):
            laid.append(("integer", ADDRESS_BYTES, slot, 0))
        elif isinstance(value, np.integer | np.bool_):
            laid.append(("integer", value.dtype.itemsize, slot, 0))
        elif isinstance(value, np.float32 | np.float64):
            laid.append(("fp32" if isinstance(value, np.float32) else "fp64", slot))
            floats.append(slot)
        else:
            raise UsageError(
                f"argument {slot} is {type(value).__name__}: give tensors, and numbers as numpy.int32, numpy.float32 "
                "and the like, since the kernel expects a certain size."
            )
    whole = (*grid, 1, 1)[:3]
    step = ("kernel", handle, whole, int(block[0]), int(shared_bytes), 1, 0, 0, laid)
    index = next((value.device.index for value in args if isinstance(value, Tensor)), torch.cuda.current_device())
    with torch.cuda.device(index):
        plan = compiled.plan(driver(), len(args), [step], [])
    return PreparedCuda(plan, index, floats)


class PreparedCuda:
    """A CUDA or HIP kernel that is ready to be launched; see `prepare_cuda`."""

    def __init__(self, plan: Any, index: int, floats: list[int]) -> None:
        self._plan, self._index, self._floats = plan, index, floats

    def __call__(self, *args: Any) -> None:
        """Launch the kernel on the current stream of its device; numbers may be Python's."""
        assert compiled is not None
        arguments = [value.item() if isinstance(value, np.generic) else value for value in args]
        for slot in self._floats:
            arguments[slot] = float(arguments[slot])
        stream = torch._C._cuda_getCurrentRawStream(self._index)
        if not compiled.launch(self._plan, stream, *arguments):
            with torch.cuda.device(self._index):
                if not compiled.launch(self._plan, stream, *arguments):
                    raise RuntimeError("the kernel was prepared in another context of this device; prepare it again.")
