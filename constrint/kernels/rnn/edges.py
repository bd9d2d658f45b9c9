"""Copies before and after a time loop: padded heads, last states, and the h that enters each step.

They are Triton kernels (`triton/kernel_edges.py`, `resize.py`), whatever computes the steps between. Needs triton.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.interface import BackwardTensors, ForwardOutputs, RnnInputs
from constrint.select.spec import Launch

#: Elements that one program copies.
TILE = 1024


def ends_launch(outputs: ForwardOutputs) -> TritonLaunch:
    """Copy the states after the last step into `end_h` and `end_rest`."""
    from constrint.kernels.rnn.triton.kernel_edges import ends_kernel

    num_states, batch, time, heads, dim = outputs.states.shape
    sizes = {"batch": batch, "time": time, "row_elements": heads * dim, "tile": TILE}
    rest = outputs.end_h if num_states == 1 else outputs.end_rest
    tensors = {"states": outputs.states, "end_h": outputs.end_h, "end_rest": rest}
    grid = (num_states * batch, -(-heads * dim // TILE))
    return TritonLaunch(ends_kernel, grid, {**tensors, **sizes}, {"num_warps": 4})


def before_launch(inputs: RnnInputs, tensors: BackwardTensors) -> TritonLaunch:
    """Copy the h that enters each step into `before`."""
    from constrint.kernels.rnn.triton.kernel_edges import before_kernel

    _, batch, time, heads, dim = tensors.states.shape
    blocks = -(-time * heads * dim // TILE)
    sizes = {"num_blocks": blocks, "time": time, "row_elements": heads * dim, "tile": TILE}
    arguments = {"states": tensors.states, "initial": inputs.initial, "before": tensors.before}
    return TritonLaunch(before_kernel, (batch * blocks,), {**arguments, **sizes}, {"num_warps": 4})


class HeadPadding:
    """Tensors with padded heads, and the launches that fill them before a time loop and crop them after it.

    Added units have no input and no recurrence, so their h stays zero in every cell. Where `dim` is the heads' own
    dimension, tensors pass unchanged and no launch is added.

    Args:
        dim: Head dimension that the kernels run.
        inputs: The operands; contiguous but for the first two strides of wx.
        scratch: Provides the memory of the padded tensors.
    """

    def __init__(self, dim: int, inputs: RnnInputs, scratch: Scratch) -> None:
        self._dim, self._is_idle, self._scratch = dim, dim == inputs.wx.shape[-1], scratch
        self.before: list[Launch] = []
        self.after: list[Launch] = []

    def weights(self, r: Tensor) -> Tensor:
        """Recurrent weights (G, N, D, D), padded with zeros in both dimensions."""
        if self._is_idle:
            return r
        padded = self._empty((*r.shape[:-2], self._dim, self._dim), r)
        self.before.append(resize_weights_launch(r, padded))
        return padded

    def read(self, tensor: Any, fill: float = 0.0) -> Any:
        """A tensor (..., D) that the loop reads, padded with `fill`; None stays None."""
        if tensor is None or self._is_idle:
            return tensor
        padded = self._empty((*tensor.shape[:-1], self._dim), tensor)
        self.before.append(resize_launch(tensor, padded, fill))
        return padded

    def saved_states(self, states: Tensor, kind: RecurrentCell) -> Tensor:
        """All states (S, B, T, N, D), padded with the idle value of each state."""
        if self._is_idle:
            return states
        padded = self._empty((*states.shape[:-1], self._dim), states)
        for state, value in enumerate(kind.idle_states):
            self.before.append(resize_launch(states[state], padded[state], value))
        return padded

    def written(self, tensor: Any) -> Any:
        """Memory for a tensor that the loop writes, cropped into the tensor afterwards; None stays None."""
        if tensor is None or self._is_idle:
            return tensor
        padded = self._empty((*tensor.shape[:-1], self._dim), tensor)
        self.after.append(resize_launch(padded, tensor))
        return padded

    def _empty(self, shape: Sequence[int], like: Tensor) -> Tensor:
        return self._scratch.empty(tuple(shape), like.dtype, like.device)


def resize_launch(source: Tensor, target: Tensor, fill: float = 0.0) -> TritonLaunch:
    """Copy a tensor into a contiguous one whose last dimension is longer or shorter, with `fill` beyond the source.

    Args:
        source: (B, T, ..., D); all but the first two strides are those of a contiguous tensor.
        target: (B, T, ..., D').
        fill: Value of elements that the source does not have.
    """
    b, t, *inner, d = source.shape if source.dim() > 2 else (1, 1, *source.shape)
    b_stride, t_stride = source.stride()[:2] if source.dim() > 2 else (0, 0)
    rows = math.prod(inner)
    return _resize(source, target, (b, t, (rows, rows), (d, target.shape[-1])), (b_stride, t_stride, d), fill)


def resize_weights_launch(source: Tensor, target: Tensor) -> TritonLaunch:
    """Copy contiguous weights (..., D, D) into (..., D', D'), with zeros beyond the source."""
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
