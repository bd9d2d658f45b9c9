"""Sums of vectors in plain PyTorch: the kernel's reference, on any device, up to double precision."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.select.workload import Workload

#: Factor of checks and measurements.
ALPHA = 1.5
DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
#: Names of the types that the kernel takes.
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def axpy_reference(alpha: float | Tensor, x: Tensor, y: Tensor) -> Tensor:
    """alpha * x + y, computed in fp32 (fp64 for fp64), rounded once; alpha is a number or has one element."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    factor = alpha.to(wide).reshape(()) if isinstance(alpha, Tensor) else alpha
    return (factor * x.to(wide) + y.to(wide)).to(x.dtype)


def random_inputs(workload: Workload, *, device: Any, seed: int) -> dict[str, Any]:
    """x and y (rows, N) of standard normal elements; rows start at multiples of the workload's width, and no more."""
    dtype, n = DTYPES[workload.dtype], workload.sizes["n"]
    rows, width = workload.options.get("rows", 1), workload.options.get("width", 16)
    draw = None if torch.device(device).type == "meta" else torch.Generator(device).manual_seed(seed)
    step = width // dtype.itemsize
    pitch = -(-n // step) * step
    if width < 16 and pitch % (2 * step) == 0:
        pitch += step

    def vector() -> Tensor:
        return torch.randn((rows, pitch), device=device, generator=draw, dtype=torch.float32).to(dtype)[:, :n]

    return {"x": vector(), "y": vector()}
