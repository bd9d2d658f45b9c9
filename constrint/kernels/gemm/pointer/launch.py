"""The arguments of the pointer kernel, for launching it and for compiling it. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.kernels.gemm.launch import GemmCall, compiler_options, grid_arguments
from constrint.kernels.gemm.operands import rows_of
from constrint.kernels.gemm.units import WIDEST_BYTES
from constrint.kernels.launch.triton import TritonLaunch

#: Sizes and strides beyond this need 64-bit offsets within a tile.
MAX_TILE_STRIDE = (2**31 - 1) // (2 * 256 * 32)


def pointer_launches(call: GemmCall, config: Mapping[str, int]) -> list[TritonLaunch]:
    """State the launches of a call: one, or several for a batch that exceeds the largest grid."""
    return [_launch(part, config) for part in call.parts()]


def _launch(call: GemmCall, config: Mapping[str, int]) -> TritonLaunch:
    from constrint.kernels.gemm.pointer.kernel import gemm_kernel

    a, b, out = call.a, call.b, call.out
    grid, shared = grid_arguments(call, config)
    strides = dict(zip(("stride_ab", "stride_am", "stride_ak"), a.stride(), strict=True))
    strides |= dict(zip(("stride_bb", "stride_bk", "stride_bn"), b.stride(), strict=True))
    rows_a, rows_b, rows_c = rows_of(a), rows_of(b), rows_of(out)
    own: dict[str, Any] = {"a_ptr": a, "b_ptr": b, "stride_cn": 1, "hint_a": rows_a.hint, "hint_b": rows_b.hint}
    own |= {"num_xcds": call.machine.num_xcds, "xcd_chunk": config.get("xcd_chunk", 0)}
    own |= {
        "even_k": a.shape[2] % (config["tile_k"] * config["split_k"]) == 0,
        # Narrower stores gain nothing over those of single elements, which need less shared memory.
        "hint_c": rows_c.hint if rows_c.width_bytes == WIDEST_BYTES else 1,
        "a_is_transposed": rows_a.is_transposed and rows_a.hint > 1,
        "b_is_transposed": rows_b.is_transposed and rows_b.hint > 1,
        "wide_offsets": max(map(abs, strides.values())) > MAX_TILE_STRIDE,
    }
    return TritonLaunch(gemm_kernel, grid, shared | own | strides, compiler_options(call, config))
