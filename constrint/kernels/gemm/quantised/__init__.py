"""Products with weights of 4 or 8 bits in groups, for few rows; what needs torch is imported at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from constrint.kernels.gemm.quantised.op import quantised_matmul
    from constrint.kernels.gemm.quantised.weights import QuantisedWeight, quantise

__all__ = ["QuantisedWeight", "quantise", "quantised_matmul"]


def __getattr__(name: str) -> Any:
    if name == "quantised_matmul":
        from constrint.kernels.gemm.quantised.op import quantised_matmul

        return quantised_matmul
    if name in ("QuantisedWeight", "quantise"):
        from constrint.kernels.gemm.quantised import weights

        return getattr(weights, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
