"""Grouped products: rows of one matrix dealt to experts, each with weights of its own, in one launch."""

from __future__ import annotations

from typing import Any

__all__ = ["grouped_matmul"]


def __getattr__(name: str) -> Any:
    """Load the function at its first use; it needs torch."""
    if name == "grouped_matmul":
        from constrint.kernels.grouped.op import grouped_matmul

        return grouped_matmul
    raise AttributeError(name)
