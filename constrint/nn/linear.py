"""`Linear`: `torch.nn.Linear` by the best program for each call, with an activation in the same call."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling
from torch.utils.weak import WeakIdKeyDictionary

from constrint.errors import UnknownNameError, UnsupportedError
from constrint.kernels.gemm.linear import ENDS, by_torch, linear
from constrint.kernels.gemm.reference import ACTIVATIONS

#: Dtypes that autocast converts.
NARROWED = (torch.float32, torch.float16, torch.bfloat16)


class Linear(nn.Linear):
    """activation(x @ weight^T + bias): `torch.nn.Linear`, same parameters and state dict.

    On a GPU calls in fp16, bf16 and fp32 run by the program that `constrint.kernels.gemm.matmul` chooses, and gradients
    by one plan for both products, the bias' sum and the activation's derivative. Other calls are torch's own: on other
    devices, in other dtypes, under torch.compile (so that inductor fuses what surrounds the layer), in transforms of
    torch.func, while a profiler or a mode observes them, and under torch.use_deterministic_algorithms. So is the first
    call of a shape, whose bits may therefore differ from those of later calls.

    Where gradients of other activations than "relu" are recorded, the sum before the activation is rounded to the
    result's type and stored, as torch's two modules do; without gradients it is rounded once, after the activation.

    Args:
        in_features: K, features of the input.
        out_features: N, features of the result.
        bias: Whether there is a bias.
        device: Device of the parameters.
        dtype: Dtype of the parameters.
        activation: That of `matmul`, "gelu" for example, computed in the same call; None for none.

    Raises:
        UnknownNameError: For an unknown activation; lists the known ones.
    """

    #: Of modules whose class was changed in place, too, which have no attribute of their own.
    activation: str | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        activation: str | None = None,
    ) -> None:
        if activation not in ENDS:
            raise UnknownNameError("activation", str(activation), tuple(ACTIVATIONS))
        super().__init__(in_features, out_features, bias, device, dtype)
        if activation is not None:
            self.activation = activation

    def forward(self, input: Tensor) -> Tensor:
        """Compute the layer.

        Args:
            input: (..., in_features).

        Returns:
            (..., out_features).
        """
        return run(input, self.weight, self.bias, self.activation)

    def __prepare_scriptable__(self) -> nn.Module:
        """Torch's own modules with the same parameters, for torch.jit.script."""
        plain = nn.Module.__new__(nn.Linear)
        plain.__dict__.update(self.__dict__)
        if self.activation is not None:
            raise UnsupportedError(
                "torch.jit.script takes constrint.nn.Linear without an activation alone; put the activation into a "
                "torch.nn.Sequential after the layer, or use torch.compile."
            )
        return plain

    def extra_repr(self) -> str:
        """Sizes, and the activation where there is one."""
        ending = "" if self.activation is None else f", activation={self.activation!r}"
        return super().extra_repr() + ending


def run(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
    """A layer's call: by plans where they apply, else by torch's functions."""
    if not is_compiling():
        if torch._C._is_any_autocast_enabled() and x.is_cuda and torch.is_autocast_enabled("cuda"):
            out = _autocast(x, weight, bias, activation)
        else:
            out = linear(x, weight, bias, ENDS[activation])
        if out is not None:
            return out
    return by_torch(x, weight, bias, activation)


def _autocast(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor | None:
    """The call in autocast's dtype; None where torch runs it.

    Without gradients torch keeps the narrow copies of weights as long as autocast is on, which nobody else can.
    """
    dtype = torch.get_autocast_dtype("cuda")
    given = [t.dtype for t in (x, weight, bias) if t is not None]
    if any(each not in NARROWED for each in given):
        return None
    if weight.dtype != dtype and not (torch.is_grad_enabled() and weight.requires_grad):
        return None
    narrow = None if bias is None else _narrow(bias, dtype)
    return linear(x.to(dtype), _narrow(weight, dtype), narrow, ENDS[activation])


#: Narrow copies of parameters that a recorded graph still holds: (dtype, version of the parameter, copy).
_NARROW: Any = WeakIdKeyDictionary()


def _narrow(parameter: Tensor, dtype: torch.dtype) -> Tensor:
    """A parameter in another dtype: one copy for all calls, until the parameter changes or the copy's graph goes."""
    if parameter.dtype == dtype:
        return parameter
    version = parameter._version
    seen = _NARROW.get(parameter)
    if seen is not None and seen[:2] == (dtype, version):
        copy: Tensor | None = seen[2]()
        if copy is not None:
            return copy
    made = parameter.to(dtype)
    _NARROW[parameter] = dtype, version, weakref.ref(made)
    return made
