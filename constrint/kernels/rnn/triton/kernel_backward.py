"""The backward time loop of every cell; programs, tiles and the exchange are those of the forward one.

Gradients of the pre-activations are written for all steps; the weight gradient is one GEMM over them afterwards.
It needs triton; nothing imports it until a kernel is built.
"""

from __future__ import annotations

import triton
import triton.language as tl

from constrint.kernels.rnn.triton.kernel_exchange import (
    arrive,
    backward_tile,
    idle_dot,
    join_pair,
    join_slots,
    load_parameters,
    load_states,
    slot_offsets,
    steps_of_rows,
    wait,
)
from constrint.kernels.rnn.triton.kernel_forward import exchanged_dot, load_slot


@triton.jit
def slot_matrix(
    r_head, num_heads, columns,
    slot: tl.constexpr, head_dim: tl.constexpr, tile_out: tl.constexpr, num_gates: tl.constexpr,
    num_slots: tl.constexpr,
):  # fmt: skip
    """The weights of one slot, (tile_out, tile_out): dh = sum over slots of dg @ r."""
    joint = slot * tile_out + tl.arange(0, tile_out)
    out = joint % tile_out
    offset, exists = slot_offsets(joint // tile_out, num_heads, head_dim, num_gates, num_slots)
    inside = (exists & (out < head_dim))[:, None] & (columns < head_dim)[None, :]
    return tl.load(r_head + (offset + out * head_dim)[:, None] + columns[None, :], mask=inside, other=0.0)


@triton.jit
def four_dots(
    h0, h1, h2, h3, w0, w1, w2, w3, zeros,
    num_gates: tl.constexpr, num_slots: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    """Gradient of h through R.

    Each slot has a sum of its own, started from `zeros` that the compiler must not see to be zeros: it would chain the
    dots into one sum otherwise, and matrix instructions that depend on each other are what a step waits for.
    """
    if num_slots > num_gates and num_gates == 1:
        return tl.dot(h1, w1, zeros, input_precision=precision)
    total = tl.dot(h0, w0, zeros, input_precision=precision)
    if num_slots < 4:
        if num_slots == 2 or (num_slots == num_gates and num_slots > 1):
            total += tl.dot(h1, w1, zeros, input_precision=precision)
        if num_slots == 3:
            total += tl.dot(h2, w2, zeros, input_precision=precision)
    else:
        first = tl.dot(h1, w1, zeros, input_precision=precision)
        last = tl.dot(h3, w3, zeros, input_precision=precision)
        if num_slots == num_gates:
            total += tl.dot(h2, w2, zeros, input_precision=precision)
        total += first + last
    return total


@triton.jit
def load_grad(grad, offsets, mask):
    """Gradient of one state from outside, or zero."""
    if grad is None:
        return 0.0
    else:
        return tl.load(grad + offsets, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def load_step(
    saved, x_ptrs, state_ptrs, grad0, grad1, grad2, grad3, gate_offsets, grad_offsets,
    i0, i1, i2, i3, mask, t, gate_stride, state_stride,
    num_gates: tl.constexpr, num_slots: tl.constexpr, num_states: tl.constexpr, has_initial: tl.constexpr,
    reads_h: tl.constexpr, reads_new: tl.constexpr,
):  # fmt: skip
    """Pre-activations, states before and after the step, gradients from outside; 0.0 for those that the cell lacks."""
    apart: tl.constexpr = num_slots > num_gates
    p0 = load_slot(saved + gate_offsets, mask, True)
    p1 = load_slot(saved + gate_stride + gate_offsets, mask, num_gates > 1)
    third = load_slot(saved + 2 * gate_stride + gate_offsets, mask, num_gates > 2)
    if apart and num_gates < 3:
        # The input's part of the last gate stands before its recurrent part.
        p2, p3 = p1, 0.0
        if num_gates == 1:
            p1, p2 = p0, 0.0
            p0 = load_slot(x_ptrs, mask, True)
        else:
            p1 = load_slot(x_ptrs, mask, True)
    else:
        p2 = load_slot(x_ptrs, mask, True) if apart else third
        p3 = third if apart else load_slot(saved + 3 * gate_stride + gate_offsets, mask, num_gates > 3)
    earlier = tl.where(t > 0, mask, False)
    q0 = load_slot(state_ptrs - gate_stride, earlier, reads_h)
    q1 = load_slot(state_ptrs - gate_stride + state_stride, earlier, num_states > 1)
    q2 = load_slot(state_ptrs - gate_stride + 2 * state_stride, earlier, num_states > 2)
    q3 = load_slot(state_ptrs - gate_stride + 3 * state_stride, earlier, num_states > 3)
    if has_initial:
        q0 = tl.where(t > 0, q0, i0)
        q1 = tl.where(t > 0, q1, i1)
        q2 = tl.where(t > 0, q2, i2)
        q3 = tl.where(t > 0, q3, i3)
    # Loaded rather than kept from the iteration before: a value that the loop carries would be in another layout.
    c1 = load_slot(state_ptrs + state_stride, mask, reads_new and num_states > 1)
    c2 = load_slot(state_ptrs + 2 * state_stride, mask, reads_new and num_states > 2)
    c3 = load_slot(state_ptrs + 3 * state_stride, mask, reads_new and num_states > 3)
    g0 = load_grad(grad0, grad_offsets, mask)
    g1 = load_grad(grad1, grad_offsets, mask)
    g2 = load_grad(grad2, grad_offsets, mask)
    g3 = load_grad(grad3, grad_offsets, mask)
    return p0, p1, p2, p3, q0, q1, q2, q3, c1, c2, c3, g0, g1, g2, g3


@triton.jit(do_not_specialize=["batch", "time", "num_heads", "first_group"])
def backward_kernel(
    grad0,  # (B, T, N, D) gradient of h, or None
    grad1,  # the same of the other states, or None
    grad2, grad3,
    grad_last,  # (S, B, N, D) fp32 or None
    wx,  # (B, T, G, N, D); read where the parts of the last gate are kept apart
    r,  # (G, N, D, D)
    initial,  # (S, B, N, D) fp32 or None
    states,  # (S, B, T, N, D)
    saved,  # (B, T, G, N, D)
    grad_slots,  # (B, T, slots, N, D), written: gradients of the pre-activations
    grad_initial,  # (S, B, N, D) fp32, written
    rows,  # (B,) or None
    lengths,  # (B,) int32 or None
    reset,  # (B, T) int32 or None: Triton makes a dot's layout for the narrowest load that its operand comes from
    arrived,  # (groups,) int32 zeros, if row_split > 1
    unit_params,  # (P, N, D) fp32, the cell's elementwise parameters, or None
    grad_params,  # (P, B, N, D) fp32, written: their gradients, summed over a sequence's steps
    clip, batch, time, num_heads, first_group, wx_stride_b, wx_stride_t,
    cell: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr, num_states: tl.constexpr,
    head_dim: tl.constexpr, tile_batch: tl.constexpr, tile_out: tl.constexpr, row_split: tl.constexpr,
    exchange: tl.constexpr, depth_main: tl.constexpr, depth_rest: tl.constexpr, slices: tl.constexpr,
    num_stages: tl.constexpr, has_clip: tl.constexpr, shift_free: tl.constexpr, fast: tl.constexpr,
    has_asm: tl.constexpr, precision: tl.constexpr, num_params: tl.constexpr, reads_h: tl.constexpr,
    reads_new: tl.constexpr,
):  # fmt: skip
    """Run all time steps backwards for one head, one batch tile and `tile_out` columns of h."""
    # The last gate, where its input's part is read.
    x_gate: tl.constexpr = num_gates - 1 if num_slots > num_gates else 2
    joint_width: tl.constexpr = 4 if num_slots == 3 else num_slots
    dtype = states.dtype.element_ty
    # Stands in both kernels: as a function it compiles to other code (two registers fewer for an sLSTM of 544 units).
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
    inner = (head * head_dim + columns)[None, :]
    state_stride = batch.to(tl.int64) * time * gate_stride
    start_stride = batch.to(tl.int64) * gate_stride
    start_offsets = (row64 * gate_stride)[:, None] + inner

    steps, length = steps_of_rows(lengths, row, row_mask, time, tile_batch)

    r_head = r + head * head_dim * head_dim
    if exchange:
        w_main = backward_tile(r_head, 0, depth_main, slices, first, num_heads, head_dim, tile_out, num_gates)
        w_rest = w_main
        if depth_rest > 0:
            w_rest = backward_tile(
                r_head, depth_main, depth_rest, slices, first, num_heads, head_dim, tile_out, num_gates
            )  # fmt: skip
    else:
        w_main = slot_matrix(r_head, num_heads, columns, 0, head_dim, tile_out, num_gates, num_slots)
        w1, w2, w3 = w_main, w_main, w_main
        if num_slots == 4:
            w1 = slot_matrix(r_head, num_heads, columns, 1, head_dim, tile_out, num_gates, num_slots)
            w2 = slot_matrix(r_head, num_heads, columns, 2, head_dim, tile_out, num_gates, num_slots)
            w3 = slot_matrix(r_head, num_heads, columns, 3, head_dim, tile_out, num_gates, num_slots)
        elif num_slots > 1:
            w1 = slot_matrix(r_head, num_heads, columns, 1, head_dim, tile_out, num_gates, num_slots)
            if num_slots == 3:
                w2 = slot_matrix(r_head, num_heads, columns, 2, head_dim, tile_out, num_gates, num_slots)
        w_rest = w_main

    d0, d1, d2, d3 = load_states(grad_last, start_offsets, start_stride, mask, zero, num_states)

    w_main, w_rest = tl.where(time > 0, w_main, 0.0), tl.where(time > 0, w_rest, 0.0)
    if exchange:
        d0 += idle_dot(slot_rows, w_main, depth_main, slices, tile_batch, dtype, precision)
        if depth_rest > 0:
            d0 += idle_dot(slot_rows, w_rest, depth_rest, slices, tile_batch, dtype, precision)
    else:
        # Like idle_dot, with an operand of the same layout as in the loop.
        idle = tl.where(slot_rows[:, None] < 0, 1.0, zero).to(dtype)
        w1, w2, w3 = tl.where(time > 0, w1, 0.0), tl.where(time > 0, w2, 0.0), tl.where(time > 0, w3, 0.0)
        hidden_zeros = four_dots(idle, idle, idle, idle, w_main, w1, w2, w3, zero, num_gates, num_slots, precision)
        d0 += hidden_zeros

    # Offsets of the last step; each iteration moves one step back.
    at = (row64 * time + steps - 1)[:, None] * gate_stride + inner
    grad_offsets = at
    state_ptrs = states + at
    gate_offsets = (row64 * time + steps - 1)[:, None] * (num_gates * gate_stride) + inner
    rec_offsets = (row64 * time + steps - 1) * (num_slots * gate_stride) + head * head_dim
    joint = tl.arange(0, joint_width * tile_out)
    grad_mask = row_mask[:, None] & (first + joint % tile_out < head_dim)[None, :]
    if num_slots == 3:
        grad_mask = grad_mask & (joint < 3 * tile_out)[None, :]
    grad_ptrs = grad_slots + rec_offsets[:, None]
    grad_ptrs += ((joint // tile_out) * gate_stride + first + joint % tile_out)[None, :]
    x_ptrs = wx + (row64 * wx_stride_b + (steps - 1) * wx_stride_t)[:, None] + inner + x_gate * gate_stride
    i0, i1, i2, i3 = load_states(initial, start_offsets, start_stride, mask, zero, num_states)
    u0, u1, u2, u3 = load_parameters(unit_params, columns, head * head_dim, gate_stride, head_dim, num_params)
    v0, v1, v2, v3 = zero, zero, zero, zero

    if exchange:
        p0, p1, p2, p3, q0, q1, q2, q3, c1, c2, c3, g0, g1, g2, g3 = load_step(
            saved, x_ptrs, state_ptrs, grad0, grad1, grad2, grad3, gate_offsets, grad_offsets,
            i0, i1, i2, i3, tl.where(steps > 0, mask, False), steps - 1, gate_stride, state_stride,
            num_gates, num_slots, num_states, initial is not None, reads_h, reads_new,
        )  # fmt: skip
    for back in tl.range(0, steps, num_stages=num_stages):
        t = steps - 1 - back
        if not exchange:
            p0, p1, p2, p3, q0, q1, q2, q3, c1, c2, c3, g0, g1, g2, g3 = load_step(
                saved, x_ptrs, state_ptrs, grad0, grad1, grad2, grad3, gate_offsets, grad_offsets,
                i0, i1, i2, i3, mask, t, gate_stride, state_stride,
                num_gates, num_slots, num_states, initial is not None, reads_h, reads_new,
            )  # fmt: skip
            # Zeros in the dots' layout: what is loaded takes that layout at once. Otherwise Triton evaluates parts of
            # the cell in two layouts, and gives up swizzling the shared memory that the loads pass through.
            p0, p1, p2, p3 = p0 + hidden_zeros, p1 + hidden_zeros, p2 + hidden_zeros, p3 + hidden_zeros
            q0, q1, q2, q3 = q0 + hidden_zeros, q1 + hidden_zeros, q2 + hidden_zeros, q3 + hidden_zeros
            c1, c2, c3 = c1 + hidden_zeros, c2 + hidden_zeros, c3 + hidden_zeros
        if reset is not None:
            is_reset = (tl.load(reset + row64 * time + t, mask=row_mask, other=0) != 0)[:, None]
            z0, z1 = tl.where(is_reset, 0.0, q0), tl.where(is_reset, 0.0, q1)
            z2, z3 = tl.where(is_reset, 0.0, q2), tl.where(is_reset, 0.0, q3)
        else:
            z0, z1, z2, z3 = q0, q1, q2, q3
        if num_params > 0:
            h0, h1, h2, h3, e0, e1, e2, e3, k0, k1, k2, k3 = cell(
                d0 + g0, d1 + g1, d2 + g2, d3 + g3, p0, p1, p2, p3, z0, z1, z2, z3, d0, c1, c2, c3, u0, u1, u2, u3,
                fast, shift_free,
            )  # fmt: skip
            if lengths is not None:
                k0, k1 = tl.where((t < length)[:, None], k0, 0.0), tl.where((t < length)[:, None], k1, 0.0)
                k2, k3 = tl.where((t < length)[:, None], k2, 0.0), tl.where((t < length)[:, None], k3, 0.0)
            v0, v1, v2, v3 = v0 + k0, v1 + k1, v2 + k2, v3 + k3
        else:
            h0, h1, h2, h3, e0, e1, e2, e3 = cell(
                d0 + g0, d1 + g1, d2 + g2, d3 + g3, p0, p1, p2, p3, z0, z1, z2, z3, d0, c1, c2, c3, fast, shift_free
            )  # fmt: skip
        if reset is not None:
            e0, e1 = tl.where(is_reset, 0.0, e0), tl.where(is_reset, 0.0, e1)
            e2, e3 = tl.where(is_reset, 0.0, e2), tl.where(is_reset, 0.0, e3)
        if lengths is not None:
            is_on = (t < length)[:, None]
            h0, h1, h2, h3 = (
                tl.where(is_on, h0, 0.0),
                tl.where(is_on, h1, 0.0),
                tl.where(is_on, h2, 0.0),
                tl.where(is_on, h3, 0.0),
            )
            e0, e1 = tl.where(is_on, e0, d0), tl.where(is_on, e1, d1)
            e2, e3 = tl.where(is_on, e2, d2), tl.where(is_on, e3, d3)
        h0 = h0.to(dtype)
        if num_slots == 1:
            grads = h0
        else:
            h1, h2, h3 = h1.to(dtype), h2.to(dtype), h3.to(dtype)
            if num_slots == 2:
                grads = join_pair(h0, h1, tile_batch, tile_out)
            else:
                grads = join_slots(h0, h1, h2, h3, tile_batch, tile_out)
        if exchange:
            tl.store(grad_ptrs, grads, mask=grad_mask)
            arrive(arrived + group)
            grad_offsets -= gate_stride
            state_ptrs -= gate_stride
            gate_offsets -= num_gates * gate_stride
            x_ptrs -= wx_stride_t
            p0, p1, p2, p3, q0, q1, q2, q3, c1, c2, c3, g0, g1, g2, g3 = load_step(
                saved, x_ptrs, state_ptrs, grad0, grad1, grad2, grad3, gate_offsets, grad_offsets,
                i0, i1, i2, i3, tl.where(t > 0, mask, False), t - 1, gate_stride, state_stride,
                num_gates, num_slots, num_states, initial is not None, reads_h, reads_new,
            )  # fmt: skip
            wait(arrived + group, (back + 1) * row_split, has_asm)
            through = exchanged_dot(
                grad_slots, rec_offsets, row_mask, w_main, w_rest,
                depth_main, depth_rest, slices, gate_stride, head_dim, num_gates, num_slots, dtype, precision,
            )  # fmt: skip
            rec_offsets -= num_slots * gate_stride
        else:
            through = four_dots(h0, h1, h2, h3, w_main, w1, w2, w3, hidden_zeros, num_gates, num_slots, precision)
            tl.store(grad_ptrs, grads, mask=grad_mask)
            grad_offsets -= gate_stride
            state_ptrs -= gate_stride
            gate_offsets -= num_gates * gate_stride
            x_ptrs -= wx_stride_t
        grad_ptrs -= num_slots * gate_stride
        if has_clip:
            through = tl.minimum(tl.maximum(through, -clip), clip)
        if reset is not None:
            through = tl.where(is_reset, 0.0, through)
        d0, d1, d2, d3 = e0 + through, e1, e2, e3

    tl.store(grad_initial + start_offsets, d0, mask=mask)
    if num_states > 1:
        tl.store(grad_initial + start_stride + start_offsets, d1, mask=mask)
    if num_states > 2:
        tl.store(grad_initial + 2 * start_stride + start_offsets, d2, mask=mask)
    if num_states > 3:
        tl.store(grad_initial + 3 * start_stride + start_offsets, d3, mask=mask)
    if num_params > 0:
        tl.store(grad_params + start_offsets, v0, mask=mask)
    if num_params > 1:
        tl.store(grad_params + start_stride + start_offsets, v1, mask=mask)
    if num_params > 2:
        tl.store(grad_params + 2 * start_stride + start_offsets, v2, mask=mask)
    if num_params > 3:
        tl.store(grad_params + 3 * start_stride + start_offsets, v3, mask=mask)
