"""The end of an epilogue as pointwise kernels in Triton; needs triton, and nothing imports it until one is compiled."""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.gemm.epilogue.kernel import activate, finish


@triton.jit(do_not_specialize=["m"])
def pointwise_kernel(
    out_ptr,  # (batch, M, N), contiguous rows
    bias_ptr,  # (N,) or None
    source_ptr,  # (batch, M, N), any strides, or None
    m, n, stride_cb, stride_cm, stride_sb, stride_sm, stride_sn, alpha, beta,
    tile_m: tl.constexpr, tile_n: tl.constexpr, has_alpha: tl.constexpr, activation: tl.constexpr,
    hint: tl.constexpr = 1,  # n and the strides of out are multiples of it
    hint_s: tl.constexpr = 1,  # the strides of source but the last one are
):  # fmt: skip
    """out = activation(alpha * out + bias + beta * source), rounded once; grid (tiles of rows, of columns, batch)."""
    # Triton sees by itself only multiples of 16.
    if hint > 1:
        n, stride_cb, stride_cm = n // hint * hint, stride_cb // hint * hint, stride_cm // hint * hint
    if hint_s > 1:
        stride_sb, stride_sm = stride_sb // hint_s * hint_s, stride_sm // hint_s * hint_s
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    columns = tl.program_id(1) * tile_n + tl.arange(0, tile_n)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    out_ptr += tl.program_id(2).to(tl.int64) * stride_cb
    if source_ptr is not None:
        source_ptr += tl.program_id(2).to(tl.int64) * stride_sb
    addresses = out_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :]
    product = tl.load(addresses, mask=inside, other=0.0).to(tl.float32)
    out = finish(
        product, rows, columns, m, n, bias_ptr, source_ptr, stride_sm, stride_sn, alpha, beta, has_alpha, activation,
        out_ptr.dtype.element_ty,
    )  # fmt: skip
    tl.store(addresses, out, mask=inside)


@triton.jit
def activation_kernel(
    out_ptr,  # contiguous
    size,
    tile: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    """out = activation(out), rounded once; every block takes `tile` elements in turn."""
    places = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile)
    inside = places < size
    values = tl.load(out_ptr + places, mask=inside, other=0.0).to(tl.float32)
    tl.store(
        out_ptr + places,
        activate(values, activation, out_ptr.dtype.element_ty).to(out_ptr.dtype.element_ty),
        mask=inside,
    )
