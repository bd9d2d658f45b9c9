"""Launches of a variant: how the operands lie, what the kernel is told, memory for shared tiles. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gemm.skinny.variant import ALIGNED, DTYPES, SHIFTED, STRIDED, VECTOR_BYTES, Layout, Variant, dealt
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda import CudaLaunch

#: As `Sizes` in the source.
SIZES = np.dtype(
    [
        *((name, np.int32) for name in ("rows", "small", "depth", "tiles", "steps")),
        ("alpha", np.float32),
        *((name, np.int64) for name in ("pitch", "small_row", "small_step", "out_row", "out_small")),
    ]
)
#: Steps times blocks are less.
MOST_COUNTED = 1 << 31


@dataclass(frozen=True)
class Product:
    """A product as the kernel sees it: `large` (rows, K) times `small` (small, K) transposed.

    Args:
        large, small: Both operands, as tensors of any strides.
        out: C, or its transpose, (rows, small).
        layout: How the operands lie.
        sizes: What the kernel is told, without what depends on the variant.
    """

    large: Any
    small: Any
    out: Any
    layout: Layout
    sizes: dict[str, float]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, small, depth)."""
        return (*self.out.shape, self.large.shape[1])


def product(a: Any, b: Any, out: Any, dtype: str, alpha: float = 1.0) -> Product:
    """See a product as one with a long and a short side; its short side is the shorter one of C.

    Args:
        a: (M, K).
        b: (K, N).
        out: (M, N), of any strides.
        dtype: The operands' dtype.
        alpha: Multiplies the product, but for int8.

    Raises:
        ValueError: Where the long operand is contiguous along neither axis, or something is empty.
    """
    is_turned = b.shape[1] >= a.shape[0]
    large, small, made = (b.T, a, out.T) if is_turned else (a, b.T, out)
    (rows, depth), width = large.shape, small.shape[0]
    if min(rows, depth, width) < 1:
        raise ValueError(f"nothing to multiply in {tuple(a.shape)} @ {tuple(b.shape)}")
    along_k, along_rows = large.stride(1) == 1 or depth == 1, large.stride(0) == 1 or rows == 1
    if not (along_k or along_rows):
        raise ValueError(f"the long operand is contiguous along neither axis: strides {large.stride()}")
    is_k_major = along_k and not (depth == 1 and along_rows)
    element = DTYPES[dtype]
    lines, pitch = (rows, large.stride(0)) if is_k_major else (depth, large.stride(1))
    is_along = small.stride(1) == 1 or depth == 1
    layout = Layout(
        is_k_major,
        _mode(large.data_ptr(), lines, pitch * element),
        _mode(small.data_ptr(), width, small.stride(0) * element) if is_along else STRIDED,
    )
    sizes: dict[str, float] = {
        "rows": rows, "small": width, "depth": depth, "alpha": alpha, "pitch": pitch, "small_row": small.stride(0),
        "small_step": 1 if is_along else small.stride(1), "out_row": made.stride(0), "out_small": made.stride(1),
    }  # fmt: skip
    return Product(large, small, made, layout, sizes)


def _mode(address: int, lines: int, pitch_bytes: int) -> int:
    """Whether all lines begin at multiples of 16 bytes."""
    return SHIFTED if address % VECTOR_BYTES or (lines > 1 and pitch_bytes % VECTOR_BYTES) else ALIGNED


def sizes_of(variant: Variant, dtype: str, which: Product) -> np.ndarray[tuple[()], np.dtype[np.void]]:
    """What the kernel is told of a product."""
    shares = dealt(variant, dtype, which.layout, which.shape)
    sizes = np.zeros((), SIZES)
    for name, value in {**which.sizes, "tiles": shares.tiles, "steps": shares.steps}.items():
        sizes[name] = value
    return sizes


def memory_of(variant: Variant, dtype: str, which: Product, blocks: int) -> tuple[int, int]:
    """Sums that blocks leave to each other, and counters of tiles."""
    shares = dealt(variant, dtype, which.layout, which.shape)
    if shares.is_whole(blocks):
        return 1, 1
    return 2 * blocks * shares.columns * variant.rows(
        dtype, which.layout
    ) * variant.small, shares.tiles * shares.columns


def product_launch(gpu: GpuModel, variant: Variant, which: Product, dtype: str, blocks: int) -> CudaLaunch:
    """The launch of a product with so many blocks, or with as many as there are steps if that is fewer.

    Raises:
        ValueError: Where there are more steps than the kernel counts.
    """
    import torch

    shares = dealt(variant, dtype, which.layout, which.shape)
    blocks = min(blocks, shares.units)
    if (shares.units + 1) * (blocks + 1) >= MOST_COUNTED:
        raise ValueError(f"{shares.units} steps among {blocks} blocks are too many; take fewer blocks")
    num_sums, num_counters = memory_of(variant, dtype, which, blocks)
    kind = torch.int32 if dtype == "int8" else torch.float32
    return CudaLaunch(
        gpu=gpu,
        source=variant.source(dtype, which.layout),
        grid=(blocks, shares.columns),
        block=(variant.threads,),
        arguments=(
            which.large,
            which.small,
            which.out,
            torch.empty(num_sums, dtype=kind, device=which.out.device),
            torch.zeros(num_counters, dtype=torch.int32, device=which.out.device),
            sizes_of(variant, dtype, which)[()],
        ),
        smem_bytes=variant.smem_bytes(dtype, which.layout),
    )
