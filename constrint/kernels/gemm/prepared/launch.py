"""The launches of a prepared product: its operands are rewritten, then the CUDA GEMM. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from constrint.errors import UsageError
from constrint.kernels.gemm.cuda.launch import cuda_launches
from constrint.kernels.gemm.launch import GemmCall
from constrint.kernels.gemm.operands import copies_needed, pack
from constrint.kernels.gemm.prepared.spec import SEGMENTS, padded_depth
from constrint.kernels.launch.triton import TritonLaunch
from constrint.select.spec import Launch

#: Rows and depth of the tile that one block rewrites.
TILE_ROWS, TILE_K = 64, 64


def prepared_launches(call: GemmCall, config: Mapping[str, int]) -> list[Launch]:
    """State the launches of a call.

    Raises:
        UsageError: For a batch, and for operands that are not fp32.
    """
    if call.a.shape[0] != 1 or call.a.dtype != torch.float32:
        raise UsageError(f"gemm.prepared is for one product of fp32 operands, got {call.a.dtype} {call.a.shape}.")
    if call.precision == "tf32x3":
        return _split(call, config)
    a, b, copying = pack(call.a, call.b, copies_needed(call.a, call.b), call.scratch)
    return [*copying, *cuda_launches(replace(call, a=a, b=b), config)]


def _split(call: GemmCall, config: Mapping[str, int]) -> list[Launch]:
    from constrint.kernels.gemm.prepared.kernel import split_kernel

    a, b = call.a[0], call.b[0].T
    (m, k), n = a.shape, b.shape[0]
    padded = padded_depth(k)
    split_a, split_b = (call.scratch.empty((rows, SEGMENTS * padded), torch.bfloat16, call.a.device) for rows in (m, n))
    deep = -(-padded // TILE_K)
    blocks_a, blocks_b = (-(-rows // TILE_ROWS) * deep for rows in (m, n))
    arguments: dict[str, Any] = {"a_ptr": a, "split_a_ptr": split_a, "b_ptr": b, "split_b_ptr": split_b}
    arguments |= {"blocks_a": blocks_a, "m": m, "n": n, "k": k, "padded": padded}
    arguments |= {"stride_am": a.stride(0), "stride_ak": a.stride(1)}
    arguments |= {"stride_bn": b.stride(0), "stride_bk": b.stride(1)}
    arguments |= {"tile_rows": TILE_ROWS, "tile_k": TILE_K}
    splitting = TritonLaunch(split_kernel, (blocks_a + blocks_b,), arguments, {})
    multiplied = replace(call, a=split_a[None], b=split_b.T[None], precision="ieee")
    return [splitting, *cuda_launches(multiplied, config)]
