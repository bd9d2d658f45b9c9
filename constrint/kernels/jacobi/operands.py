"""Random grids. Needs torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.jacobi.launch import DTYPE_NAMES
from constrint.kernels.jacobi.sizes import Grid


def random_grids(grid: Grid, *, device: Any, seed: int) -> dict[str, Tensor]:
    """u and f, (batch, NY, NX) or (batch, NZ, NY, NX), normally distributed; without data on `meta`."""
    dtype = next(of_torch for of_torch, name in DTYPE_NAMES.items() if name == grid.dtype)
    shape = (grid.batch, *((grid.slow, grid.ny) if grid.is_3d else (grid.slow,)), grid.nx)
    is_meta = torch.device(device).type == "meta"
    draw = None if is_meta else torch.Generator(device).manual_seed(seed)
    return {name: torch.randn(shape, device=device, generator=draw).to(dtype) for name in ("u", "f")}
