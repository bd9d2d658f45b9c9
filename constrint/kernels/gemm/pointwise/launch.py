"""The launch of the pointwise kernel that ends an epilogue on the library's product, in place. Needs torch."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from constrint.kernels.gemm.launch import Epilogue, GemmCall
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.gemm.units import row_hint
from constrint.kernels.launch.triton import TritonLaunch

#: Elements of a block: four warps load 16 elements a thread, in pieces of 16 bytes.
TILE_ELEMENTS, NUM_WARPS = 2048, 4
#: Columns of a block, at most and at least.
MOST_COLUMNS, LEAST_COLUMNS = 512, 16


def pointwise_launch(call: GemmCall, rest: Epilogue) -> TritonLaunch:
    """The launch that applies the rest of an epilogue to the product in `call.out`.

    Args:
        call: The call, of at most `MAX_GRID_BATCH` products.
        rest: The part of the epilogue that the library does not take.
    """
    out = call.out
    if rest.bias is None and rest.source is None and rest.alpha == 1.0 and out.is_contiguous():
        return _activation_launch(out, rest)
    from constrint.kernels.gemm.pointwise.kernel import pointwise_kernel

    batch, m, n = out.shape
    tile_n = min(MOST_COLUMNS, max(LEAST_COLUMNS, 1 << (n - 1).bit_length()))
    tile_m = TILE_ELEMENTS // tile_n
    source_strides = rest.source.stride() if rest.source is not None else (0, 0, 0)
    arguments: dict[str, Any] = {"out_ptr": out, "bias_ptr": rest.bias, "source_ptr": rest.source, "m": m, "n": n}
    arguments |= {"stride_cb": out.stride(0), "stride_cm": out.stride(1)}
    arguments |= dict(zip(("stride_sb", "stride_sm", "stride_sn"), source_strides, strict=True))
    arguments |= {"alpha": float(rest.alpha), "beta": float(rest.beta), "has_alpha": rest.alpha != 1.0}
    arguments |= {"activation": rest.activation, "tile_m": tile_m, "tile_n": tile_n}
    by_rows = rest.source is not None and source_strides[2] == 1
    arguments |= {"hint": row_hint(n, *out.stride()[:2]), "hint_s": row_hint(*source_strides[:2]) if by_rows else 1}
    grid = (-(-m // tile_m), -(-n // tile_n), batch)
    return TritonLaunch(pointwise_kernel, grid, arguments, {"num_warps": NUM_WARPS})


def _activation_launch(out: Tensor, rest: Epilogue) -> TritonLaunch:
    from constrint.kernels.gemm.pointwise.kernel import activation_kernel

    size = out.numel()
    arguments = {"out_ptr": out, "size": size, "tile": TILE_ELEMENTS, "activation": rest.activation}
    return TritonLaunch(activation_kernel, (-(-size // TILE_ELEMENTS),), arguments, {"num_warps": NUM_WARPS})


def pointwise_reference(product: Tensor, rest: Epilogue) -> Tensor:
    """The result from the product (batch, M, N), in plain PyTorch and in the product's type."""
    z = rest.alpha * product
    z = z if rest.bias is None else z + rest.bias.to(z.dtype)
    z = z if rest.source is None else z + rest.beta * rest.source.to(z.dtype)
    return z if rest.activation is None else ACTIVATIONS[rest.activation](z)
