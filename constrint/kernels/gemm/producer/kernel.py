"""The persistent GEMM for Hopper with a producer warp, in Gluon: one warp loads, two warpgroups multiply and store.

The producer fills a ring of stages through the TMA unit. It waits only for a free stage, so loads go on while tiles are
stored and from one tile to the next. The two warpgroups are the consumers. They halve the rows of a large tile; small
tiles they take in turns, so that one stores while the other multiplies. The parameters are those of `spec.py`.

It needs triton 3.6 or later; nothing imports it until a kernel is compiled.
"""

from __future__ import annotations

from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from constrint.kernels.gemm.epilogue import kernel as kernel_epilogue

tile_coordinates = gluon.jit(kernel_epilogue.tile_coordinates.fn)
finish = gluon.jit(kernel_epilogue.finish.fn)
# Names of Triton 3.9, then of 3.6.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
synchronise = getattr(gl, "thread_barrier", None) or gl.barrier


def block_layout(element_bits: int) -> Any:
    """How every block lies in shared memory: rows of 128 bytes, swizzled, beside each other where there are more."""
    return gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=element_bits, rank=2)


@gluon.jit
def next_stage(stage, phase, num_stages: gl.constexpr):
    """The stage after this one; the phase turns with every round of the ring."""
    stage += 1
    if stage == num_stages:
        stage = 0
        phase = phase ^ 1
    return stage, phase


@gluon.jit
def previous_stage(stage, num_stages: gl.constexpr):
    """The stage before this one."""
    previous = stage - 1
    if stage == 0:
        previous = num_stages - 1
    return previous


@gluon.jit
def columns_in_halves(x, pieces: gl.constexpr):
    """Split a tensor's columns into equal pieces, a power of two; every thread keeps what it holds."""
    if pieces == 1:
        return (x,)
    else:
        left, right = x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute(0, 2, 1).split()
        return columns_in_halves(left, pieces // 2) + columns_in_halves(right, pieces // 2)


@gluon.jit
def produce(
    a_desc, b_desc, b_rest_desc, a_ring, b_ring, b_rest_ring, filled, freed, m, n, k, group_m, num_blocks,
    tile_m: gl.constexpr, widest_n: gl.constexpr, rest_n: gl.constexpr, tile_k: gl.constexpr,
    num_stages: gl.constexpr, parts: gl.constexpr, a_is_transposed: gl.constexpr, b_is_transposed: gl.constexpr,
):  # fmt: skip
    """Load the slices of every tile of this block into the ring, in order."""
    num_tiles_m = gl.cdiv(m, tile_m)
    num_tiles_n = gl.cdiv(n, widest_n + rest_n)
    num_steps = gl.cdiv(k, tile_k)
    stage_bytes: gl.constexpr = (tile_m + widest_n + rest_n) * tile_k * (a_desc.dtype.primitive_bitwidth // 8)
    stage = 0
    phase = 1
    for tile in range(gl.program_id(0), num_tiles_m * num_tiles_n, num_blocks):
        tile_row, tile_column = tile_coordinates(tile, num_tiles_m, num_tiles_n, group_m, 1, 0)
        row = tile_row * tile_m
        column = tile_column * (widest_n + rest_n)
        for step in range(num_steps):
            depth = step * tile_k
            barrier = filled.index(stage)
            mbarrier.wait(freed.index(stage), phase)
            mbarrier.expect(barrier, stage_bytes)
            for part in gl.static_range(parts):
                own = row + part * (tile_m // parts)
                if a_is_transposed:
                    load_tile(a_desc, [depth, own], barrier, a_ring.index(stage * parts + part))
                else:
                    load_tile(a_desc, [own, depth], barrier, a_ring.index(stage * parts + part))
            if b_is_transposed:
                load_tile(b_desc, [column, depth], barrier, b_ring.index(stage))
            else:
                load_tile(b_desc, [depth, column], barrier, b_ring.index(stage))
            if rest_n > 0:
                if b_is_transposed:
                    load_tile(b_rest_desc, [column + widest_n, depth], barrier, b_rest_ring.index(stage))
                else:
                    load_tile(b_rest_desc, [depth, column + widest_n], barrier, b_rest_ring.index(stage))
            stage, phase = next_stage(stage, phase, num_stages)


@gluon.jit
def store_sums(
    sums,  # (rows, columns) of fp32
    c_desc,  # (M, N) in blocks (rows, width)
    staging,  # (2 * buffers, rows, width): `buffers` for each consumer
    bias_ptr, n, alpha, row, column,
    consumer: gl.constexpr, first: gl.constexpr, buffers: gl.constexpr, has_alpha: gl.constexpr,
    activation: gl.constexpr,
):  # fmt: skip
    """Finish sums and store them block by block, a buffer being filled while others are on their way.

    `first` counts the blocks of this tile that were stored before.
    """
    width: gl.constexpr = c_desc.block_type.shape[1]
    pieces: gl.constexpr = sums.shape[1] // width
    blocks = columns_in_halves(sums, pieces)
    for i in gl.static_range(pieces):
        block = blocks[i]
        at = column + i * width
        columns = at + gl.arange(0, width, gl.SliceLayout(0, block.type.layout))
        out = finish(block, None, columns, 0, n, bias_ptr, None, 0, 0, alpha, 0.0, has_alpha, activation, c_desc.dtype)
        buffer = staging.index(consumer * buffers + (first + i) % buffers)
        # A tile starts over with the first buffer, which the one before may have left last.
        tma.store_wait(pendings=buffers - 1 if first + i > 0 else 0)
        synchronise()
        buffer.store(out)
        fence_async_shared()
        synchronise()
        store_tile(c_desc, [row, at], buffer)


@gluon.jit
def consume(
    c_desc, a_ring, b_ring, b_rest_ring, staging, filled, freed, turns, bias_ptr, m, n, k, alpha, group_m, num_blocks,
    consumer: gl.constexpr, tile_m: gl.constexpr, widest_n: gl.constexpr, rest_n: gl.constexpr, tile_k: gl.constexpr,
    num_stages: gl.constexpr, parts: gl.constexpr, buffers: gl.constexpr, a_is_transposed: gl.constexpr,
    b_is_transposed: gl.constexpr, has_alpha: gl.constexpr, activation: gl.constexpr, promotes: gl.constexpr,
):  # fmt: skip
    """Multiply and store: half the rows of every tile of this block, or every second tile."""
    rows: gl.constexpr = tile_m // parts
    part: gl.constexpr = consumer if parts == 2 else 0
    # wgmma takes 32 bytes of the operands' rows at a time.
    depth: gl.constexpr = 256 // a_ring.dtype.primitive_bitwidth
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, widest_n, depth]
    )
    num_tiles_m = gl.cdiv(m, tile_m)
    num_tiles_n = gl.cdiv(n, widest_n + rest_n)
    num_steps = gl.cdiv(k, tile_k)
    if parts == 2:
        start = gl.program_id(0)
        stride = num_blocks
        done = 0
    else:
        start = gl.program_id(0) + consumer * num_blocks
        stride = 2 * num_blocks
        done = consumer * num_steps
    stage = done % num_stages
    phase = (done // num_stages) & 1
    turn = 1 - consumer
    for tile in range(start, num_tiles_m * num_tiles_n, stride):
        tile_row, tile_column = tile_coordinates(tile, num_tiles_m, num_tiles_n, group_m, 1, 0)
        row = tile_row * tile_m + part * rows
        column = tile_column * (widest_n + rest_n)
        sums = gl.zeros((rows, widest_n), gl.float32, layout)
        if rest_n > 0:
            rest_layout: gl.constexpr = gl.NVMMADistributedLayout(
                version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, rest_n, depth]
            )
            rest = gl.zeros((rows, rest_n), gl.float32, rest_layout)
        if parts == 1:
            # A barrier's phase tells rounds of the ring apart only from the ones beside it: no running ahead.
            mbarrier.wait(turns.index(consumer), turn)
            turn = turn ^ 1
        for step in range(num_steps):
            mbarrier.wait(filled.index(stage), phase)
            a = a_ring.index(stage * parts + part)
            if a_is_transposed:
                a = a.permute((1, 0))
            b = b_ring.index(stage)
            if b_is_transposed:
                b = b.permute((1, 0))
            if rest_n > 0:
                b_rest = b_rest_ring.index(stage)
                if b_is_transposed:
                    b_rest = b_rest.permute((1, 0))
            if promotes:
                # The unit's own sums are short ones; while these are added the other consumer has the unit.
                step_sums = warpgroup_mma(a, b, gl.zeros_like(sums), use_acc=False, is_async=True)
                if rest_n > 0:
                    step_rest = warpgroup_mma(a, b_rest, gl.zeros_like(rest), use_acc=False, is_async=True)
                    step_sums, step_rest = warpgroup_mma_wait(num_outstanding=0, deps=[step_sums, step_rest])
                    mbarrier.arrive(freed.index(stage), count=1)
                    rest += step_rest
                else:
                    step_sums = warpgroup_mma_wait(num_outstanding=0, deps=[step_sums])
                    mbarrier.arrive(freed.index(stage), count=1)
                sums += step_sums
            else:
                sums = warpgroup_mma(a, b, sums, use_acc=step > 0, is_async=True)
                if rest_n > 0:
                    rest = warpgroup_mma(a, b_rest, rest, use_acc=step > 0, is_async=True)
                    sums, rest = warpgroup_mma_wait(num_outstanding=2, deps=[sums, rest])
                else:
                    sums = warpgroup_mma_wait(num_outstanding=1, deps=[sums])
                # Not a variable kept from the step before: Triton takes one that only copies another for unchanged.
                mbarrier.arrive(freed.index(previous_stage(stage, num_stages)), count=1, pred=step > 0)
            stage, phase = next_stage(stage, phase, num_stages)
        if parts == 1:
            mbarrier.arrive(turns.index(1 - consumer), count=1)
        if not promotes:
            if rest_n > 0:
                sums, rest = warpgroup_mma_wait(num_outstanding=0, deps=[sums, rest])
            else:
                sums = warpgroup_mma_wait(num_outstanding=0, deps=[sums])
            mbarrier.arrive(freed.index(previous_stage(stage, num_stages)), count=1)
        store_sums(
            sums, c_desc, staging, bias_ptr, n, alpha, row, column, consumer, 0, buffers, has_alpha, activation
        )  # fmt: skip
        if rest_n > 0:
            store_sums(
                rest, c_desc, staging, bias_ptr, n, alpha, row, column + widest_n, consumer,
                widest_n // c_desc.block_type.shape[1], buffers, has_alpha, activation,
            )  # fmt: skip
        if parts == 1:
            done += 2 * num_steps
            stage = done % num_stages
            phase = (done // num_stages) & 1
    # A block's shared memory outlives its stores' reads of it.
    tma.store_wait(pendings=0)


@gluon.jit(do_not_specialize=["m", "n", "k", "group_m", "num_blocks"])
def gemm_producer_kernel(
    a_desc,  # (M, K) in blocks (tile_m / parts, tile_k), or (K, M) in (tile_k, tile_m / parts) where A is transposed
    b_desc,  # (K, N) in blocks (tile_k, widest_n), or (N, K) in (widest_n, tile_k)
    b_rest_desc,  # likewise with rest_n columns, or None
    c_desc,  # (M, N) in blocks (tile_m / parts, 128 bytes)
    bias_ptr,  # (N,) or None
    m, n, k, alpha, group_m, num_blocks,
    tile_m: gl.constexpr, widest_n: gl.constexpr, rest_n: gl.constexpr, tile_k: gl.constexpr,
    ring_stages: gl.constexpr,
    parts: gl.constexpr,  # 2: each consumer multiplies half the rows; 1: every second tile
    buffers: gl.constexpr, a_is_transposed: gl.constexpr, b_is_transposed: gl.constexpr, has_alpha: gl.constexpr,
    activation: gl.constexpr,
    promotes: gl.constexpr,  # whether the sums of a step are added in fp32 registers
):  # fmt: skip
    """C = activation(alpha * A @ B + bias); grid (num_blocks,), four warps as Triton counts them."""
    dtype: gl.constexpr = a_desc.dtype
    a_ring = gl.allocate_shared_memory(dtype, [ring_stages * parts] + a_desc.block_type.shape, a_desc.layout)
    b_ring = gl.allocate_shared_memory(dtype, [ring_stages] + b_desc.block_type.shape, b_desc.layout)
    if rest_n > 0:
        b_rest_ring = gl.allocate_shared_memory(dtype, [ring_stages] + b_rest_desc.block_type.shape, b_rest_desc.layout)
    else:
        b_rest_ring = b_ring
    staging = gl.allocate_shared_memory(c_desc.dtype, [2 * buffers] + c_desc.block_type.shape, c_desc.layout)
    filled = gl.allocate_shared_memory(gl.int64, [ring_stages, 1], mbarrier.MBarrierLayout())
    freed = gl.allocate_shared_memory(gl.int64, [ring_stages, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(ring_stages):
        mbarrier.init(filled.index(i), count=1)
        mbarrier.init(freed.index(i), count=parts)
    for i in gl.static_range(2):
        mbarrier.init(turns.index(i), count=1)
    fence_async_shared()
    first: gl.constexpr = 0
    second: gl.constexpr = 1
    # Numbers in a tuple that has a name are no longer constants.
    # fmt: off
    gl.warp_specialize(
        [
            (consume, (
                c_desc, a_ring, b_ring, b_rest_ring, staging, filled, freed, turns, bias_ptr, m, n, k, alpha, group_m,
                num_blocks, first, tile_m, widest_n, rest_n, tile_k, ring_stages, parts, buffers, a_is_transposed,
                b_is_transposed, has_alpha, activation, promotes,
            )),
            (consume, (
                c_desc, a_ring, b_ring, b_rest_ring, staging, filled, freed, turns, bias_ptr, m, n, k, alpha, group_m,
                num_blocks, second, tile_m, widest_n, rest_n, tile_k, ring_stages, parts, buffers, a_is_transposed,
                b_is_transposed, has_alpha, activation, promotes,
            )),
            (produce, (
                a_desc, b_desc, b_rest_desc, a_ring, b_ring, b_rest_ring, filled, freed, m, n, k, group_m, num_blocks,
                tile_m, widest_n, rest_n, tile_k, ring_stages, parts, a_is_transposed, b_is_transposed,
            )),
        ],
        [4, 1],
        [232, 24],
    )
    # fmt: on
