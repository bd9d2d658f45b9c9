"""The launch of gated pairs: the CUDA GEMM with maps of both factors. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.launch import (
    TileSchedule,
    as_resident,
    boxes_of,
    memory_of,
    operand_maps,
)
from constrint.kernels.gemm.cuda.shape import BOX_BYTES, WARPGROUP, WgmmaTile, depth, ring_bytes, second_buffers
from constrint.kernels.gemm.cuda.source import OperandLayout, source_of
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine
from constrint.kernels.gemm.reference import DTYPE_NAMES
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.cuda.tensor_map import ROW_BYTES
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch


@dataclass(frozen=True)
class GatedCall:
    """One pair to launch: out = activation(a @ gate + bias_gate) * (a @ up + bias_up).

    Args:
        a: (M, K), contiguous rows at multiples of 16 bytes.
        gate, up: (K, N), rows or columns contiguous, likewise, with the same strides.
        out: (M, N), contiguous rows at multiples of 16 bytes.
        bias_gate, bias_up: (N,), contiguous and of one dtype, both or none.
        activation: Its name.
        scratch: Allocates partial sums and counters.
    """

    a: Tensor
    gate: Tensor
    up: Tensor
    out: Tensor
    bias_gate: Tensor | None = None
    bias_up: Tensor | None = None
    activation: str = "silu"
    scratch: Scratch = TORCH_SCRATCH


def gated_launch(gpu: GpuModel, call: GatedCall, config: Mapping[str, int]) -> CudaLaunch:
    """State the one launch of a call.

    Raises:
        UsageError: For dtypes, layouts and biases that the kernel does not take.
    """
    dtype = _checked(call)
    a, gate, up = call.a[None], call.gate.T[None], call.up.T[None]
    layout = OperandLayout(dtype, a.stride(2) == 1, gate.stride(2) == 1)
    (m, k), n = call.a.shape, call.gate.shape[1]
    schedule = TileSchedule.of(gpu, config, m, 2 * n, -(-k // depth(dtype)))
    ring = ring_bytes(config, dtype, a_is_k_major=layout.a_is_k_major, b_is_k_major=layout.b_is_k_major)
    buffers = 2 if second_buffers(gpu, ring, config["consumers"]) > 0 else 1
    bias, other = as_added(call.bias_gate), as_added(call.bias_up)
    ends = CompiledEpilogue(OUTPUTS[call.out.dtype], name_of(bias), "", call.activation, True, buffers)
    tile, half = WgmmaTile.of(config), {**config, "tile_n": config["tile_n"] // 2}
    product = GemmCall(a, call.gate[None], call.out[None], Machine.of(gpu), Epilogue(), "ieee", call.scratch)
    sizes = (m, n, k, schedule.row_tiles, schedule.column_tiles, schedule.group, schedule.whole, schedule.parts)
    launch = CudaLaunch(
        gpu=gpu,
        source=source_of(config, layout, ends, splits=schedule.parts > 1, gated=True),
        grid=(min(schedule.units, schedule.slots) * int(tile.cluster),),
        block=((config["consumers"] + 1) * WARPGROUP,),
        arguments=(
            *operand_maps(a, gate, layout, half),
            *boxes_of(call.out[None], config["tile_n"] // 2, turned=False),
            bias,
            other,
            *memory_of(product, config, schedule, tile),
            *(np.int32(size) for size in sizes),
            np.int64(call.out.stride(0)),
            np.int32(1),
            *(np.int64(0), np.int64(0)),
            *(np.float32(1), np.float32(0)),
            *schedule.divisors,
            operand_maps(a, up, layout, half)[1],
        ),
        smem_bytes=ring + (buffers - 1) * BOX_BYTES * config["consumers"],
        cluster=int(tile.cluster),
    )
    return as_resident(launch)


def why_no_kernel(call: GatedCall) -> str:
    """Why no kernel of one launch computes a call; empty where that depends on the kernel."""
    a, gate, up, out = call.a, call.gate, call.up, call.out
    if a.dtype not in (torch.float16, torch.bfloat16) or {gate.dtype, up.dtype, out.dtype} != {a.dtype}:
        return f"it is for fp16 and bf16, got {a.dtype}, {gate.dtype}, {up.dtype} and results of {out.dtype}"
    if not a.numel() or not gate.numel():
        return "it computes no product without elements"
    if gate.stride() != up.stride() or gate.shape != up.shape:
        return f"both factors lie alike, got strides {gate.stride()} and {up.stride()}"
    return ""


def why_not(call: GatedCall) -> str:
    """Why the kernel does not compute a call; empty if it does."""
    reason = why_no_kernel(call)
    if reason:
        return reason
    a, gate, up, out = call.a, call.gate, call.up, call.out
    for name, t in (("a", a), ("gate", gate), ("up", up), ("the result", out)):
        along = 1 if t.stride(1) == 1 else 0
        if t.stride(along) != 1 or t.data_ptr() % ROW_BYTES or t.stride(1 - along) * t.element_size() % ROW_BYTES:
            return f"rows or columns of {name} start at multiples of {ROW_BYTES} bytes"
    if a.stride(1) != 1:
        return f"a lies along K, got strides {a.stride()}"
    if out.stride(1) != 1 or out.shape[1] * out.element_size() % ROW_BYTES:
        return f"rows of the result are multiples of {ROW_BYTES} bytes, got {out.shape[1]} columns"
    biases = [bias for bias in (call.bias_gate, call.bias_up) if bias is not None]
    if len(biases) == 1 or (biases and biases[0].dtype != biases[1].dtype):
        return "both factors have a bias of one dtype, or none has"
    if any(bias.data_ptr() % (2 * bias.element_size()) or bias.stride(0) != 1 for bias in biases):
        return "it reads two elements of a bias at a time"
    return ""


def _checked(call: GatedCall) -> str:
    """Check that the kernel computes the call; return the dtype's name."""
    reason = why_not(call)
    if reason:
        raise UsageError(f"gated.cuda does not compute this pair: {reason}.")
    return DTYPE_NAMES[call.a.dtype]
