"""The library's product into 32-bit sums, and the launch of the pointwise kernel that reads them. Needs torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.launch import Epilogue, GemmCall
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.triton import TritonLaunch

#: Elements of a block: four warps load 16 elements a thread, in pieces of 16 bytes along a row.
TILE_ELEMENTS, NUM_WARPS = 2048, 4
#: Columns of a block, at most and at least.
MOST_COLUMNS, LEAST_COLUMNS = 512, 16


def sums_call(call: GemmCall) -> GemmCall:
    """The plain product of a call's operands into (batch, M, N) sums in fp32, in memory of the call's scratch."""
    (batch, m, _), n = call.a.shape, call.b.shape[2]
    sums = call.scratch.empty((batch, m, n), torch.float32, call.a.device)
    return replace(call, out=sums, epilogue=Epilogue())


def pointwise_launch(call: GemmCall, sums: Tensor) -> TritonLaunch:
    """The launch that makes the result of one product from its sums.

    Args:
        call: The call, whose batch is 1.
        sums: (1, M, N) in 32 bits, contiguous.
    """
    from constrint.kernels.gemm.pointwise.kernel import pointwise_kernel

    end, (m, n) = call.epilogue, call.out.shape[1:]
    tile_n = min(MOST_COLUMNS, max(LEAST_COLUMNS, 1 << (n - 1).bit_length()))
    tile_m = TILE_ELEMENTS // tile_n
    source_strides = end.source.stride()[1:] if end.source is not None else (0, 0)
    arguments: dict[str, Any] = {
        "sums_ptr": sums,
        "out_ptr": call.out,
        "bias_ptr": end.bias,
        "source_ptr": end.source,
        "m": m,
        "n": n,
    }
    arguments |= {"stride_cm": call.out.stride(1), **dict(zip(("stride_sm", "stride_sn"), source_strides, strict=True))}
    arguments |= {"alpha": float(end.alpha), "beta": float(end.beta), "has_alpha": end.alpha != 1.0}
    arguments |= {"activation": end.activation, "tile_m": tile_m, "tile_n": tile_n}
    grid = (-(-m // tile_m), -(-n // tile_n))
    return TritonLaunch(pointwise_kernel, grid, arguments, {"num_warps": NUM_WARPS})


def pointwise_reference(call: GemmCall, sums: Tensor) -> Tensor:
    """The result of a call from its sums, (batch, M, N), in plain PyTorch."""
    end = call.epilogue
    z = end.alpha * sums
    z = z if end.bias is None else z + end.bias.to(z.dtype)
    z = z if end.source is None else z + end.beta * end.source.to(z.dtype)
    z = z if end.activation is None else ACTIVATIONS[end.activation](z)
    return z.to(call.out.dtype)
