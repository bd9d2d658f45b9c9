"""`Sequential`: `torch.nn.Sequential` whose pairs of a `Linear` and an activation are one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.compiler import is_compiling

from constrint.nn.activations import activation_of
from constrint.nn.linear import Linear, run

#: Hooks of all modules, which torch calls around every call.
_GLOBAL_HOOKS = tuple(f"_global_{name}_hooks" for name in ("backward", "backward_pre", "forward", "forward_pre"))


class Sequential(nn.Sequential):
    """`torch.nn.Sequential`: same modules, same state dict.

    A `constrint.nn.Linear` and the ReLU, GELU, SiLU, Sigmoid or Tanh that follows it run as one call, unless a hook of
    either looks at what lies between them. Each module alone still computes what it did.
    """

    def forward(self, input: Any) -> Any:
        """Run the modules in order."""
        if is_compiling() or are_hooked_globally():
            return super().forward(input)  # type: ignore[no-untyped-call]
        modules = iter(self)
        for module in modules:
            input = _through(module, modules, input)
        return input

    def __prepare_scriptable__(self) -> nn.Module:
        """Torch's own module with the same children, for torch.jit.script."""
        plain = nn.Module.__new__(nn.Sequential)
        plain.__dict__.update(self.__dict__)
        return plain


def _through(module: nn.Module, rest: Iterator[nn.Module], x: Any) -> Any:
    """The result of a module, and of the activation after it where both are one call."""
    if type(module) is not Linear or module.activation is not None or is_hooked(module):
        return module(x)
    after = next(rest, None)
    if after is None:
        return module(x)
    activation = activation_of(after)
    if activation is None or is_hooked(after):
        return _through(after, rest, module(x))
    return run(x, module.weight, module.bias, activation)


def is_hooked(module: nn.Module) -> bool:
    """Whether code of others runs before or after the module's own."""
    hooks: Any = module
    has_hooks = hooks._forward_hooks or hooks._forward_pre_hooks or hooks._backward_hooks or hooks._backward_pre_hooks
    return bool(has_hooks) or "forward" in module.__dict__


def are_hooked_globally() -> bool:
    """Whether code of others runs around every module."""
    return any(getattr(nn.modules.module, name) for name in _GLOBAL_HOOKS)
