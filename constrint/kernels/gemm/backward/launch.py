"""Launches of the pointwise kernels of training. Needs torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.units import row_hint
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.triton import TritonLaunch

#: Elements of a block's tile: four warps load 16 elements a thread, in pieces of 16 bytes along a row.
TILE_ELEMENTS, NUM_WARPS = 2048, 4
#: Columns of a block, at most and at least.
MOST_COLUMNS, LEAST_COLUMNS = 128, 16
#: Blocks per SM over which rows are dealt: as many as are resident at once, so that all end at about the same time.
BLOCKS_PER_SM = 6
#: Blocks along the second grid dimension, at most.
MOST_CHUNKS = 65535
#: Elements of a tile of the activation alone.
FLAT_ELEMENTS = 2048


def gradient_launch(
    gradient: Tensor,
    saved: Tensor | None,
    activation: str | None,
    out: Tensor | None,
    sums: Tensor | None,
    sm_count: int,
    scratch: Scratch,
) -> TritonLaunch:
    """The launch that makes the gradient before the activation, and its sums over rows.

    Args:
        gradient: (M, N), any strides.
        saved: (M, N), contiguous: the activation's argument, or its result for relu; None without an activation.
        activation: A key of `reference.ACTIVATIONS`, or None.
        out: (M, N), contiguous, for the gradient before the activation; None where it is not needed.
        sums: (N,), for the sums; None where they are not needed.
        sm_count: SMs of the device.
        scratch: Allocates partial sums and counters.
    """
    from constrint.kernels.gemm.backward.kernel import gradient_kernel

    m, n = gradient.shape
    tile_n = min(MOST_COLUMNS, max(LEAST_COLUMNS, 1 << (n - 1).bit_length()))
    tile_m = TILE_ELEMENTS // tile_n
    column_tiles, row_tiles = -(-n // tile_n), -(-m // tile_m)
    most_chunks = MOST_CHUNKS if sums is None else max(1, BLOCKS_PER_SM * sm_count // column_tiles)
    tiles_per_chunk = -(-row_tiles // min(row_tiles, most_chunks))
    num_chunks = -(-row_tiles // tiles_per_chunk)
    partials = counters = None
    if sums is not None and num_chunks > 1:
        partials = scratch.empty((num_chunks, n), torch.float32, gradient.device)
        counters = scratch.counters(column_tiles, gradient.device)
    arguments: dict[str, Any] = {"gradient_ptr": gradient, "saved_ptr": saved, "out_ptr": out, "sums_ptr": sums}
    arguments |= {"partials_ptr": partials, "counters_ptr": counters, "m": m, "n": n}
    arguments |= {"stride_gm": gradient.stride(0), "stride_gn": gradient.stride(1)}
    arguments |= {"num_chunks": num_chunks, "tiles_per_chunk": tiles_per_chunk, "activation": activation}
    arguments |= {"tile_m": tile_m, "tile_n": tile_n}
    by_rows = gradient.stride(1) == 1
    arguments |= {"hint": row_hint(n), "hint_g": row_hint(gradient.stride(0)) if by_rows else 1}
    return TritonLaunch(gradient_kernel, (column_tiles, num_chunks), arguments, {"num_warps": NUM_WARPS})


def activation_launch(z: Tensor, activation: str, out: Tensor, sm_count: int) -> TritonLaunch:
    """The launch that computes activation(z), both contiguous and of the same number of elements."""
    from constrint.kernels.gemm.backward.kernel import activation_kernel

    num = z.numel()
    num_tiles = -(-num // FLAT_ELEMENTS)
    arguments = {"z_ptr": z, "out_ptr": out, "num": num, "num_tiles": num_tiles}
    arguments |= {"tile": FLAT_ELEMENTS, "activation": activation}
    # Twice the resident blocks: those that are done early take what is left.
    grid = (min(num_tiles, 16 * sm_count),)
    return TritonLaunch(activation_kernel, grid, arguments, {"num_warps": NUM_WARPS})
