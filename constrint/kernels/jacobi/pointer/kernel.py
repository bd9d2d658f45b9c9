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
    HAS_F: tl.constexpr,
    RIGHT_SIDE: tl.constexpr,
    DZ: tl.constexpr,
    DY: tl.constexpr,
    DX: tl.constexpr,
    FACTORS: tl.constexpr,
    BEFORE_F: tl.constexpr,
    BZ: tl.constexpr,
    BY: tl.constexpr,
    BX: tl.constexpr,
    SUMS: tl.constexpr,
    BLOCK_Y: tl.constexpr,
    BLOCK_X: tl.constexpr,
):
    """One tile of one plane: the star's sum inside the border, u on it.

    Args:
        u, f, out: (planes, ny, nx), contiguous; planes of all grids of a batch, nz each (1: grids of two axes).
        tiles_x, tiles_y: Tiles of a plane.
        HAS_F, RIGHT_SIDE: Whether there is a right side, and its factor.
        DZ, DY, DX, FACTORS: The star's terms, in the order in which they are summed.
        BEFORE_F: Terms that are summed before the right side.
        BZ, BY, BX: Widths of the border.
        SUMS: Type of sums.
    """
    number = tl.program_id(0)
    tile_x = number % tiles_x
    tile_y = number // tiles_x % tiles_y
    plane = number // (tiles_x * tiles_y)
    z = plane % nz
    x = tile_x * BLOCK_X + tl.arange(0, BLOCK_X)[None, :]
    y = tile_y * BLOCK_Y + tl.arange(0, BLOCK_Y)[:, None]
    first = plane.to(tl.int64) * ny * nx
    place = y.to(tl.int64) * nx + x
    is_in = (y < ny) & (x < nx)
    is_inside = (y >= BY) & (y < ny - BY) & (x >= BX) & (x < nx - BX) & (z >= BZ) & (z < nz - BZ)
    kept = tl.load(u + first + place, is_in, other=0.0)
    total = tl.zeros((BLOCK_Y, BLOCK_X), SUMS)
    for term in tl.static_range(len(FACTORS)):
        if term == BEFORE_F:
            if HAS_F:
                right_side = tl.load(f + first + place, is_inside, other=0.0).to(SUMS)
                total += right_side * tl.full((), RIGHT_SIDE, SUMS)
        if DZ[term] == 0 and DY[term] == 0 and DX[term] == 0:
            value = kept
        else:
            step = (tl.full((), DZ[term], tl.int64) * ny + DY[term]) * nx + DX[term]
            value = tl.load(u + first + place + step, is_inside, other=0.0)
        total += value.to(SUMS) * tl.full((), FACTORS[term], SUMS)
    if BEFORE_F == len(FACTORS):
        if HAS_F:
            right_side = tl.load(f + first + place, is_inside, other=0.0).to(SUMS)
            total += right_side * tl.full((), RIGHT_SIDE, SUMS)
    tl.store(out + first + place, tl.where(is_inside, total, kept.to(SUMS)).to(out.dtype.element_ty), is_in)
