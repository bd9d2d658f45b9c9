"""Tiled matrix multiplication, C = A @ B; `matmul` is imported at its first use, since it needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrint.kernels.gemm.op import matmul

__all__ = ["matmul"]


def __getattr__(name: str) -> Any:
    if name == "matmul":
        from constrint.kernels.gemm.op import matmul

        return matmul
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
