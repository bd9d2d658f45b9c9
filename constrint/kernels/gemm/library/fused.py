"""A product with its epilogue as one launch of cuBLASLt, and the parts of an epilogue that it takes. Needs torch.

cuBLASLt computes activation(alpha A B + beta C + bias) with sums of 32 bits and rounds once, as the kernels of this
package do; but where rows are not aligned it rounds the product before the bias is added, and its relu makes 0 of NaN,
so that both are left to the pointwise kernel there. `split` divides the epilogue of a call between the product and a
pointwise kernel that follows it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

import torch
from torch import Tensor

from constrint.errors import CompileError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.launch import Epilogue, GemmCall
from constrint.kernels.gemm.library.cost import takes_activation
from constrint.kernels.gemm.operands import rows_of
from constrint.kernels.gemm.units import WIDEST_BYTES
from constrint.kernels.launch.plan import matmul_library
from constrint.kernels.launch.plan.direct import ADDRESS_STEP
from constrint.kernels.launch.plan.matmul_library import Algorithm, Matmul
from constrint.kernels.launch.plan.recipe import MatmulStep
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.select.candidate import CompiledKernel

#: Types of operands and of results, by the library's numbers.
TYPES = {
    torch.float16: matmul_library.FP16,
    torch.bfloat16: matmul_library.BF16,
    torch.float32: matmul_library.FP32,
    torch.float8_e4m3fn: matmul_library.E4M3,
    torch.int8: matmul_library.INT8,
    torch.int32: matmul_library.INT32,
}
#: Epilogues by the activations that are taken.
EPILOGUES = {None: 0, "relu": matmul_library.RELU}
#: Sizes and strides are 32-bit integers.
MOST = 2**31 - 1
AS_IT_IS, TRANSPOSED = 0, 1


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


def takes_bias(bias: Tensor, kind: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether cuBLASLt adds a bias to results of `kind` of operands of `dtype`; their rows are another question."""
    return bias.dtype == kind == dtype and bias.stride(0) == 1


def has_aligned_rows(call: GemmCall) -> bool:
    """Whether the rows of A, B and C allow accesses of 16 bytes."""
    return all(rows_of(tensor).width_bytes == WIDEST_BYTES for tensor in (call.a, call.b, call.out))


def takes_source(source: Tensor, kind: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether cuBLASLt adds a matrix (batch, M, N): of the result's type, by rows, with no repeated elements."""
    matrix = matrix_of(source[0])
    is_repeated = source.shape[0] > 1 and source.stride(0) == 0
    return source.dtype == kind == dtype and matrix is not None and matrix.is_by_rows and not is_repeated


def split(call: GemmCall) -> tuple[GemmCall, Epilogue | None]:
    """The product with all that the library takes of the epilogue, and the rest for a pointwise kernel; None for none.

    Without cuBLASLt the library computes the plain product.
    """
    if matmul_library.has_matmul():
        return divided(call)
    end = call.epilogue
    return replace(call, epilogue=Epilogue()), None if end == Epilogue() else end


def divided(call: GemmCall) -> tuple[GemmCall, Epilogue | None]:
    """`split` where cuBLASLt is there."""
    end, kind, dtype = call.epilogue, call.out.dtype, call.a.dtype
    is_aligned = has_aligned_rows(call)
    bias_inside = end.bias is None or (takes_bias(end.bias, kind, dtype) and is_aligned)
    source_inside = end.source is None or takes_source(end.source, kind, dtype)
    is_linear = bias_inside and source_inside
    takes_it = takes_activation(end.activation, kind.itemsize, has_aligned_rows=is_aligned)
    activation = end.activation if is_linear and takes_it else None
    bias, source = (end.bias if bias_inside else None), (end.source if source_inside else None)
    inside = Epilogue(bias, source, end.alpha, end.beta if source is not None else 0.0, activation)
    if is_linear and activation == end.activation:
        return replace(call, epilogue=inside), None
    left_bias, left_source = (None if bias_inside else end.bias), (None if source_inside else end.source)
    rest = Epilogue(left_bias, left_source, 1.0, end.beta if left_source is not None else 0.0, end.activation)
    return replace(call, epilogue=inside), rest


def matmul_of(call: GemmCall) -> Matmul | None:
    """A call as cuBLASLt states it; None where it takes no such call.

    The library reads matrices by columns, and a matrix by rows as its transpose: it computes C' = B' A', and the bias
    is a column.
    """
    a, b, out, end = call.a, call.b, call.out, call.epilogue
    if (
        {a.dtype, b.dtype, out.dtype} - TYPES.keys()
        or divided(call)[1] is not None
        or not out.numel()
        or not a.shape[2]
    ):
        return None
    if a.dtype == torch.float32 != out.dtype or (_has_integers(call) and not _is_of_integers(call)):
        return None
    source = out if end.source is None else end.source
    operands = (b, a, source, out)
    laid = [matrix_of(each[0]) for each in operands]
    matrices = [matrix for matrix in laid if matrix is not None]
    batch = a.shape[0]
    if len(matrices) < len(laid) or not (matrices[2].is_by_rows and matrices[3].is_by_rows):
        return None
    strides = [matrix.stride for matrix in matrices]
    steps = [each.stride(0) if batch > 1 else 0 for each in operands]
    (m, k), n = a.shape[1:], b.shape[2]
    if max(m, n, k, *strides) > MOST or min(steps) < 0:
        return None
    first, second = (AS_IT_IS if matrix.is_by_rows else TRANSPOSED for matrix in matrices[:2])
    kinds = [TYPES[each.dtype] for each in operands]
    compute = matmul_library.IN_FP32
    if a.dtype == torch.float32 and call.precision == "tf32":
        compute = matmul_library.IN_TF32
    elif a.dtype == torch.int8:
        compute = matmul_library.IN_INT32
    epilogue = EPILOGUES[end.activation]
    epilogue |= matmul_library.BIAS if end.bias is not None else 0
    aligned = [gcd(each.data_ptr() % ADDRESS_STEP or ADDRESS_STEP, ADDRESS_STEP) for each in operands]
    return Matmul(
        (first, second),
        (n, m, k),
        (kinds[0], kinds[1], kinds[2], kinds[3]),
        (strides[0], strides[1], strides[2], strides[3]),
        batch,
        (steps[0], steps[1], steps[2], steps[3]),
        (float(end.alpha), float(end.beta) if end.source is not None else 0.0),
        compute,
        epilogue or matmul_library.NO_EPILOGUE,
        (aligned[0], aligned[1], aligned[2], aligned[3]),
    )


def _has_integers(call: GemmCall) -> bool:
    return not all(each.dtype.is_floating_point for each in (call.a, call.b, call.out))


def _is_of_integers(call: GemmCall) -> bool:
    """Whether a call is a plain product of 8-bit integers, whose sums are its results."""
    kinds = call.a.dtype, call.b.dtype, call.out.dtype
    return kinds == (torch.int8, torch.int8, torch.int32) and call.epilogue == Epilogue()


def matmul_step(
    call: GemmCall, slots: tuple[int, int, int, int], out_slot: int, workspace_slot: int, place: int = 0
) -> MatmulStep:
    """The step of a call whose tensors (a, b, bias, c) have these slots, by one of the heuristic's algorithms.

    Raises:
        NotPlannedError: When cuBLASLt is not there, does not take the call, or has fewer algorithms for it.
    """
    matmul = matmul_of(call) if matmul_library.has_matmul() else None
    if matmul is None:
        raise NotPlannedError("cuBLASLt does not take this product")
    bias, source = call.epilogue.bias, call.epilogue.source
    found = matmul_library.algorithms(matmul, _device_of(call), 0 if bias is None else bias.data_ptr())
    if place >= len(found):
        raise NotPlannedError("cuBLASLt has no further algorithm for this product")
    algorithm = found[place]
    a, b, at_bias, at_source = slots
    return MatmulStep(
        matmul,
        algorithm,
        (
            b,
            a,
            out_slot if source is None else at_source,
            out_slot,
            -1 if bias is None else at_bias,
            workspace_slot if algorithm.workspace_bytes else -1,
        ),
    )


def _device_of(call: GemmCall) -> int:
    return call.a.device.index if call.a.device.index is not None else torch.cuda.current_device()


@dataclass(frozen=True)
class FusedLaunch:
    """A product with its epilogue by cuBLASLt, by its first algorithm or another; there is nothing to compile."""

    call: GemmCall
    algorithm: Algorithm | None = None

    def run(self) -> None:
        """Enqueue it on the current stream.

        Raises:
            CompileError: When the library does not take the product after all.
        """
        call, end = self.call, self.call.epilogue
        device, bias = _device_of(call), end.bias
        matmul = matmul_of(call) if matmul_library.has_matmul() else None
        try:
            if matmul is None:
                raise NotPlannedError("cuBLASLt does not take this product")
            algorithm = self.algorithm
            if algorithm is None:
                algorithm = matmul_library.chosen(matmul, device, 0 if bias is None else bias.data_ptr())
            source = call.out if end.source is None else end.source
            addresses = [each.data_ptr() for each in (call.b, call.a, source, call.out)]
            workspace = torch.empty(algorithm.workspace_bytes, dtype=torch.uint8, device=call.a.device)
            addresses.append(0 if bias is None else bias.data_ptr())
            matmul_library.enqueue(matmul, algorithm, device, addresses, workspace.data_ptr())
        except NotPlannedError as error:
            raise CompileError(str(error)) from error

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """There is nothing to compile.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("gemm.library: the library is compiled already, and does not say what it launches.")
