"""Products of a matrix and a vector, y = alpha * A x + beta * y."""

from __future__ import annotations

from typing import Any

__all__ = ["gemv"]


def __getattr__(name: str) -> Any:
    """Load the function at its first use; it needs torch."""
    if name == "gemv":
        from constrint.kernels.gemv.op import gemv

        return gemv
    raise AttributeError(name)
