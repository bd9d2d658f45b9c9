"""Launches at the edges of a sequence: the last states, and the h that enters each step; see `triton/kernel_edges.py`.

They are Triton kernels, whatever computes the steps between. Needs triton.
"""

from __future__ import annotations

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
