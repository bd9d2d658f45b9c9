"""The launches that give the gradients of r and b of a backward call: parts of the sums, and their sum.

Needs triton.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.cells import Cell
from constrint.kernels.rnn.fused import num_sms
from constrint.kernels.rnn.weights.shape import Tiles, num_tiles, part_rows, tiles_of

#: Elements that a program of the sum has, parts that it reads at a time, and its warps.
SUM_TILE, SUM_PARTS, SUM_WARPS = 256, 16, 4


def weight_launches(
    kind: Cell,
    slots: Tensor,  # (B, T, slots, N, D)
    h: Tensor,  # (B, T, N, D)
    initial: Tensor | None,  # (S, B, N, D)
    r: Tensor,  # (G, N, D, D)
    b: Tensor | None,  # (G, N, D)
    gpu: GpuModel | None,
    scratch: Scratch,
    tiles: Tiles | None = None,
) -> Sequence[TritonLaunch]:
    """The launches that write the gradients of r and b.

    Args:
        kind: The cell.
        slots: Gradients of the slots, contiguous.
        h: States after each step, contiguous.
        initial: States before the first step in fp32, of which h is the first, contiguous; None for zeros.
        r: Written: the gradient of r.
        b: Written: the gradient of b; None where it is not wanted.
        gpu: The hardware model; None where there is none of the device.
        scratch: Gives the memory of the parts.
        tiles: What a block computes; by default what `tiles_of` says.
    """
    from constrint.kernels.rnn.weights.kernel import parts_kernel, sum_kernel

    batch, time, _, heads, dim = slots.shape
    tiles = tiles or tiles_of(kind, dim, gpu)
    of_head = num_tiles(kind, dim, tiles)
    sms = num_sms(slots.device, 1 if gpu is None else gpu.device.sm_count)
    rows = part_rows(tiles, batch * time, of_head * heads, sms)
    num_parts = -(-batch * time // rows)
    num_weights, num_biases = kind.num_gates * heads * dim * dim, kind.num_gates * heads * dim
    parts = scratch.empty((num_parts, num_weights + num_biases), torch.float32, slots.device)
    sizes = {"batch": batch, "time": time, "part_rows": rows, "num_parts": num_parts, "heads": heads, "dim": dim}
    cell = {"num_gates": kind.num_gates, "num_slots": kind.num_slots, "has_bias": b is not None}
    blocks = {"tile_m": tiles.m, "tile_n": tiles.n, "tile_k": tiles.k}
    tensors = {"slots": slots, "h": h, "initial": initial, "parts": parts}
    options = {"num_warps": tiles.num_warps, "num_stages": tiles.num_stages}
    summed = {"parts": parts, "r": r, "b": b, "num_parts": num_parts}
    summed |= {"num_weights": num_weights, "num_biases": num_biases, "at_once": SUM_PARTS, "tile": SUM_TILE}
    summed_elements = num_weights + (0 if b is None else num_biases)
    return [
        TritonLaunch(parts_kernel, (of_head, heads, num_parts), {**tensors, **sizes, **cell, **blocks}, options),
        TritonLaunch(sum_kernel, (-(-summed_elements // SUM_TILE),), summed, {"num_warps": SUM_WARPS}),
    ]
