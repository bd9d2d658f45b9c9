"""The launch of the scaled GEMM. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import cluster_slots
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.scaled.shape import DEPTH, clusters_of, columns_of, dynamic_smem_bytes, rows_of
from constrint.kernels.gemm.scaled.source import source_of
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.cuda.tensor_map import TensorMap
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch

#: Threads of a warpgroup.
WARPGROUP = 128


@dataclass(frozen=True)
class ScaledCall:
    """One product: out = (a * scale_a) @ (b * scale_b) + bias.

    Args:
        a: (M, K) fp8, along K.
        b: (K, N) fp8, along K.
        scale_a: (M, 1) or (M, blocks of K) fp32, any strides.
        scale_b: (1, N) or (blocks of K, blocks of N) fp32, any strides.
        out: (M, N), contiguous rows.
        bias: (N,), or None.
        scratch: Allocates partial sums and counters.
    """

    a: Tensor
    b: Tensor
    scale_a: Tensor
    scale_b: Tensor
    out: Tensor
    bias: Tensor | None = None
    scratch: Scratch = TORCH_SCRATCH


def scaled_launches(gpu: GpuModel, call: ScaledCall, config: Mapping[str, int], *, in_blocks: bool) -> list[CudaLaunch]:
    """State the one launch of a call."""
    turned = bool(config["turned"])
    sides = (call.b.T, call.a) if turned else (call.a, call.b.T)
    rows, columns = sides
    out = call.out.T if turned else call.out
    # Of scales (columns, blocks of K) and (rows, blocks of K), whichever they are of.
    scales = (call.scale_b.T, call.scale_a) if turned else (call.scale_a, call.scale_b.T)
    tile_rows, tile_columns = int(rows_of(config)), int(columns_of(config))
    over_rows, over_columns = clusters_of(config)
    cluster = over_rows * over_columns
    # Tiles of a cluster, and the share of a side that a block loads.
    row_tiles = -(-rows.shape[0] // (tile_rows * over_rows))
    column_tiles = -(-columns.shape[0] // (tile_columns * over_columns))
    loaded = tile_rows // over_columns, tile_columns // over_rows
    slices = -(-rows.shape[1] // DEPTH)
    parts = min(config["split_k"], slices)
    bias = as_added(call.bias)
    ends = CompiledEpilogue(OUTPUTS[out.dtype], name_of(bias))
    in_pairs = call.out.stride(0) % 2 == 0 and out.data_ptr() % 8 == 0
    maps = (
        TensorMap(side, "uint8", (side.shape[0], side.shape[1]), side.stride(0), (width, DEPTH))
        for side, width in zip(sides, loaded, strict=True)
    )
    numbers = (rows.shape[0], columns.shape[0], row_tiles, column_tiles, parts, slices, in_pairs)
    memory: tuple[Tensor | None, Tensor | None] = (None, None)
    if parts > 1:
        tiles, device = row_tiles * column_tiles * cluster, out.device
        sums = call.scratch.empty((tiles * parts * tile_rows * tile_columns,), torch.float32, device)
        memory = sums, call.scratch.counters(tiles * config["consumers"], device)
    return [
        CudaLaunch(
            gpu=gpu,
            source=source_of(config, ends, in_blocks=in_blocks, splits=parts > 1),
            grid=(min(row_tiles * column_tiles * parts, int(cluster_slots(gpu, cluster))) * cluster,),
            block=((config["consumers"] + 1) * WARPGROUP,),
            arguments=(
                *maps,
                call.out,
                bias,
                *memory,
                *scales,
                *map(np.int32, numbers),
                *map(np.int64, (call.out.stride(0), *scales[0].stride(), *scales[1].stride())),
            ),
            smem_bytes=int(dynamic_smem_bytes(config)),
            cluster=cluster,
        )
    ]
