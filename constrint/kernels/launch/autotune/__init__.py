"""`constrint.autotune`: a user's Triton kernel with constraints in place of a list of configurations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.kernels.launch.autotune.call_space import Space, space
    from constrint.kernels.launch.autotune.decorator import AutotunedKernel, autotune

__all__ = ["AutotunedKernel", "Space", "autotune", "space"]

__getattr__ = lazily(__name__, {"decorator": ("AutotunedKernel", "autotune"), "call_space": ("Space", "space")})
