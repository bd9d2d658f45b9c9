"""Torch's own product in a launch plan: a call of cuBLAS where torch would make that call, else torch's function.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.kernels.gemm.launch import GemmCall
from constrint.kernels.gemm.library.launch import (
    NARROW_SUMS,
    Ask,
    LibraryLaunch,
    ask_of,
    function_of,
    has_scale,
    is_captured,
)
from constrint.kernels.gemm.library.spec import LIBRARY
from constrint.kernels.gemm.pointwise.launch import pointwise_launch, sums_call
from constrint.kernels.launch.plan.driver import has_blas
from constrint.kernels.launch.plan.recipe import ProductStep, Recipe, RecordedCall, output_of, recipe_of
from constrint.kernels.launch.plan.scratch import NotedScratch
from constrint.kernels.launch.plan.shape import NotPlannedError

#: Places of A, B, the bias and C among a call's tensors (a, b, bias, c).
A, B, SOURCE = 0, 1, 3
#: cudaDataType_t of operands and results. Torch multiplies others by other functions.
OPERAND_TYPES = {torch.float16: 2, torch.bfloat16: 14}
RESULT_TYPES = {**OPERAND_TYPES, torch.float32: 0}
#: cublasOperation_t.
AS_IT_IS, TRANSPOSED = 0, 1
#: Sizes and strides are 32-bit integers.
MOST = 2**31 - 1


def library_plan(call: GemmCall, tensors: tuple[Tensor | None, ...], out: Tensor) -> RecordedCall:
    """The plan of torch's own product, which is called once: cuBLAS where torch would call it, else torch's function.

    Raises:
        NotPlannedError: When an operand is a copy.
        CompileError: When the library does not take the product after all.
    """
    stated = planned_of(call, tensors, out.shape)
    if not is_captured(out.device):
        LibraryLaunch(call).run()
    step = step_of(call, A, B, len(tensors)) if has_blas() else None
    if step is not None:
        return RecordedCall(Recipe([step], [output_of(out)], 1, 0, LIBRARY), [])
    return RecordedCall(Recipe([], [], 1, 0, LIBRARY, stated), [])


def composed_plan(call: GemmCall, tensors: tuple[Tensor | None, ...], out: Tensor, note: str) -> RecordedCall:
    """The plan of cuBLAS's product into 32-bit sums and the pointwise kernel; compiles the kernel.

    Raises:
        NotPlannedError: When torch would call another library, or an operand is a copy.
        CompileError: When the library does not take the product after all.
        SpilledError, triton.errors.TritonError: When the kernel spills or does not compile.
    """
    planned_of(call, tensors, out.shape)  # operands are those of the call
    scratch = NotedScratch()
    sums = sums_call(call.with_scratch(scratch))
    # The sums are the only scratch memory: the slot after the result.
    step = step_of(sums, A, B, len(tensors) + 1) if has_blas() else None
    if step is None:
        raise NotPlannedError("torch calls another library than cuBLAS")
    if not is_captured(out.device):
        LibraryLaunch(sums).run()
    recipe, direct = recipe_of([pointwise_launch(call, sums.out)], tensors, [out], scratch, note, may_spill=False)
    if not recipe.steps:
        raise NotPlannedError("there is no core to call cuBLAS")
    steps = [step, *recipe.steps]
    return RecordedCall(Recipe(steps, recipe.outputs, recipe.num_results, recipe.num_counters, note), direct)


def planned_of(call: GemmCall, tensors: Sequence[Tensor | None], result_shape: Sequence[int]) -> dict[str, Any]:
    """The arguments of `planned_function` for a call on the user's tensors.

    Raises:
        NotPlannedError: When the call's operands are copies of the tensors.
    """
    ask = ask_of(call)
    stated: dict[str, Any] = {
        "dtype": _name(ask.dtype),
        "kind": _name(ask.kind),
        "is_batched": ask.is_batched,
        "end": ask.end,
        "alpha": ask.alpha,
        "beta": ask.beta,
        "views": {},
        "shape": None,
    }
    used = [(A, call.a), (B, call.b)]
    if call.epilogue.source is not None:
        used.append((SOURCE, call.epilogue.source))
    for place, tensor in used:
        original = tensors[place]
        if original is None or original.data_ptr() != tensor.data_ptr():
            raise NotPlannedError("an operand is a copy")
        view = tensor if ask.is_batched else tensor[0]
        if (view.shape, view.stride()) != (original.shape, original.stride()):
            stated["views"][str(place)] = [list(view.shape), list(view.stride())]
    shape = list(call.out.shape if ask.is_batched else call.out.shape[1:])
    if shape != list(result_shape):
        stated["shape"] = list(result_shape)
    return stated


def planned_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    """The function of a call's tensors (a, b, bias, c) that gives its result, on the current device.

    Raises:
        NotPlannedError: For 8-bit operands, when a graph is captured before any call was made.
    """
    dtype, kind = (getattr(torch, stated[name]) for name in ("dtype", "kind"))
    is_scaled = dtype.is_floating_point and dtype.itemsize == 1
    if is_scaled and not has_scale(torch.device("cuda", torch.cuda.current_device())):
        raise NotPlannedError("there is no scale yet, and a graph is captured")
    ask = Ask(dtype, kind, stated["is_batched"], stated["end"], stated["alpha"], stated["beta"])
    exact = _exactly(function_of(ask), dtype)
    views = {int(place): (tuple(shape), tuple(strides)) for place, (shape, strides) in stated["views"].items()}
    if not views and stated["shape"] is None:
        return exact
    result_shape = stated["shape"]

    def reshaped(*tensors: Tensor | None) -> Tensor:
        viewed = list(tensors)
        for place, (shape, strides) in views.items():
            tensor = viewed[place]
            assert tensor is not None
            viewed[place] = tensor.as_strided(shape, strides)
        result = exact(*viewed)
        return result if result_shape is None else result.view(result_shape)

    return reshaped


def _exactly(multiply: Callable[..., Tensor], dtype: torch.dtype) -> Callable[..., Tensor]:
    """The product with sums of 32 bits."""
    narrow = NARROW_SUMS.get(dtype)
    if narrow is None:
        return multiply
    enter, leave = narrow.enter, narrow.leave

    def exact(a: Tensor, b: Tensor, bias: Tensor | None, c: Tensor | None) -> Tensor:
        # The effect of `exact_sums` without the time of a context manager.
        enter()
        try:
            return multiply(a, b, bias, c)
        finally:
            leave()

    return exact


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


class Matrix(NamedTuple):
    """Layout of a matrix in memory.

    Args:
        is_by_rows: Its rows are contiguous; else its columns are.
        stride: Elements from row to row, or from column to column.
    """

    is_by_rows: bool
    stride: int


def matrix_of(tensor: Tensor) -> Matrix | None:
    """The layout of a matrix, by rows where both apply; None where no BLAS takes the matrix as it is."""
    rows, columns = tensor.shape
    row_stride, column_stride = tensor.stride()
    if (column_stride == 1 or columns == 1) and (row_stride >= columns or rows == 1):
        return Matrix(True, max(1, columns) if rows == 1 else row_stride)
    if (row_stride == 1 or rows == 1) and (column_stride >= rows or columns == 1):
        return Matrix(False, max(1, rows) if columns == 1 else column_stride)
    return None


def step_of(call: GemmCall, a_slot: int, b_slot: int, out_slot: int) -> ProductStep | None:
    """The step of a call's product on three slots; None where the BLAS has no function for the call.

    A BLAS reads matrices by columns, and a matrix by rows as its transpose: the step computes C' = B' A'.
    """
    end, types = call.epilogue, (call.b.dtype, call.a.dtype, call.out.dtype)
    is_plain = end.source is None and end.bias is None and end.activation is None and end.alpha == 1.0
    if not is_plain or call.a.shape[0] > 1 or types[0] not in OPERAND_TYPES or types[2] not in RESULT_TYPES:
        return None
    a, b, out = (matrix_of(tensor[0]) for tensor in (call.a, call.b, call.out))
    if a is None or b is None or out is None or not out.is_by_rows:
        return None
    (m, k), n = call.a.shape[1:], call.b.shape[2]
    strides = b.stride, a.stride, out.stride
    if not min(m, n, k) or max(m, n, k, *strides) > MOST:
        return None
    first, second = (AS_IT_IS if matrix.is_by_rows else TRANSPOSED for matrix in (b, a))
    return ProductStep(
        (first, second),
        (n, m, k),
        (OPERAND_TYPES[types[0]], OPERAND_TYPES[types[1]], RESULT_TYPES[types[2]]),
        strides,
        (b_slot, a_slot, out_slot),
    )
