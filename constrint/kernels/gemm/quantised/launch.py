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
from constrint.kernels.gemm.quantised.shape import READ, WARP, columns_of, padded, smem_bytes, tiles_of
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch

if TYPE_CHECKING:
    from constrint.kernels.gemm.quantised.weights import QuantisedWeight

#: Folders of the sources: its own, and that of the epilogue which the kernels in CUDA C++ share.
FOLDERS = (Path(__file__).with_name("source"), Path(__file__).parents[1] / "cuda" / "source")
#: Four bits of each half of a word.
MASK = 0x000F000F
#: Whether a kernel is compiled for the length of a row, so that it knows the distances of tiles; where that spills, the
#: one that reads the length is used.
KNOWS_ROWS = True
UNKNOWN_ROWS = {"READS": 0, "GROUPS": 0, "IS_WHOLE": 0}
#: Parameters that the kernel is compiled for.
PARAMETERS = ("rows", "tiles", "warps", "resident", "split_k", "stages", "x_turns", "of_sums")
#: Vectors of X have 16 bytes.
VECTOR_BYTES = 16


def quantised_launches(
    gpu: GpuModel, x: Tensor, weight: QuantisedWeight, out: Tensor, config: Mapping[str, int],
    bias: Tensor | None = None,
) -> list[CudaLaunch]:  # fmt: skip
    """State the one launch of out (M, N) = x (M, K) @ W^T + bias; rows of x are contiguous."""
    (m, k), n, bits = x.shape, weight.n, weight.bits
    _, depth = padded(n, k, bits)
    tiles, split = tiles_of(n), config["split_k"]
    blocks = min(tiles, max(gpu.device.sm_count * config["resident"] // split, 1))
    added = as_added(bias)
    ends = CompiledEpilogue(OUTPUTS[out.dtype], name_of(added))
    pitch = x.stride(0)
    is_aligned = (m == 1 or pitch * 2 % VECTOR_BYTES == 0) and x.data_ptr() % VECTOR_BYTES == 0
    numbers = (m, n, k, tiles, depth // READ[bits], weight.scales.shape[1], is_aligned)
    facts = {"BITS": bits, "COLUMNS": columns_of(m), "GROUP": weight.group, "IS_BF16": x.dtype == torch.bfloat16}
    reads, groups = numbers[4:6]
    facts |= {"READS": reads, "GROUPS": groups, "IS_WHOLE": is_aligned and k == depth} if KNOWS_ROWS else UNKNOWN_ROWS
    facts |= {name.upper(): config[name] for name in PARAMETERS}
    return [
        CudaLaunch(
            gpu=gpu,
            source=_source_of(tuple((name, int(fact)) for name, fact in facts.items()), ends),
            grid=(blocks * split,),
            block=(WARP * config["warps"],),
            arguments=(
                weight.packed,
                weight.scales,
                x,
                out,
                added,
                *map(np.int32, numbers),
                np.uint32(MASK),
                np.int64(pitch),
                np.int64(out.stride(0)),
            ),
            smem_bytes=int(smem_bytes(config, m, bits)),
            cluster=split,
        )
    ]


@lru_cache(maxsize=256)
def _source_of(facts: tuple[tuple[str, int], ...], ends: CompiledEpilogue) -> CudaSource:
    macros = dict(facts) | ends.macros
    text = (FOLDERS[0] / "kernel.cu").read_text(encoding="utf-8")
    sparing = UNKNOWN_ROWS if macros["READS"] else {}
    return CudaSource(
        text, "quantised_gemm", macros, ("-std=c++17",), FOLDERS, "quantised.cu", is_settled=True, sparing=sparing
    )
