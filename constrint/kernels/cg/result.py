"""The answer of `cg`. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CONVERGED, MAXITER = "converged", "maxiter"


@dataclass(frozen=True)
class CGResult:
    """The solution, and how it was reached.

    Args:
        x: The solution, of the shape of `b`.
        iterations: Products with the matrix that the recurrence took.
        residual: ||b - A x||, computed from `x` at the end, in fp64 sums.
        history: (iterations + 1,) ||r|| of the recurrence after each iteration, the first before any, fp64, on the CPU.
        status: "converged", "maxiter", or "breakdown: " and the reason.
        kernel: The implementation that ran: "cuda", "triton" or "torch".
    """

    x: Any
    iterations: int
    residual: float
    history: Any
    status: str
    kernel: str

    @property
    def is_converged(self) -> bool:
        """Whether the residual of `x` meets the tolerance."""
        return self.status == CONVERGED
