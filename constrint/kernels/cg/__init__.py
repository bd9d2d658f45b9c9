"""Conjugate gradients: symmetric positive definite systems, all iterations in one launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.kernels.cg.op import cg
    from constrint.kernels.cg.result import CGResult
    from constrint.kernels.cg.star import Poisson, StarMatrix

__all__ = ["CGResult", "Poisson", "StarMatrix", "cg"]

__getattr__ = lazily(__name__, {"op": ("cg",), "result": ("CGResult",), "star": ("Poisson", "StarMatrix")})
