"""Sweeps of a star in plain PyTorch, with slices: on any device, up to double precision. Needs torch."""

from __future__ import annotations

import torch
from torch import Tensor

from constrint.kernels.jacobi.star import StarStencil

#: Types of 16 bits, which are computed in fp32.
NARROW = (torch.float16, torch.bfloat16)


def inside(tensor: Tensor, widths: tuple[int, ...], offset: tuple[int, ...] | None = None) -> Tensor:
    """The view of a grid inside its border, moved by an offset of at most the border's width."""
    steps = offset or (0,) * len(widths)
    first = tensor.dim() - len(widths)
    for axis, (width, step) in enumerate(zip(widths, steps, strict=True)):
        tensor = tensor.narrow(first + axis, width + step, tensor.shape[first + axis] - 2 * width)
    return tensor


def has_inside(tensor: Tensor, widths: tuple[int, ...]) -> bool:
    """Whether a grid has points inside its border."""
    shape = tensor.shape[tensor.dim() - len(widths) :]
    return bool(tensor.numel()) and all(size > 2 * width for size, width in zip(shape, widths, strict=True))


def sweeps_reference(u: Tensor, f: Tensor | None, star: StarStencil, steps: int) -> Tensor:
    """u after some sweeps: points of the border keep their values, all others become the star's sum.

    Args:
        u: (..., NY, NX) or (..., NZ, NY, NX); fp64 is computed in fp64, all else in fp32 and rounded once, at the end.
        f: The right side, of the same shape; None: zero.
        star: The star.
        steps: Sweeps.
    """
    kept = u.dtype
    state = u.float() if kept in NARROW else u
    if steps == 0 or not has_inside(u, star.widths):
        return u.clone(memory_format=torch.contiguous_format)
    right_side = None
    if f is not None:
        right_side = inside(f.float() if kept in NARROW else f, star.widths) * star.right_side
    widths = star.widths
    given, out = state, state.clone(memory_format=torch.contiguous_format)
    spare = out.clone() if steps > 1 else out
    for _ in range(steps):
        (offset, factor), *others = star.terms
        total = inside(given, widths, offset) * factor
        for offset, factor in others:
            total.add_(inside(given, widths, offset), alpha=factor)
        if right_side is not None:
            total.add_(right_side)
        inside(out, widths).copy_(total)
        given, out, spare = out, spare, out
    return given.to(kept)
