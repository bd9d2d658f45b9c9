"""The pointwise part of one step, forward and backward. A program has `tile` units of one sequence.

The parts of the input and of the recurrence are products of their own, added here with both biases in fp32. Needs
triton.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def load_or_zero(ptrs, mask):
    """Values in fp32; zeros where there is no tensor."""
    return tl.load(ptrs, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def part_of(products, bias, row, unit, mask, width, gate: tl.constexpr, num_gates: tl.constexpr):
    """One gate's part of a sum: the product (B, G, H) and its bias (G, H); either may be None."""
    value = tl.zeros(mask.shape, tl.float32)
    if gate < num_gates:
        if products is not None:
            value += load_or_zero(products + row * (num_gates * width) + gate * width + unit, mask)
        if bias is not None:
            value += load_or_zero(bias + gate * width + unit, mask)
    return value


@triton.jit
def step_forward_kernel(
    of_input,  # (B, G, H), W @ x
    of_hidden,  # (B, G, H), R @ h; None for zeros
    bias_ih, bias_hh,  # (G, H), or None
    h, c,  # (B, H), rows apart by their strides; None for zeros
    new_h, new_c,  # (B, H), written; new_c None where the cell has no c
    slots,  # (B, slots, H), written where a gradient follows; else None
    width,  # H
    h_stride, c_stride,
    cell: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """New states, and the cell's slots for the gradient."""
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * tile + tl.arange(0, tile)
    mask = unit < width
    x0 = part_of(of_input, bias_ih, row, unit, mask, width, 0, num_gates)
    x1 = part_of(of_input, bias_ih, row, unit, mask, width, 1, num_gates)
    x2 = part_of(of_input, bias_ih, row, unit, mask, width, 2, num_gates)
    x3 = part_of(of_input, bias_ih, row, unit, mask, width, 3, num_gates)
    r0 = part_of(of_hidden, bias_hh, row, unit, mask, width, 0, num_gates)
    r1 = part_of(of_hidden, bias_hh, row, unit, mask, width, 1, num_gates)
    r2 = part_of(of_hidden, bias_hh, row, unit, mask, width, 2, num_gates)
    r3 = part_of(of_hidden, bias_hh, row, unit, mask, width, 3, num_gates)
    q0, q1 = tl.zeros(mask.shape, tl.float32), tl.zeros(mask.shape, tl.float32)
    if h is not None:
        q0 = load_or_zero(h + row * h_stride + unit, mask)
    if c is not None:
        q1 = load_or_zero(c + row * c_stride + unit, mask)
    p0, p1 = x0 + r0, x1 + r1
    if num_slots > num_gates:
        p2, p3 = x2, r2  # both parts of the last gate
    else:
        p2, p3 = x2 + r2, x3 + r3
    s0, s1, _, _ = cell(p0, p1, p2, p3, q0, q1, q1, q1, False, tl.float32)
    at = row * width + unit
    tl.store(new_h + at, s0.to(new_h.dtype.element_ty), mask=mask)
    if new_c is not None:
        tl.store(new_c + at, s1.to(new_c.dtype.element_ty), mask=mask)
    if slots is not None:
        out = slots + row * (num_slots * width) + unit
        tl.store(out, p0.to(slots.dtype.element_ty), mask=mask)
        if num_slots > 1:
            tl.store(out + width, p1.to(slots.dtype.element_ty), mask=mask)
        if num_slots > 2:
            tl.store(out + 2 * width, p2.to(slots.dtype.element_ty), mask=mask)
        if num_slots > 3:
            tl.store(out + 3 * width, p3.to(slots.dtype.element_ty), mask=mask)


@triton.jit
def step_backward_kernel(
    grad_h, grad_c,  # (B, H), or None for zeros
    h, c,  # (B, H) before the step, rows apart by their strides; None for zeros
    new_c,  # (B, H) after the step, or None
    slots,  # (B, slots, H)
    of_input,  # (B, G, H), written: gradients of the input's parts
    of_hidden,  # (B, G, H), written where the cell keeps parts apart: gradients of the recurrence's parts; else None
    old_h,  # (B, H), written: the gradient that reaches h past the products; None where there is none
    old_c,  # (B, H), written: the gradient of c; None where it is not needed
    width,  # H
    h_stride, c_stride,
    cell: tl.constexpr, num_gates: tl.constexpr, num_slots: tl.constexpr, tile: tl.constexpr,
):  # fmt: skip
    """Gradients of the slots and of the states before the step."""
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * tile + tl.arange(0, tile)
    mask = unit < width
    at = row * width + unit
    zero = tl.zeros(mask.shape, tl.float32)
    d0, d1, q0, q1, s1 = zero, zero, zero, zero, zero
    if grad_h is not None:
        d0 = load_or_zero(grad_h + at, mask)
    if grad_c is not None:
        d1 = load_or_zero(grad_c + at, mask)
    if h is not None:
        q0 = load_or_zero(h + row * h_stride + unit, mask)
    if c is not None:
        q1 = load_or_zero(c + row * c_stride + unit, mask)
    if new_c is not None:
        s1 = load_or_zero(new_c + at, mask)
    saved = slots + row * (num_slots * width) + unit
    p0, p1, p2, p3 = load_or_zero(saved, mask), zero, zero, zero
    if num_slots > 1:
        p1 = load_or_zero(saved + width, mask)
    if num_slots > 2:
        p2 = load_or_zero(saved + 2 * width, mask)
    if num_slots > 3:
        p3 = load_or_zero(saved + 3 * width, mask)
    g0, g1, g2, g3, e0, e1, _, _ = cell(
        d0, d1, zero, zero, p0, p1, p2, p3, q0, q1, zero, zero, zero, s1, zero, zero, False, False
    )
    out = of_input + row * (num_gates * width) + unit
    tl.store(out, g0.to(of_input.dtype.element_ty), mask=mask)
    if num_gates > 1:
        tl.store(out + width, g1.to(of_input.dtype.element_ty), mask=mask)
    if num_gates > 2:
        tl.store(out + 2 * width, g2.to(of_input.dtype.element_ty), mask=mask)
    if num_gates > 3:
        tl.store(out + 3 * width, g3.to(of_input.dtype.element_ty), mask=mask)
    if of_hidden is not None:  # three gates and a slot more
        out = of_hidden + row * (num_gates * width) + unit
        tl.store(out, g0.to(of_hidden.dtype.element_ty), mask=mask)
        tl.store(out + width, g1.to(of_hidden.dtype.element_ty), mask=mask)
        tl.store(out + 2 * width, g3.to(of_hidden.dtype.element_ty), mask=mask)
    if old_h is not None:
        tl.store(old_h + at, e0.to(old_h.dtype.element_ty), mask=mask)
    if old_c is not None:
        tl.store(old_c + at, e1.to(old_c.dtype.element_ty), mask=mask)
