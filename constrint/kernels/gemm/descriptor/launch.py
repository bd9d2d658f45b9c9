"""The arguments of the descriptor kernel, for launching it and for compiling it. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from constrint.kernels.gemm.launch import GemmCall, compiler_options, grid_arguments
from constrint.kernels.gemm.operands import can_describe, copies_needed, pack
from constrint.kernels.gemm.product import rest_columns
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES
from constrint.kernels.launch.triton import TritonLaunch


def descriptor_launches(call: GemmCall, config: Mapping[str, int]) -> list[TritonLaunch]:
    """State the launches of a call: copies of operands that no descriptor can hold, then the kernel; per batch part."""
    return [launch for part in call.parts() for launch in _launches(part, config)]


def _launches(call: GemmCall, config: Mapping[str, int]) -> list[TritonLaunch]:
    from constrint.kernels.gemm.descriptor.kernel import gemm_descriptor_kernel

    copies = copies_needed(call.a, call.b)
    # The product's launch overlaps the copies, except where K is split, which measured slower back to back.
    # Triton's interpreter, on the CPU, knows nothing of this.
    overlaps = bool(copies) and config["split_k"] == 1 and call.a.device.type != "cpu"
    a, b, copying = pack(call.a, call.b, copies, call.scratch, overlaps=overlaps)
    grid, shared = grid_arguments(call, config)
    own = _descriptors(replace(call, a=a, b=b), config) | {"follows_copy": overlaps}
    options: dict[str, Any] = compiler_options(call, config) | ({"launch_pdl": True} if overlaps else {})
    return [*copying, TritonLaunch(gemm_descriptor_kernel, grid, shared | own, options)]


def _descriptors(call: GemmCall, config: Mapping[str, int]) -> dict[str, Any]:
    is_batched = call.a.shape[0] > 1
    a_desc, a_is_transposed = _describe(call.a, config["tile_m"], config["tile_k"], is_batched)
    rest = rest_columns(config["tile_n"])
    widest = config["tile_n"] - rest
    b_desc, b_is_transposed = _describe(call.b, config["tile_k"], widest, is_batched)
    b_rest_desc = _describe(call.b, config["tile_k"], rest, is_batched)[0] if rest else None
    c_desc, c_rest_desc = None, None
    # Of rows with another length the TMA unit wrote the last 16 bytes whole, on an H100 and an H200, over what stood
    # between the rows.
    row = call.out.shape[2 if call.out.stride(2) == 1 else 1]
    if can_describe(call.out) and row * call.out.element_size() % ROW_BYTES == 0:
        c_desc, _ = _describe(call.out, config["tile_m"], widest // config["epilogue_subtile"], is_batched)
        c_rest_desc = _describe(call.out, config["tile_m"], rest, is_batched)[0] if rest else None
    operands = {"a_desc": a_desc, "b_desc": b_desc, "b_rest_desc": b_rest_desc}
    order = {"a_is_transposed": a_is_transposed, "b_is_transposed": b_is_transposed}
    stored = {"c_desc": c_desc, "c_rest_desc": c_rest_desc, "epilogue_subtile": config["epilogue_subtile"]}
    return operands | order | stored | {"rest_n": rest}


def _describe(t: Tensor, rows: int, columns: int, is_batched: bool) -> tuple[Any, bool]:
    """A descriptor of a (batch, rows, columns) tensor in tiles, and whether it holds the transpose."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    is_transposed = t.stride(2) != 1
    if is_transposed:
        t, rows, columns = t.transpose(1, 2), columns, rows
    shape, strides, block = list(t.shape), [t.stride(0), t.stride(1), 1], [1, rows, columns]
    if not is_batched:
        shape, strides, block = shape[1:], strides[1:], block[1:]
    return TensorDescriptor(t, shape, strides, block), is_transposed
