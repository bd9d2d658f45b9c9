"""The cells of the recurrent kernels: one step's pointwise part, forward and backward, as functions given to the loops.

A cell sees up to four pre-activations `p` and four states, all (tile_batch, tile_out) in fp32:

    lstm    p = i, f, z, o                          states h, c
    slstm   p = i, f, z, o                          states h, c, n, m
    gru     p = r, z, x_n, R_n h + b_n              states h
    elman   p = g (also elman_relu)                 states h

Slots that a cell does not use are handed through. Backward cells get the gradients of the states after the step and
give those of `p` and of the states before it, without what flows through R.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tanh(x, fast: tl.constexpr):
    """tanh; `fast` is NVIDIA's tanh.approx (relative error 2^-11), else exact to fp32 rounding of 2 sigmoid(2x) - 1."""
    if fast:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def sigmoid(x, fast: tl.constexpr):
    """Logistic function; through one tanh.approx where `fast`, which halves the special-function work."""
    if fast:
        return 0.5 * tanh(0.5 * x, fast) + 0.5
    else:
        return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def log_sigmoid(x):
    """log(sigmoid(x)) without overflow."""
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def lstm_forward(p0, p1, p2, p3, s0, s1, s2, s3, fast: tl.constexpr, dtype: tl.constexpr):
    """c' = f c + i z, h' = o tanh(c')."""
    c = sigmoid(p1, fast) * s1 + sigmoid(p0, fast) * tanh(p2, fast)
    return sigmoid(p3, fast) * tanh(c, fast), c, s2, s3


@triton.jit
def lstm_backward(
    d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3,
    fast: tl.constexpr, shift_free: tl.constexpr,
):  # fmt: skip
    """Gradients of an LSTM step; q1 and s1 are c before and after it."""
    i, f, z, o = sigmoid(p0, fast), sigmoid(p1, fast), tanh(p2, fast), sigmoid(p3, fast)
    t = tanh(s1, fast)
    dc = d1 + d0 * o * (1.0 - t * t)
    return (
        dc * z * i * (1.0 - i),
        dc * q1 * f * (1.0 - f),
        dc * i * (1.0 - z * z),
        d0 * t * o * (1.0 - o),
        d0 * 0.0,
        dc * f,
        d2,
        d3,
    )


@triton.jit
def gru_forward(p0, p1, p2, p3, s0, s1, s2, s3, fast: tl.constexpr, dtype: tl.constexpr):
    """h' = z h + (1 - z) tanh(x_n + r (R_n h + b_n))."""
    candidate = tanh(p2 + sigmoid(p0, fast) * p3, fast)
    return candidate + sigmoid(p1, fast) * (s0 - candidate), s1, s2, s3


@triton.jit
def gru_backward(
    d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3,
    fast: tl.constexpr, shift_free: tl.constexpr,
):  # fmt: skip
    """Gradients of a GRU step; q0 is h before it."""
    r, z = sigmoid(p0, fast), sigmoid(p1, fast)
    n = tanh(p2 + r * p3, fast)
    dn = d0 * (1.0 - z) * (1.0 - n * n)
    return dn * p3 * r * (1.0 - r), d0 * (q0 - n) * z * (1.0 - z), dn, dn * r, d0 * z, d1, d2, d3


@triton.jit
def slstm_forward(p0, p1, p2, p3, s0, s1, s2, s3, fast: tl.constexpr, dtype: tl.constexpr):
    """Exponential input gate with stabiliser m and normaliser n; a state with n = 0 is empty.

    m is rounded to the stored type before it is used: it is only a common scale of c and n, and the backward pass has
    to see the one that they were computed with. It is rounded down, so that n stays at least 1 where it is in exact
    arithmetic.
    """
    kept = log_sigmoid(p1) + s3
    is_empty = s2 == 0.0
    m = tl.where(is_empty, p0, tl.maximum(p0, kept))
    if dtype != tl.float32:
        unit: tl.constexpr = 0.00394531 if dtype == tl.bfloat16 else 0.00049316
        m = (m - unit * tl.abs(m)).to(dtype).to(tl.float32)
    i = tl.exp(p0 - m)
    f = tl.where(is_empty, 0.0, tl.exp(kept - m))
    c = f * s1 + i * tanh(p2, fast)
    n = tl.maximum(f * s2 + i, 1.0)
    return sigmoid(p3, fast) * c / n, c, n, m


@triton.jit
def slstm_backward(
    d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3,
    fast: tl.constexpr, shift_free: tl.constexpr,
):  # fmt: skip
    """Gradients of an sLSTM step, through the stabiliser too (it matters where m, c or n get gradients of their own).

    Where only h has gradients, the loss does not change if c, n and m are rescaled together, so what reaches m cancels:
    dm - dc c - dn n = 0; `shift_free` says so, and puts the zero in. n below 1 by no more than a 16-bit rounding then
    counts as 1.
    """
    kept = log_sigmoid(p1) + q3
    is_empty = q2 == 0.0
    i = tl.exp(p0 - s3)
    f = tl.where(is_empty, 0.0, tl.exp(kept - s3))
    z, o = tanh(p2, fast), sigmoid(p3, fast)
    n = f * q2 + i
    least: tl.constexpr = 0.984375 if shift_free else 1.0
    # The stored n, like the c beside it: what cancels in dm then cancels in every step.
    share = 1.0 / tl.maximum(s2, 1.0)  # padding has zeros
    ratio = s1 * share
    dc = d1 + d0 * o * share
    dn = tl.where(n < least, 0.0, d2 - d0 * o * ratio * share)
    dm = d3 - dc * s1 - dn * s2
    if shift_free:
        dm = tl.where(n < least, dm, 0.0)
    from_input = is_empty | (p0 >= kept)
    di = (dc * z + dn) * i + tl.where(from_input, dm, 0.0)
    dlf = (dc * q1 + dn * q2) * f + tl.where(from_input, 0.0, dm)
    return (
        di,
        dlf * sigmoid(-p1, fast),
        dc * i * (1.0 - z * z),
        d0 * ratio * o * (1.0 - o),
        d0 * 0.0,
        dc * f,
        dn * f,
        dlf,
    )


@triton.jit
def elman_forward(p0, p1, p2, p3, s0, s1, s2, s3, fast: tl.constexpr, dtype: tl.constexpr):
    """h' = tanh(g)."""
    return tanh(p0, fast), s1, s2, s3


@triton.jit
def elman_backward(
    d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3,
    fast: tl.constexpr, shift_free: tl.constexpr,
):  # fmt: skip
    """Gradients of an Elman step with tanh."""
    h = tanh(p0, fast)
    return d0 * (1.0 - h * h), p1, p2, p3, d0 * 0.0, d1, d2, d3


@triton.jit
def elman_relu_forward(p0, p1, p2, p3, s0, s1, s2, s3, fast: tl.constexpr, dtype: tl.constexpr):
    """h' = max(g, 0)."""
    return tl.maximum(p0, 0.0), s1, s2, s3


@triton.jit
def elman_relu_backward(
    d0, d1, d2, d3, p0, p1, p2, p3, q0, q1, q2, q3, s0, s1, s2, s3,
    fast: tl.constexpr, shift_free: tl.constexpr,
):  # fmt: skip
    """Gradients of an Elman step with a rectifier."""
    return tl.where(p0 > 0.0, d0, 0.0), p1, p2, p3, d0 * 0.0, d1, d2, d3
