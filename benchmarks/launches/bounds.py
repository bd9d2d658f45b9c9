"""Exact results in fp64, and how much a result may be off: derived from types, K and the operations of the epilogue.

A result is right where it lies between the exact value less its bound and that plus its bound, both rounded to the
result's type. Rounding is monotone, so that no tolerance for it is needed, and overflow to infinity is covered.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from constrint.kernels.gemm.reference import ACTIVATIONS

#: Half the distance of neighbouring numbers, as a share of them.
HALF_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24, torch.float64: 2.0**-53}
#: Half the distance of neighbouring subnormal numbers.
LEAST_HALF = {torch.float16: 2.0**-25, torch.bfloat16: 2.0**-134, torch.float32: 2.0**-150, torch.float64: 0.0}
#: Steepest slopes of activations, and of their derivatives. That of relu2 is twice its argument.
SLOPES = {"relu": 1.0, "gelu": 1.13, "silu": 1.1, "gelu_tanh": 1.13, "sigmoid": 0.25, "quick_gelu": 1.1, "tanh": 1.0}
BENDS = {"relu": 1.0, "gelu": 0.8, "silu": 0.5, "gelu_tanh": 0.85, "sigmoid": 0.1, "quick_gelu": 0.86, "tanh": 0.78,
         "relu2": 2.0}  # fmt: skip
#: Activations whose value at minus infinity is the limit 0 or, by their formula, NaN.
VANISHING = ("gelu", "gelu_tanh", "silu", "quick_gelu")
#: Smallest normal number of fp32 times the longest sums: what flushing subnormal numbers may take.
FLUSHED = 2.0**-110


class Sums(NamedTuple):
    """Sums in fp64.

    Args:
        exact: Their values.
        error: How much the sums of a kernel may be off.
        size: Sums of the absolute values.
    """

    exact: Tensor
    error: Tensor
    size: Tensor


def share_of_sums(dtype: torch.dtype, precision: str, depth: int) -> float:
    """Error of a sum of `depth` products, as a share of the sum of their absolute values.

    Matrix units add 32 bytes along K at a time and cut to a fraction of 23 bits. fp8: 33 addends are cut to 13 bits
    below the largest, and four such steps are added up before their sum goes to fp32, so that 33 (1 + 2 + 3 + 4) / 4
    units of the sum may be lost.
    fp32 as three tf32 or six bf16 products drops the smallest of them; tf32 cuts operands to a fraction of 10 bits.
    """
    if dtype == torch.float64:
        return 2.0**-52 * (4 + depth)
    if not dtype.is_floating_point:
        return 0.0
    if dtype.itemsize == 1:
        return 2.0**-13 * 83 + 2.0**-23 * depth / 32
    steps = 2.0**-23 * (4 + depth * dtype.itemsize / 16)
    if dtype != torch.float32:
        return steps
    return steps + (2.0**-9 if precision == "high" else 2.0**-20)


def sums_of(a: Tensor, b: Tensor, *, precision: str, is_exact: bool) -> Sums:
    """The product of a (..., M, K) and b (..., K, N); exact: values are small whole numbers."""
    exact = a.double() @ b.double()
    size = a.double().abs() @ b.double().abs()
    share = 0.0 if is_exact else share_of_sums(a.dtype, precision, a.shape[-1])
    least = 0.0 if is_exact or not a.dtype.is_floating_point else FLUSHED
    return Sums(exact, share * size + least, size)


def finished(
    sums: Sums, out_dtype: torch.dtype, *, bias: Tensor | None = None, c: Tensor | None = None, alpha: float = 1.0,
    beta: float = 0.0, activation: str | None = None, may_round_before: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """activation(alpha * sums + bias + beta * c): exact values, bounds, and what was activated.

    Args:
        may_round_before: Whether the product may be rounded to the result's type before the rest.
    """
    z, error, terms = alpha * sums.exact, abs(alpha) * sums.error, abs(alpha) * sums.size
    unit = HALF_UNIT.get(out_dtype, 0.0)
    is_plain = alpha == 1.0 and bias is None and (c is None or beta == 0.0) and activation is None
    if may_round_before:
        error = error + 2.02 * unit * z.abs() + 2 * LEAST_HALF.get(out_dtype, 0.0)
    if bias is not None:
        z, terms = z + bias.double(), terms + bias.double().abs()
    if c is not None and beta != 0.0:
        z, terms = z + beta * c.double(), terms + abs(beta) * c.double().abs()
    if may_round_before and not is_plain:
        error = error + 2.02 * unit * (z.abs() + (terms - abs(alpha) * sums.size))
    if not is_plain:
        error = error + (2.0**-21 if out_dtype != torch.float64 else 2.0**-50) * terms
    if out_dtype.is_floating_point and out_dtype != torch.float64:
        # Sums of int8 products are converted to fp32, and fp32 may be rounded before it is narrowed.
        error = error + 2.0**-24 * z.abs()
    value, bound = activated(z, error, activation, out_dtype)
    return value, bound, z


def activated(z: Tensor, error: Tensor, activation: str | None, out_dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """activation(z), and how much it may be off where z is off by `error`."""
    if activation is None:
        return z, torch.where(z.isfinite(), error, 0.0)
    value = ACTIVATIONS[activation](z)
    slope = 2 * z.abs() + error if activation == "relu2" else SLOPES[activation]
    # Values are a sixteenth of a unit off before they are rounded (tanh: an eighth), in fp32 some units.
    own = 0.0 if activation == "relu" else 0.27 * HALF_UNIT[out_dtype] if out_dtype.itemsize == 2 else 2.0**-20
    floor = 0.0 if activation == "relu" else 2.0**-24
    bound = torch.where(z.isfinite(), slope * error, 0.0) + own * value.abs() + floor
    return value, torch.where(value.isfinite(), bound, 0.0)


def worst_of(
    out: Tensor, exact: Tensor, bound: Tensor, before: Tensor | None = None, activation: str | None = None
) -> str:
    """Why a result is wrong; empty where it is right.

    Args:
        out: The result.
        exact, bound: Exact values and bounds in fp64.
        before: What was activated, for values at minus infinity; NaN where a result is not finite, whichever it is.
    """
    if out.shape != exact.shape:
        return f"shape {tuple(out.shape)}, expected {tuple(exact.shape)}"
    if not out.numel():
        return ""
    low, high = exact - bound, exact + bound
    if out.dtype.is_floating_point:
        low, high, seen = low.to(out.dtype).double(), high.to(out.dtype).double(), out.double()
        right = (seen >= low) & (seen <= high) | (exact.isnan() & seen.isnan())
        if before is not None:
            right |= before.isnan() & ~seen.isfinite()
        if before is not None and activation in VANISHING:
            right |= (before == -torch.inf) & (seen.isnan() | (seen == 0))
    else:
        seen = out.double()
        right = (seen - exact).abs() <= bound
    if bool(right.all()):
        return ""
    wrong = ~right
    place = tuple(int(index) for index in wrong.nonzero()[0])
    off = ((seen - exact).abs() / bound.clamp(min=1e-300))[wrong].nan_to_num(float("inf")).max()
    return (
        f"{int(wrong.sum())} of {wrong.numel()} wrong, first at {place}: {float(out[place]):.9g}, exact "
        f"{float(exact[place]):.9g} +- {float(bound[place]):.3g}; at worst {float(off):.3g} bounds"
    )
