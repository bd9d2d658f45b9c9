"""The multilayer perceptrons of models: linear layers, activations and gated pairs one after the other, in few calls.

The class is made from that of a model, which `constrint.patch` gives to modules in place: whatever asks for the class
of the model finds it. What its forward pass computes is stated by stages, which `constrint.patch` reads off a trace.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from constrint.kernels.gemm.gated.layer import gated_layer
from constrint.kernels.gemm.gated.passes import gate
from constrint.nn.conv1d import Conv1D, run_conv1d
from constrint.nn.linear import Linear, run
from constrint.nn.sequential import are_hooked_globally, is_hooked


class Stage(NamedTuple):
    """A stage of a forward pass, by the names of child modules.

    Args:
        module: A module that is called by itself; for a pair, its linear layer; for a gated pair, that of the gate.
        activation: The name of the activation that ends the linear layer; None for a module by itself.
        of_activation: The child that computes it.
        up: The linear layer of the other factor of a gated pair.
    """

    module: str
    activation: str | None = None
    of_activation: str = ""
    up: str = ""


class Mlp(nn.Module):
    """Stages of one forward pass: the part that all classes of `mlp_class` share."""

    #: The class of the model, whose `forward` runs all other calls.
    original: Any = nn.Module
    stages: tuple[Stage, ...] = ()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute (..., out) of (..., in): the stages in their order."""
        if len(args) != 1 or kwargs or is_compiling() or not isinstance(args[0], Tensor) or not self._is_as_traced():
            return self.original.forward(self, *args, **kwargs)
        x, modules = args[0], self._modules
        for stage in self.stages:
            x = _through(stage, modules, x)
        return x

    def _is_as_traced(self) -> bool:
        """Whether no code of others looks at what lies between a linear layer and its activation."""
        if are_hooked_globally():
            return False
        names = [name for stage in self.stages if stage.activation for name in stage[::2] if name]
        names += [stage.up for stage in self.stages if stage.up]
        return not any(is_hooked(child) for child in (self._modules[name] for name in names) if child is not None)

    def __prepare_scriptable__(self) -> nn.Module:
        """A module of the model's own class with the same parameters, for torch.jit.script."""
        plain: nn.Module = self.original.__new__(self.original)
        plain.__dict__.update(self.__dict__)
        return plain

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _rebuilt, (self.original, self.stages), self.__dict__


def _through(stage: Stage, modules: Any, x: Tensor) -> Any:
    first = modules[stage.module]
    if stage.activation is None:
        return first(x)
    if stage.up:
        up = modules[stage.up]
        if type(first) is Linear and type(up) is Linear and first.activation is None and up.activation is None:
            return gated(x, first, up, stage.activation)
        return modules[stage.of_activation](first(x)) * up(x)
    if type(first) is Linear and first.activation is None:
        return run(x, first.weight, first.bias, stage.activation)
    if isinstance(first, Conv1D):
        out = run_conv1d(x, first.weight, first.bias, stage.activation)
        if out is not None:
            return out
    return modules[stage.of_activation](first(x))


def gated(x: Tensor, first: nn.Linear, up: nn.Linear, activation: str) -> Tensor:
    """activation(first(x)) * up(x): one launch, or two products and a pass."""
    if x.is_cuda and not torch.is_autocast_enabled("cuda"):
        out = gated_layer(x, first.weight, up.weight, first.bias, up.bias, activation)
        if out is not None:
            return out
    return gate(run(x, first.weight, first.bias, None), run(x, up.weight, up.bias, None), activation)


@lru_cache(maxsize=256)
def mlp_class(original: Any, stages: tuple[Stage, ...]) -> type[nn.Module]:
    """The class for modules of a model's own class whose forward pass has these stages."""
    own = {"original": original, "stages": stages, "__module__": Mlp.__module__}
    return type(original.__name__, (Mlp, original), own)


def _rebuilt(original: Any, stages: tuple[Stage, ...]) -> nn.Module:
    kind = mlp_class(original, stages)
    return kind.__new__(kind)
