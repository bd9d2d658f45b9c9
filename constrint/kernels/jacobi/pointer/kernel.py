"""One sweep of a star over grids of two or three axes, in Triton.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sweep_kernel(
    u,
    f,
    out,
    nz,
    ny,
    nx,
    tiles_x,
    tiles_y,
    has_f: tl.constexpr,
    factor_f: tl.constexpr,
    steps_z: tl.constexpr,
    steps_y: tl.constexpr,
    steps_x: tl.constexpr,
    factors: tl.constexpr,
    before_f: tl.constexpr,
    border_z: tl.constexpr,
    border_y: tl.constexpr,
    border_x: tl.constexpr,
    sum_type: tl.constexpr,
    block_y: tl.constexpr,
    block_x: tl.constexpr,
):
    """One tile of one plane: the star's sum inside the border, u on it.

    Args:
        u, f, out: (planes, ny, nx), contiguous; planes of all grids of a batch, nz each (1: grids of two axes).
        tiles_x, tiles_y: Tiles of a plane.
        has_f, factor_f: Whether there is a right side, and its factor.
        steps_z, steps_y, steps_x, factors: The star's terms, in the order in which they are summed.
        before_f: Terms that are summed before the right side.
        border_z, border_y, border_x: Widths of the border.
        sum_type: Type of sums.
    """
    number = tl.program_id(0)
    tile_x = number % tiles_x
    tile_y = number // tiles_x % tiles_y
    plane = number // (tiles_x * tiles_y)
    z = plane % nz + tl.zeros((1, 1), tl.int32)
    x = tile_x * block_x + tl.arange(0, block_x)[None, :]
    y = tile_y * block_y + tl.arange(0, block_y)[:, None]
    first = plane.to(tl.int64) * ny * nx
    place = y.to(tl.int64) * nx + x
    is_in = (y < ny) & (x < nx)
    is_inside = (
        (y >= border_y)
        & (y < ny - border_y)
        & (x >= border_x)
        & (x < nx - border_x)
        & (z >= border_z)
        & (z < nz - border_z)
    )
    kept = tl.load(u + first + place, is_in, other=0.0)
    total = tl.zeros((block_y, block_x), sum_type)
    for term in tl.static_range(len(factors)):
        if has_f and term == before_f:
            right_side = tl.load(f + first + place, is_inside, other=0.0).to(sum_type)
            total += right_side * tl.full((), factor_f, sum_type)
        if steps_z[term] == 0 and steps_y[term] == 0 and steps_x[term] == 0:
            value = kept
        else:
            step = (tl.full((), steps_z[term], tl.int64) * ny + steps_y[term]) * nx + steps_x[term]
            value = tl.load(u + first + place + step, is_inside, other=0.0)
        total += value.to(sum_type) * tl.full((), factors[term], sum_type)
    if has_f and before_f == len(factors):
        right_side = tl.load(f + first + place, is_inside, other=0.0).to(sum_type)
        total += right_side * tl.full((), factor_f, sum_type)
    tl.store(out + first + place, tl.where(is_inside, total, kept.to(sum_type)).to(out.dtype.element_ty), is_in)
