"""A compiled kernel's arguments in the layout of its binary, for launches by the compiled core.

A kernel in CUDA C++ takes its arguments in order. Facts of Triton 3.6 to 3.9: arguments stand in the order of the
signature without compile-time constants; a tensor descriptor is a tensor map, its sizes and its strides; two addresses
of scratch memory come last. The layout is checked against the sizes of the kernel's parameters, which the driver tells,
or else the kernel's assembly: a version of Triton that lays them out in another way is launched by its own launcher.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.launch.cuda.tensor_map import MAP_BYTES, TensorMap
from constrint.kernels.launch.plan.shape import NotPlannedError

#: Bytes of an integer argument by Triton's name of its type.
INTEGER_BYTES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u1": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8}
#: Elements of a tensor map as the driver numbers them, where Triton's number is another.
MAP_ELEMENTS = {8: 10, 9: 8, 10: 9}
ADDRESS_BYTES = 8
#: Addresses of Triton's own scratch memory at the end, where a kernel needs none.
NUM_SCRATCH = 2

#: A parameter of a kernel in PTX: the bits of its type, and the elements of an array.
PTX_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.[busf](\d+)\s[^,\[]*(?:\[(\d+)\])?")
#: One in the metadata of AMD's assembly: its bytes. Parameters that the compiler adds are of kinds of their own.
AMD_PARAMETER = re.compile(r"\.size:\s+(\d+)\s+\.value_kind:\s+(?:by_value|global_buffer)\s")

#: Triton's types of numbers that a call may give.
FACTORS = ("fp32", "fp64")

#: Returns the slot of an address, and the offset in bytes.
Locate = Callable[[int], tuple[int, int]]
Argument = tuple[Any, ...]


class Factor(float):
    """A number that every call gives anew: argument `slot` of the call. A launch is recorded with one of them.

    Args:
        value: The number of the first call.
        slot: Its place among the call's tensors and factors.
    """

    slot: int

    def __new__(cls, value: float, slot: int) -> Factor:
        """See the class."""
        factor = super().__new__(cls, value)
        factor.slot = slot
        return factor


def layout_of(kernel: Any, values: Mapping[str, Any], locate: Locate) -> list[Argument]:
    """Lay out the arguments of one of Triton's compiled kernels for plans of `constrint.core`.

    Args:
        kernel: Triton's CompiledKernel.
        values: The launch's arguments by name.
        locate: Finds the slot of an address.

    Raises:
        NotPlannedError: For an argument of another type.
    """
    laid: list[Argument] = []
    metas = iter(getattr(kernel.metadata, "tensordesc_meta", None) or ())
    for name, kind in kernel.src.signature.items():
        if not isinstance(kind, str):
            raise NotPlannedError(f"{name} is a tuple")
        if kind == "constexpr":
            continue
        value = values[name]
        if kind.startswith("tensordesc"):
            laid += descriptor_arguments(value, next(metas, None), locate(value.base.data_ptr()))
        elif kind.startswith("*"):
            laid.append(("integer", ADDRESS_BYTES, *locate(value.data_ptr())))
        elif kind in INTEGER_BYTES:
            laid.append(integer(int(value), INTEGER_BYTES[kind]))
        elif kind in FACTORS and isinstance(value, Factor):
            laid.append((kind, value.slot))
        elif kind == "fp32":
            laid.append(("bytes", struct.pack("<f", value)))
        elif kind == "fp64":
            laid.append(("bytes", struct.pack("<d", value)))
        else:
            raise NotPlannedError(f"{name} is of type {kind}")
    return laid + [integer(0, ADDRESS_BYTES)] * NUM_SCRATCH


def integer(value: int, size: int) -> Argument:
    """Lay out an integer that is the same in all launches."""
    return "bytes", (value % (1 << 8 * size)).to_bytes(size, "little")


def check_layout(laid: list[Argument], told: list[int], assembly: Mapping[str, Any]) -> None:
    """Check the layout against the sizes of the kernel's parameters.

    Args:
        laid: The layout.
        told: The sizes that the driver tells; empty where it tells none.
        assembly: Triton's representations of the kernel by name.

    Raises:
        NotPlannedError: When the sizes differ, or are not known.
    """
    sizes = told or declared_bytes(assembly)
    if not sizes:
        raise NotPlannedError("neither the driver nor the assembly tells how the kernel's parameters are laid out")
    if [size_of(argument) for argument in laid] != sizes:
        raise NotPlannedError("the kernel's parameters are laid out in another way")


def declared_bytes(assembly: Mapping[str, Any]) -> list[int]:
    """The sizes of a kernel's parameters as its PTX or its AMD assembly declares them; empty where there is neither."""
    if "ptx" in assembly:
        entry = re.search(r"\.entry\s+[\w$]+\s*\(([^)]*)\)", assembly["ptx"])
        found = PTX_PARAMETER.findall(entry[1]) if entry else []
        return [int(bits) // 8 * int(number or 1) for bits, number in found]
    return [int(size) for size in AMD_PARAMETER.findall(assembly.get("amdgcn", ""))]


def cuda_layout(arguments: Sequence[Any], locate: Locate) -> list[Argument]:
    """Lay out the arguments of a `CudaLaunch`: tensors, tensor maps, None, and numbers of numpy's types.

    Raises:
        NotPlannedError: When a tensor is not one of the call.
    """
    laid: list[Argument] = []
    for value in arguments:
        if value is None or (isinstance(value, Tensor) and not value.numel()):
            laid.append(integer(0, ADDRESS_BYTES))
        elif isinstance(value, Tensor):
            laid.append(("integer", ADDRESS_BYTES, *locate(value.data_ptr())))
        elif isinstance(value, TensorMap):
            laid.append(("map", *locate(value.data_ptr()), *value.facts))
        elif isinstance(value, np.generic):
            laid.append(("bytes", value.tobytes()))
        else:
            raise NotPlannedError(f"an argument is {type(value).__name__}")
    return laid


def check_cuda_layout(laid: list[Argument], parameter_bytes: list[int], name: str) -> None:
    """Compare the arguments of a kernel in CUDA C++ with the sizes that the driver tells.

    Raises:
        UsageError: When they differ: the kernel would read memory that holds no argument.
    """
    sizes = [size_of(argument) for argument in laid]
    if parameter_bytes and sizes != parameter_bytes:
        raise UsageError(
            f"{name}: the kernel takes arguments of {parameter_bytes} bytes, and got {sizes}. Give them as tensors "
            "and as numbers of numpy's types of these sizes."
        )


def size_of(argument: Argument) -> int:
    """Bytes of an argument."""
    kind = argument[0]
    if kind == "bytes":
        return len(argument[1])
    return int(argument[1]) if kind == "integer" else {"fp32": 4, "fp64": 8, "map": MAP_BYTES}[kind]


def descriptor_arguments(value: Any, meta: Mapping[str, Any] | None, where: tuple[int, int]) -> list[Argument]:
    """Lay out a tensor descriptor; `where` is the slot of its base and the offset in it.

    Raises:
        NotPlannedError: For other descriptors than plain tensor maps.
    """
    if meta is None or meta.get("fp4_padded") or meta.get("is_im2col") or getattr(value, "round_f32_to_tf32", False):
        raise NotPlannedError("a descriptor without a plain tensor map")
    element = MAP_ELEMENTS.get(meta["elem_type"], meta["elem_type"])
    shape, strides = [int(size) for size in value.shape], [int(stride) for stride in value.strides]
    block = [int(size) for size in meta["block_size"]]
    is_nan = int(getattr(value, "padding", "zero") == "nan")
    slot, shift = where
    facts = int(element), int(meta["elem_size"]), int(meta["swizzle"]), is_nan
    of_map: Argument = ("map", slot, shift, *facts, block, shape, strides)
    return [of_map, *(integer(size, 4) for size in shape), *(integer(stride, 8) for stride in strides)]
