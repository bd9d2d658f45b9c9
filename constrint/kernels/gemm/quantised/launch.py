"""The launch of the quantised GEMM. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.quantised.shape import ROWS, THREADS, chunk_of, columns_of, padded
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch

if TYPE_CHECKING:
    from constrint.kernels.gemm.quantised.weights import QuantisedWeight

#: Folders of the sources: its own, and that of the epilogue which the kernels in CUDA C++ share.
FOLDERS = (Path(__file__).with_name("source"), Path(__file__).parents[1] / "cuda" / "source")
#: Vectors of X have 16 bytes.
VECTOR_BYTES = 16


def quantised_launches(
    gpu: GpuModel, x: Tensor, weight: QuantisedWeight, out: Tensor, config: Mapping[str, int],
    bias: Tensor | None = None, scratch: Scratch = TORCH_SCRATCH,
) -> list[CudaLaunch]:  # fmt: skip
    """State the one launch of out (M, N) = x (M, K) @ W^T + bias; rows of x are contiguous."""
    (m, k), n, bits = x.shape, weight.n, weight.bits
    rows, depth = padded(n, k, bits)
    chunk = int(chunk_of(config, bits))
    row_blocks, chunks = rows // ROWS, depth // chunk
    units = row_blocks * chunks
    blocks = min(units, gpu.device.sm_count * config["resident"])
    columns = columns_of(m)
    added = as_added(bias)
    ends = CompiledEpilogue(OUTPUTS[out.dtype], name_of(added))
    sums: Tensor | None = None
    counters: Tensor | None = None
    if units % blocks or units // blocks % chunks:
        # Two shares of rows of each block, its first and its last.
        sums = scratch.empty((2 * blocks * columns * ROWS,), torch.float32, x.device)
        counters = scratch.counters(row_blocks, x.device)
    pitch = x.stride(0)
    is_aligned = (m == 1 or pitch * 2 % VECTOR_BYTES == 0) and x.data_ptr() % VECTOR_BYTES == 0
    numbers = (m, n, k, row_blocks, chunks, weight.scales.shape[1], is_aligned)
    facts = (bits, config["tiles"], columns, weight.group, config["resident"], x.dtype == torch.bfloat16)
    return [
        CudaLaunch(
            gpu=gpu,
            source=_source_of(tuple(map(int, facts)), ends),
            grid=(blocks,),
            block=(THREADS,),
            arguments=(
                weight.packed,
                weight.scales,
                x,
                out,
                added,
                sums,
                counters,
                *map(np.int32, numbers),
                np.int64(pitch),
                np.int64(out.stride(0)),
            ),
        )
    ]


@lru_cache(maxsize=256)
def _source_of(facts: tuple[int, ...], ends: CompiledEpilogue) -> CudaSource:
    names = ("BITS", "TILES", "COLUMNS", "GROUP", "RESIDENT", "IS_BF16")
    macros = dict(zip(names, facts, strict=True)) | ends.macros
    text = (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")
    return CudaSource(text, "quantised_gemm", macros, ("-std=c++17",), FOLDERS, "quantised.cu", is_settled=True)
