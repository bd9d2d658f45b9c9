"""Launches of a variant: maps of both operands, units of work, memory for parts along K. Needs torch and a driver."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.gemm.wgmma.variant import DTYPES, LINE_BYTES, Variant, box_rows
from constrint.hwmodels import GpuModel
from constrint.kernels.launch.cuda import CudaLaunch

#: As `Sizes` in the source.
SIZES = np.dtype(
    [
        *((name, np.int32) for name in ("rows", "columns", "depth", "row_tiles", "column_tiles", "group")),
        *((name, np.int32) for name in ("whole", "parts")),
        ("stride", np.int64),
        ("is_aligned", np.int32),
        ("alpha", np.float32),
    ]
)
MAP = np.dtype("V128")
#: As `OutMaps` there.
OUT_MAPS = np.dtype([("whole", MAP), ("rest", MAP)])
#: The driver's names of the dtypes.
NAMES = {"fp16": "FLOAT16", "bf16": "BFLOAT16", "tf32": "TFLOAT32", "fp8": "UINT8", "int8": "UINT8"}
WARPGROUP = 128


@dataclass(frozen=True)
class Schedule:
    """How tiles are dealt out: rows of cluster tiles walked together, and parts along K.

    Args:
        group: Rows of cluster tiles that are walked together.
        parts: Parts along K of the tiles that are split.
        only_last: Whether only tiles of the last, unfilled wave are split.
    """

    group: int = 8
    parts: int = 1
    only_last: bool = False


def product_launch(
    gpu: GpuModel, variant: Variant, a: Any, b: Any, out: Any, dtype: str, schedule: Schedule, alpha: float = 1.0
) -> CudaLaunch:
    """The launch of out = alpha * a @ b.

    Args:
        gpu: The model of the device.
        variant: The kernel.
        a: (M, K), contiguous along either axis, rows at multiples of 16 bytes.
        b: (K, N), the same.
        out: (M, N), contiguous along N.
        dtype: The operands' dtype; fp32 tensors are tf32.
        schedule: How tiles are dealt out.
        alpha: Multiplies the product, but for int8.
    """
    import torch

    # The TMA unit stores 16 bytes at a time: where C's rows are not whole ones, it would write beside them.
    boxes = variant.buffers > 0 and DTYPES[dtype][0] == 2 and out.shape[1] % 8 == 0
    if not boxes:
        variant = replace(variant, buffers=0)
    sides = (b.T, a) if variant.turned else (a, b.T)
    (rows, depth), columns = sides[0].shape, sides[1].shape[0]
    k_major = [side.stride(1) == 1 for side in sides]
    shares = (variant.cluster_columns, variant.cluster_rows)
    widths = (variant.rows, variant.columns)
    maps = [_map_of(*which, dtype) for which in zip(sides, widths, shares, k_major, strict=True)]
    row_tiles = -(-rows // (variant.rows * variant.cluster_rows))
    column_tiles = -(-columns // (variant.columns * variant.cluster_columns))
    tiles, slots = row_tiles * column_tiles, gpu.device.sm_count // variant.cluster * variant.resident
    whole = tiles if schedule.parts == 1 else tiles // slots * slots if schedule.only_last else 0
    users = (tiles - whole) * variant.cluster * (1 if variant.in_turns else variant.consumers)
    sums = torch.int32 if dtype == "int8" else torch.float32
    workspace = torch.empty(users * schedule.parts * variant.sums * WARPGROUP, dtype=sums, device=a.device)
    counters = torch.zeros(max(users, 1), dtype=torch.int32, device=a.device)
    vector = 16 // out.element_size()
    is_aligned = out.data_ptr() % 16 == 0 and out.stride(0) % vector == 0 and out.shape[1] % vector == 0
    sizes = np.zeros((), SIZES)
    for name, value in {
        "rows": rows, "columns": columns, "depth": depth, "row_tiles": row_tiles, "column_tiles": column_tiles,
        "group": min(schedule.group, row_tiles), "whole": whole, "parts": schedule.parts, "stride": out.stride(0),
        "is_aligned": is_aligned, "alpha": alpha,
    }.items():  # fmt: skip
        sizes[name] = value
    units = whole + (tiles - whole) * schedule.parts
    smem = variant.smem_bytes(dtype, rows_k_major=k_major[0], columns_k_major=k_major[1])
    to = _boxes_of(out, variant, dtype) if boxes else out
    return CudaLaunch(
        gpu=gpu,
        source=variant.source(dtype, rows_k_major=k_major[0], columns_k_major=k_major[1]),
        grid=(min(units, slots) * variant.cluster,),
        block=((variant.consumers + 1) * WARPGROUP,),
        arguments=(*maps, to, workspace, counters, sizes[()]),
        smem_bytes=smem,
        cluster=variant.cluster,
    )


def _map_of(side: Any, width: int, shares: int, is_k_major: bool, dtype: str) -> np.void:
    """How the TMA unit loads an operand, (size, K): boxes of 128 bytes by rows, swizzled."""
    line = LINE_BYTES // DTYPES[dtype][0]
    rows = box_rows(width, shares) if is_k_major else line
    return _map(side if is_k_major else side.T, (line, rows), dtype)


def _boxes_of(out: Any, variant: Variant, dtype: str) -> np.void:
    """How the TMA unit stores results: boxes of 64 by 64, and what is left of a consumer's columns."""
    rest = variant.own[1] % 64 or 64
    whole, narrow = (64, 64), (64, rest) if variant.turned else (rest, 64)
    both = np.zeros((), OUT_MAPS)
    both["whole"] = _map(out, whole, dtype)
    both["rest"] = _map(out, narrow, dtype, is_swizzled=narrow[0] == 64)
    made: np.void = np.frombuffer(both.tobytes(), OUT_MAPS)[0]
    return made


def _map(matrix: Any, box: tuple[int, int], dtype: str, *, is_swizzled: bool = True) -> np.void:
    """The driver's map of a matrix that is contiguous along its second axis; a box is columns and rows."""
    from cuda.bindings import driver

    rows, columns = matrix.shape
    pitch = matrix.stride(0) * matrix.element_size()
    if matrix.data_ptr() % 16 or pitch % 16 or matrix.stride(1) != 1:
        raise ValueError(f"the TMA unit takes rows at multiples of 16 bytes, got strides {matrix.stride()}")
    swizzles, kinds = driver.CUtensorMapSwizzle, driver.CUtensorMapDataType
    error, made = driver.cuTensorMapEncodeTiled(
        getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{NAMES[dtype]}"),
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(pitch)],
        [driver.cuuint32_t(size) for size in box],
        [driver.cuuint32_t(1)] * 2,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzles.CU_TENSOR_MAP_SWIZZLE_128B if is_swizzled else swizzles.CU_TENSOR_MAP_SWIZZLE_NONE,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if error != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"no map of {tuple(matrix.shape)} with strides {matrix.stride()}: {error.name}")
    words = np.array([int(word) for word in made.opaque], dtype=np.uint64)
    made_map: np.void = np.frombuffer(words.tobytes(), MAP)[0]
    return made_map


def steps_of(depth: int, dtype: str) -> int:
    """Slices along K."""
    return math.ceil(depth * DTYPES[dtype][0] / LINE_BYTES)
