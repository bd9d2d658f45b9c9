"""A plain product of 16-bit operands as a plan's step: the call of cuBLAS that torch makes of it. Needs torch."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from constrint.kernels.gemm.launch import Call
from constrint.kernels.launch.plan.recipe import ProductStep

#: cudaDataType_t of operands and results. Torch multiplies others by other functions.
OPERAND_TYPES = {torch.float16: 2, torch.bfloat16: 14}
RESULT_TYPES = {**OPERAND_TYPES, torch.float32: 0}
#: cublasOperation_t.
AS_IT_IS, TRANSPOSED = 0, 1
#: Sizes and strides are 32-bit integers.
MOST = 2**31 - 1


class Matrix(NamedTuple):
    """How a matrix lies in memory.

    Args:
        is_by_rows: Its rows are contiguous; else its columns are.
        stride: Elements from row to row, or from column to column.
    """

    is_by_rows: bool
    stride: int


def matrix_of(tensor: Tensor) -> Matrix | None:
    """How a matrix lies, by rows where that and columns say the same; None where no BLAS takes it as it is."""
    rows, columns = tensor.shape
    row_stride, column_stride = tensor.stride()
    if (column_stride == 1 or columns == 1) and (row_stride >= columns or rows == 1):
        return Matrix(True, max(1, columns) if rows == 1 else row_stride)
    if (row_stride == 1 or rows == 1) and (column_stride >= rows or columns == 1):
        return Matrix(False, max(1, rows) if columns == 1 else column_stride)
    return None


def step_of(call: Call, a_slot: int, b_slot: int, out_slot: int) -> ProductStep | None:
    """The call's product of what three slots hold; None where it is another function's.

    A BLAS sees matrices by columns, and what lies by rows as its transpose: it is asked for C' = B' A'.
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
