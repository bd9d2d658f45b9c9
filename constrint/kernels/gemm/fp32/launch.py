"""The launches of the fp32 GEMM: parts of one operand, then the product. Needs torch and, for the parts, triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.fp32.shape import DEPTH, SLAB, columns_of, dynamic_smem_bytes, rows_of
from constrint.kernels.gemm.fp32.source import source_of
from constrint.kernels.gemm.launch import GemmCall
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.cuda.tensor_map import TensorMap
from constrint.kernels.launch.triton import TritonLaunch

#: Threads of a warpgroup.
WARPGROUP = 128
#: Columns and depth of the tile that one block splits, and parts of a number.
TILE_COLUMNS, TILE_K, PARTS = 32, 64, 3


def fp32_launches(call: GemmCall, config: Mapping[str, int]) -> list[Any]:
    """State the launches of a call: the split of wgmma's columns where fp32 keeps its precision, and the product.

    Raises:
        UsageError: For a batch, operands that are not fp32, a GPU without a model, and rows that the TMA unit cannot
            load.
    """
    gpu = call.machine.gpu
    if gpu is None:
        raise UsageError("gemm.fp32 needs a model of the device.")
    if call.a.shape[0] != 1 or call.a.dtype != torch.float32 or call.out.dtype not in OUTPUTS:
        raise UsageError(f"gemm.fp32 is for one product of fp32 operands, got {call.a.dtype} {tuple(call.a.shape)}.")
    if not call.out.numel() or not call.a.shape[2]:
        raise UsageError("gemm.fp32 computes no product without elements.")
    is_three_pass, turned = call.precision == "tf32x3", bool(config["turned"])
    a, b, out, end = call.a[0], call.b[0].T, call.out[0], call.epilogue
    rows, columns = (b, a) if turned else (a, b)
    is_k_major = rows.stride(1) == 1
    if not is_k_major and rows.stride(0) != 1:
        raise UsageError(f"gemm.fp32 loads rows whose elements follow each other, got strides {rows.stride()}.")
    if out.stride(1) != 1 and out.shape[1] > 1:
        raise UsageError(f"gemm.fp32 stores rows whose elements follow each other, got strides {out.stride()}.")
    if not is_three_pass and (is_k_major or columns.stride(1) != 1):
        raise UsageError("gemm.fp32 multiplies tf32 where one operand lies across K and the other one along it.")
    (num_rows, depth), num_columns = rows.shape, columns.shape[0]
    tile_rows, tile_columns = int(rows_of(config)), int(columns_of(config))
    row_tiles, column_tiles = -(-num_rows // tile_rows), -(-num_columns // tile_columns)
    slices = -(-depth // DEPTH)
    padded, parts = slices * DEPTH, min(config["split_k"], slices)
    units = row_tiles * column_tiles * parts
    bias, source = as_added(end.bias), as_added(end.source)
    ends = CompiledEpilogue(OUTPUTS[call.out.dtype], name_of(bias), name_of(source), end.activation)
    splitting, loaded = _columns(call, columns, padded, is_three_pass=is_three_pass, in_fours=is_k_major)
    element, of_columns = ("fp32", "bf16") if is_three_pass else ("tf32", "tf32")
    lies, box = (rows, (tile_rows, DEPTH)) if is_k_major else (rows.T, (DEPTH, SLAB))
    maps = (
        TensorMap(rows, element, (lies.shape[0], lies.shape[1]), lies.stride(0), box),
        TensorMap(
            loaded,
            of_columns,
            (loaded.shape[0], loaded.shape[1]),
            loaded.stride(0),
            (tile_columns, DEPTH),
            64 if is_three_pass else 128,
        ),
    )
    source_strides = (0, 0) if source is None else source.stride()[1:]
    strides = (out.stride(0), *source_strides, *rows.stride(), *columns.stride())
    launch = CudaLaunch(
        gpu=gpu,
        source=source_of(config, ends, is_three_pass=is_three_pass, is_k_major=is_k_major, splits=parts > 1),
        grid=(min(units, gpu.device.sm_count),),
        block=((config["consumers"] + 1) * WARPGROUP,),
        arguments=(
            *maps,
            out,
            bias,
            source,
            *_memory(call, config, row_tiles * column_tiles, parts),
            rows,
            columns,
            *map(np.int32, (num_rows, num_columns, depth, padded, row_tiles, column_tiles, parts, slices)),
            *map(np.int64, strides),
            np.float32(end.alpha),
            np.float32(end.beta),
        ),
        smem_bytes=int(dynamic_smem_bytes(config, is_three_pass=is_three_pass)),
    )
    return [*splitting, launch]


def _columns(
    call: GemmCall, columns: Tensor, padded: int, *, is_three_pass: bool, in_fours: bool
) -> tuple[list[TritonLaunch], Tensor]:
    """The launch that splits wgmma's columns, and what it writes; nothing and the columns themselves for tf32."""
    if not is_three_pass:
        return [], columns
    from constrint.kernels.gemm.fp32.kernel import split_columns_kernel

    number, depth = columns.shape
    target = call.scratch.empty((number, PARTS * padded), torch.bfloat16, columns.device)
    arguments: dict[str, Any] = {"source_ptr": columns, "target_ptr": target, "columns": number, "depth": depth}
    arguments |= {"stride_column": columns.stride(0), "stride_k": columns.stride(1), "padded": padded}
    arguments |= {"in_fours": in_fours, "tile_columns": TILE_COLUMNS, "tile_k": TILE_K}
    blocks = -(-number // TILE_COLUMNS) * -(-padded // TILE_K)
    return [TritonLaunch(split_columns_kernel, (blocks,), arguments, {})], target


def _memory(call: GemmCall, config: Mapping[str, int], tiles: int, parts: int) -> tuple[Tensor | None, Tensor | None]:
    """Partial sums of every part, and a counter for every consumer of a tile; None where tiles are whole."""
    if parts == 1:
        return None, None
    sums = tiles * parts * config["tile_m"] * config["tile_n"]
    counters = call.scratch.counters(tiles * config["consumers"], call.a.device)
    return call.scratch.empty((sums,), torch.float32, call.a.device), counters
