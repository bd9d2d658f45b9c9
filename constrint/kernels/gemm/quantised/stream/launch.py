"""The launch of the streaming quantised GEMM. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.quantised.launch import FOLDERS, MASK, VECTOR_BYTES
from constrint.kernels.gemm.quantised.shape import READ, columns_of, padded, tiles_of
from constrint.kernels.gemm.quantised.stream.shape import (
    PARAMETERS,
    VARIABLES,
    slots_of,
    smem_bytes,
    threads_of,
    x_rows_of,
)
from constrint.kernels.launch.cuda.nvrtc import CudaSource
from constrint.kernels.launch.cuda.source_spec import CudaLaunch

if TYPE_CHECKING:
    from constrint.kernels.gemm.quantised.weights import QuantisedWeight


def stream_launches(
    gpu: GpuModel, x: Tensor, weight: QuantisedWeight, out: Tensor, config: Mapping[str, int],
    bias: Tensor | None = None,
) -> list[CudaLaunch]:  # fmt: skip
    """State the one launch of out (M, N) = x (M, K) @ W^T + bias; rows of x are contiguous."""
    (m, k), n, bits, group = x.shape, weight.n, weight.bits, weight.group
    _, depth = padded(n, k, bits)
    tiles, split = tiles_of(n), config["split_k"]
    blocks = min(tiles, slots_of(gpu, VARIABLES["split_k"]).value(config))
    added = as_added(bias)
    ends = CompiledEpilogue(OUTPUTS[out.dtype], name_of(added))
    pitch = x.stride(0)
    is_aligned = (m == 1 or pitch * 2 % VECTOR_BYTES == 0) and x.data_ptr() % VECTOR_BYTES == 0
    numbers = (m, n, k, tiles, depth // READ[bits], weight.scales.shape[1], is_aligned)
    facts = {"BITS": bits, "GROUP": group, "IS_BF16": x.dtype == torch.bfloat16}
    facts |= {"COLUMNS": columns_of(m), "X_ROWS": x_rows_of(m)}
    facts |= {"ONE_PASS": config["rows"] * config["row_warps"] >= -(-tiles // blocks)}
    facts |= {name.upper(): config[name] for name in PARAMETERS}
    return [
        CudaLaunch(
            gpu=gpu,
            source=_source_of(tuple((name, int(fact)) for name, fact in facts.items()), ends),
            grid=(blocks * split,),
            block=(threads_of(config),),
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
            smem_bytes=smem_bytes(gpu, VARIABLES, m, n, bits, group).value(config),
            cluster=split,
        )
    ]


@lru_cache(maxsize=256)
def _source_of(facts: tuple[tuple[str, int], ...], ends: CompiledEpilogue) -> CudaSource:
    text = (FOLDERS[0] / "stream.cu").read_text(encoding="utf-8")
    macros = dict(facts) | ends.macros
    return CudaSource(
        text, "quantised_gemm_stream", macros, ("-std=c++17",), FOLDERS, "quantised_stream.cu", is_settled=True
    )
