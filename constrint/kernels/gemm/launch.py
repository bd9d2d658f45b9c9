"""Launch one configuration of the GEMM on operands that are on a GPU: grids, descriptors, the split-K workspace.

It checks nothing that `op.py` has checked and chooses nothing; needs torch and triton.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemm.alignment import rows_of
from constrint.kernels.gemm.descriptor import FP8_PROMOTION_INTERVAL, rest_columns
from constrint.kernels.gemm.launch_hopper import launch_with_producer
from constrint.kernels.gemm.pack import can_describe, copies_needed, pack
from constrint.kernels.gemm.units import WIDEST_BYTES

#: Blocks along the second grid dimension, on both vendors.
MAX_GRID_BATCH = 65535
#: Sizes and strides beyond this need 64-bit offsets within a tile.
MAX_TILE_STRIDE = (2**31 - 1) // (2 * 256 * 32)
#: Counters handed out to launches inside a captured graph, which keep theirs for good.
CAPTURED_COUNTERS = 1 << 18


@dataclass(frozen=True)
class Epilogue:
    """out = activation(alpha * A @ B + bias + beta * source).

    Args:
        bias: (N,), or None.
        source: (batch, M, N), any strides, or None.
    """

    bias: Tensor | None = None
    source: Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    activation: str | None = None


@dataclass(frozen=True)
class Machine:
    """What a launch has to know about the device: blocks of a persistent grid, XCDs, and whether it is a Hopper."""

    sm_count: int
    num_xcds: int = 1
    is_hopper: bool = False


class _Counters:
    """Zeroed counters for split-K: they are left at zero by every launch, so one set serves a stream for good."""

    def __init__(self) -> None:
        self._of_stream: dict[tuple[int, int], Tensor] = {}
        self._captured: dict[int, tuple[Tensor, int]] = {}

    def take(self, device: torch.device, num: int) -> Tensor:
        """`num` counters that no other launch uses at the same time."""
        if device.type == "cpu":  # Triton's interpreter
            return torch.zeros(num, dtype=torch.int32)
        index = device.index or 0
        if torch.cuda.is_current_stream_capturing():
            return self._take_captured(device, index, num)
        stream = torch.cuda.current_stream(device).cuda_stream
        found = self._of_stream.get((index, stream))
        if found is None or found.numel() < num:
            found = torch.zeros(max(num, 4096), dtype=torch.int32, device=device)
            self._of_stream[index, stream] = found
            if index not in self._captured:
                self._captured[index] = (torch.zeros(CAPTURED_COUNTERS, dtype=torch.int32, device=device), 0)
                # Zeroed before any other stream may capture a launch that relies on it.
                torch.cuda.current_stream(device).synchronize()
        return found

    def _take_captured(self, device: torch.device, index: int, num: int) -> Tensor:
        pool, used = self._captured.get(index, (None, 0))
        if pool is None or used + num > pool.numel():
            return torch.zeros(num, dtype=torch.int32, device=device)
        self._captured[index] = (pool, used + num)
        return pool[used : used + num]


_COUNTERS = _Counters()


def is_k_major(t: Tensor, axis: int) -> bool:
    """Whether an operand is contiguous along K, which is this axis of it."""
    return t.stride(axis) == 1


def launch(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    config: Mapping[str, int],
    machine: Machine,
    epilogue: Epilogue,
    *,
    only_compile: bool = False,
) -> None:
    """Enqueue out = epilogue(a @ b) on the current stream.

    Args:
        a: (batch, M, K), any strides.
        b: (batch, K, N), likewise.
        out: (batch, M, N), contiguous rows.
        config: A point of the GEMM's space; with `descriptor`, operands that no descriptor can hold are copied first.
        machine: The device.
        epilogue: What is done with the sums.
        only_compile: Compile the kernel into Triton's cache and launch nothing.
    """
    if config.get("producer"):
        launch_with_producer(a, b, out, config, machine, epilogue, only_compile=only_compile)
        return
    for start in range(0, a.shape[0], MAX_GRID_BATCH):
        part = slice(start, start + MAX_GRID_BATCH)
        _launch(a[part], b[part], out[part], config, machine, epilogue, only_compile)


def _launch(
    a: Tensor,
    b: Tensor,
    out: Tensor,
    config: Mapping[str, int],
    machine: Machine,
    ep: Epilogue,
    only_compile: bool,
) -> None:
    batch, m, k = a.shape
    n = b.shape[2]
    tiles = -(-m // config["tile_m"]) * -(-n // config["tile_n"])
    split = config["split_k"]
    blocks = min(tiles, machine.sm_count) if config["persistent"] else tiles * split
    shared = common_arguments(a, config, machine, ep) | {
        "m": m,
        "n": n,
        "k": k,
        "c_ptr": out,
        "bias_ptr": ep.bias,
        "stride_cb": out.stride(0),
        "stride_cm": out.stride(1),
        "num_blocks": blocks,
        "alpha": float(ep.alpha),
        "beta": float(ep.beta),
        "workspace_ptr": None,
        "counters_ptr": None,
    }
    source = ep.source
    shared |= {"source_ptr": source} | dict(
        zip(("stride_sb", "stride_sm", "stride_sn"), source.stride() if source is not None else (0, 0, 0), strict=True)
    )
    if split > 1:
        sums = batch * tiles * split * config["tile_m"] * config["tile_n"]
        kind = torch.int32 if a.dtype == torch.int8 else torch.float32
        shared["workspace_ptr"] = torch.empty(sums, dtype=kind, device=a.device)
        shared["counters_ptr"] = _COUNTERS.take(a.device, batch * tiles)
    if config.get("descriptor"):
        copies = copies_needed(a, b)
        # The product's launch overlaps the copies, except where K is split, which measured slower back to back.
        # Triton's interpreter knows nothing of this.
        overlaps = bool(copies) and split == 1 and (a.is_cuda or only_compile)
        a, b = pack(a, b, copies, overlaps=overlaps)
        kernel, special = _descriptor_call(a, b, out, config)
        special |= {"follows_copy": True, "launch_pdl": True} if overlaps else {"follows_copy": False}
    else:
        kernel, special = _pointer_call(a, b, out, config, machine)
    with torch.cuda.device(a.device) if a.is_cuda else nullcontext():
        if only_compile:
            kernel.warmup(**shared, **special, grid=(blocks, batch))
        else:
            kernel[(blocks, batch)](**shared, **special)


def common_arguments(a: Tensor, config: Mapping[str, int], machine: Machine, ep: Epilogue) -> dict[str, Any]:
    """Compile-time arguments of both kernels."""
    import triton.language as tl

    constants: dict[str, Any] = {
        name: config[name]
        for name in ("tile_m", "tile_n", "tile_k", "group_m", "split_k", "num_warps", "num_stages", *AMD_OPTIONS)
        if name in config
    }
    is_hopper_fp8 = machine.is_hopper and a.element_size() == 1 and a.dtype.is_floating_point
    return constants | {
        "persistent": bool(config["persistent"]),
        "batched": a.shape[0] > 1,
        "has_alpha": ep.alpha != 1.0,
        "activation": ep.activation,
        "input_precision": input_precision(a.dtype),
        "max_imprecise": min(FP8_PROMOTION_INTERVAL, config["tile_k"]) if is_hopper_fp8 else None,
        "acc_dtype": tl.int32 if a.dtype == torch.int8 else tl.float32,
    }


#: Parameters that Triton's AMD back-end takes as options.
AMD_OPTIONS = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")


def input_precision(dtype: torch.dtype) -> str:
    """How fp32 operands are multiplied: in tf32 where torch is told that this will do, else in three tf32 passes."""
    if dtype != torch.float32:
        return "ieee"
    if torch.version.hip is not None:
        return "ieee"
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _pointer_call(
    a: Tensor, b: Tensor, out: Tensor, config: Mapping[str, int], machine: Machine
) -> tuple[Any, dict[str, Any]]:
    from constrint.kernels.gemm.kernel_triton import gemm_kernel

    strides = dict(zip(("stride_ab", "stride_am", "stride_ak"), a.stride(), strict=True))
    strides |= dict(zip(("stride_bb", "stride_bk", "stride_bn"), b.stride(), strict=True))
    rows_a, rows_b, rows_c = rows_of(a), rows_of(b), rows_of(out)
    special: dict[str, Any] = {
        "a_ptr": a,
        "b_ptr": b,
        "stride_cn": 1,
        "num_xcds": machine.num_xcds,
        "xcd_chunk": config.get("xcd_chunk", 0),
        "even_k": a.shape[2] % (config["tile_k"] * config["split_k"]) == 0,
        "hint_a": rows_a.hint,
        "hint_b": rows_b.hint,
        # Narrower stores gain nothing over those of single elements, which need less shared memory.
        "hint_c": rows_c.hint if rows_c.width_bytes == WIDEST_BYTES else 1,
        "a_is_transposed": rows_a.is_transposed and rows_a.hint > 1,
        "b_is_transposed": rows_b.is_transposed and rows_b.hint > 1,
        "wide_offsets": max(map(abs, strides.values())) > MAX_TILE_STRIDE,
    }
    return gemm_kernel, special | strides


def _descriptor_call(a: Tensor, b: Tensor, out: Tensor, config: Mapping[str, int]) -> tuple[Any, dict[str, Any]]:
    from constrint.kernels.gemm.kernel_descriptor import gemm_descriptor_kernel

    is_batched = a.shape[0] > 1
    a_desc, a_is_transposed = _describe(a, config["tile_m"], config["tile_k"], is_batched)
    rest = rest_columns(config["tile_n"])
    widest = config["tile_n"] - rest
    b_desc, b_is_transposed = _describe(b, config["tile_k"], widest, is_batched)
    b_rest_desc = _describe(b, config["tile_k"], rest, is_batched)[0] if rest else None
    c_desc, c_rest_desc = None, None
    if can_describe(out):
        c_desc, _ = _describe(out, config["tile_m"], widest // config["epilogue_subtile"], is_batched)
        c_rest_desc = _describe(out, config["tile_m"], rest, is_batched)[0] if rest else None
    return gemm_descriptor_kernel, {
        "a_desc": a_desc,
        "b_desc": b_desc,
        "b_rest_desc": b_rest_desc,
        "c_desc": c_desc,
        "c_rest_desc": c_rest_desc,
        "rest_n": rest,
        "epilogue_subtile": config["epilogue_subtile"],
        "a_is_transposed": a_is_transposed,
        "b_is_transposed": b_is_transposed,
    }


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
