"""GPT-2's linear layer, whose weight is (in, out), by the best program for each call.

The class is made from that of a model, which `constrint.patch` gives to modules in place: whatever asks for the class
of transformers finds it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from constrint.kernels.gemm.linear import DTYPES, recurs
from constrint.kernels.gemm.op import matmul


class Conv1D(nn.Module):
    """x @ weight + bias with a weight (in, out): the part that all classes of `conv1d_class` share."""

    weight: Tensor
    bias: Tensor
    #: The class of the model, whose `forward` runs all other calls.
    original: Any = nn.Module

    def forward(self, x: Tensor) -> Tensor:
        """Compute (..., out) of (..., in)."""
        found = run_conv1d(x, self.weight, self.bias, None)
        if found is not None:
            return found
        out: Tensor = self.original.forward(self, x)
        return out

    def __prepare_scriptable__(self) -> nn.Module:
        """A module of the model's own class with the same parameters, for torch.jit.script."""
        plain: nn.Module = self.original.__new__(self.original)
        plain.__dict__.update(self.__dict__)
        return plain

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (self.original,), self.__dict__


def run_conv1d(x: Tensor, weight: Tensor, bias: Tensor, activation: str | None) -> Tensor | None:
    """activation(x @ weight + bias) by `matmul`; None where torch runs the call."""
    is_ours = not is_compiling() and x.is_cuda and x.dtype in DTYPES and x.dtype == weight.dtype == bias.dtype
    is_ours = is_ours and x.shape[-1] == weight.shape[0] and not torch.is_autocast_enabled("cuda")
    if is_ours and recurs(x, weight, activation):
        return matmul(x, weight, bias, activation=activation)
    return None


@lru_cache(maxsize=64)
def conv1d_class(original: Any) -> type[nn.Module]:
    """The class for modules of a model's own `Conv1D`."""
    return type(original.__name__, (Conv1D, original), {"original": original, "__module__": Conv1D.__module__})


def _rebuilt(original: Any) -> nn.Module:
    kind = conv1d_class(original)
    return kind.__new__(kind)
