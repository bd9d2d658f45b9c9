"""Matrix-vector products in plain PyTorch: the kernels' reference, on any device, up to double precision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.gemv.shape import MatrixShape
from constrint.select.workload import Workload

#: Factors of checks and measurements.
ALPHA, BETA = 1.5, -0.5
#: Types of matrices by name.
DTYPES_BY_NAME = {
    "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16,
    "fp8": torch.float8_e4m3fn,
}  # fmt: skip


def batch_of(*shapes: Sequence[int]) -> torch.Size:
    """The shape that the axes of a batch broadcast to.

    Raises:
        RuntimeError: When they do not.
    """
    broadcast: Any = torch.broadcast_shapes
    shape: torch.Size = broadcast(*shapes)
    return shape


def gemv_reference(a: Tensor, x: Tensor, y: Tensor | None = None, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
    """alpha * a @ x + beta * y, summed in fp32 (fp64 for fp64) and rounded once to the type of x.

    Args:
        a: (..., M, N).
        x: (..., N), of the same batch or of one that broadcasts.
        y: (..., M), or None; not read where beta is 0.
        alpha, beta: Factors; with alpha = 0 neither a nor x counts.
    """
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    batch = batch_of(a.shape[:-2], x.shape[:-1], () if y is None else y.shape[:-1])
    if alpha == 0.0 or not a.shape[-1]:
        total = torch.zeros((*batch, a.shape[-2]), dtype=wide, device=x.device)
    else:
        total = alpha * torch.matmul(a.to(wide), x.to(wide).unsqueeze(-1)).squeeze(-1).expand(*batch, a.shape[-2])
    if y is not None and beta != 0.0:
        total = total + beta * y.to(wide)
    return total.to(x.dtype).contiguous()


def random_inputs(workload: Workload, *, fnuz: bool, device: Any, seed: int) -> dict[str, Any]:
    """A (batch, M, N), x (batch, N), y (batch, M) where beta is not 0, of standard normal elements.

    Args:
        workload: Sizes, dtype and layout; rows start at multiples of the workload's width and of no more bytes.
        fnuz: Whether the GPU has the other 8-bit type.
        device: Device of the tensors.
        seed: Of the random numbers.
    """
    shape = MatrixShape.of(workload)
    dtype = torch.float8_e4m3fnuz if workload.dtype == "fp8" and fnuz else DTYPES_BY_NAME[workload.dtype]
    of_vectors = torch.bfloat16 if workload.dtype == "fp8" else dtype
    draw = None if torch.device(device).type == "meta" else torch.Generator(device).manual_seed(seed)
    lines, length = (shape.n, shape.m) if shape.by_columns else (shape.m, shape.n)
    step = max(1, shape.width // shape.element_bytes)
    pitch = -(-length // step) * step
    if workload.options.get("width", 0) and shape.width < 16 and pitch % (2 * step) == 0:
        pitch += step

    def normal(*sizes: int) -> Tensor:
        return torch.randn(sizes, device=device, generator=draw)

    whole = torch.empty((shape.batch, lines, pitch), dtype=dtype, device=device)
    for place in range(shape.batch if draw is not None else 0):
        whole[place] = normal(lines, pitch).to(dtype)
    a = whole[:, :, :length]
    inputs = {"a": a.transpose(1, 2) if shape.by_columns else a, "x": normal(shape.batch, shape.n).to(of_vectors)}
    if shape.has_y:
        inputs["y"] = normal(shape.batch, shape.m).to(of_vectors)
    return inputs
