"""Products with a sparse matrix in plain PyTorch, on any device, in double precision."""

from __future__ import annotations

import torch
from torch import Tensor


def spmv_reference(
    crow: Tensor,  # (rows + 1,)
    columns: Tensor,  # (entries,)
    values: Tensor,  # (entries,)
    x: Tensor,  # (columns,) or (columns, width)
    source: Tensor | None = None,  # (rows,) or (rows, width)
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Tensor:
    """alpha * A @ x + beta * source in fp64."""
    rows = crow.shape[0] - 1
    row = torch.repeat_interleave(torch.arange(rows, device=crow.device), (crow[1:] - crow[:-1]).long())
    wide = values.double() if x.dim() == 1 else values.double()[:, None]
    products = wide * x.double()[columns.long()]
    out = torch.zeros((rows, *x.shape[1:]), dtype=torch.float64, device=values.device).index_add_(0, row, products)
    out *= alpha
    return out if source is None or beta == 0 else out + beta * source.double()
