"""Sums of vectors, out = alpha * x + y."""

from __future__ import annotations

from typing import Any

__all__ = ["axpy"]


def __getattr__(name: str) -> Any:
    """Load the function at its first use; it needs torch."""
    if name == "axpy":
        from constrint.kernels.axpy.op import axpy

        return axpy
    raise AttributeError(name)
