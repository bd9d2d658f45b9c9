"""Launch the kernel with a producer warp. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.pack import can_describe, copies_needed, pack
from constrint.kernels.gemm.producer import DTYPES, NUM_WARPS, Shares, can_store
from constrint.kernels.gemm.reference import DTYPE_NAMES

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import Epilogue, Machine


def launch_with_producer(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    config: Mapping[str, int],
    machine: Machine,
    ep: Epilogue,
    *,
    only_compile: bool,
) -> None:
    """Enqueue out = epilogue(a @ b) on the current stream, as `launch` does; operands are copied where they must be.

    Raises:
        UsageError: For what the kernel is not for: a batch, a matrix to add, another dtype, rows of C that it cannot store.
    """
    dtype = DTYPE_NAMES.get(a.dtype, "")
    (_, m, k), n = a.shape, b.shape[2]
    if a.shape[0] > 1 or ep.source is not None:
        raise UsageError("producer = 1 is for one product at a time with no matrix to add.")
    if dtype not in DTYPES:
        raise UsageError(f"producer = 1 is for {', '.join(DTYPES)}, not for {a.dtype}.")
    if not can_store(n, out.element_size(), dtype) or not can_describe(out):
        raise UsageError(f"producer = 1 cannot store rows of {n} elements of {out.dtype}.")
    a, b = pack(a, b, copies_needed(a, b))
    from constrint.kernels.gemm.kernel_hopper import gemm_hopper_kernel

    is_turned = {"is_a_transposed": a.stride(2) != 1, "is_b_transposed": b.stride(2) != 1}
    tensors = {"a_desc": _rows(a), "b_desc": _rows(b), "b_rest_desc": _rows(b), "c_desc": _rows(out)}
    shares = Shares.of(config, dtype)
    arguments: dict[str, Any] = {"b_rest_desc": None} | {
        name: _describe(tensors[name], block)
        for name, block in shares.blocks(config["tile_k"], dtype, **is_turned).items()
    }
    tiles = -(-m // config["tile_m"]) * -(-n // config["tile_n"])
    blocks = min(tiles, machine.sm_count)
    arguments |= shares.constants(config, dtype) | {
        "bias_ptr": ep.bias,
        "m": m,
        "n": n,
        "k": k,
        "alpha": float(ep.alpha),
        "group_m": config["group_m"],
        "num_blocks": blocks,
        "a_is_transposed": is_turned["is_a_transposed"],
        "b_is_transposed": is_turned["is_b_transposed"],
        "has_alpha": ep.alpha != 1.0,
        "activation": ep.activation,
        "num_warps": NUM_WARPS,
    }
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        if only_compile:
            gemm_hopper_kernel.warmup(**arguments, grid=(blocks,))
        else:
            gemm_hopper_kernel[(blocks,)](**arguments)


def _rows(t: Tensor) -> Tensor:
    """The matrix of a batch of one, with its faster axis last."""
    return t[0] if t.stride(2) == 1 else t[0].T


def _describe(t: Tensor, block: tuple[int, int]) -> Any:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor(t, list(t.shape), [t.stride(0), 1], list(block), _layout(8 * t.element_size()))


@lru_cache(maxsize=8)
def _layout(element_bits: int) -> Any:
    from constrint.kernels.gemm.kernel_hopper import block_layout

    return block_layout(element_bits)
