"""One step's pointwise part as a kernel of its own, for the recurrence that alternates products and pointwise steps.

It reads and writes buffers of K steps (a chunk), so that one CUDA graph of K steps serves every sequence length. A
program takes `tile` of the N * B * D units. It needs triton; nothing imports it until a kernel is built.

A row stops after `remaining` steps, counted from the start of the chunk, and starts anew where `reset` is set. `reset`
has one step more than the chunk, because each step prepares the state that the next one reads.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_fp32(ptrs, mask, exists: tl.constexpr):
    """A value in fp32; zeros for a state that the cell lacks."""
    if exists:
        return tl.load(ptrs, mask=mask, other=0.0).to(tl.float32)
    else:
        return tl.zeros(mask.shape, tl.float32)


@triton.jit
def store_as(ptrs, value, mask, exists: tl.constexpr):
    """Store the values of states that the cell has."""
    if exists:
        tl.store(ptrs, value.to(ptrs.dtype.element_ty), mask=mask)


@triton.jit
def add_gradient(ptrs, value, mask, exists: tl.constexpr):
    """Add to gradients of parameters that the cell has."""
    if exists:
        tl.store(ptrs, tl.load(ptrs, mask=mask, other=0.0) + value, mask=mask)


@triton.jit
def unit_of(tile: tl.constexpr, batch, num_heads, head_dim):
    """Existence, row b, column n * D + d and place in (N, B, D) of each unit of this program."""
    place = tl.program_id(0) * tile + tl.arange(0, tile)
    unit, row, head = place % head_dim, (place // head_dim) % batch, place // (head_dim * batch)
    return head < num_heads, row, head * head_dim + unit, place


@triton.jit
def load_parameters(unit_params, column, mask, width, num_params: tl.constexpr):
    """The cell's elementwise parameters of each unit; zeros for those that it lacks."""
    u0 = load_fp32(unit_params + column, mask, num_params > 0)
    u1 = load_fp32(unit_params + width + column, mask, num_params > 1)
    u2 = load_fp32(unit_params + 2 * width + column, mask, num_params > 2)
    return u0, u1, u2, load_fp32(unit_params + 3 * width + column, mask, num_params > 3)


@triton.jit
def load_pre_activations(
    wx, recurrent, bias, row, column, place, mask, batch, num_heads, head_dim,
    num_gates: tl.constexpr, num_slots: tl.constexpr, has_bias: tl.constexpr,
):  # fmt: skip
    """The cell's slots from the input of this step, the product with r, and the bias."""
    width = num_heads * head_dim
    x = wx + row * (num_gates * width) + column
    # The product is (N, B, G, D): head and row of the unit, then the gate.
    y = recurrent + (place // head_dim) * (num_gates * head_dim) + place % head_dim
    if num_slots > num_gates and num_gates == 1:
        recurrent_part = load_fp32(y, mask, True) + load_fp32(bias + column, mask, has_bias)
        return (
            load_fp32(x, mask, True),
            recurrent_part,
            tl.zeros(mask.shape, tl.float32),
            tl.zeros(mask.shape, tl.float32),
        )
    p0 = load_fp32(x, mask, True) + load_fp32(y, mask, True) + load_fp32(bias + column, mask, has_bias)
    x1, x2 = load_fp32(x + width, mask, num_gates > 1), load_fp32(x + 2 * width, mask, num_gates > 2)
    y1 = load_fp32(y + head_dim, mask, num_gates > 1)
    y2 = load_fp32(y + 2 * head_dim, mask, num_gates > 2)
    y1 += load_fp32(bias + width + column, mask, has_bias and num_gates > 1)
    y2 += load_fp32(bias + 2 * width + column, mask, has_bias and num_gates > 2)
    if num_slots > num_gates and num_gates == 2:
        return p0, x1, y1, x2
    elif num_slots > num_gates:
        return p0, x1 + y1, x2, y2  # both parts of the last gate
    else:
        p3 = load_fp32(x + 3 * width, mask, num_gates > 3) + load_fp32(y + 3 * head_dim, mask, num_gates > 3)
        p3 += load_fp32(bias + 3 * width + column, mask, has_bias and num_gates > 3)
        return p0, x1 + y1, x2 + y2, p3


@triton.jit(do_not_specialize=["step", "batch", "num_heads", "num_steps"])
def pointwise_forward_kernel(
    wx,  # (K, B, G, N, D)
    recurrent,  # (N, B, G, D), r @ h of this step
    bias,  # (G, N, D), or anything
    carry,  # (S, N, B, D) fp32, the states; read and written
    operand,  # (N, B, D), the next product's h; written
    states,  # (S, K, B, N, D), written
    gates,  # (K, B, G, N, D), written if save_gates
    remaining,  # (B,) int32
    reset,  # (K + 1, B) int8
    unit_params,  # (P, N, D) fp32, or anything
    step, batch, num_heads,
    num_steps,  # K
    head_dim: tl.constexpr, cell: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr,
    num_states: tl.constexpr, has_bias: tl.constexpr, save_gates: tl.constexpr, fast: tl.constexpr,
    tile: tl.constexpr, num_params: tl.constexpr,
):  # fmt: skip
    """Step `step` of a chunk, forwards."""
    mask, row, column, place = unit_of(tile, batch, num_heads, head_dim)
    width = num_heads * head_dim
    total = batch * width
    step = step.to(tl.int64)
    p0, p1, p2, p3 = load_pre_activations(
        wx + step * (num_gates * total), recurrent, bias, row, column, place, mask, batch, num_heads, head_dim,
        num_gates, num_slots, has_bias,
    )  # fmt: skip
    q0 = load_fp32(carry + place, mask, True)
    q1 = load_fp32(carry + total + place, mask, num_states > 1)
    q2 = load_fp32(carry + 2 * total + place, mask, num_states > 2)
    q3 = load_fp32(carry + 3 * total + place, mask, num_states > 3)
    if num_params > 0:
        u0, u1, u2, u3 = load_parameters(unit_params, column, mask, width, num_params)
        s0, s1, s2, s3 = cell(p0, p1, p2, p3, q0, q1, q2, q3, u0, u1, u2, u3, fast, states.dtype.element_ty)
    else:
        s0, s1, s2, s3 = cell(p0, p1, p2, p3, q0, q1, q2, q3, fast, states.dtype.element_ty)
    left = tl.load(remaining + row, mask=mask, other=0)
    runs = step < left
    out = states + step * total + row * width + column
    of_state = total.to(tl.int64) * num_steps
    store_as(out, tl.where(runs, s0, 0.0), mask, True)
    store_as(out + of_state, tl.where(runs, s1, 0.0), mask, num_states > 1)
    store_as(out + 2 * of_state, tl.where(runs, s2, 0.0), mask, num_states > 2)
    store_as(out + 3 * of_state, tl.where(runs, s3, 0.0), mask, num_states > 3)
    if save_gates:
        saved = gates + step * (num_gates * total) + row * (num_gates * width) + column
        if num_slots > num_gates and num_gates == 1:
            store_as(saved, p1, mask, True)
        else:
            store_as(saved, p0, mask, True)
        if num_slots > num_gates and num_gates == 2:
            store_as(saved + width, p2, mask, True)
        else:
            store_as(saved + width, p1, mask, num_gates > 1)
        if num_slots > num_gates:
            store_as(saved + 2 * width, p3, mask, num_gates > 2)
        else:
            store_as(saved + 2 * width, p2, mask, num_gates > 2)
            store_as(saved + 3 * width, p3, mask, num_gates > 3)
    anew = (tl.load(reset + (step + 1) * batch + row, mask=mask, other=0) != 0) & (step + 1 < left)
    h = tl.where(anew, 0.0, tl.where(runs, s0, q0))
    store_as(operand + place, h, mask, True)
    store_as(carry + place, h, mask, True)
    store_as(carry + total + place, tl.where(anew, 0.0, tl.where(runs, s1, q1)), mask, num_states > 1)
    store_as(carry + 2 * total + place, tl.where(anew, 0.0, tl.where(runs, s2, q2)), mask, num_states > 2)
    store_as(carry + 3 * total + place, tl.where(anew, 0.0, tl.where(runs, s3, q3)), mask, num_states > 3)


@triton.jit(do_not_specialize=["step", "batch", "num_heads", "num_steps"])
def pointwise_backward_kernel(
    upstream,  # (S, K, B, N, D), gradients of the states
    through,  # (N, B, D), gradient of h through r from the step after; read
    carry,  # (S, N, B, D) fp32, gradients of the states by all other ways; read and written
    wx,  # (K, B, N, D), the input's part of the last gate, where its parts are kept apart
    gates,  # (K, B, G, N, D), pre-activations
    states,  # (S, K + 1, B, N, D), from the one before the chunk on
    slots,  # (K, B, slots, N, D), gradients of the cell's slots; written
    operand,  # (N, B, G, D), the next product's gradients; written
    remaining,  # (B,) int32
    reset,  # (K + 1, B) int8
    clip,  # (1,) fp32
    unit_params,  # (P, N, D) fp32, or anything
    grad_params,  # (P, N, B, D) fp32, their gradients summed over steps; read and written
    step, batch, num_heads,
    num_steps,  # K
    head_dim: tl.constexpr, cell: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr,
    num_states: tl.constexpr,
    upstream_mask: tl.constexpr,  # bit s: state s has upstream gradients
    has_clip: tl.constexpr, fast: tl.constexpr, shift_free: tl.constexpr, tile: tl.constexpr,
    num_params: tl.constexpr,
):  # fmt: skip
    """Step `step` of a chunk, backwards."""
    mask, row, column, place = unit_of(tile, batch, num_heads, head_dim)
    width = num_heads * head_dim
    total = batch * width
    step = step.to(tl.int64)
    left = tl.load(remaining + row, mask=mask, other=0)
    runs = step < left
    after = (tl.load(reset + (step + 1) * batch + row, mask=mask, other=0) != 0) & (step + 1 < left)
    anew = (tl.load(reset + step * batch + row, mask=mask, other=0) != 0) & runs
    c0 = load_fp32(carry + place, mask, True)
    c1 = load_fp32(carry + total + place, mask, num_states > 1)
    c2 = load_fp32(carry + 2 * total + place, mask, num_states > 2)
    c3 = load_fp32(carry + 3 * total + place, mask, num_states > 3)
    back = load_fp32(through + place, mask, True)
    if has_clip:
        limit = tl.load(clip)
        back = tl.minimum(tl.maximum(back, -limit), limit)
    c0 += tl.where(after, 0.0, back)
    at = step * total + row * width + column
    of_state = total.to(tl.int64) * num_steps
    d0 = c0 + load_fp32(upstream + at, mask, upstream_mask % 2 == 1)
    d1 = c1 + load_fp32(upstream + of_state + at, mask, upstream_mask // 2 % 2 == 1)
    d2 = c2 + load_fp32(upstream + 2 * of_state + at, mask, upstream_mask // 4 % 2 == 1)
    d3 = c3 + load_fp32(upstream + 3 * of_state + at, mask, upstream_mask // 8 % 2 == 1)
    saved = gates + step * (num_gates * total) + row * (num_gates * width) + column
    p0 = load_fp32(saved, mask, True)
    p1 = load_fp32(saved + width, mask, num_gates > 1)
    p2 = load_fp32(saved + 2 * width, mask, num_gates > 2)
    p3 = load_fp32(saved + 3 * width, mask, num_gates > 3)
    if num_slots > num_gates:
        # The input's part of the last gate stands before its recurrent part.
        if num_gates == 1:
            p1 = p0
            p0 = load_fp32(wx + at, mask, True)
        elif num_gates == 2:
            p2 = p1
            p1 = load_fp32(wx + at, mask, True)
        else:
            p3 = p2
            p2 = load_fp32(wx + at, mask, True)
    of_state += total
    q = states + at
    known = mask & (anew == 0)
    q0 = load_fp32(q, known, True)
    q1 = load_fp32(q + of_state, known, num_states > 1)
    q2 = load_fp32(q + 2 * of_state, known, num_states > 2)
    q3 = load_fp32(q + 3 * of_state, known, num_states > 3)
    s0 = load_fp32(q + total, mask, True)
    s1 = load_fp32(q + total + of_state, mask, num_states > 1)
    s2 = load_fp32(q + total + 2 * of_state, mask, num_states > 2)
    s3 = load_fp32(q + total + 3 * of_state, mask, num_states > 3)
    if num_params > 0:
        u0, u1, u2, u3 = load_parameters(unit_params, column, mask, width, num_params)
        g0, g1, g2, g3, e0, e1, e2, e3, k0, k1, k2, k3 = cell(
            d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3, u0, u1, u2, u3, fast, shift_free
        )
        add_gradient(grad_params + place, k0, mask & runs, True)
        add_gradient(grad_params + total + place, k1, mask & runs, num_params > 1)
        add_gradient(grad_params + 2 * total + place, k2, mask & runs, num_params > 2)
        add_gradient(grad_params + 3 * total + place, k3, mask & runs, num_params > 3)
    else:
        g0, g1, g2, g3, e0, e1, e2, e3 = cell(
            d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3, fast, shift_free
        )
    out = slots + step * (num_slots * total) + row * (num_slots * width) + column
    product = operand + (place // head_dim) * (num_gates * head_dim) + place % head_dim
    g0 = tl.where(runs, g0, 0.0)
    store_as(out, g0, mask, True)
    if num_slots < 4:
        g1, g2 = tl.where(runs, g1, 0.0), tl.where(runs, g2, 0.0)
        store_as(out + width, g1, mask, num_slots > 1)
        store_as(out + 2 * width, g2, mask, num_slots > 2)
        if num_slots > num_gates and num_gates == 1:
            store_as(product, g1, mask, True)
        else:
            store_as(product, g0, mask, True)
        if num_slots > num_gates and num_gates == 2:
            store_as(product + head_dim, g2, mask, True)
        else:
            store_as(product + head_dim, g1, mask, num_gates > 1)
            store_as(product + 2 * head_dim, g2, mask, num_gates > 2)
    else:
        store_as(product, g0, mask, True)
        g1, g2, g3 = tl.where(runs, g1, 0.0), tl.where(runs, g2, 0.0), tl.where(runs, g3, 0.0)
        store_as(out + width, g1, mask, True)
        store_as(out + 2 * width, g2, mask, True)
        store_as(out + 3 * width, g3, mask, True)
        store_as(product + head_dim, g1, mask, True)
        store_as(product + 2 * head_dim, g3 if num_slots > num_gates else g2, mask, True)
        store_as(product + 3 * head_dim, g3, mask, num_gates > 3)
    store_as(carry + place, tl.where(runs, tl.where(anew, 0.0, e0), c0), mask, True)
    store_as(carry + total + place, tl.where(runs, tl.where(anew, 0.0, e1), c1), mask, num_states > 1)
    store_as(carry + 2 * total + place, tl.where(runs, tl.where(anew, 0.0, e2), c2), mask, num_states > 2)
    store_as(carry + 3 * total + place, tl.where(runs, tl.where(anew, 0.0, e3), c3), mask, num_states > 3)
