"""activation(z) * u and its gradients, one pass each, in Triton.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.gemm.backward.kernel import pass_back
from constrint.kernels.gemm.epilogue.kernel import activate


@triton.jit(do_not_specialize=["m"])
def gate_kernel(
    z_ptr,  # (M, N), rows `stride` apart
    u_ptr,  # likewise, or None: the N columns behind those of z
    out_ptr,  # (M, N), contiguous
    m, n, stride, tile_m: tl.constexpr, tile_n: tl.constexpr, activation: tl.constexpr,
    hint: tl.constexpr = 1,  # n and the stride are multiples of it
):  # fmt: skip
    """out = activation(z) * u, rounded once; grid (tiles of columns, tiles of rows)."""
    # Triton sees by itself only multiples of 16.
    if hint > 1:
        n, stride = n // hint * hint, stride // hint * hint
    columns = tl.program_id(0) * tile_n + tl.arange(0, tile_n)
    rows = (tl.program_id(1) * tile_m + tl.arange(0, tile_m)).to(tl.int64)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    at = rows[:, None] * stride + columns[None, :]
    behind = z_ptr + n if u_ptr is None else u_ptr
    z = tl.load(z_ptr + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(behind + at, mask=inside, other=0.0).to(tl.float32)
    out_dtype: tl.constexpr = out_ptr.dtype.element_ty
    out = activate(z, activation, out_dtype) * u
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], out.to(out_dtype), mask=inside)


@triton.jit(do_not_specialize=["m"])
def gate_gradient_kernel(
    gradient_ptr,  # (M, N), contiguous
    z_ptr,  # as in `gate_kernel`
    u_ptr,
    of_z_ptr,  # laid out as z
    of_u_ptr,  # as u, or None likewise
    m, n, stride, tile_m: tl.constexpr, tile_n: tl.constexpr, activation: tl.constexpr,
    hint: tl.constexpr = 1,  # as in `gate_kernel`
):  # fmt: skip
    """of_z = gradient * u * activation'(z) and of_u = gradient * activation(z); the grid of `gate_kernel`."""
    if hint > 1:
        n, stride = n // hint * hint, stride // hint * hint
    columns = tl.program_id(0) * tile_n + tl.arange(0, tile_n)
    rows = (tl.program_id(1) * tile_m + tl.arange(0, tile_m)).to(tl.int64)
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    at = rows[:, None] * stride + columns[None, :]
    behind = z_ptr + n if u_ptr is None else u_ptr
    of_behind = of_z_ptr + n if of_u_ptr is None else of_u_ptr
    gradient = tl.load(gradient_ptr + rows[:, None] * n + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    z = tl.load(z_ptr + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(behind + at, mask=inside, other=0.0).to(tl.float32)
    out_dtype: tl.constexpr = of_z_ptr.dtype.element_ty
    tl.store(of_z_ptr + at, pass_back(gradient * u, z, activation).to(out_dtype), mask=inside)
    tl.store(of_behind + at, (gradient * activate(z, activation, out_dtype)).to(out_dtype), mask=inside)
