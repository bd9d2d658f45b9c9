"""Products of fp8 with scales of rows and columns, or of blocks of 128; `scaled_matmul` is loaded at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrint.kernels.gemm.scaled.op import scaled_matmul

__all__ = ["scaled_matmul"]


def __getattr__(name: str) -> Any:
    if name == "scaled_matmul":
        from constrint.kernels.gemm.scaled.op import scaled_matmul

        return scaled_matmul
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
