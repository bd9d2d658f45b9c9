"""The launch of gated pairs in Triton. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.gated.launch import GatedCall, why_no_kernel
from constrint.kernels.gemm.launch import Machine
from constrint.kernels.gemm.operands import rows_of
from constrint.kernels.gemm.pointer.launch import MAX_TILE_STRIDE
from constrint.kernels.launch.triton import TritonLaunch


def gated_launch(gpu: GpuModel, call: GatedCall, config: Mapping[str, int]) -> TritonLaunch:
    """State the one launch of a call; `tile_n` of a configuration counts columns of both factors.

    Raises:
        UsageError: For dtypes, layouts and biases that the kernel does not take.
    """
    from constrint.kernels.gemm.gated.pointer.kernel import gated_kernel

    reason = why_not(call)
    if reason:
        raise UsageError(f"gated.pointer does not compute this pair: {reason}.")
    a, gate, machine = call.a, call.gate, Machine.of(gpu)
    (m, k), n = a.shape, gate.shape[1]
    tile_m, tile_n, tile_k = config["tile_m"], config["tile_n"] // 2, config["tile_k"]
    rows_a, rows_b = rows_of(a[None]), rows_of(gate[None])
    # A hint is for both factors: `up` may lie less well.
    hint_b = min(rows_b.hint, rows_of(call.up[None]).hint)
    strides = dict(zip(("stride_am", "stride_ak"), a.stride(), strict=True))
    strides |= dict(zip(("stride_bk", "stride_bn"), gate.stride(), strict=True))
    arguments: dict[str, Any] = {"a_ptr": a, "gate_ptr": gate, "up_ptr": call.up, "out_ptr": call.out}
    arguments |= {"bias_gate_ptr": call.bias_gate, "bias_up_ptr": call.bias_up, "m": m, "n": n, "k": k}
    arguments |= {"stride_cm": call.out.stride(0), "group_m": config["group_m"], **strides}
    arguments |= {"tile_m": tile_m, "tile_n": tile_n, "tile_k": tile_k, "num_xcds": machine.num_xcds}
    arguments |= {
        "xcd_chunk": config.get("xcd_chunk", 0),
        "even_k": k % tile_k == 0,
        "wide_offsets": max(map(abs, strides.values())) > MAX_TILE_STRIDE,
        "a_is_transposed": rows_a.is_transposed and rows_a.hint > 1,
        "b_is_transposed": rows_b.is_transposed and hint_b > 1,
        "hint_a": rows_a.hint,
        "hint_b": hint_b,
        "activation": call.activation,
    }
    options = {name: config[name] for name in ("num_warps", "num_stages", *machine.knobs) if name in config}
    return TritonLaunch(gated_kernel, (-(-m // tile_m) * -(-n // tile_n),), arguments, options)


def why_not(call: GatedCall) -> str:
    """Why the kernel does not compute a call; empty if it does."""
    reason = why_no_kernel(call)
    if reason:
        return reason
    if call.out.stride(1) != 1:
        return f"rows of the result are contiguous, got strides {call.out.stride()}"
    biases = [bias for bias in (call.bias_gate, call.bias_up) if bias is not None]
    if any(bias.stride(0) != 1 for bias in biases):
        return "it reads contiguous biases"
    return ""
