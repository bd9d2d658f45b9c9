"""Functions of both time loops: loads, weights of a program, dots over them, the barrier of programs of one group.

A group is the `row_split` programs that own the columns of one head and one batch tile. They exchange states (forward)
and gate gradients (backward) through the output arrays in global memory. Every step has its own place there, so nothing
is overwritten and one barrier per step is enough.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def steps_of_rows(lengths, row, row_mask, time, tile_batch: tl.constexpr):
    """Steps of the tile, and of each row."""
    steps = time
    length = tl.zeros((tile_batch,), dtype=tl.int32)
    if lengths is not None:
        length = tl.load(lengths + row, mask=row_mask, other=0)
        steps = tl.max(length, axis=0)
    return steps, length


@triton.jit
def load_states(source, offsets, stride, mask, zero, num_states: tl.constexpr):
    """The fp32 states (or gradients of them) before the first or after the last step; zeros for absent ones."""
    s0, s1, s2, s3 = zero, zero, zero, zero
    if source is not None:
        s0 = tl.load(source + offsets, mask=mask, other=0.0)
        if num_states > 1:
            s1 = tl.load(source + stride + offsets, mask=mask, other=0.0)
        if num_states > 2:
            s2 = tl.load(source + 2 * stride + offsets, mask=mask, other=0.0)
        if num_states > 3:
            s3 = tl.load(source + 3 * stride + offsets, mask=mask, other=0.0)
    return s0, s1, s2, s3


@triton.jit
def load_parameters(unit_params, columns, head_offset, stride, head_dim: tl.constexpr, num_params: tl.constexpr):
    """Elementwise parameters of this program's units, (1, tile_out) each in fp32; 0.0 for those that the cell lacks."""
    w0, w1, w2, w3 = 0.0, 0.0, 0.0, 0.0
    if num_params > 0:
        inside = columns < head_dim
        ptrs = unit_params + head_offset + columns
        w0 = tl.load(ptrs, mask=inside, other=0.0)[None, :]
        if num_params > 1:
            w1 = tl.load(ptrs + stride, mask=inside, other=0.0)[None, :]
        if num_params > 2:
            w2 = tl.load(ptrs + 2 * stride, mask=inside, other=0.0)[None, :]
        if num_params > 3:
            w3 = tl.load(ptrs + 3 * stride, mask=inside, other=0.0)[None, :]
    return w0, w1, w2, w3


@triton.jit
def arrive(arrived):
    """Publish everything that this program stored so far to the programs of its group."""
    tl.debug_barrier()
    tl.atomic_add(arrived, 1, sem="release", scope="gpu")


@triton.jit
def wait(arrived, target, has_asm: tl.constexpr):
    """Block until the counter of the group has reached `target`; the others' published values are then visible."""
    if has_asm:
        # Every thread reads for itself: cheaper than one atomic and its broadcast through shared memory.
        seen = tl.inline_asm_elementwise(
            "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [arrived], dtype=tl.int32, is_pure=False, pack=1
        )
        while seen < target:
            seen = tl.inline_asm_elementwise(
                "ld.acquire.gpu.global.s32 $0, [$1];", "=r,l", [arrived], dtype=tl.int32, is_pure=False, pack=1
            )
    else:
        seen = tl.atomic_add(arrived, 0, sem="acquire", scope="gpu")
        while seen < target:
            seen = tl.atomic_add(arrived, 0, sem="acquire", scope="gpu")


@triton.jit
def load_weights(base, depth_stride, column_stride, depth, columns, depth_size, column_size):
    """One (depth, columns) tile of a recurrent matrix; zeros outside of it."""
    inside = (depth[:, None] < depth_size) & (columns[None, :] < column_size)
    return tl.load(base + depth[:, None] * depth_stride + columns[None, :] * column_stride, mask=inside, other=0.0)


@triton.jit
def slot_offsets(slots, num_heads, head_dim: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr):
    """Offset of each slot's matrix in r, and whether it has one.

    Of a last gate whose parts are two slots, the input's part has none. Three slots are computed as four.
    """
    apart: tl.constexpr = num_slots > num_gates
    gate = tl.where(slots == num_gates, num_gates - 1, slots) if apart else slots
    offset = gate * (num_heads * head_dim * head_dim)
    exists = (slots != num_gates - 1) if apart else (slots >= 0)
    if num_slots == 3:
        exists = exists & (slots < 3)
    return offset, exists


@triton.jit
def forward_tile(
    r_head,
    start: tl.constexpr, size: tl.constexpr, slices: tl.constexpr,
    first_column, num_heads,
    head_dim: tl.constexpr, tile_out: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr,
):  # fmt: skip
    """Weights (slices, size / slices, slots * tile_out) of h entries start..start+size, for this program's rows."""
    joint_slots: tl.constexpr = 4 if num_slots == 3 else num_slots
    depth = start + tl.arange(0, slices)[:, None, None] * (size // slices) + tl.arange(0, size // slices)[None, :, None]
    joint = tl.arange(0, joint_slots * tile_out)[None, None, :]
    out = first_column + joint % tile_out
    offset, exists = slot_offsets(joint // tile_out, num_heads, head_dim, num_gates, num_slots)
    inside = exists & (depth < head_dim) & (out < head_dim)
    return tl.load(r_head + offset + out * head_dim + depth, mask=inside, other=0.0)


@triton.jit
def backward_tile(
    r_head,
    start: tl.constexpr, size: tl.constexpr, slices: tl.constexpr,
    first_column, num_heads,
    head_dim: tl.constexpr, tile_out: tl.constexpr, num_gates: tl.constexpr,
):  # fmt: skip
    """Weights (slices, size / slices, tile_out) of gate gradients start..start+size, for this program's columns."""
    depth = start + tl.arange(0, slices)[:, None, None] * (size // slices) + tl.arange(0, size // slices)[None, :, None]
    column = first_column + tl.arange(0, tile_out)[None, None, :]
    inside = (depth < num_gates * head_dim) & (column < head_dim)
    gate = depth // head_dim
    offset = gate * (num_heads * head_dim * head_dim) + (depth - gate * head_dim) * head_dim
    return tl.load(r_head + offset + column, mask=inside, other=0.0)


@triton.jit
def gather(
    base, row_offsets, row_mask,
    start: tl.constexpr, size: tl.constexpr, slices: tl.constexpr,
    gate_stride,
    head_dim: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr,
):  # fmt: skip
    """Read (slices, tile_batch, size / slices) of the group's published state, past the L1 (it is not coherent)."""
    depth = start + tl.arange(0, slices)[:, None, None] * (size // slices) + tl.arange(0, size // slices)[None, None, :]
    gate = depth // head_dim
    inner = depth - gate * head_dim
    # The recurrent part of the last gate is the last slot.
    slot = tl.where(gate == num_gates - 1, num_slots - 1, gate) if num_slots > num_gates else gate
    offset = slot * gate_stride + inner
    inside = row_mask[None, :, None] & (depth < num_gates * head_dim)
    return tl.load(base + row_offsets[None, :, None] + offset, mask=inside, other=0.0, cache_modifier=".cg")


@triton.jit
def sliced_dot(operand, weights, slices: tl.constexpr, precision: tl.constexpr):
    """(slices, tile_batch, k) @ (slices, k, n) summed over slices: every warp reads its own slice of the state once."""
    if slices == 1:
        tile_batch: tl.constexpr = operand.shape[1]
        depth: tl.constexpr = operand.shape[2]
        width: tl.constexpr = weights.shape[2]
        flat = tl.reshape(operand, (tile_batch, depth))
        return tl.dot(flat, tl.reshape(weights, (depth, width)), input_precision=precision)
    else:
        return tl.sum(tl.dot(operand, weights, input_precision=precision), axis=0)


@triton.jit
def split_slots(joint, tile_batch: tl.constexpr, tile_out: tl.constexpr):
    """Four (tile_batch, tile_out) tiles from one (tile_batch, 4 * tile_out), slot after slot."""
    parts = tl.reshape(joint, (tile_batch, 4, tile_out))
    parts = tl.reshape(tl.permute(parts, (0, 2, 1)), (tile_batch, tile_out, 2, 2))
    even, odd = tl.split(parts)
    p0, p2 = tl.split(even)
    p1, p3 = tl.split(odd)
    return p0, p1, p2, p3


@triton.jit
def split_pair(joint, tile_batch: tl.constexpr, tile_out: tl.constexpr):
    """Two (tile_batch, tile_out) tiles from one (tile_batch, 2 * tile_out)."""
    return tl.split(tl.permute(tl.reshape(joint, (tile_batch, 2, tile_out)), (0, 2, 1)))


@triton.jit
def join_slots(p0, p1, p2, p3, tile_batch: tl.constexpr, tile_out: tl.constexpr):
    """The inverse of `split_slots`: one tile is moved between layouts where four would be, with their barriers."""
    parts = tl.reshape(tl.join(tl.join(p0, p2), tl.join(p1, p3)), (tile_batch, tile_out, 4))
    return tl.reshape(tl.permute(parts, (0, 2, 1)), (tile_batch, 4 * tile_out))


@triton.jit
def join_pair(p0, p1, tile_batch: tl.constexpr, tile_out: tl.constexpr):
    """Two tiles side by side."""
    return tl.reshape(tl.permute(tl.join(p0, p1), (0, 2, 1)), (tile_batch, 2 * tile_out))


@triton.jit
def idle_dot(
    slot_rows, weights,
    size: tl.constexpr, slices: tl.constexpr, tile_batch: tl.constexpr, dtype: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Zeros, by way of a dot with `weights` that the compiler cannot see through.

    A weight with a select behind its load and a dot outside the time loop stays in registers; otherwise Triton reads
    it from shared memory again in every step.
    """
    zeros = tl.zeros((slices, tile_batch, size // slices), dtype=tl.float32)
    operand = tl.where(slot_rows[None, :, None] < 0, 1.0, zeros).to(dtype)
    return sliced_dot(operand, weights, slices, precision)
