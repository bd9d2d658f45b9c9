"""Functions that steps in Triton call. It needs triton; nothing imports it until then."""

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
def log1p(x):
    """log(1 + x), exact to a few roundings for small x, too."""
    above = 1.0 + x
    return tl.where(above == 1.0, x, tl.log(above) * (x / (above - 1.0)))


@triton.jit
def rounded_down(x, dtype: tl.constexpr):
    """A value that `dtype` has, and not above x."""
    if dtype == tl.float32:
        return x
    else:
        unit: tl.constexpr = 0.00394531 if dtype == tl.bfloat16 else 0.00049316
        return (x - unit * tl.abs(x)).to(dtype).to(tl.float32)
