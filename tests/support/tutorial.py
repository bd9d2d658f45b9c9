"""Lists of configurations of the tutorial's kernel: its own, and a grid such as people make of them."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Final

#: What the tutorial's names are called here.
RENAME: Final = {
    "BLOCK_SIZE_M": "tile_m",
    "BLOCK_SIZE_N": "tile_n",
    "BLOCK_SIZE_K": "tile_k",
    "GROUP_SIZE_M": "group_m",
}
#: Types of the kernel's arguments: fp16 operands, row-major, sizes and rows that are multiples of 16.
SIGNATURE: Final = "*fp16,*fp16,*fp16,i32:16,i32:16,i32:16,i32:16,1,i32:16,1,i32:16,1"
SIZES: Final[Mapping[str, Any]] = {"M": 4096, "N": 4096, "K": 4096}
#: Tiles (m, n, k), stages and warps of the tutorial's list for NVIDIA GPUs; the second half is meant for fp8.
_CUDA: Final = (
    *((128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4)),
    *((64, 128, 32, 4, 4), (128, 32, 32, 4, 4), (64, 32, 32, 5, 2), (32, 64, 32, 5, 2)),
    *((128, 256, 128, 3, 8), (256, 128, 128, 3, 8), (256, 64, 128, 4, 4), (64, 256, 128, 4, 4)),
    *((128, 128, 128, 4, 4), (128, 64, 64, 4, 4), (64, 128, 64, 4, 4), (128, 32, 64, 4, 4)),
)
#: The same for AMD GPUs.
_HIP: Final = tuple(
    (m, n, 64, 2, 8) for m, n in ((32, 32), (64, 32), (32, 64), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256))
)
_GRID: Final = tuple(product((64, 128, 256), (64, 128, 256), (32, 64, 128), (2, 3, 4, 5), (8,)))


def lists() -> dict[str, list[dict[str, int]]]:
    """The lists by name; a configuration maps the tutorial's names, `num_stages` and `num_warps` to values."""
    return {name: [_config(*row) for row in rows] for name, rows in _LISTS.items()}


_LISTS: Final[Mapping[str, tuple[tuple[int, ...], ...]]] = {"tutorial cuda": _CUDA, "tutorial hip": _HIP, "grid": _GRID}


def _config(m: int, n: int, k: int, stages: int, warps: int) -> dict[str, int]:
    tiles = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": 8}
    return {**tiles, "num_stages": stages, "num_warps": warps}
