"""Functions of generated steps that built-in cells do not have. It needs triton; nothing imports it until then."""

from __future__ import annotations

import triton
import triton.language as tl


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
