"""The pointwise kernels of training in Triton: an activation forward, and its gradient together with the bias' sums.

Needs triton; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.gemm.epilogue.kernel import activate


@triton.jit
def normal(z):
    """The standard normal distribution and its density at z, both to 2^-22.

    One exponential serves both: the distribution is a polynomial in 1 / (1 + p |z|) times it (Abramowitz and Stegun,
    Handbook of Mathematical Functions, 7.1.26, with |z| / sqrt(2) as the argument).
    """
    bell = tl.exp(-0.5 * z * z)
    t = 1.0 / (1.0 + 0.23164188783 * tl.abs(z))
    series = 0.5 * 1.061405429 * t - 0.5 * 1.453152027
    series = series * t + 0.5 * 1.421413741
    series = series * t - 0.5 * 0.284496736
    series = (series * t + 0.5 * 0.254829592) * t
    tail = series * bell
    return tl.where(z < 0, tail, 1.0 - tail), 0.3989422804014327 * bell


@triton.jit
def swish_slope(z, exponent, slope):
    """The derivative of z * sigmoid(exponent), where `slope` is that of the exponent."""
    share = 1.0 / (1.0 + tl.exp(-exponent))
    # Far out one of the shares is 0, and z or its square may be infinite.
    rest = tl.where(tl.abs(z) > 128.0, 0.0, z * slope) * (share * (1.0 - share))
    return share + rest


@triton.jit
def pass_back(gradient, saved, activation: tl.constexpr):
    """The gradient before an activation, in fp32.

    Args:
        gradient: Gradient after it.
        saved: The activation's argument; its result for relu.
        activation: A key of `reference.ACTIVATIONS`, or None.
    """
    if activation == "relu":
        return tl.where(saved <= 0, 0.0, gradient)
    elif activation == "relu2":
        return gradient * (2.0 * tl.where(saved < 0, 0.0, saved))
    elif activation == "gelu":
        distribution, density = normal(saved)
        # The density underflows to 0 before z overflows, but 0 * inf is no number.
        return gradient * (distribution + tl.where(tl.abs(saved) > 32.0, 0.0, saved * density))
    elif activation == "silu":
        return gradient * swish_slope(saved, saved, 1.0)
    elif activation == "quick_gelu":
        return gradient * swish_slope(saved, 1.702 * saved, 1.702)
    elif activation == "gelu_tanh":
        square = saved * saved
        exponent = saved * (1.5957691216057308 + 0.07135481627260025 * square)
        return gradient * swish_slope(saved, exponent, 1.5957691216057308 + 0.21406444881780075 * square)
    elif activation == "sigmoid":
        share = 1.0 / (1.0 + tl.exp(-saved))
        return gradient * (share * (1.0 - share))
    elif activation == "tanh":
        power = tl.exp(-2.0 * tl.abs(saved))
        return gradient * (4.0 * power / ((1.0 + power) * (1.0 + power)))
    else:
        tl.static_assert(activation is None, "this activation has no derivative here")
        return gradient


@triton.jit(do_not_specialize=["m", "num_chunks", "tiles_per_chunk"])
def gradient_kernel(
    gradient_ptr,  # (M, N), any strides
    saved_ptr,  # (M, N), contiguous, or None without an activation
    out_ptr,  # (M, N), contiguous, or None
    sums_ptr,  # (N,), or None
    partials_ptr,  # (num_chunks, N) in fp32, or None where one chunk has all rows
    counters_ptr,  # (tiles of columns,) of int32, all zero before and after, or None likewise
    m, n, stride_gm, stride_gn, num_chunks, tiles_per_chunk,
    tile_m: tl.constexpr, tile_n: tl.constexpr, activation: tl.constexpr,
    hint: tl.constexpr = 1,  # n is a multiple of it
    hint_g: tl.constexpr = 1,  # stride_gm is a multiple of it
):  # fmt: skip
    """out = gradient * activation'(saved), and its sums over rows; grid (tiles of columns, chunks of rows).

    Every block sums its rows; the last one of a tile of columns adds the partial sums, always in the same order.
    """
    # Triton sees by itself only multiples of 16, and reads rows of others element by element.
    if hint > 1:
        n = n // hint * hint
    if hint_g > 1:
        stride_gm = stride_gm // hint_g * hint_g
    columns = tl.program_id(0) * tile_n + tl.arange(0, tile_n)
    is_column = columns < n
    chunk = tl.program_id(1)
    sums = tl.zeros((tile_m, tile_n), tl.float32)
    for tile in range(chunk * tiles_per_chunk, (chunk + 1) * tiles_per_chunk):
        rows = tile * tile_m + tl.arange(0, tile_m)
        inside = (rows < m)[:, None] & is_column[None, :]
        wide = rows.to(tl.int64)[:, None]
        at = wide * stride_gm + columns.to(tl.int64)[None, :] * stride_gn
        gradient = tl.load(gradient_ptr + at, mask=inside, other=0.0).to(tl.float32)
        if saved_ptr is not None:
            saved = tl.load(saved_ptr + wide * n + columns[None, :], mask=inside, other=0.0).to(tl.float32)
            gradient = pass_back(gradient, saved, activation)
        if out_ptr is not None:
            tl.store(out_ptr + wide * n + columns[None, :], gradient.to(out_ptr.dtype.element_ty), mask=inside)
        if sums_ptr is not None:
            sums += gradient
    if sums_ptr is not None:
        column_sums = tl.sum(sums, axis=0)
        if partials_ptr is None:
            tl.store(sums_ptr + columns, column_sums.to(sums_ptr.dtype.element_ty), mask=is_column)
        else:
            tl.store(partials_ptr + chunk.to(tl.int64) * n + columns, column_sums, mask=is_column)
            # All threads' stores come before the one thread's release.
            tl.debug_barrier()
            arrived = tl.atomic_add(counters_ptr + tl.program_id(0), 1, sem="acq_rel", scope="gpu")
            if arrived == num_chunks - 1:
                total = tl.zeros((tile_m, tile_n), tl.float32)
                for first in range(0, num_chunks, tile_m):
                    chunks = first + tl.arange(0, tile_m)
                    valid = (chunks < num_chunks)[:, None] & is_column[None, :]
                    # From the L2: other SMs wrote them.
                    piece = partials_ptr + chunks.to(tl.int64)[:, None] * n + columns[None, :]
                    total += tl.load(piece, mask=valid, other=0.0, cache_modifier=".cg")
                whole = tl.sum(total, axis=0)
                tl.store(sums_ptr + columns, whole.to(sums_ptr.dtype.element_ty), mask=is_column)
                tl.store(counters_ptr + tl.program_id(0), 0)


@triton.jit(do_not_specialize=["num_tiles"])
def activation_kernel(
    z_ptr,  # num elements, contiguous
    out_ptr,  # likewise
    num,
    num_tiles,
    tile: tl.constexpr,
    activation: tl.constexpr,
):
    """out = activation(z), rounded once; grid (blocks,), each of which takes tiles `tl.num_programs(0)` apart."""
    for at in range(tl.program_id(0), num_tiles, tl.num_programs(0)):
        offsets = tl.cast(at, tl.int64) * tile + tl.arange(0, tile)
        z = tl.load(z_ptr + offsets, mask=offsets < num, other=0.0).to(tl.float32)
        out = activate(z, activation, out_ptr.dtype.element_ty)
        tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=offsets < num)
