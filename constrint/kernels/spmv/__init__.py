"""Products of sparse matrices in CSR with vectors: formats and kernels by the lengths of rows."""

from __future__ import annotations

from typing import Any

__all__ = ["spmv"]


def __getattr__(name: str) -> Any:
    """Load the function at its first use; it needs torch."""
    if name == "spmv":
        from constrint.kernels.spmv.op import spmv

        return spmv
    raise AttributeError(name)
