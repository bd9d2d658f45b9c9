"""Launches at the edges of a sequence: last states, the h that enters each step, padding.

They are Triton kernels (`triton/kernel_edges.py`, `resize.py`), whatever computes the steps between. Needs
triton.
"""

from __future__ import annotations

import math

from torch import Tensor

from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.interface import PlannedBackward, PlannedForward, RnnInputs

#: Elements that one program copies.
TILE = 1024


def ends_launch(made: PlannedForward) -> TritonLaunch:
    """The copy of the states after the last step."""
    from constrint.kernels.rnn.triton.kernel_edges import ends_kernel

    num_states, batch, time, heads, dim = made.states.shape
    sizes = {"batch": batch, "time": time, "row_elements": heads * dim, "tile": TILE}
    tensors = {"states": made.states, "end_h": made.end_h, "end_rest": made.end_h if num_states == 1 else made.end_rest}
    grid = (num_states * batch, -(-heads * dim // TILE))
    return TritonLaunch(ends_kernel, grid, {**tensors, **sizes}, {"num_warps": 4})


def before_launch(inputs: RnnInputs, made: PlannedBackward) -> TritonLaunch:
    """The copy of the h that enters each step."""
    from constrint.kernels.rnn.triton.kernel_edges import before_kernel

    _, batch, time, heads, dim = made.states.shape
    blocks = -(-time * heads * dim // TILE)
    sizes = {"num_blocks": blocks, "time": time, "row_elements": heads * dim, "tile": TILE}
    tensors = {"states": made.states, "initial": inputs.initial, "before": made.before}
    return TritonLaunch(before_kernel, (batch * blocks,), {**tensors, **sizes}, {"num_warps": 4})


def resize_launch(source: Tensor, target: Tensor, fill: float = 0.0) -> TritonLaunch:
    """The copy of a tensor into a contiguous one whose last dimension is longer or shorter, with `fill` beyond it.

    Args:
        source: (B, T, ..., D); all but its first two strides are those of a contiguous tensor.
        target: (B, T, ..., D').
        fill: What the elements become that the source does not have.
    """
    b, t, *inner, d = source.shape if source.dim() > 2 else (1, 1, *source.shape)
    b_stride, t_stride = source.stride()[:2] if source.dim() > 2 else (0, 0)
    rows = math.prod(inner)
    return _resize(source, target, (b, t, (rows, rows), (d, target.shape[-1])), (b_stride, t_stride, d), fill)


def resize_weights_launch(source: Tensor, target: Tensor) -> TritonLaunch:
    """The copy of contiguous weights (..., D, D) into (..., D', D'), with zeros beyond them."""
    d, to = source.shape[-1], target.shape[-1]
    return _resize(source, target, (1, math.prod(source.shape[:-2]), (d, to), (d, to)), (0, d * d, d), 0.0)


def _resize(
    source: Tensor,
    target: Tensor,
    sizes: tuple[int, int, tuple[int, int], tuple[int, int]],
    strides: tuple[int, int, int],
    fill: float,
) -> TritonLaunch:
    from constrint.kernels.rnn.resize import resize_kernel

    _, b, (c_from, c_to), (d_from, d_to) = sizes
    num = target.numel()
    numbers = {"num_elements": num, "b_size": b, "c_from": c_from, "c_to": c_to, "d_from": d_from, "d_to": d_to}
    numbers |= {f"{name}_stride": stride for name, stride in zip("abc", strides, strict=True)}
    arguments = {"source": source, "target": target, **numbers, "fill": fill, "tile": TILE}
    return TritonLaunch(resize_kernel, (-(-num // TILE),), arguments, {"num_warps": 4})
