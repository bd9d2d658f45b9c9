"""Layers of `torch.nn` that run by the kernels of this package: same parameters, same state dict.

Importing this package is light; torch is loaded when a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.nn.conv1d import Conv1D
    from constrint.nn.linear import Linear
    from constrint.nn.sequential import Sequential

__all__ = ["Conv1D", "Linear", "Sequential"]

__getattr__ = lazily(__name__, {"conv1d": ("Conv1D",), "linear": ("Linear",), "sequential": ("Sequential",)})


def __dir__() -> list[str]:
    return list(__all__)
