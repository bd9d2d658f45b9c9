"""Layers of experts of transformers: the gate between their two grouped products is one pass.

The class is made from that of a model, which `constrint.patch` gives to modules in place.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from torch import Tensor, nn
from torch.compiler import is_compiling

from constrint.kernels.gemm.gated.passes import gate


class Experts(nn.Module):
    """The part that all classes of `experts_class` share."""

    #: The class of the model.
    original: Any = nn.Module
    #: The activation of the gate.
    activation: str = "silu"

    def _apply_gate(self, gate_up_out: Tensor) -> Tensor:
        """activation(gate) * up of (S, 2 N), both side by side; (S, N)."""
        if is_compiling():
            out: Tensor = self.original._apply_gate(self, gate_up_out)
            return out
        return gate(gate_up_out, None, self.activation)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (self.original, self.activation), self.__dict__


@lru_cache(maxsize=64)
def experts_class(original: Any, activation: str) -> type[nn.Module]:
    """The class for modules of a model's own layer of experts."""
    own = {"original": original, "activation": activation, "__module__": Experts.__module__}
    return type(original.__name__, (Experts, original), own)


def _rebuilt(original: Any, activation: str) -> nn.Module:
    kind = experts_class(original, activation)
    return kind.__new__(kind)
