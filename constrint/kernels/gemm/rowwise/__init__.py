"""Ends of products that look at whole rows: results in fp8 with their scales, and the norms of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrint.kernels.gemm.rowwise.op import matmul_fp8, matmul_rms

__all__ = ["matmul_fp8", "matmul_rms"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from constrint.kernels.gemm.rowwise import op

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
