"""Sweeps of a star stencil over grids of two and three axes, several of them in one launch."""

from __future__ import annotations

from typing import Any

__all__ = ["jacobi"]


def __getattr__(name: str) -> Any:
    """Load the function at its first use; it needs torch."""
    if name == "jacobi":
        from constrint.kernels.jacobi.op import jacobi

        return jacobi
    raise AttributeError(name)
