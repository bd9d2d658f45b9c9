"""The epilogue as a pointwise kernel in Triton; needs triton, and nothing imports it until a kernel is compiled."""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.gemm.epilogue.kernel import finish


@triton.jit(do_not_specialize=["m"])
def pointwise_kernel(
    sums_ptr,  # (M, N) in 32 bits, contiguous
    out_ptr,  # (M, N), contiguous rows
    bias_ptr,  # (N,) or None
    source_ptr,  # (M, N), any strides, or None
    m, n, stride_cm, stride_sm, stride_sn, alpha, beta,
    tile_m: tl.constexpr, tile_n: tl.constexpr, has_alpha: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    """out = activation(alpha * sums + bias + beta * source), rounded once; grid (tiles of rows, tiles of columns)."""
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    sums = tl.load(sums_ptr + rows.to(tl.int64)[:, None] * n + columns[None, :], mask=inside, other=0.0)
    out = finish(
        sums, rows, columns, m, n, bias_ptr, source_ptr, stride_sm, stride_sn, alpha, beta, has_alpha, activation,
        out_ptr.dtype.element_ty,
    )  # fmt: skip
    tl.store(out_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :], out, mask=inside)
