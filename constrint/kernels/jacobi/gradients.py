"""Gradients of sweeps, which are linear in u and f: sweeps of the mirrored star. Needs torch.

With v the points inside the border and b those on it, a sweep is v' = A v + B b + r f and b' = b. So after n steps

    gradient of f:       r S g_v,  S = 1 + A^T + ... + (A^T)^(n-1)
    gradient of v:       (A^T)^n g_v
    gradient of b:       g_b + B^T S g_v

A^T is a sweep of the mirrored star with a border of zeros, and S g_v is what n of them make of zeros, with g_v as right
side. B^T moves values from inside to the border, by each offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from constrint.kernels.jacobi.reference import has_inside, inside
from constrint.kernels.jacobi.star import StarStencil

#: Some sweeps of a star: u, f, the star, steps.
Sweep = Callable[[Tensor, Tensor | None, StarStencil, int], Tensor]


def gradients_of(
    gradient: Tensor, star: StarStencil, steps: int, sweep: Sweep, *, needs_u: bool, needs_f: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients in u and in f for that of the result.

    Args:
        gradient: The result's.
        star: The star of the sweeps.
        steps: Sweeps.
        sweep: Computes sweeps.
        needs_u, needs_f: Which are wanted; None stands for the other one.
    """
    widths = star.widths
    if steps == 0 or not has_inside(gradient, widths):
        return gradient if needs_u else None, torch.zeros_like(gradient) if needs_f else None
    is_inside = torch.zeros(gradient.shape, dtype=torch.bool, device=gradient.device)
    inside(is_inside, widths).fill_(True)
    zero = torch.zeros((), dtype=gradient.dtype, device=gradient.device)
    of_inside = torch.where(is_inside, gradient, zero)
    mirrored = replace(star.mirrored, right_side=1.0)
    summed = sweep(torch.zeros_like(of_inside), of_inside, mirrored, steps)
    of_f = summed * star.right_side if needs_f else None
    if not needs_u:
        return None, of_f
    moved = torch.zeros_like(summed)
    for offset, factor in star.terms:
        if any(offset):
            moved = moved + _moved(summed, offset, factor)
    of_u = torch.where(is_inside, sweep(of_inside, None, mirrored, steps), gradient + moved)
    return of_u, of_f


def _moved(summed: Tensor, offset: tuple[int, ...], factor: float) -> Tensor:
    """factor * summed(p - offset) at every point p; zero where p - offset is not in the grid."""
    first = summed.dim() - len(offset)
    sides: list[int] = []
    for axis in reversed(range(len(offset))):
        step, size = offset[axis], summed.shape[first + axis]
        summed = summed.narrow(first + axis, max(0, -step), size - abs(step))
        sides += [max(0, step), max(0, -step)]
    return torch.nn.functional.pad(summed * factor, sides)
