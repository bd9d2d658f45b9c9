"""Gated pairs in Triton: the tiled GEMM with pointer loads, whose tiles have sums of both factors.

It needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.gemm.epilogue.kernel import activate, tile_coordinates
from constrint.kernels.gemm.pointer.kernel import known_multiple


@triton.jit(do_not_specialize=["group_m"])
def gated_kernel(
    a_ptr,  # (M, K)
    gate_ptr,  # (K, N)
    up_ptr,  # (K, N), with the strides of gate
    out_ptr,  # (M, N), contiguous rows
    bias_gate_ptr,  # (N,) or None
    bias_up_ptr,  # (N,) or None
    m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, group_m,
    tile_m: tl.constexpr, tile_n: tl.constexpr, tile_k: tl.constexpr, num_xcds: tl.constexpr,
    xcd_chunk: tl.constexpr, even_k: tl.constexpr, wide_offsets: tl.constexpr, a_is_transposed: tl.constexpr,
    b_is_transposed: tl.constexpr, hint_a: tl.constexpr, hint_b: tl.constexpr, activation: tl.constexpr,
):  # fmt: skip
    """activation(a @ gate + bias_gate) * (a @ up + bias_up); a block has `tile_n` columns of both; grid (tiles,)."""
    num_tiles_m, num_tiles_n = tl.cdiv(m, tile_m), tl.cdiv(n, tile_n)
    tile_row, tile_column = tile_coordinates(tl.program_id(0), num_tiles_m, num_tiles_n, group_m, num_xcds, xcd_chunk)
    rows = tile_row * tile_m + tl.arange(0, tile_m)
    columns = tile_column * tile_n + tl.arange(0, tile_n)
    k_of_a, k_of_b, m_of_a, n_of_b = k, k, m, n
    if hint_a > 1:
        if a_is_transposed:
            m_of_a, stride_ak = known_multiple(m, hint_a), known_multiple(stride_ak, hint_a)
        else:
            k_of_a, stride_am = known_multiple(k, hint_a), known_multiple(stride_am, hint_a)
    if hint_b > 1:
        if b_is_transposed:
            k_of_b, stride_bn = known_multiple(k, hint_b), known_multiple(stride_bn, hint_b)
        else:
            n_of_b, stride_bk = known_multiple(n, hint_b), known_multiple(stride_bk, hint_b)
    # Rows beyond the edge read valid memory again; only their store is masked.
    rows_a, columns_b = (rows % m_of_a).to(tl.int64), (columns % n_of_b).to(tl.int64)
    depth = tl.arange(0, tile_k)
    start = depth
    step_a, step_b = tile_k * stride_ak, tile_k * stride_bk
    if wide_offsets:
        start = depth.to(tl.int64)
        step_a = tl.full((), tile_k, tl.int64) * stride_ak
        step_b = tl.full((), tile_k, tl.int64) * stride_bk
    a_ptrs = a_ptr + rows_a[:, None] * stride_am + start[None, :] * stride_ak
    offsets = start[:, None] * stride_bk + columns_b[None, :] * stride_bn
    gate_ptrs, up_ptrs = gate_ptr + offsets, up_ptr + offsets
    first = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    second = tl.zeros((tile_m, tile_n), dtype=tl.float32)
    for step in range(tl.cdiv(k, tile_k)):
        if even_k:
            a, gate, up = tl.load(a_ptrs), tl.load(gate_ptrs), tl.load(up_ptrs)
        else:
            a = tl.load(a_ptrs, mask=depth[None, :] < k_of_a - step * tile_k, other=0.0)
            inside = depth[:, None] < k_of_b - step * tile_k
            gate, up = tl.load(gate_ptrs, mask=inside, other=0.0), tl.load(up_ptrs, mask=inside, other=0.0)
        first = tl.dot(a, gate, first)
        second = tl.dot(a, up, second)
        a_ptrs += step_a
        gate_ptrs += step_b
        up_ptrs += step_b
    if bias_gate_ptr is not None:
        first += tl.load(bias_gate_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
    if bias_up_ptr is not None:
        second += tl.load(bias_up_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
    out_dtype: tl.constexpr = out_ptr.dtype.element_ty
    result = (activate(first, activation, out_dtype) * second).to(out_dtype)
    places = rows.to(tl.int64)[:, None] * stride_cm + columns[None, :]
    tl.store(out_ptr + places, result, mask=(rows[:, None] < m) & (columns[None, :] < n))
