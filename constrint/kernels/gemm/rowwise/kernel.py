"""The pass over the rows of a product in Triton. Needs triton; nothing imports it until a kernel is compiled."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["m"])
def rows_kernel(
    z_ptr,  # (M, N), rows of contiguous elements
    scale_ptr,  # one fp32 number; None where each row has a scale of its own, and for norms
    out_ptr,  # (M, N) of fp8, contiguous; None for norms
    found_ptr,  # (M,) in fp32: greatest magnitudes, scales, or inverse norms
    m, n, stride, eps,
    tile_m: tl.constexpr, tile_n: tl.constexpr,
    most: tl.constexpr,  # the greatest number of fp8
    hint: tl.constexpr = 1,  # n and stride are multiples of it
):  # fmt: skip
    """out = z / scale in fp8 and what is found of each row; grid (tiles of rows,)."""
    if hint > 1:
        n = n // hint * hint
        stride = stride // hint * hint
    rows = tl.program_id(0) * tile_m + tl.arange(0, tile_m)
    from_rows = z_ptr + rows.to(tl.int64)[:, None] * stride
    is_row = (rows < m)[:, None]
    seen = tl.zeros((tile_m, tile_n), tl.float32)
    if out_ptr is not None and scale_ptr is not None:
        to_rows = out_ptr + rows.to(tl.int64)[:, None] * n
        scale = tl.load(scale_ptr)
    for first in range(0, n, tile_n):
        columns = first + tl.arange(0, tile_n)
        inside = is_row & (columns < n)[None, :]
        z = tl.load(from_rows + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        if out_ptr is None:
            seen += z * z
        else:
            # NaN is greater than every number.
            size = tl.where(z != z, float("inf"), tl.abs(z))
            seen = tl.maximum(seen, size)
            if scale_ptr is not None:
                tl.store(to_rows + columns[None, :], narrowed(tl.div_rn(z, scale), most, out_ptr), mask=inside)
    if out_ptr is None:
        found = 1.0 / tl.sqrt_rn(tl.sum(seen, axis=1) / n + eps)
    else:
        found = tl.max(seen, axis=1)
        if scale_ptr is None:
            found = tl.where(found > 0, tl.div_rn(found, most + tl.zeros_like(found)), 1.0)
            into_rows = out_ptr + rows.to(tl.int64)[:, None] * n
            for first in range(0, n, tile_n):
                columns = first + tl.arange(0, tile_n)
                inside = is_row & (columns < n)[None, :]
                z = tl.load(from_rows + columns[None, :], mask=inside, other=0.0).to(tl.float32)
                quotient = tl.div_rn(z, tl.broadcast_to(found[:, None], (tile_m, tile_n)))
                tl.store(into_rows + columns[None, :], narrowed(quotient, most, out_ptr), mask=inside)
    tl.store(found_ptr + rows, found, mask=rows < m)


@triton.jit
def narrowed(quotient, most: tl.constexpr, out_ptr):
    """A quotient as a number of the output's type; what is beyond its greatest number becomes that, NaN stays."""
    held = tl.minimum(tl.maximum(quotient, -most), most)
    return tl.where(quotient != quotient, quotient, held).to(out_ptr.dtype.element_ty)
