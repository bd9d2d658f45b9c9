"""The vector parts of conjugate gradients in Triton: three kernels an iteration beside anyone's product. Needs triton.

A sum is made of one partial sum for each program, which every program of the next kernel adds in the same order: no
atomics, one result. `state` has two rows of numbers in fp64, read and written by turns: rho, r . r, p . q, iterations,
status, threshold. Once the status is not 0, kernels change nothing, so that a CUDA graph of several iterations may run
over the end.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def partial_dot(a, b, partials, n, block: tl.constexpr):
    """partials[program] = sum of a * b over the program's elements, in fp64."""
    program, step = tl.program_id(0), tl.num_programs(0) * block
    total = tl.zeros((block,), tl.float64)
    for start in range(program * block, n, step):
        at = start + tl.arange(0, block)
        inside = at < n
        total += tl.load(a + at, inside, other=0.0).to(tl.float64) * tl.load(b + at, inside, other=0.0).to(tl.float64)
    tl.store(partials + program, tl.sum(total, 0))


@triton.jit
def advance_solution(
    x, r, p, q, inverse, curvatures, squares, products, state, n, has_inverse: tl.constexpr, programs: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    """x += alpha p, r -= alpha q, alpha = rho / (p . q); partial sums of r . r, and of r . (inverse r)."""
    program, step = tl.program_id(0), tl.num_programs(0) * block
    curvature = tl.sum(tl.load(curvatures + tl.arange(0, programs)), 0)
    moves = (tl.load(state + 4) == 0.0) & (curvature > 0.0) & (curvature - curvature == 0.0)
    alpha = tl.where(moves, tl.load(state) / curvature, 0.0)
    square = tl.zeros((block,), tl.float64)
    product = tl.zeros((block,), tl.float64)
    for start in range(program * block, n, step):
        at = start + tl.arange(0, block)
        inside = at < n
        there = tl.load(r + at, inside, other=0.0)
        if moves:
            factor = alpha.to(there.dtype)
            tl.store(x + at, tl.load(x + at, inside) + factor * tl.load(p + at, inside), inside)
            there = there - factor * tl.load(q + at, inside, other=0.0)
            tl.store(r + at, there, inside)
        wide = there.to(tl.float64)
        square += wide * wide
        if has_inverse:
            product += wide * (tl.load(inverse + at, inside, other=0.0) * there).to(tl.float64)
    tl.store(squares + program, tl.sum(square, 0))
    if has_inverse:
        tl.store(products + program, tl.sum(product, 0))


@triton.jit
def advance_direction(
    p, z, inverse, curvatures, squares, products, state, following, history, n, most, history_size,
    has_inverse: tl.constexpr, has_products: tl.constexpr, programs: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """p = z + beta p, beta = new rho / rho; program 0 writes the state that follows."""
    program, step = tl.program_id(0), tl.num_programs(0) * block
    places = tl.arange(0, programs)
    curvature, square = tl.sum(tl.load(curvatures + places), 0), tl.sum(tl.load(squares + places), 0)
    rho = square
    if has_products:
        rho = tl.sum(tl.load(products + places), 0)
    before, status, iterations = tl.load(state), tl.load(state + 4), tl.load(state + 3)
    threshold = tl.load(state + 5)
    runs = status == 0.0
    is_positive = (curvature > 0.0) & (curvature - curvature == 0.0)
    moved = runs & is_positive
    is_finite = square - square == 0.0
    good = (rho > 0.0) & (rho - rho == 0.0)
    reached = iterations + 1.0 >= most
    after = tl.where(reached, 2.0, tl.where(good, 0.0, 5.0))
    after = tl.where(tl.sqrt(square) <= threshold, 1.0, after)
    after = tl.where(is_finite, after, 4.0)
    after = tl.where(is_positive, after, tl.where(curvature - curvature == 0.0, 3.0, 4.0))
    after = tl.where(runs, after, status)
    if program == 0:
        counted = iterations + tl.where(moved, 1.0, 0.0)
        tl.store(following, tl.where(moved, rho, before))
        tl.store(following + 1, tl.where(moved, square, tl.load(state + 1)))
        tl.store(following + 2, tl.where(runs, curvature, tl.load(state + 2)))
        tl.store(following + 3, counted)
        tl.store(following + 4, after)
        tl.store(following + 5, threshold)
        if moved & (counted < history_size):
            tl.store(history + counted.to(tl.int32), square)
    if moved:
        beta = tl.where(before > 0.0, rho / before, 0.0)
        for start in range(program * block, n, step):
            at = start + tl.arange(0, block)
            inside = at < n
            there = tl.load(z + at, inside)
            if has_inverse:
                there = there * tl.load(inverse + at, inside)
            tl.store(p + at, there + beta.to(there.dtype) * tl.load(p + at, inside), inside)
