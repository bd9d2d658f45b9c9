"""Workloads: sizes, a dtype and options of an operation, from plain names or from a caller's `Workload`, checked."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel

if TYPE_CHECKING:
    from constrint.select.spec import Operation

#: Sizes and strides are 32-bit integers in the kernels.
MAX_SIZE = 2**31 - 1
#: Triton compiles one variant for sizes that are multiples of this, one for others, and one for the size 1.
SIZE_DIVISOR, LARGE_SIZE = 16, 4096
#: Bytes of one element of each operand type.
ELEMENT_BYTES: Mapping[str, int] = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}


@dataclass(frozen=True)
class Workload:
    """Sizes, a dtype and options for which an operation is requested (never called a problem).

    Args:
        operation: The operation's name, `gemm`.
        sizes: A value for each of its sizes.
        dtype: Type of the operands.
        options: Values of the operation's options that differ from their defaults.
    """

    operation: str
    sizes: Mapping[str, int]
    dtype: str
    options: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        """Render as `gemm m=4096 n=4096 k=4096 bf16`."""
        numbers = " ".join(f"{n}={v}" for n, v in (*self.sizes.items(), *self.options.items()))
        return f"{self.operation} {numbers} {self.dtype}"


@dataclass(frozen=True)
class Size:
    """One number that a workload consists of, or an option of it; the command line offers it as `--name`.

    Args:
        name: Key of `Workload.sizes` or `Workload.options`.
        default: Its value where the user gives none.
        meaning: The quantity in a phrase: help text of the command line's option.
        least, most: The smallest and the largest value that makes sense.
    """

    name: str
    default: int
    meaning: str
    least: int = 1
    most: int = MAX_SIZE


def size_class(size: int) -> int:
    """A size that stands for all that Triton compiles the same variant for."""
    return size if size == 1 else LARGE_SIZE + size % SIZE_DIVISOR


def workload_of(operation: Operation, gpu: GpuModel, numbers: Mapping[str, Any], dtype: str | None = None) -> Workload:
    """The workload of these sizes and options by name; the default workload has the others.

    Args:
        operation: The operation.
        gpu: The hardware model, which may decide the default dtype.
        numbers: Sizes and options.
        dtype: Type of the operands, in any case; the default workload's if None.

    Raises:
        UnknownNameError: For a name that is neither a size nor an option, and for a dtype that no implementation has.
        UsageError: For a number that is no whole one.
    """
    default = operation.default_workload(gpu)
    options = {option.name: option.default for option in operation.options}
    for name in numbers:
        _check_name(operation, name)
    stated = {name: _whole(operation, name, value) for name, value in numbers.items()}
    sizes = {name: stated.get(name, value) for name, value in default.sizes.items()}
    chosen = {**options, **default.options, **{name: n for name, n in stated.items() if name in options}}
    differing = {name: value for name, value in chosen.items() if value != options.get(name)}
    return replace(default, sizes=sizes, options=differing, dtype=_dtype(operation, dtype, default.dtype))


def check_all_sizes(operation: Operation, numbers: Collection[str], example: str = "") -> None:
    """Refuse sizes of which some are given and others not: a default would surprise there.

    Raises:
        UsageError: Where one is missing; names it, and a call that is whole.
    """
    missing = [size.name for size in operation.sizes if size.name not in numbers]
    if missing:
        has = f"the size{'s' if len(operation.sizes) > 1 else ''} {_listed([s.name for s in operation.sizes])}"
        lacks = f"{_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing."
        raise UsageError(f"kernel {operation.name!r} has {has}; {lacks} {example}".rstrip())


def checked(operation: Operation, workload: Workload) -> Workload:
    """The workload with plain integers, checked against the operation.

    Raises:
        UsageError: When it is one of another operation, lacks a size, or has a number that is no whole one.
        UnknownNameError: When it has a size or an option that the operation does not have.
    """
    if not isinstance(workload, Workload):
        raise UsageError(f"a workload is a constrint.Workload, got {type(workload).__name__} {workload!r}.")
    names = tuple(dict.fromkeys(spec.operation for spec in operation.implementations))
    if workload.operation not in names:
        raise UsageError(
            f"the workload is one of {workload.operation!r}, the kernel {operation.name!r} computes "
            f"{' or '.join(map(repr, names))}; give it a workload of its own."
        )
    check_all_sizes(operation, workload.sizes)
    own = {size.name for size in operation.sizes}
    for name in workload.sizes:
        if name not in own:
            _check_name(operation, name)
            raise UsageError(f"{name!r} is an option of {operation.name!r}; it belongs into the workload's options.")
    for name in workload.options:
        _check_name(operation, name)
    sizes, options = (
        {name: _whole(operation, name, value) for name, value in numbers.items()}
        for numbers in (workload.sizes, workload.options)
    )
    if not isinstance(workload.dtype, str):
        raise _no_dtype(operation, workload.dtype)
    if all(type(value) is int for value in (*workload.sizes.values(), *workload.options.values())):
        return workload
    return replace(workload, sizes=sizes, options=options)


def check_count(name: str, value: object, least: int) -> None:
    """Refuse a number of configurations that is none.

    Raises:
        UsageError: Unless it is a whole number from `least`.
    """
    number = None if isinstance(value, bool) or not hasattr(value, "__index__") else operator.index(value)
    if number is None or number < least:
        raise UsageError(f"{name} must be a whole number from {least}, got {value!r}.")


def _check_name(operation: Operation, name: str) -> None:
    sizes, options = ([size.name for size in of] for of in (operation.sizes, operation.options))
    if name not in (*sizes, *options):
        raise UnknownNameError(
            "size", str(name), (*sizes, *options), f"These are sizes and options of kernel {operation.name!r}."
        )


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence: `m, n and k`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _no_dtype(operation: Operation, dtype: object) -> UsageError:
    return UsageError(f"dtype takes a name ({', '.join(operation.dtypes)}), got {dtype!r}.")


def _whole(operation: Operation, name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"{name} of kernel {operation.name!r} must be a whole number, got {value!r}.")
    return operator.index(value)


def _dtype(operation: Operation, dtype: object, default: str) -> str:
    if dtype is None:
        return default
    dtypes = operation.dtypes
    if not isinstance(dtype, str):
        raise _no_dtype(operation, dtype)
    if dtype.lower() not in dtypes:
        hints = (spec.dtype_hints.get(dtype.lower(), "") for spec in operation.implementations)
        raise UnknownNameError("dtype", dtype, dtypes, next(filter(None, hints), ""))
    return dtype.lower()
