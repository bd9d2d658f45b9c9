"""torch's own scaled product as a program beside ours: the calls that it takes, its plan and its predicted time.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.scaled.cost import COPY_S, library_s
from constrint.kernels.gemm.scaled.reference import scaled_reference
from constrint.kernels.launch.plan.recipe import Recipe, RecordedCall

#: The name of its plan.
LIBRARY = "scaled_gemm.library"
#: It takes multiples of this many columns of both operands.
MULTIPLE = 16


def is_captured(device: torch.device) -> bool:
    """Whether launches on a device are now captured into a graph."""
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def takes(a: Tensor, b: Tensor, bias: Tensor | None, out_dtype: torch.dtype) -> bool:
    """Whether torch's own operator may take a product; its own error says the rest."""
    if not a.is_cuda or bias is not None or out_dtype.itemsize != 2:
        return False
    lies_along_k = a.stride(1) == 1 and b.stride(0) == 1
    return lies_along_k and bool(a.numel() * b.numel()) and not (b.shape[1] % MULTIPLE or b.shape[0] % MULTIPLE)


def by_library(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out_dtype: torch.dtype, *, in_blocks: bool,
    is_fast: bool = False,
) -> Tensor | None:  # fmt: skip
    """torch's own product; None where it refuses the call. Of blocks it has no fast accumulation."""
    if in_blocks:
        # It takes scales of blocks by columns.
        scale_a, scale_b = (t.t().contiguous().t() for t in (scale_a, scale_b))
    else:
        scale_a, scale_b = scale_a.contiguous(), scale_b.contiguous()
    try:
        out: Tensor = torch._scaled_mm(
            a, b, scale_a, scale_b, out_dtype=out_dtype, use_fast_accum=is_fast and not in_blocks
        )
    except torch.cuda.OutOfMemoryError:
        raise
    except RuntimeError:
        return None
    return out


def library_plan(
    a: Tensor, b: Tensor, scales: tuple[Tensor, Tensor], out_dtype: torch.dtype, *, in_blocks: bool,
    is_fast: bool = False,
) -> RecordedCall | None:  # fmt: skip
    """The plan of torch's own product, which is called once; None where it refuses it."""
    if not is_captured(a.device):
        made = by_library(a, b, *scales, out_dtype, in_blocks=in_blocks, is_fast=is_fast)
        if made is None:
            return None
    stated = {"out_dtype": str(out_dtype).removeprefix("torch."), "in_blocks": in_blocks, "is_fast": is_fast}
    return RecordedCall(Recipe([], [], 1, 0, LIBRARY, stated), [])


def library_function(stated: Mapping[str, Any]) -> Callable[..., Tensor]:
    """The function of a plan: of (a, b, scale_a, scale_b, bias), for calls that `takes` is true of."""
    out_dtype, in_blocks = getattr(torch, stated["out_dtype"]), bool(stated["in_blocks"])
    is_fast = bool(stated.get("is_fast"))

    def product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None) -> Tensor:
        out = by_library(a, b, scale_a, scale_b, out_dtype, in_blocks=in_blocks, is_fast=is_fast)
        return scaled_reference(a, b, scale_a, scale_b, bias, out_dtype) if out is None else out

    return product


def predicted_s(
    gpu: GpuModel, sizes: Mapping[str, int], out_dtype: torch.dtype, scales: tuple[Tensor, Tensor], *, in_blocks: bool
) -> float:
    """Predicted seconds of torch's own product and of the scales that it copies."""
    copies = sum(in_blocks and scale.stride(0) != 1 for scale in scales)
    return library_s(gpu, sizes, out_dtype.itemsize) + copies * COPY_S
