"""Recipes: a call's launches as plain data, recorded once, stored on disk, and read as a plan of the compiled core.

A recipe holds no address. Slots stand for memory: first the call's tensors, then the call's allocations (its results,
then one piece of scratch memory), then the stream's counters.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import torch
from torch import Tensor

from constrint.core import compiled
from constrint.kernels.launch import look
from constrint.kernels.launch.fill import WORD_BYTES, FillLaunch
from constrint.kernels.launch.plan.arguments import check_cuda_layout, check_layout, cuda_layout, layout_of
from constrint.kernels.launch.plan.direct import DirectCuda, DirectFill, DirectLaunch, DirectStep
from constrint.kernels.launch.plan.driver import driver, has_blas, reads_tensors
from constrint.kernels.launch.plan.loaded import check_shape, keep_image, keep_triton, load_image
from constrint.kernels.launch.plan.matmul_library import Algorithm, Matmul, has_matmul, prepared, version
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import LaunchShape, NotPlannedError
from constrint.kernels.launch.plan.trial import Rivals

#: Pieces of scratch memory start at multiples of this many bytes, as torch's own allocations do.
PIECE_BYTES = 512


class KernelStep(msgspec.Struct, frozen=True, tag="kernel"):
    """One kernel: the digest of its image, the shape of its launch, and its arguments as in `arguments.py`."""

    image: str
    name: str
    shape: LaunchShape
    arguments: list[Any]

    def for_core(self) -> tuple[Any, ...]:
        """The step in the form of the core's plans; loads its kernel on the current device."""
        return "kernel", load_image(self.image, self.name, self.shape), *self.shape.for_core(), self.arguments


class FillStep(msgspec.Struct, frozen=True, tag="fill"):
    """Words of four bytes that all become `value`, from `shift` bytes into a slot on."""

    slot: int
    shift: int
    words: int
    value: int = 0

    def for_core(self) -> tuple[Any, ...]:
        """The step as plans of the core take it."""
        return "fill", self.slot, self.shift, self.words, self.value

    def direct(self) -> DirectFill:
        """The step without the core."""
        return DirectFill(self.slot, self.shift, self.words, self.value)


class ProductStep(msgspec.Struct, frozen=True, tag="product"):
    """A product by the BLAS library that torch has loaded: C = op(A) op(B) of matrices by columns.

    Args:
        operations: cublasOperation_t of A and B.
        sizes: Rows and columns of C, and the depth of the sums.
        types: cudaDataType_t of A, B and C.
        strides: Elements from column to column of A, B and C.
        slots: Slots of A, B and C.
    """

    operations: tuple[int, int]
    sizes: tuple[int, int, int]
    types: tuple[int, int, int]
    strides: tuple[int, int, int]
    slots: tuple[int, int, int]

    def for_core(self) -> tuple[Any, ...]:
        """The step as plans of the core take it.

        Raises:
            NotPlannedError: Where torch calls another library, or the core has not found it.
        """
        if not has_blas():
            raise NotPlannedError("there is no BLAS library for plans")
        return "product", self.operations, self.sizes, self.types, self.strides, self.slots


class MatmulStep(msgspec.Struct, frozen=True, tag="matmul"):
    """A product with its epilogue by cuBLASLt.

    Args:
        matmul: The product.
        algorithm: The library's algorithm for it.
        slots: Slots of A, B, C, D, the bias and the workspace; -1 for a bias or a workspace that it lacks.
    """

    matmul: Matmul
    algorithm: Algorithm
    slots: tuple[int, int, int, int, int, int]

    def for_core(self) -> tuple[Any, ...]:
        """The step as plans of the core take it, on the current device.

        Raises:
            NotPlannedError: Where torch has another version of the library, or none.
        """
        if not has_matmul() or self.algorithm.version != version():
            raise NotPlannedError("the algorithm is one of another version of cuBLASLt")
        ready, algorithm = prepared(self.matmul, torch.cuda.current_device()), self.algorithm
        return "matmul", *ready, self.matmul.scales, algorithm.data, algorithm.workspace_bytes, self.slots


class Recipe(msgspec.Struct, frozen=True):
    """The steps and allocations of a call of one signature.

    Args:
        steps: Fills, kernels and library products, in order.
        outputs: (shape, strides, name of the dtype) of every allocation.
        num_results: The number of allocations that are results; the rest is scratch memory.
        num_counters: Counters of the stream that the call needs; 0 for none.
        note: The chosen kernel and configuration, for people.
        function: Arguments of a function that runs the call instead of launches; `PlanTable.function_of` makes it.
    """

    steps: list[KernelStep | FillStep | ProductStep | MatmulStep]
    outputs: list[tuple[list[int], list[int], str]]
    num_results: int
    num_counters: int
    note: str = ""
    function: dict[str, Any] | None = None


class RecordedCall(NamedTuple):
    """A recipe; without the compiled core its steps are empty, and `direct` holds the launches.

    Args:
        recipe: The recipe.
        direct: Its launches without the core.
        rivals: Further recipes that are tried beside it; None where it is not to be tried.
    """

    recipe: Recipe
    direct: list[DirectStep]
    rivals: Rivals | None = None


class Regions:
    """Finds the slot of an address by the memory extents of the slots' tensors."""

    def __init__(self) -> None:
        self._of_slot: list[tuple[int, int, int, int]] = []

    def add(self, tensor: Tensor, slot: int, shift: int = 0) -> None:
        """Record that a tensor lies `shift` bytes into a slot."""
        start, end = extent(tensor)
        self._of_slot.append((start, end, slot, shift))

    def locate(self, address: int) -> tuple[int, int]:
        """Return the slot of an address and its offset in bytes.

        Raises:
            NotPlannedError: When no slot, or more than one, has the address.
        """
        matches = [
            (slot, shift + address - start) for start, end, slot, shift in self._of_slot if start <= address < end
        ]
        if len(matches) != 1:
            raise NotPlannedError(f"an argument lies in {len(matches)} tensors of the call")
        return matches[0]


def extent(tensor: Tensor) -> tuple[int, int]:
    """Return the first address of a tensor and the address after its last byte."""
    start = tensor.data_ptr()
    if not tensor.numel():
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (last + 1) * tensor.element_size()


def recipe_of(
    launches: Sequence[Any],
    tensors: Sequence[Tensor | None],
    results: Sequence[Tensor],
    scratch: NotedScratch,
    note: str = "",
    *,
    may_spill: bool = True,
) -> RecordedCall:
    """Compile launches that were stated for these tensors, and record them as a recipe.

    Args:
        launches: The launches, in order.
        tensors: The call's tensors and factors, by slot; None for those that it lacks.
        results: The call's results.
        scratch: The memory that the launches requested beside these tensors.
        note: The chosen kernel and configuration, for people.
        may_spill: Whether a kernel that spills is accepted.

    Raises:
        NotPlannedError: When a launch cannot be part of a plan.
        SpilledError: When a kernel spills and may not.
        DoesNotFitError, triton.runtime.errors.OutOfResources: When a kernel does not fit the device.
    """
    regions = Regions()
    for slot, tensor in enumerate((*tensors, *results)):
        if isinstance(tensor, Tensor):
            regions.add(tensor, slot)
    zeroed, scratch_bytes, counters = _place(scratch, regions, len(tensors) + len(results))
    outputs = [output_of(result) for result in results]
    if scratch_bytes:
        outputs.append(([scratch_bytes], [1], "uint8"))
    by_kernel = list(zip(launches, compile_all(launches), strict=True))
    if not may_spill:
        look.check_spills(kernel for _, kernel in by_kernel)
    steps: list[KernelStep | FillStep | ProductStep | MatmulStep] = []
    direct: list[DirectStep] = []
    if compiled is not None and driver() is not None and reads_tensors():
        steps = [*zeroed, *(_step(launch, kernel, regions) for launch, kernel in by_kernel)]
    else:
        direct = [step.direct() for step in zeroed]
        direct += [_direct(launch, kernel, regions) for launch, kernel in by_kernel]
    return RecordedCall(Recipe(steps, outputs, len(results), counters, note), direct)


def _place(scratch: NotedScratch, regions: Regions, slot: int) -> tuple[list[FillStep], int, int]:
    """Put scratch memory into one slot and counters into the next; return fills, bytes and the number of counters."""
    scratch_bytes = counters = 0
    zeroed = []
    for piece in (*scratch.fresh, *scratch.zeroed):
        regions.add(piece, slot, scratch_bytes)
        if any(piece is other for other in scratch.zeroed):
            zeroed.append(FillStep(slot, scratch_bytes, piece.numel()))
        start, end = extent(piece)
        scratch_bytes += -(-(end - start) // PIECE_BYTES) * PIECE_BYTES
    for piece in scratch.counted:
        regions.add(piece, slot + bool(scratch_bytes), counters * WORD_BYTES)
        counters += piece.numel()
    return zeroed, scratch_bytes, counters


def compile_all(launches: Sequence[Any]) -> list[Any]:
    """Compile the kernels of all launches, different functions in parallel; None stands for a fill.

    Raises:
        NotPlannedError: For launches that cannot be part of a plan.
        CompileError: When NVRTC refuses a kernel in CUDA C++.
        triton.runtime.errors.OutOfResources: When a kernel does not fit the device.
    """
    first = {}
    for launch in reversed(launches):
        if isinstance(launch, FillLaunch):
            continue
        first[_function_of(launch)] = launch
    if len(first) > 1:
        with ThreadPoolExecutor(len(first)) as threads:
            list(threads.map(lambda launch: launch.compiled(), first.values()))
    return [None if isinstance(launch, FillLaunch) else launch.compiled() for launch in launches]


def _function_of(launch: Any) -> Hashable:
    """Return the unit of compilation of a launch: Triton's function, or a CUDA source with its macros."""
    from constrint.kernels.launch.triton import TritonLaunch

    if isinstance(launch, TritonLaunch):
        return id(launch.function)
    if not _is_cuda(launch):
        raise NotPlannedError(f"{type(launch).__name__} is a launch of another kind")
    if launch.constants:
        raise NotPlannedError("the kernel has constants of its own")
    return repr(launch.source)


def _is_cuda(launch: Any) -> bool:
    from constrint.kernels.launch.cuda.source_spec import CudaLaunch

    return isinstance(launch, CudaLaunch)


def _step(launch: Any, kernel: Any, regions: Regions) -> KernelStep | FillStep:
    if isinstance(launch, FillLaunch):
        return _fill_step(launch, regions)
    if _is_cuda(launch):
        return _cuda_step(launch, regions)
    shape = LaunchShape.of(kernel, launch.grid)
    laid = layout_of(kernel, launch.values(), regions.locate)
    assert compiled is not None
    check_layout(laid, compiled.parameter_bytes(driver(), kernel.function), kernel.asm)
    return KernelStep(keep_triton(kernel), kernel.metadata.name, shape, laid)


def _fill_step(launch: FillLaunch, regions: Regions) -> FillStep:
    words = launch.num_words
    slot, shift = regions.locate(launch.tensor.data_ptr()) if words else (0, 0)
    return FillStep(slot, shift, words, launch.value)


def _cuda_step(launch: Any, regions: Regions) -> KernelStep:
    shape = LaunchShape.of_cuda(launch)
    laid = cuda_layout(launch.arguments, regions.locate)
    handle = int(launch.handle())
    assert compiled is not None
    check_cuda_layout(laid, compiled.parameter_bytes(driver(), handle), launch.source.name)
    check_shape(shape, handle, launch.source.name)
    binary = launch.binary
    return KernelStep(keep_image(binary.cubin, binary.symbol, handle), binary.symbol, shape, laid)


def _direct(launch: Any, kernel: Any, regions: Regions) -> DirectStep:
    if isinstance(launch, FillLaunch):
        return _fill_step(launch, regions).direct()
    if _is_cuda(launch):
        return DirectCuda.of(launch, regions.locate)
    return DirectLaunch.of(kernel, launch.grid, launch.values(), regions.locate)


def plan_of(recipe: Recipe, num_tensors: int) -> Any:
    """The core's plan of a recipe on the current device.

    Raises:
        NotPlannedError: When a kernel of the recipe is not on disk, or does not fit this device.
    """
    if compiled is None or driver() is None:
        raise NotPlannedError("there is no driver")
    slots = num_tensors + len(recipe.outputs) + (1 if recipe.num_counters else 0)
    steps = [step.for_core() for step in recipe.steps]
    try:
        return compiled.plan(driver(), slots, steps, [])
    except (RuntimeError, TypeError) as error:
        raise NotPlannedError(str(error)) from error


def output_of(result: Tensor) -> tuple[list[int], list[int], str]:
    """Return shape, strides and dtype of an allocation as a recipe stores them."""
    return list(result.shape), list(result.stride()), _dtype_name(result.dtype)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
