"""Calls of torch's own matrix-vector products, with sums of 32 bits. Needs torch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.library.launch import NARROW_SUMS
from constrint.kernels.gemv.launch import GemvCall
from constrint.select.candidate import CompiledKernel


@dataclass(frozen=True)
class GemvByTorch:
    """One product by torch's operator; there is nothing to compile."""

    call: GemvCall

    def run(self) -> None:
        """Enqueue it on the current stream."""
        call = self.call
        call.out.copy_(library_gemv(call.a, call.x, call.y, call.alpha, call.beta))

    def compile(self, gpu: GpuModel) -> CompiledKernel:
        """There is nothing to compile.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("gemv.library: the library is compiled already, and does not say what it launches.")


def library_gemv(a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float) -> Tensor:
    """alpha * a x + beta * y by torch's operators.

    Args:
        a: (M, N), or (batch, M, N).
        x: (N,), or (batch, N) for a batch.
        y: Likewise, or None.
        alpha, beta: Factors.
    """
    # Every call of a plan of the library's passes here, and a context manager costs as much host time as the launch.
    narrow = NARROW_SUMS.get(a.dtype)
    if narrow is None:
        return _multiplied(a, x, y, alpha, beta)
    narrow.enter()
    try:
        return _multiplied(a, x, y, alpha, beta)
    finally:
        narrow.leave()


def _multiplied(a: Tensor, x: Tensor, y: Tensor | None, alpha: float, beta: float) -> Tensor:
    """`library_gemv` with torch's settings as they are."""
    if a.dim() == 2 and x.dim() == 1 and (y is None or y.dim() == 1):
        if y is not None:
            return torch.addmv(y, a, x, alpha=alpha, beta=beta)
        return torch.mv(a, x) if alpha == 1.0 else torch.mv(a, x).mul_(alpha)
    batch = a.shape[0]
    columns = x.expand(batch, x.shape[-1]).unsqueeze(-1)
    if y is not None:
        added = y.expand(batch, y.shape[-1]).unsqueeze(-1)
        return torch.baddbmm(added, a, columns, alpha=alpha, beta=beta).squeeze(-1)
    out = torch.bmm(a, columns).squeeze(-1)
    return out if alpha == 1.0 else out.mul_(alpha)
