"""The launches of a prepared product: its operands are copied along K, then the CUDA GEMM. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from constrint.errors import UsageError
from constrint.kernels.gemm.cuda.launch import cuda_launches
from constrint.kernels.gemm.launch import GemmCall
from constrint.kernels.gemm.operands import copies_needed, pack
from constrint.select.spec import Launch


def prepared_launches(call: GemmCall, config: Mapping[str, int]) -> list[Launch]:
    """State the launches of a call.

    Raises:
        UsageError: For a batch, and for operands that are not fp32.
    """
    if call.a.shape[0] != 1 or call.a.dtype != torch.float32:
        seen = f"{call.a.dtype} {tuple(call.a.shape)}"
        raise UsageError(f"gemm.prepared is for one product of fp32 operands, got {seen}.")
    a, b, copying = pack(call.a, call.b, copies_needed(call.a, call.b), call.scratch)
    return [*copying, *cuda_launches(replace(call, a=a, b=b), config)]
