"""Where the gradient of weights in several heads is one product for all gates, and how that is cut into blocks.

It is one helper product of the backward pass, so its blocks come from the rules below, each with its reason; nothing is
searched. `benchmarks/rnn/weights.py` of commit befc2ab timed other blocks, and the products of PyTorch's.
"""

from __future__ import annotations

from dataclasses import dataclass

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.cells import Cell

#: A library's product over all steps has a block for each tile of so many rows and columns of a head, and no more.
LIBRARY_TILE = 128
#: With more of those tiles it keeps a GPU busy by itself; with fewer ones a long sum is left to a few SMs. On an H200
#: the kernel took 0.6 of the library's time with 16 of them, and 1.6 with 50 (`rnn_weights.csv`).
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
#: The steps that follow are copied while one is computed: so many at most, and as many as shared memory holds.
MOST_STAGES = 4
#: Blocks that an SM has at a time: one of them copies while another one waits.
BLOCKS_PER_SM = 2
#: A part has so many times `TILE_K` steps at least: the sum of more parts would take longer than they save.
LEAST_PART_TILES = 8
#: Shared memory of a block where there is no model of the device: what every GPU has.
USUAL_SMEM_BYTES = 48 * 1024
#: Beside the stages: ones, for the sum over b.
OTHER_SMEM_BYTES = 4096


@dataclass(frozen=True)
class Tiles:
    """What a block computes.

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


def tiles_of(kind: Cell, dim: int, gpu: GpuModel | None) -> Tiles:
    """The tiles of a layer on a GPU: all units of h, as many of the gates as registers hold, and stages that fit."""
    n = min(MOST_TILE_N, _power_of_two(dim))
    m = min(MOST_SUMS // n, 2 * MOST_TILE_N, _power_of_two(kind.num_gates * dim))
    smem_bytes = USUAL_SMEM_BYTES if gpu is None else gpu.sm.max_smem_bytes_per_block
    free_bytes = smem_bytes // BLOCKS_PER_SM - OTHER_SMEM_BYTES
    stages = min(MOST_STAGES, max(1, free_bytes // (2 * TILE_K * (m + n))))
    return Tiles(m, n, TILE_K, num_warps=8 if m * n > MOST_SUMS // 2 else 4, num_stages=stages)


def num_tiles(kind: Cell, dim: int, tiles: Tiles) -> int:
    """Tiles of a head."""
    return -(-kind.num_gates * dim // tiles.m) * -(-dim // tiles.n)


def part_rows(tiles: Tiles, rows: int, num_blocks: int, num_sms: int) -> int:
    """Steps of a part, so that all blocks are resident together; a part's tiles of all heads are `num_blocks`."""
    most_parts = max(1, tiles.blocks_per_sm * num_sms // num_blocks)
    steps = -(-rows // tiles.k)
    return tiles.k * max(-(-steps // most_parts), LEAST_PART_TILES)


def _power_of_two(number: int) -> int:
    """The least power of two that is no less, and no less than a tile."""
    return max(LEAST_TILE, 1 << (number - 1).bit_length())
