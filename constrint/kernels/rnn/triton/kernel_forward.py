"""The forward time loop of every cell: one program per head and batch tile, or `row_split` of them with a barrier.

Recurrent weights are loaded before the loop. With row_split = 1 the new state goes from registers into the next
dot. Otherwise (`exchange`) each program owns `tile_out` columns and reads the whole state of the step before from
`states`. The recurrent part of step t+1 is computed at the end of step t.

Two things keep the weights in registers: a dot before the loop gives each weight a second user, and a select follows
its load. Without both, Triton reads the weights from shared memory again in every step.
It needs triton; nothing imports it until a kernel is built.
"""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.rnn.triton.kernel_exchange import (
    arrive,
    forward_tile,
    gather,
    idle_dot,
    join_pair,
    join_slots,
    load_parameters,
    load_states,
    load_weights,
    sliced_dot,
    split_pair,
    split_slots,
    steps_of_rows,
    wait,
)


@triton.jit
def load_slot(ptrs, mask, exists: tl.constexpr):
    """One gate's tile in fp32; a scalar zero for a slot that the cell does not have."""
    if exists:
        return tl.load(ptrs, mask=mask, other=0.0).to(tl.float32)
    else:
        return 0.0


@triton.jit
def slot_dot(operand, weights, bias, exists: tl.constexpr, precision: tl.constexpr):
    """Recurrent part and bias of one slot."""
    if exists:
        return tl.dot(operand, weights, bias, input_precision=precision)
    else:
        return bias


@triton.jit
def exchanged_dot(
    source, row_offsets, row_mask, w_main, w_rest,
    depth_main: tl.constexpr, depth_rest: tl.constexpr, slices: tl.constexpr,
    gate_stride,
    head_dim: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr, dtype: tl.constexpr,
    precision: tl.constexpr,
):  # fmt: skip
    """The state that the whole group published, times this program's weights."""
    main = gather(source, row_offsets, row_mask, 0, depth_main, slices, gate_stride, head_dim, num_gates, num_slots)
    if depth_rest == 0:
        return sliced_dot(main.to(dtype), w_main, slices, precision)
    else:
        rest = gather(
            source, row_offsets, row_mask, depth_main, depth_rest, slices, gate_stride, head_dim, num_gates, num_slots
        )  # fmt: skip
        total = sliced_dot(main.to(dtype), w_main, slices, precision)
        return total + sliced_dot(rest.to(dtype), w_rest, slices, precision)


@triton.jit
def load_gates(ptrs, gate_stride, mask, num_gates: tl.constexpr):
    """Projected inputs of one step."""
    x0 = load_slot(ptrs, mask, True)
    x1 = load_slot(ptrs + gate_stride, mask, num_gates > 1)
    x2 = load_slot(ptrs + 2 * gate_stride, mask, num_gates > 2)
    x3 = load_slot(ptrs + 3 * gate_stride, mask, num_gates > 3)
    return x0, x1, x2, x3


@triton.jit
def add_slots(joint, b0, b1, b2, b3, tile_batch: tl.constexpr, tile_out: tl.constexpr, num_slots: tl.constexpr):
    """The slots of a joint product, each with its bias."""
    if num_slots == 1:
        return joint + b0, b1, b2, b3
    elif num_slots == 2:
        a0, a1 = split_pair(joint, tile_batch, tile_out)
        return a0 + b0, a1 + b1, b2, b3
    else:
        a0, a1, a2, a3 = split_slots(joint, tile_batch, tile_out)
        return a0 + b0, a1 + b1, a2 + b2, a3 + b3


@triton.jit(do_not_specialize=["batch", "time", "num_heads", "first_group"])
def forward_kernel(
    wx,  # (B, T, G, N, D), any strides of B and T
    r,  # (G, N, D, D)
    bias,  # (G, N, D) or None
    initial,  # (S, B, N, D) fp32 or None
    states,  # (S, B, T, N, D), written
    saved,  # (B, T, G, N, D) pre-activations, written if save_gates
    rows,  # (B,) batch rows, the longest first, or None
    lengths,  # (B,) int32 or None
    reset,  # (B, T) int32 or None: Triton makes a dot's layout for the narrowest load that its operand comes from
    start,  # (B, N, D) initial h in the dtype of the states, if row_split > 1: as fp32 it would take more shared memory
    arrived,  # (groups,) int32 zeros, if row_split > 1
    unit_params,  # (P, N, D) fp32, the cell's elementwise parameters, or None
    batch, time, num_heads, first_group, wx_stride_b, wx_stride_t,
    cell: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr, num_states: tl.constexpr,
    head_dim: tl.constexpr, tile_batch: tl.constexpr, tile_out: tl.constexpr, row_split: tl.constexpr,
    exchange: tl.constexpr, depth_main: tl.constexpr, depth_rest: tl.constexpr, slices: tl.constexpr,
    num_stages: tl.constexpr, save_gates: tl.constexpr, fast: tl.constexpr, has_asm: tl.constexpr,
    precision: tl.constexpr, num_params: tl.constexpr,
):  # fmt: skip
    """Run all time steps of one head, one batch tile and `tile_out` columns."""
    # Whether the last gate's input part and recurrent part are slots of their own.
    apart: tl.constexpr = num_slots > num_gates
    # Which slots have a product: not the input's part of a gate that is kept apart.
    has_0: tl.constexpr = not (apart and num_gates == 1)
    has_1: tl.constexpr = num_slots > 1 and not (apart and num_gates == 2)
    has_2: tl.constexpr = num_slots > 2 and not (apart and num_gates == 3)
    has_3: tl.constexpr = num_slots > 3
    joint_width: tl.constexpr = 4 if num_slots == 3 else num_slots
    dtype = states.dtype.element_ty
    part = tl.program_id(0) % row_split
    group = first_group + tl.program_id(0) // row_split
    head = group % num_heads
    slot_rows = (group // num_heads) * tile_batch + tl.arange(0, tile_batch)
    row_mask = slot_rows < batch
    if rows is None:
        row = slot_rows
    else:
        row = tl.load(rows + slot_rows, mask=row_mask, other=0)
    first = part * tile_out
    columns = first + tl.arange(0, tile_out)
    mask = row_mask[:, None] & (columns < head_dim)[None, :]
    gate_stride = num_heads * head_dim
    row64 = row.to(tl.int64)
    zero = tl.zeros((tile_batch, tile_out), dtype=tl.float32)

    x_ptrs = wx + (row64 * wx_stride_b)[:, None] + (head * head_dim + columns)[None, :]
    state_stride = batch.to(tl.int64) * time * gate_stride
    # States and pre-activations are stored side by side, slot after slot.
    width: tl.constexpr = tile_out if exchange or num_states == 3 else tile_out * num_states
    wide = tl.arange(0, width)
    out_inner = wide % tile_out
    out_mask = row_mask[:, None] & (first + out_inner < head_dim)[None, :]
    out_ptrs = states + (row64 * time * gate_stride)[:, None]
    out_ptrs += ((wide // tile_out) * state_stride + head * head_dim + first + out_inner)[None, :]
    joint_slots = tl.arange(0, joint_width * tile_out)
    saved_inner = joint_slots % tile_out
    slot = joint_slots // tile_out
    if apart:
        # The input's part is in wx already; the recurrent part takes its place.
        saved_mask = row_mask[:, None] & ((slot != num_gates - 1) & (first + saved_inner < head_dim))[None, :]
        slot = tl.where(slot == num_gates, num_gates - 1, slot)
    else:
        saved_mask = row_mask[:, None] & (first + saved_inner < head_dim)[None, :]
    if num_slots == 3:
        saved_mask = saved_mask & (joint_slots < 3 * tile_out)[None, :]
    saved_ptrs = saved + (row64 * time * num_gates * gate_stride)[:, None]
    saved_ptrs += (slot * gate_stride + head * head_dim + first + saved_inner)[None, :]

    b0, b1, b2, b3 = zero, zero, zero, zero
    if bias is not None:
        bias_ptrs = bias + head * head_dim + columns
        inside = columns < head_dim
        only = tl.load(bias_ptrs, mask=inside, other=0.0).to(tl.float32)[None, :]
        if has_0:
            b0 += only
        else:
            b1 += only
        if num_gates > 1:
            second = tl.load(bias_ptrs + gate_stride, mask=inside, other=0.0).to(tl.float32)[None, :]
            if has_1:
                b1 += second
            else:
                b2 += second
        if num_gates > 2:
            last = tl.load(bias_ptrs + 2 * gate_stride, mask=inside, other=0.0).to(tl.float32)[None, :]
            if apart:
                b3 += last
            else:
                b2 += last
        if num_gates > 3:
            b3 += tl.load(bias_ptrs + 3 * gate_stride, mask=inside, other=0.0).to(tl.float32)[None, :]
    u0, u1, u2, u3 = load_parameters(unit_params, columns, head * head_dim, gate_stride, head_dim, num_params)

    start_offsets = (row64 * gate_stride)[:, None] + (head * head_dim + columns)[None, :]
    start_stride = batch.to(tl.int64) * gate_stride
    s0, s1, s2, s3 = load_states(initial, start_offsets, start_stride, mask, zero, num_states)

    r_head = r + head * head_dim * head_dim
    r_stride = num_heads * head_dim * head_dim
    state_offsets = row64 * time * gate_stride + head * head_dim
    a0, a1, a2, a3 = b0, b1, b2, b3
    if exchange:
        w_main = forward_tile(
            r_head, 0, depth_main, slices, first, num_heads, head_dim, tile_out, num_gates, num_slots
        )  # fmt: skip
        w_rest = w_main
        if depth_rest > 0:
            w_rest = forward_tile(
                r_head, depth_main, depth_rest, slices, first, num_heads, head_dim, tile_out, num_gates, num_slots
            )  # fmt: skip
        x0, x1, x2, x3 = load_gates(x_ptrs, gate_stride, mask, num_gates)
        w_main, w_rest = tl.where(time > 0, w_main, 0.0), tl.where(time > 0, w_rest, 0.0)
        if initial is None:
            joint = idle_dot(slot_rows, w_main, depth_main, slices, tile_batch, dtype, precision)
            if depth_rest > 0:
                joint += idle_dot(slot_rows, w_rest, depth_rest, slices, tile_batch, dtype, precision)
        else:
            joint = exchanged_dot(
                start, row64 * gate_stride + head * head_dim, row_mask, w_main, w_rest,
                depth_main, depth_rest, slices, 0, head_dim, 1, 1, dtype, precision,
            )  # fmt: skip
        a0, a1, a2, a3 = add_slots(joint, b0, b1, b2, b3, tile_batch, tile_out, num_slots)
    else:
        # (in, out): g[b, out] = sum_in h[b, in] r[out, in]
        depth = tl.arange(0, tile_out)
        w0 = load_weights(r_head, 1, head_dim, depth, columns, head_dim, head_dim)
        w1, w2, w3 = w0, w0, w0
        if has_1 and num_gates > 1:
            w1 = load_weights(r_head + r_stride, 1, head_dim, depth, columns, head_dim, head_dim)
        if has_3:
            w3 = load_weights(r_head + (num_gates - 1) * r_stride, 1, head_dim, depth, columns, head_dim, head_dim)
        if has_2:
            if apart:
                w2 = load_weights(r_head + r_stride, 1, head_dim, depth, columns, head_dim, head_dim)
            else:
                w2 = load_weights(r_head + 2 * r_stride, 1, head_dim, depth, columns, head_dim, head_dim)
        w0, w1 = tl.where(time > 0, w0, 0.0), tl.where(time > 0, w1, 0.0)
        w2, w3 = tl.where(time > 0, w2, 0.0), tl.where(time > 0, w3, 0.0)
        h = s0.to(dtype)
        a0 = slot_dot(h, w0, b0, has_0, precision)
        a1 = slot_dot(h, w1, b1, has_1, precision)
        a2 = slot_dot(h, w2, b2, has_2, precision)
        a3 = slot_dot(h, w3, b3, has_3, precision)

    steps, length = steps_of_rows(lengths, row, row_mask, time, tile_batch)

    for t in tl.range(0, steps, num_stages=num_stages):
        if not exchange:
            x0, x1, x2, x3 = load_gates(x_ptrs, gate_stride, mask, num_gates)
        if reset is not None:
            is_reset = (tl.load(reset + row64 * time + t, mask=row_mask, other=0) != 0)[:, None]
            a0, s0 = tl.where(is_reset, b0, a0), tl.where(is_reset, 0.0, s0)
            a1, s1 = tl.where(is_reset, b1, a1), tl.where(is_reset, 0.0, s1)
            a2, s2 = tl.where(is_reset, b2, a2), tl.where(is_reset, 0.0, s2)
            a3, s3 = tl.where(is_reset, b3, a3), tl.where(is_reset, 0.0, s3)
        p0, p1, p2, p3 = a0 + x0, a1 + x1, a2 + x2, a3 + x3
        if num_params > 0:
            n0, n1, n2, n3 = cell(p0, p1, p2, p3, s0, s1, s2, s3, u0, u1, u2, u3, fast, dtype)
        else:
            n0, n1, n2, n3 = cell(p0, p1, p2, p3, s0, s1, s2, s3, fast, dtype)
        o0, o1, o2, o3 = n0, n1, n2, n3
        if lengths is not None:
            is_on = (t < length)[:, None]
            o0, n0 = tl.where(is_on, n0, 0.0), tl.where(is_on, n0, s0)
            o1, n1 = tl.where(is_on, n1, 0.0), tl.where(is_on, n1, s1)
            o2, n2 = tl.where(is_on, n2, 0.0), tl.where(is_on, n2, s2)
            o3, n3 = tl.where(is_on, n3, 0.0), tl.where(is_on, n3, s3)
        s0, s1, s2, s3 = n0, n1, n2, n3
        if not exchange:
            h = s0.to(dtype)
            a0 = slot_dot(h, w0, b0, has_0, precision)
            a1 = slot_dot(h, w1, b1, has_1, precision)
            a2 = slot_dot(h, w2, b2, has_2, precision)
            a3 = slot_dot(h, w3, b3, has_3, precision)
        if exchange:
            tl.store(out_ptrs, o0.to(dtype), mask=mask)
            # Before the other stores: a release waits for all that was stored before it.
            arrive(arrived + group)
            if num_states > 1:
                tl.store(out_ptrs + state_stride, o1.to(dtype), mask=mask)
            if num_states > 2:
                tl.store(out_ptrs + 2 * state_stride, o2.to(dtype), mask=mask)
            if num_states > 3:
                tl.store(out_ptrs + 3 * state_stride, o3.to(dtype), mask=mask)
        elif num_states == 1:
            tl.store(out_ptrs, o0.to(dtype), mask=mask)
        elif num_states == 2:
            shown = join_pair(o0.to(dtype), o1.to(dtype), tile_batch, tile_out)
            tl.store(out_ptrs, shown, mask=out_mask)
        elif num_states == 3:
            tl.store(out_ptrs, o0.to(dtype), mask=mask)
            tl.store(out_ptrs + state_stride, o1.to(dtype), mask=mask)
            tl.store(out_ptrs + 2 * state_stride, o2.to(dtype), mask=mask)
        else:
            shown = join_slots(o0.to(dtype), o1.to(dtype), o2.to(dtype), o3.to(dtype), tile_batch, tile_out)
            tl.store(out_ptrs, shown, mask=out_mask)
        if save_gates:
            if num_slots == 1:
                tl.store(saved_ptrs, p0.to(dtype), mask=mask)
            elif num_slots == 2:
                tl.store(saved_ptrs, join_pair(p0.to(dtype), p1.to(dtype), tile_batch, tile_out), mask=saved_mask)
            else:
                shown = join_slots(p0.to(dtype), p1.to(dtype), p2.to(dtype), p3.to(dtype), tile_batch, tile_out)
                tl.store(saved_ptrs, shown, mask=saved_mask)
        x_ptrs += wx_stride_t
        out_ptrs += gate_stride
        saved_ptrs += num_gates * gate_stride
        if exchange:
            x0, x1, x2, x3 = load_gates(x_ptrs, gate_stride, tl.where(t + 1 < steps, mask, False), num_gates)
            wait(arrived + group, (t + 1) * row_split, has_asm)
            joint = exchanged_dot(
                states, state_offsets + t * gate_stride, row_mask, w_main, w_rest,
                depth_main, depth_rest, slices, 0, head_dim, 1, 1, dtype, precision,
            )  # fmt: skip
            a0, a1, a2, a3 = add_slots(joint, b0, b1, b2, b3, tile_batch, tile_out, num_slots)
