"""The gradient of weights in several heads as one product for all gates: partial sums per block, then their sum.

It is one helper product of the backward pass, so its blocks come from the rules below, each with its reason; nothing is
searched. `benchmarks/rnn/weights.py` times other blocks, and PyTorch's products. Launches need triton.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.plan.scratch import Scratch
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.rnn.cells import RecurrentCell
from constrint.kernels.rnn.fused import num_sms

#: Elements that a program of the sum has, parts that it reads at a time, and its warps.
SUM_TILE, SUM_PARTS, SUM_WARPS = 256, 16, 4
#: Rows and columns of a tile: a library's product over all steps has one block per tile of a head, and no more.
LIBRARY_TILE = 128
#: With more of those tiles it keeps a GPU busy by itself; with fewer ones a long sum is left to a few SMs. On an H200
#: the kernel took 0.6 of the library's time with 16 of them, and 1.6 with 50 (`benchmarks/rnn/weights.py`).
MOST_LIBRARY_TILES = 32
#: Units of a head have to be a multiple of this: rows then begin at vectors of 16 bytes, which are copied as one.
ALIGNED_UNITS = 8
#: Units of h that a block takes at most; a head's whole h up to here, so that slots are read once.
MOST_TILE_N = 128
#: Least rows and columns of a tile, for the matrix instructions.
LEAST_TILE = 16
#: Sums in fp32 that a block of 8 warps holds: 64 registers a thread.
MOST_SUMS = 256 * 64
#: Steps that a block takes at a time.
TILE_K = 32
#: Stages, at most: following steps are copied while one is computed, as far as shared memory holds them.
MOST_STAGES = 4
#: Blocks that an SM has at a time: one of them copies while another one waits.
BLOCKS_PER_SM = 2
#: Least steps of a part, in units of `TILE_K`: the sum of more parts would take longer than they save.
LEAST_PART_TILES = 8
#: Shared memory of a block where there is no model of the device: every GPU has it.
USUAL_SMEM_BYTES = 48 * 1024
#: Beside the stages: ones, for the sum over b.
OTHER_SMEM_BYTES = 4096


@dataclass(frozen=True)
class WeightTiles:
    """The tile of a block, and the resources that it uses.

    Args:
        m: Units of gates.
        n: Units of h.
        k: Steps at a time.
        num_warps: Its warps.
        num_stages: Steps that are in shared memory, in units of `k`.
        blocks_per_sm: Blocks that an SM is to have at a time.
    """

    m: int
    n: int
    k: int
    num_warps: int
    num_stages: int
    blocks_per_sm: int = BLOCKS_PER_SM


def is_one_product(heads: int, dim: int, element_bytes: int, gpu: GpuModel | None) -> bool:
    """Whether the gradient of r is computed by the kernel of this folder: in 16 bits, of several heads, as above.

    Elsewhere it is left to the library, as on GPUs that copy into shared memory through registers, where stages do not
    hide the copies (and on Turing Triton's products spill).
    """
    if gpu is None or not gpu.traits.has_async_copies:
        return False
    tiles = heads * (-(-dim // LIBRARY_TILE)) ** 2
    return heads > 1 and element_bytes == 2 and dim % ALIGNED_UNITS == 0 and tiles <= MOST_LIBRARY_TILES


def tiles_of(kind: RecurrentCell, dim: int, gpu: GpuModel | None) -> WeightTiles:
    """The tiles of a layer on a GPU: all units of h, the gates that registers hold, and the stages that fit."""
    n = min(MOST_TILE_N, _power_of_two(dim))
    m = min(MOST_SUMS // n, 2 * MOST_TILE_N, _power_of_two(kind.num_gates * dim))
    smem_bytes = USUAL_SMEM_BYTES if gpu is None else gpu.sm.max_smem_bytes_per_block
    free_bytes = smem_bytes // BLOCKS_PER_SM - OTHER_SMEM_BYTES
    stages = min(MOST_STAGES, max(1, free_bytes // (2 * TILE_K * (m + n))))
    return WeightTiles(m, n, TILE_K, num_warps=8 if m * n > MOST_SUMS // 2 else 4, num_stages=stages)


def num_tiles(kind: RecurrentCell, dim: int, tiles: WeightTiles) -> int:
    """WeightTiles of a head."""
    return -(-kind.num_gates * dim // tiles.m) * -(-dim // tiles.n)


def part_rows(tiles: WeightTiles, rows: int, num_blocks: int, num_sms: int) -> int:
    """Steps of a part, so that all blocks are resident together; a part's tiles of all heads are `num_blocks`."""
    most_parts = max(1, tiles.blocks_per_sm * num_sms // num_blocks)
    steps = -(-rows // tiles.k)
    return tiles.k * max(-(-steps // most_parts), LEAST_PART_TILES)


def _power_of_two(number: int) -> int:
    """The least power of two that is no less, and no less than a tile."""
    return max(LEAST_TILE, 1 << (number - 1).bit_length())


def weight_launches(
    kind: RecurrentCell,
    slots: Tensor,  # (B, T, slots, N, D)
    h: Tensor,  # (B, T, N, D)
    initial: Tensor | None,  # (S, B, N, D)
    r: Tensor,  # (G, N, D, D)
    b: Tensor | None,  # (G, N, D)
    gpu: GpuModel | None,
    scratch: Scratch,
    tiles: WeightTiles | None = None,
) -> Sequence[TritonLaunch]:
    """The launches that write the gradients of r and b.

    Args:
        kind: The cell.
        slots: Gradients of the slots, contiguous.
        h: States after each step, contiguous.
        initial: States before the first step in fp32, of which h is the first, contiguous; None for zeros.
        r: Written: the gradient of r.
        b: Written: the gradient of b; None where it is not needed.
        gpu: The hardware model; None where there is none of the device.
        scratch: Gives the memory of the parts.
        tiles: The tiles of blocks; by default those of `tiles_of`.
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
