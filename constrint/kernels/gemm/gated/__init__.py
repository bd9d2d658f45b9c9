"""Gated pairs: activation(a @ gate) * (a @ up), as the MLPs of language models have them, in one launch."""

from __future__ import annotations

from typing import Any

__all__ = ["gated_matmul"]


def __getattr__(name: str) -> Any:
    """Load the function at its first use; it needs torch."""
    if name == "gated_matmul":
        from constrint.kernels.gemm.gated.op import gated_matmul

        return gated_matmul
    raise AttributeError(name)
