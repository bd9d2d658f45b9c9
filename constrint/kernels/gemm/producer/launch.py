"""The arguments of the producer kernel, for launching it and for compiling it. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.gemm.launch import Call
from constrint.kernels.gemm.producer.tile import DTYPES, NUM_WARPS, Shares, can_store
from constrint.kernels.gemm.reference import DTYPE_NAMES
from constrint.kernels.gemm.tma.pack import can_describe, copies_needed, pack
from constrint.kernels.launch.triton import TritonLaunch


def producer_launches(call: Call, config: Mapping[str, int]) -> list[TritonLaunch]:
    """Copies of the operands that no descriptor can hold, and the kernel.

    Raises:
        UsageError: For a batch, a matrix to add, another dtype, rows of C that it cannot store.
    """
    from constrint.kernels.gemm.producer.kernel import gemm_producer_kernel

    dtype = _checked(call)
    (_, m, k), n = call.a.shape, call.b.shape[2]
    a, b, copying = pack(call.a, call.b, copies_needed(call.a, call.b), call.scratch)
    is_turned = {"is_a_transposed": a.stride(2) != 1, "is_b_transposed": b.stride(2) != 1}
    tensors = {"a_desc": _rows(a), "b_desc": _rows(b), "b_rest_desc": _rows(b), "c_desc": _rows(call.out)}
    shares = Shares.of(config, dtype)
    arguments: dict[str, Any] = {"b_rest_desc": None} | {
        name: _describe(tensors[name], block)
        for name, block in shares.blocks(config["tile_k"], dtype, **is_turned).items()
    }
    tiles = -(-m // config["tile_m"]) * -(-n // config["tile_n"])
    blocks, end = min(tiles, call.machine.sm_count), call.epilogue
    arguments |= {"a_is_transposed": is_turned["is_a_transposed"], "b_is_transposed": is_turned["is_b_transposed"]}
    arguments |= {"m": m, "n": n, "k": k, "group_m": config["group_m"], "num_blocks": blocks, "bias_ptr": end.bias}
    arguments |= {"alpha": float(end.alpha), "has_alpha": end.alpha != 1.0, "activation": end.activation}
    arguments |= shares.constants(config, dtype)
    return [*copying, TritonLaunch(gemm_producer_kernel, (blocks,), arguments, {"num_warps": NUM_WARPS})]


def _checked(call: Call) -> str:
    """The dtype's name, once the call is one that the kernel is for."""
    dtype, n = DTYPE_NAMES.get(call.a.dtype, ""), call.b.shape[2]
    if call.a.shape[0] > 1 or call.epilogue.source is not None:
        raise UsageError("gemm.producer is for one product at a time with no matrix to add.")
    if dtype not in DTYPES:
        raise UsageError(f"gemm.producer is for {', '.join(DTYPES)}, not for {call.a.dtype}.")
    if not can_store(n, call.out.element_size(), dtype) or not can_describe(call.out):
        raise UsageError(f"gemm.producer cannot store rows of {n} elements of {call.out.dtype}.")
    return dtype


def _rows(t: Tensor) -> Tensor:
    """The matrix of a batch of one, with its faster axis last."""
    return t[0] if t.stride(2) == 1 else t[0].T


def _describe(t: Tensor, block: tuple[int, int]) -> Any:
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    return TensorDescriptor(t, list(t.shape), [t.stride(0), 1], list(block), _layout(8 * t.element_size()))


@lru_cache(maxsize=8)
def _layout(element_bits: int) -> Any:
    from constrint.kernels.gemm.producer.kernel import block_layout

    return block_layout(element_bits)
