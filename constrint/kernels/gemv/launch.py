"""The launch of a matrix-vector product. Needs torch, and triton inside the function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.hwmodels import GpuModel
from constrint.kernels.gemv.reference import ALPHA, BETA
from constrint.kernels.gemv.shape import lanes_of, natural_width
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch
from constrint.kernels.launch.triton import TritonLaunch

#: Bytes of the widest alignment that counts.
WIDEST = 16


@dataclass(frozen=True)
class GemvCall:
    """One call: out = alpha * a x + beta * y for every matrix of a batch.

    Args:
        a: (batch, M, N), any strides.
        x: (batch, N), any strides.
        out: (batch, M), contiguous.
        y: (batch, M), any strides, or None.
        alpha, beta: Factors.
        scratch: Allocates partial sums and counters.
    """

    a: Tensor
    x: Tensor
    out: Tensor
    y: Tensor | None = None
    alpha: float = 1.0
    beta: float = 0.0
    scratch: Scratch = TORCH_SCRATCH


def lies_by_columns(a: Tensor) -> bool:
    """Whether the matrices (..., M, N) are contiguous along M; else along N, or along neither."""
    (m, n), (stride_m, stride_n) = a.shape[-2:], a.stride()[-2:]
    if stride_n == 1 and n > 1:
        return False
    return m > 1 and (stride_m == 1 or (n == 1 and abs(stride_m) < abs(stride_n)))


def width_of(a: Tensor) -> int:
    """Bytes of which every contiguous row or column starts at a multiple, up to `WIDEST`; an element's if none is."""
    by_columns, size = lies_by_columns(a), a.element_size()
    lines, along = (a.shape[-1], a.stride(-2)) if by_columns else (a.shape[-2], a.stride(-1))
    length = a.shape[-2] if by_columns else a.shape[-1]
    if along != 1 and length > 1:
        return size
    steps = [stride for stride, many in zip(a.stride()[:-2], a.shape[:-2], strict=True) if many > 1]
    if lines > 1:
        steps.append(a.stride(-1) if by_columns else a.stride(-2))
    width = WIDEST
    while any(step * size % width for step in steps) or a.data_ptr() % width:
        width //= 2
    return max(width, size)


def gemv_launch(gpu: GpuModel, call: GemvCall, config: Mapping[str, int]) -> TritonLaunch:
    """State the one launch of a call; `config` has the parameters of `GemvSpec`."""
    from constrint.kernels.gemv.kernel import gemv_kernel

    a, x, y, out = call.a, call.x, call.y, call.out
    batch, m, n = a.shape
    by_columns = lies_by_columns(a)
    tile_m, tile_n, splits, vector = (config[name] for name in ("tile_m", "tile_n", "splits", "vector"))
    tiles = batch * -(-m // tile_m)
    strides = [step if many > 1 else 0 for step, many in zip(a.stride(), a.shape, strict=True)]
    # The axis along which a matrix is contiguous has a stride of 1, even where it has one element.
    strides[1 if by_columns else 2] = a.stride(1 if by_columns else 2) if (m if by_columns else n) > 1 else 1
    length = m if by_columns else n
    x_step = x.stride(1) if n > 1 else 1
    x_pitch = x.stride(0) if batch > 1 else 0
    # The vector's loads may be as wide as the matrix's where its rows begin alike.
    x_width = natural_width(x_pitch, x.element_size()) if x_pitch else WIDEST
    x_vector = 1 if x_step != 1 or x.data_ptr() % WIDEST else min(vector, x_width // x.element_size())
    kind = torch.float64 if a.dtype == torch.float64 else torch.float32
    arguments: dict[str, Any] = {"a_ptr": a, "x_ptr": x, "y_ptr": y, "out_ptr": out}
    if splits > 1:
        arguments["partial_ptr"] = call.scratch.empty((tiles, splits, tile_m), kind, a.device)
        arguments["counters_ptr"] = call.scratch.counters(tiles, a.device)
    else:
        arguments |= {"partial_ptr": None, "counters_ptr": None}
    arguments |= {"m": m, "n": n, "batch_a": strides[0], "stride_am": strides[1], "stride_an": strides[2]}
    arguments |= {"stride_x": x_step, "batch_x": x_pitch, "stride_y": 1, "batch_y": 0}
    if y is not None:
        arguments |= {"stride_y": y.stride(1) if m > 1 else 1, "batch_y": y.stride(0) if batch > 1 else 0}
    arguments |= {"alpha": call.alpha, "beta": call.beta}
    threads = config["num_warps"] * gpu.sm.warp_size
    arguments |= {"tile_m": tile_m, "tile_n": tile_n, "splits": splits, "stages": config["num_stages"]}
    arguments |= {
        "lanes": lanes_of(tile_m, tile_n, vector, threads) if by_columns else 1,
        "vector": vector,
        "x_vector": max(1, x_vector),
        "whole_vectors": length % vector == 0,
        "by_columns": by_columns,
        "flat_x": by_columns or tile_n < vector * threads,
        "even_m": m % tile_m == 0,
        "even_n": n % tile_n == 0,
        "policy": "evict_first" if config["evict_first"] else "",
    }
    return TritonLaunch(gemv_kernel, (tiles * splits,), arguments, {"num_warps": config["num_warps"]})


def call_of_inputs(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> GemvCall:
    """The call of a spec's inputs and outputs, with the factors of checks."""
    y = inputs.get("y")
    return GemvCall(inputs["a"], inputs["x"], outputs["out"], y, ALPHA, 0.0 if y is None else BETA)
