"""The GEMM for gfx950 and gfx942 in Gluon; its parameters are those of `spec.py`, its layouts those of `layouts.py`.

A block's tile is cut into four quarters, sums of halves of A's rows and halves of B's columns. One step of K has four
parts, each of which reads one operand's half from LDS and multiplies a quarter. Slices of K alternate between two
buffers; half a slice is fetched again, two steps ahead, as soon as all waves have read it:

    part  reads     fetches (gfx950: straight into LDS)   multiplies
    0     A0, B0    A1 of the next step                   A0 x B0
    1     B1        -                                     A0 x B1
    2     A1        A0, B0 two steps ahead                A1 x B1
    3     -         B1 two steps ahead                    A1 x B0

With eight waves, two on each SIMD, reads and products are stages of a warp pipeline: Triton lets the second four waves
begin one stage late, so that of two waves on a SIMD one always multiplies. With four waves there is one on each SIMD,
with all of its registers, and the compiler interleaves. On gfx942, which copies no 16 bytes straight into LDS, a slice
passes through registers and is stored a step later.

It needs triton 3.9 (`warp_pipeline_stage`); nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from constrint.kernels.gemm.epilogue.kernel import tile_coordinates

_cdna4 = gl.amd.cdna4
_copies = gl.amd.cdna4.async_copy


@gluon.jit
def placed(rows, columns, row_elements: gl.constexpr, flips: gl.constexpr, width: gl.constexpr):
    """The column of the tile whose element lies at each place of LDS: the layout's flips, which undo themselves."""
    place = rows[:, None] * row_elements + columns[None, :]
    flipped = columns[None, :] + place * 0
    for i in gl.static_range(len(flips)):
        flipped = flipped ^ (((place >> flips[i][0]) & 1) << flips[i][1])
    return gl.max_contiguous(gl.multiple_of(flipped, [1, width]), [1, width])


@gluon.jit
def offsets_along_k(first, size, stride, side: gl.constexpr, tile_k: gl.constexpr, layout: gl.constexpr,
                    flips: gl.constexpr, width: gl.constexpr):  # fmt: skip
    """Offsets of half an operand's slice whose rows run along K; rows beyond the edge are read again from the first."""
    rows = gl.arange(0, side, gl.SliceLayout(1, layout))
    depth = gl.arange(0, tile_k, gl.SliceLayout(0, layout))
    return ((first + rows) % size)[:, None] * stride + placed(rows, depth, tile_k, flips, width)


@gluon.jit
def offsets_across_k(first, size, stride, side: gl.constexpr, tile_k: gl.constexpr, layout: gl.constexpr,
                     flips: gl.constexpr, width: gl.constexpr):  # fmt: skip
    """Offsets of half a slice of B whose rows run along N; columns beyond the edge are read again from the first."""
    depth = gl.arange(0, tile_k, gl.SliceLayout(1, layout))
    columns = gl.arange(0, side, gl.SliceLayout(0, layout))
    wrapped = (first + placed(depth, columns, side, flips, width)) % size
    return depth[:, None] * stride + gl.max_contiguous(gl.multiple_of(wrapped, [1, width]), [1, width])


@gluon.jit
def read(memory, place: gl.constexpr, layout: gl.constexpr, is_turned: gl.constexpr):
    """Half an operand's slice as the matrix unit takes it. The copy's wait and a barrier lie before."""
    view = memory.reinterpret(memory.dtype, memory.shape, place)
    if is_turned:
        view = view.permute([1, 0])
    return _copies.load_shared_relaxed(view, layout)


@gluon.jit
def multiply(a, b, acc, is_scaled: gl.constexpr, operand: gl.constexpr, sums_in: gl.constexpr):
    """acc + a @ b; fp8 on gfx950 by the instruction that takes scales, all of them 1: it has twice the rate."""
    if is_scaled:
        return _cdna4.mfma_scaled(a, None, operand, b, None, operand, acc, cd_regclass=sums_in)
    return _cdna4.mfma(a, b, acc, cd_regclass=sums_in)


@gluon.jit
def step_direct(
    a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_memory, a1_memory, b0_memory, b1_memory,
    a1_other, step, steps, step_a, step_b, acc00, acc01, acc10, acc11,
    place_a: gl.constexpr, place_b: gl.constexpr, dot_a: gl.constexpr, dot_b: gl.constexpr, b_turned: gl.constexpr,
    is_scaled: gl.constexpr, operand: gl.constexpr, sums_in: gl.constexpr,
):  # fmt: skip
    """One step of K in eight stages; copies run two steps ahead, at the end over the last slice again."""
    with gl.amd.warp_pipeline_stage("read A0 B0", priority=1):
        next_a = a_ptr + gl.minimum(step + 1, steps - 1) * step_a
        a0 = read(a0_memory, place_a, dot_a, False)
        b0 = read(b0_memory, place_b, dot_b, b_turned)
        _copies.buffer_load_to_shared(a1_other, next_a, a1_offsets)
        _copies.commit_group()
    _copies.wait_group(4)
    with gl.amd.warp_pipeline_stage("multiply 00", priority=0):
        acc00 = multiply(a0, b0, acc00, is_scaled, operand, sums_in)
    with gl.amd.warp_pipeline_stage("read B1", priority=1):
        b1 = read(b1_memory, place_b, dot_b, b_turned)
    _copies.wait_group(3)
    with gl.amd.warp_pipeline_stage("multiply 01", priority=0):
        acc01 = multiply(a0, b1, acc01, is_scaled, operand, sums_in)
    with gl.amd.warp_pipeline_stage("read A1", priority=1):
        ahead = gl.minimum(step + 2, steps - 1)
        after_a, after_b = a_ptr + ahead * step_a, b_ptr + ahead * step_b
        a1 = read(a1_memory, place_a, dot_a, False)
        _copies.buffer_load_to_shared(a0_memory, after_a, a0_offsets)
        _copies.buffer_load_to_shared(b0_memory, after_b, b0_offsets)
        _copies.commit_group()
    with gl.amd.warp_pipeline_stage("multiply 11", priority=0):
        acc11 = multiply(a1, b1, acc11, is_scaled, operand, sums_in)
    with gl.amd.warp_pipeline_stage("fetch B1", priority=1):
        _copies.buffer_load_to_shared(b1_memory, after_b, b1_offsets)
        _copies.commit_group()
    _copies.wait_group(4)
    with gl.amd.warp_pipeline_stage("multiply 10", priority=0):
        acc10 = multiply(a1, b0, acc10, is_scaled, operand, sums_in)
    return acc00, acc01, acc10, acc11


@gluon.jit
def step_interleaved(
    a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_memory, a1_memory, b0_memory, b1_memory,
    a1_other, step, steps, step_a, step_b, acc00, acc01, acc10, acc11,
    place_a: gl.constexpr, place_b: gl.constexpr, dot_a: gl.constexpr, dot_b: gl.constexpr, b_turned: gl.constexpr,
    is_scaled: gl.constexpr, operand: gl.constexpr, sums_in: gl.constexpr,
):  # fmt: skip
    """The same step for four waves, each alone on its SIMD: reads and copies stand beside products of other halves."""
    next_a = a_ptr + gl.minimum(step + 1, steps - 1) * step_a
    ahead = gl.minimum(step + 2, steps - 1)
    after_a, after_b = a_ptr + ahead * step_a, b_ptr + ahead * step_b
    a0 = read(a0_memory, place_a, dot_a, False)
    b0 = read(b0_memory, place_b, dot_b, b_turned)
    _copies.buffer_load_to_shared(a1_other, next_a, a1_offsets)
    _copies.commit_group()
    _copies.wait_group(3)
    b1 = read(b1_memory, place_b, dot_b, b_turned)
    acc00 = multiply(a0, b0, acc00, is_scaled, operand, sums_in)
    a1 = read(a1_memory, place_a, dot_a, False)
    _copies.buffer_load_to_shared(a0_memory, after_a, a0_offsets)
    _copies.buffer_load_to_shared(b0_memory, after_b, b0_offsets)
    _copies.commit_group()
    acc01 = multiply(a0, b1, acc01, is_scaled, operand, sums_in)
    acc11 = multiply(a1, b1, acc11, is_scaled, operand, sums_in)
    _copies.buffer_load_to_shared(b1_memory, after_b, b1_offsets)
    _copies.commit_group()
    _copies.wait_group(4)
    acc10 = multiply(a1, b0, acc10, is_scaled, operand, sums_in)
    return acc00, acc01, acc10, acc11


@gluon.jit
def store_quarter(c_ptr, acc, first_row, first_column, m, n, stride_cm, alpha, has_alpha: gl.constexpr,
                  layout: gl.constexpr):  # fmt: skip
    """Store a quarter of the tile in C's type; what lies beyond the edges is masked."""
    if has_alpha:
        acc *= alpha
    rows = first_row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, layout))
    columns = first_column + gl.arange(0, acc.shape[1], gl.SliceLayout(0, layout))
    offsets = rows.to(gl.int64)[:, None] * stride_cm + columns[None, :]
    gl.store(c_ptr + offsets, acc.to(c_ptr.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


@gluon.jit(do_not_specialize=["group_m"])
def gemm_cdna4_kernel(
    a_ptr,  # (batch, M, K), rows along K
    b_ptr,  # (batch, K, N), rows along K where `b_turned`, else along N
    c_ptr,  # (batch, M, N)
    m, n, k, stride_ab, stride_am, stride_bb, stride_b, stride_cb, stride_cm, group_m, alpha,
    tile_m: gl.constexpr, tile_n: gl.constexpr, tile_k: gl.constexpr, num_xcds: gl.constexpr,
    xcd_chunk: gl.constexpr, has_alpha: gl.constexpr, odd_steps: gl.constexpr, b_turned: gl.constexpr,
    mfma: gl.constexpr,
    k_width: gl.constexpr, is_scaled: gl.constexpr, operand: gl.constexpr, plain_a: gl.constexpr,
    plain_b: gl.constexpr, place_a: gl.constexpr, place_b: gl.constexpr, load_a: gl.constexpr,
    load_b: gl.constexpr, flips_a: gl.constexpr, flips_b: gl.constexpr, alternates: gl.constexpr,
    sums_in: gl.constexpr,
):  # fmt: skip
    """C = A @ B on gfx950; grid (tiles, batch). K is a multiple of `tile_k`, with at least two steps."""
    half_m: gl.constexpr = tile_m // 2
    width: gl.constexpr = 128 // a_ptr.dtype.element_ty.primitive_bitwidth
    # Rows start at multiples of 16 bytes; Triton tells the compiler of strides that are multiples of 16 alone.
    stride_am, stride_b = stride_am // width * width, stride_b // width * width
    stride_ab, stride_bb = stride_ab // width * width, stride_bb // width * width
    half_n: gl.constexpr = tile_n // 2
    b_shape: gl.constexpr = [half_n, tile_k] if b_turned else [tile_k, half_n]
    dot_a: gl.constexpr = gl.DotOperandLayout(0, mfma, k_width)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, mfma, k_width)
    tile_row, tile_column = tile_coordinates(
        gl.program_id(0), gl.cdiv(m, tile_m), gl.cdiv(n, tile_n), group_m, num_xcds, xcd_chunk
    )
    row, column = tile_row * tile_m, tile_column * tile_n
    batch = gl.program_id(1).to(gl.int64)
    a_ptr += batch * stride_ab + row.to(gl.int64) * stride_am
    b_ptr += batch * stride_bb
    c_ptr += batch * stride_cb
    if b_turned:
        b_ptr += column.to(gl.int64) * stride_b
        b0_offsets = offsets_along_k(0, n - column, stride_b, half_n, tile_k, load_b, flips_b, width)
        b1_offsets = offsets_along_k(half_n, n - column, stride_b, half_n, tile_k, load_b, flips_b, width)
        step_b = tile_k
    else:
        b_ptr += column
        b0_offsets = offsets_across_k(0, n - column, stride_b, half_n, tile_k, load_b, flips_b, width)
        b1_offsets = offsets_across_k(half_n, n - column, stride_b, half_n, tile_k, load_b, flips_b, width)
        step_b = tile_k * stride_b
    a0_offsets = offsets_along_k(0, m - row, stride_am, half_m, tile_k, load_a, flips_a, width)
    a1_offsets = offsets_along_k(half_m, m - row, stride_am, half_m, tile_k, load_a, flips_a, width)
    a_dtype: gl.constexpr = a_ptr.dtype.element_ty
    b_dtype: gl.constexpr = b_ptr.dtype.element_ty
    a0_even = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], plain_a)
    a1_even = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], plain_a)
    a0_odd = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], plain_a)
    a1_odd = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], plain_a)
    b0_even = gl.allocate_shared_memory(b_dtype, b_shape, plain_b)
    b1_even = gl.allocate_shared_memory(b_dtype, b_shape, plain_b)
    b0_odd = gl.allocate_shared_memory(b_dtype, b_shape, plain_b)
    b1_odd = gl.allocate_shared_memory(b_dtype, b_shape, plain_b)
    steps = k // tile_k
    advance: gl.constexpr = step_direct if alternates else step_interleaved
    acc00 = gl.zeros([half_m, half_n], gl.float32, mfma)
    acc01 = gl.zeros([half_m, half_n], gl.float32, mfma)
    acc10 = gl.zeros([half_m, half_n], gl.float32, mfma)
    acc11 = gl.zeros([half_m, half_n], gl.float32, mfma)
    _copies.buffer_load_to_shared(a0_even, a_ptr, a0_offsets)
    _copies.buffer_load_to_shared(b0_even, b_ptr, b0_offsets)
    _copies.commit_group()
    _copies.buffer_load_to_shared(b1_even, b_ptr, b1_offsets)
    _copies.commit_group()
    _copies.buffer_load_to_shared(a1_even, a_ptr, a1_offsets)
    _copies.commit_group()
    _copies.buffer_load_to_shared(a0_odd, a_ptr + tile_k, a0_offsets)
    _copies.buffer_load_to_shared(b0_odd, b_ptr + step_b, b0_offsets)
    _copies.commit_group()
    _copies.buffer_load_to_shared(b1_odd, b_ptr + step_b, b1_offsets)
    _copies.commit_group()
    _copies.wait_group(4)
    for pair in range(steps // 2):
        acc00, acc01, acc10, acc11 = advance(
            a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_even, a1_even, b0_even, b1_even, a1_odd,
            2 * pair, steps, tile_k, step_b, acc00, acc01, acc10, acc11, place_a, place_b, dot_a, dot_b, b_turned,
            is_scaled, operand, sums_in,
        )  # fmt: skip
        acc00, acc01, acc10, acc11 = advance(
            a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_odd, a1_odd, b0_odd, b1_odd, a1_even,
            2 * pair + 1, steps, tile_k, step_b, acc00, acc01, acc10, acc11, place_a, place_b, dot_a, dot_b, b_turned,
            is_scaled, operand, sums_in,
        )  # fmt: skip
    _copies.wait_group(0)
    if odd_steps:
        a0, a1 = read(a0_even, place_a, dot_a, False), read(a1_even, place_a, dot_a, False)
        b0, b1 = read(b0_even, place_b, dot_b, b_turned), read(b1_even, place_b, dot_b, b_turned)
        acc00 = multiply(a0, b0, acc00, is_scaled, operand, sums_in)
        acc01 = multiply(a0, b1, acc01, is_scaled, operand, sums_in)
        acc10 = multiply(a1, b0, acc10, is_scaled, operand, sums_in)
        acc11 = multiply(a1, b1, acc11, is_scaled, operand, sums_in)
    store_quarter(c_ptr, acc00, row, column, m, n, stride_cm, alpha, has_alpha, mfma)
    store_quarter(c_ptr, acc01, row, column + half_n, m, n, stride_cm, alpha, has_alpha, mfma)
    store_quarter(c_ptr, acc10, row + half_m, column, m, n, stride_cm, alpha, has_alpha, mfma)
    store_quarter(c_ptr, acc11, row + half_m, column + half_n, m, n, stride_cm, alpha, has_alpha, mfma)


@gluon.jit
def step_staged(
    a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_memory, a1_memory, b0_memory, b1_memory,
    a0_other, a1_other, b0_other, b1_other, step, steps, step_a, step_b, acc00, acc01, acc10, acc11,
    dot_a: gl.constexpr, dot_b: gl.constexpr, sums_in: gl.constexpr,
):  # fmt: skip
    """One step of K in eight stages on gfx942: the next slice is loaded in the first, stored to LDS in the seventh."""
    with gl.amd.warp_pipeline_stage("read A0 B0", priority=1):
        ahead = gl.minimum(step + 1, steps - 1)
        next_a, next_b = a_ptr + ahead * step_a, b_ptr + ahead * step_b
        a0 = a0_memory.load(dot_a)
        b0 = b0_memory.permute([1, 0]).load(dot_b)
        a0_next = gl.amd.cdna3.buffer_load(next_a, a0_offsets)
        a1_next = gl.amd.cdna3.buffer_load(next_a, a1_offsets)
        b0_next = gl.amd.cdna3.buffer_load(next_b, b0_offsets)
        b1_next = gl.amd.cdna3.buffer_load(next_b, b1_offsets)
    with gl.amd.warp_pipeline_stage("multiply 00", priority=0):
        acc00 = multiply(a0, b0, acc00, False, "", sums_in)
    with gl.amd.warp_pipeline_stage("read B1", priority=1):
        b1 = b1_memory.permute([1, 0]).load(dot_b)
    with gl.amd.warp_pipeline_stage("multiply 01", priority=0):
        acc01 = multiply(a0, b1, acc01, False, "", sums_in)
    with gl.amd.warp_pipeline_stage("read A1", priority=1):
        a1 = a1_memory.load(dot_a)
    with gl.amd.warp_pipeline_stage("multiply 11", priority=0):
        acc11 = multiply(a1, b1, acc11, False, "", sums_in)
    with gl.amd.warp_pipeline_stage("store", priority=1):
        a0_other.store(a0_next)
        a1_other.store(a1_next)
        b0_other.store(b0_next)
        b1_other.store(b1_next)
    with gl.amd.warp_pipeline_stage("multiply 10", priority=0):
        acc10 = multiply(a1, b0, acc10, False, "", sums_in)
    return acc00, acc01, acc10, acc11


@gluon.jit(do_not_specialize=["group_m"])
def gemm_cdna3_kernel(
    a_ptr,  # (batch, M, K), rows along K
    b_ptr,  # (batch, K, N), rows along K
    c_ptr,  # (batch, M, N)
    m, n, k, stride_ab, stride_am, stride_bb, stride_b, stride_cb, stride_cm, group_m, alpha,
    tile_m: gl.constexpr, tile_n: gl.constexpr, tile_k: gl.constexpr, num_xcds: gl.constexpr,
    xcd_chunk: gl.constexpr, has_alpha: gl.constexpr, odd_steps: gl.constexpr, mfma: gl.constexpr,
    k_width: gl.constexpr,
    place_a: gl.constexpr, place_b: gl.constexpr, load_a: gl.constexpr, load_b: gl.constexpr,
    sums_in: gl.constexpr,
):  # fmt: skip
    """C = A @ B on gfx942; grid (tiles, batch). K is a multiple of `tile_k`, with at least two steps."""
    half_m: gl.constexpr = tile_m // 2
    width: gl.constexpr = 128 // a_ptr.dtype.element_ty.primitive_bitwidth
    # Rows start at multiples of 16 bytes; Triton tells the compiler of strides that are multiples of 16 alone.
    stride_am, stride_b = stride_am // width * width, stride_b // width * width
    stride_ab, stride_bb = stride_ab // width * width, stride_bb // width * width
    half_n: gl.constexpr = tile_n // 2
    dot_a: gl.constexpr = gl.DotOperandLayout(0, mfma, k_width)
    dot_b: gl.constexpr = gl.DotOperandLayout(1, mfma, k_width)
    tile_row, tile_column = tile_coordinates(
        gl.program_id(0), gl.cdiv(m, tile_m), gl.cdiv(n, tile_n), group_m, num_xcds, xcd_chunk
    )
    row, column = tile_row * tile_m, tile_column * tile_n
    batch = gl.program_id(1).to(gl.int64)
    a_ptr += batch * stride_ab + row.to(gl.int64) * stride_am
    b_ptr += batch * stride_bb + column.to(gl.int64) * stride_b
    c_ptr += batch * stride_cb
    a0_offsets = offsets_along_k(0, m - row, stride_am, half_m, tile_k, load_a, [], width)
    a1_offsets = offsets_along_k(half_m, m - row, stride_am, half_m, tile_k, load_a, [], width)
    b0_offsets = offsets_along_k(0, n - column, stride_b, half_n, tile_k, load_b, [], width)
    b1_offsets = offsets_along_k(half_n, n - column, stride_b, half_n, tile_k, load_b, [], width)
    a_dtype: gl.constexpr = a_ptr.dtype.element_ty
    b_dtype: gl.constexpr = b_ptr.dtype.element_ty
    a0_even = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], place_a)
    a1_even = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], place_a)
    a0_odd = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], place_a)
    a1_odd = gl.allocate_shared_memory(a_dtype, [half_m, tile_k], place_a)
    b0_even = gl.allocate_shared_memory(b_dtype, [half_n, tile_k], place_b)
    b1_even = gl.allocate_shared_memory(b_dtype, [half_n, tile_k], place_b)
    b0_odd = gl.allocate_shared_memory(b_dtype, [half_n, tile_k], place_b)
    b1_odd = gl.allocate_shared_memory(b_dtype, [half_n, tile_k], place_b)
    steps = k // tile_k
    acc00 = gl.zeros([half_m, half_n], gl.float32, mfma)
    acc01 = gl.zeros([half_m, half_n], gl.float32, mfma)
    acc10 = gl.zeros([half_m, half_n], gl.float32, mfma)
    acc11 = gl.zeros([half_m, half_n], gl.float32, mfma)
    a0_even.store(gl.amd.cdna3.buffer_load(a_ptr, a0_offsets))
    b0_even.store(gl.amd.cdna3.buffer_load(b_ptr, b0_offsets))
    b1_even.store(gl.amd.cdna3.buffer_load(b_ptr, b1_offsets))
    a1_even.store(gl.amd.cdna3.buffer_load(a_ptr, a1_offsets))
    for pair in range(steps // 2):
        acc00, acc01, acc10, acc11 = step_staged(
            a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_even, a1_even, b0_even, b1_even, a0_odd,
            a1_odd, b0_odd, b1_odd, 2 * pair, steps, tile_k, tile_k, acc00, acc01, acc10, acc11, dot_a, dot_b,
            sums_in,
        )  # fmt: skip
        acc00, acc01, acc10, acc11 = step_staged(
            a_ptr, b_ptr, a0_offsets, a1_offsets, b0_offsets, b1_offsets, a0_odd, a1_odd, b0_odd, b1_odd, a0_even,
            a1_even, b0_even, b1_even, 2 * pair + 1, steps, tile_k, tile_k, acc00, acc01, acc10, acc11, dot_a, dot_b,
            sums_in,
        )  # fmt: skip
    if odd_steps:
        a0, a1 = a0_even.load(dot_a), a1_even.load(dot_a)
        b0, b1 = b0_even.permute([1, 0]).load(dot_b), b1_even.permute([1, 0]).load(dot_b)
        acc00 = multiply(a0, b0, acc00, False, "", sums_in)
        acc01 = multiply(a0, b1, acc01, False, "", sums_in)
        acc10 = multiply(a1, b0, acc10, False, "", sums_in)
        acc11 = multiply(a1, b1, acc11, False, "", sums_in)
    store_quarter(c_ptr, acc00, row, column, m, n, stride_cm, alpha, has_alpha, mfma)
    store_quarter(c_ptr, acc01, row, column + half_n, m, n, stride_cm, alpha, has_alpha, mfma)
    store_quarter(c_ptr, acc10, row + half_m, column, m, n, stride_cm, alpha, has_alpha, mfma)
    store_quarter(c_ptr, acc11, row + half_m, column + half_n, m, n, stride_cm, alpha, has_alpha, mfma)
