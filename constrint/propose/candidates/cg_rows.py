"""CG: a block of two warps solves a system; products sum along rows."""

import triton
import triton.language as tl

STEPS = tl.constexpr(10)
# Share of the first r'r at which r is nothing but roundings. Lanes that hold the same element may differ in its last
# bit, where a product is fused into a sum: p'Ap of what is left may be anything then, and a step far too long.
ROUNDINGS = tl.constexpr(2.3e-13)


@triton.jit
def solve(x, a, b, n, a_system, a_row, a_column, b_system, b_row, tile: tl.constexpr):
    system = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, tile)
    inside = at < n
    places = a + system * a_system + at[:, None] * a_row + at[None, :] * a_column
    matrix = tl.load(places, mask=inside[:, None] & inside[None, :], other=0.0)
    r = tl.load(b + system * b_system + at * b_row, mask=inside, other=0.0)
    solution, p, rr = tl.zeros((tile,), tl.float32), r, tl.sum(r * r, axis=0)
    least = rr * ROUNDINGS
    for _ in range(STEPS):
        q = tl.sum(matrix * p[None, :], axis=1)
        curvature = tl.sum(p * q, axis=0)
        goes_on = (curvature > 0) & (rr > least)
        step = tl.where(goes_on, rr / tl.where(goes_on, curvature, 1.0), 0.0)
        solution += step * p
        r -= step * q
        new = tl.sum(r * r, axis=0)
        p = r + tl.where(goes_on, new / tl.where(goes_on, rr, 1.0), 0.0) * p
        rr = new
    tl.store(x + system * n + at, solution, mask=inside)


def run(x, a, b):
    s, n = b.shape
    tile = max(16, triton.next_power_of_2(n))
    solve[(s,)](x, a, b, n, a.stride(0), a.stride(1), a.stride(2), b.stride(0), b.stride(1), tile, num_warps=2)
