"""Which modules are replaced, by what, and the reasons why others are left.

Each rule looks at one module and returns None where the module is not of its kind, the reason why it stays, or the
change. To replace a further kind of module, write a rule and add it to `RULES`. A change
swaps the class of the module in place: parameters, buffers, hooks, names in the state dict, and the identity of all of
these stay. Needs torch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from constrint import flashrnn
from constrint.flashrnn.stepcells import GRADIENTS
from constrint.nn.activations import activation_of
from constrint.nn.conv1d import Conv1D, conv1d_class
from constrint.nn.experts import Experts, experts_class
from constrint.nn.linear import Linear
from constrint.nn.mlp import Mlp, Stage, mlp_class
from constrint.nn.sequential import Sequential
from constrint.patch.structure import stages_of

#: Dtypes of weights that this package computes with.
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
RECURRENT: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTM: flashrnn.LSTM,
    nn.GRU: flashrnn.GRU,
    nn.RNN: flashrnn.RNN,
}
CELLS = {nn.LSTM: "lstm", nn.GRU: "gru"}
STEP_CELLS: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTMCell: flashrnn.LSTMCell,
    nn.GRUCell: flashrnn.GRUCell,
    nn.RNNCell: flashrnn.RNNCell,
}
#: Modules that belong to this package already.
OURS = (Linear, Sequential, Conv1D, Mlp, Experts, *RECURRENT.values(), *STEP_CELLS.values())


class Change(NamedTuple):
    """A change of a module.

    Args:
        after: The class that it gets.
        gain: What is different, for people.
        prepare: Called before the class changes.
        restore: Called after the class has changed back.
    """

    after: type[nn.Module]
    gain: str
    prepare: Callable[[nn.Module], None] = lambda module: None
    restore: Callable[[nn.Module], None] = lambda module: None


#: Reason to leave a module, or its change; None where it is not of the rule's kind.
Verdict = str | Change | None


def linear_rule(module: nn.Module) -> Verdict:
    """`torch.nn.Linear`, exactly."""
    if not isinstance(module, nn.Linear):
        return None
    reason = refusal_of_linear(module)
    return reason or Change(Linear, "products and gradients by the best program for each call")


def refusal_of_linear(module: nn.Module) -> str:
    """Reason why a linear layer stays; empty if it is replaced."""
    if type(module) is not nn.Linear:
        return _of_subclass(module)
    return _own_forward(module) or _weights(module, ("weight",))


def sequential_rule(module: nn.Module) -> Verdict:
    """`torch.nn.Sequential` with a linear layer that an activation follows."""
    if type(module) is not nn.Sequential:
        return None
    children = list(module)
    pairs = [
        activation_of(after)
        for layer, after in pairwise(children)
        if type(layer) in (nn.Linear, Linear) and activation_of(after)
        if type(layer) is Linear or not refusal_of_linear(layer)
    ]
    if not pairs:
        return None
    names = ", ".join(sorted({str(name) for name in pairs}))
    return _own_forward(module) or Change(Sequential, f"linear layers end in {names} within one call")


def conv1d_rule(module: nn.Module) -> Verdict:
    """GPT-2's `Conv1D`, known by its name, its `nf` and the shapes of its parameters."""
    kind: Any = type(module)
    if kind.__name__ != "Conv1D" or isinstance(module, nn.modules.conv._ConvNd):
        return None
    if isinstance(module, Conv1D):
        return ALREADY
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    features = getattr(module, "nf", None)
    if weight is None or bias is None or weight.dim() != 2 or weight.shape[1] != features or bias.shape != (features,):
        return "a class of this name, but not with the parameters of GPT-2's"
    change = Change(conv1d_class(kind), "products and gradients by the best program for each call")
    return _own_forward(module) or _weights(module, ("weight", "bias")) or change


def mlp_rule(module: nn.Module) -> Verdict:
    """A module of any other class whose forward pass is children one after the other, with activations or a gate."""
    if isinstance(module, (*OURS, nn.Sequential, nn.ModuleList, nn.ModuleDict)) or is_of_torch(module):
        return None
    stages = stages_of(module, is_layer)
    if not stages:
        return None
    reason = _own_forward(module) or _of_layers(module, stages)
    gains = sorted({f"{'gate' if stage.up else 'end'} {stage.activation}" for stage in stages if stage.activation})
    names = ", ".join(gains).replace("end ", "").replace("gate ", "gated ")
    kind: Any = type(module)
    return reason or Change(mlp_class(kind, stages), f"linear layers end in {names} within one call")


def is_layer(module: nn.Module | None) -> bool:
    """Whether a child is a linear layer, or GPT-2's."""
    return isinstance(module, nn.Linear | Conv1D) or (module is not None and isinstance(conv1d_rule(module), Change))


def is_of_torch(module: nn.Module) -> bool:
    """Whether the class of a module is torch's own."""
    return type(module).__module__.partition(".")[0] == "torch"


def _of_layers(module: nn.Module, stages: tuple[Stage, ...]) -> str:
    """Reason to leave a module by the linear layers of its stages."""
    names = [name for stage in stages if stage.activation for name in (stage.module, stage.up) if name]
    layers = [module._modules[name] for name in names]
    for layer in layers:
        if isinstance(layer, nn.Linear) and type(layer) not in (nn.Linear, Linear):
            return "its linear layers are of a subclass, which is not known here"
    if len({p.dtype for p in module.parameters()}) > 1:
        return "its weights have more than one dtype"
    return ""


def experts_rule(module: nn.Module) -> Verdict:
    """A layer of experts of transformers, known by its method for the gate and by how weights are laid out."""
    kind: Any = type(module)
    applied = getattr(kind, "_apply_gate", None)
    if applied is None or "gate_up_proj" not in module._parameters:
        return None
    if isinstance(module, Experts):
        return ALREADY
    activation = activation_of(getattr(module, "act_fn", module))
    if getattr(applied, "__name__", "") != "_default_apply_gate" or not getattr(module, "is_concatenated", False):
        return "its gate is one of its own"
    if activation is None:
        return "no kernel computes the activation of its gate"
    change = Change(experts_class(kind, activation), f"the gate with {activation} is one pass")
    return _own_forward(module) or _weights(module, ("gate_up_proj",)) or change


def recurrent_rule(module: nn.Module) -> Verdict:
    """`torch.nn.LSTM`, `GRU` and `RNN`, exactly."""
    if not isinstance(module, nn.RNNBase):
        return None
    after = RECURRENT.get(type(module))
    if after is None:
        return _of_subclass(module)
    reason = _own_forward(module) or _weights(module, tuple(module._flat_weights_names))
    return reason or Change(after, "fused recurrence, chosen with cuDNN as a candidate", _prepare_rnn, _restore_rnn)


def step_cell_rule(module: nn.Module) -> Verdict:
    """`torch.nn.LSTMCell`, `GRUCell` and `RNNCell`, exactly."""
    if not isinstance(module, nn.RNNCellBase):
        return None
    after = STEP_CELLS.get(type(module))
    if after is None:
        return _of_subclass(module)
    names = ["weight_ih", "weight_hh", *(("bias_ih", "bias_hh") if module.bias else ())]
    change = Change(after, "a step by one launch plan, weight gradients once for all steps", restore=_restore_cell)
    return _own_forward(module) or _weights(module, tuple(names)) or change


class PatchRule(NamedTuple):
    """A rule and the argument of `patch` that switches it."""

    option: str
    verdict: Callable[[nn.Module], Verdict]


RULES = (
    PatchRule("linear", linear_rule),
    PatchRule("linear", conv1d_rule),
    PatchRule("activations", sequential_rule),
    PatchRule("activations", mlp_rule),
    PatchRule("activations", experts_rule),
    PatchRule("recurrent", recurrent_rule),
    PatchRule("recurrent", step_cell_rule),
)

ALREADY = "runs by this package already"


def _of_subclass(module: nn.Module) -> str:
    if isinstance(module, OURS):
        return ALREADY
    if isinstance(module, NonDynamicallyQuantizableLinear):
        return "the attention around it reads its weights and never calls it"
    if hasattr(module, "parametrizations"):
        return "its weights are computed by parametrizations"
    return "a subclass with a forward of its own, which is not known here"


def _own_forward(module: nn.Module) -> str:
    """Reason to leave a module whose call is replaced in the object itself."""
    return "its forward was replaced in the object, perhaps by hooks of a library" if _has_forward(module) else ""


def _has_forward(module: nn.Module) -> bool:
    return "forward" in module.__dict__


def _weights(module: nn.Module, names: tuple[str, ...]) -> str:
    """Reason to leave a module by its parameters: their kind and dtype."""
    for name in names:
        weight: Any = module._parameters.get(name)
        if weight is None:
            return f"its {name} is no parameter: something computes it before each call"
        if type(weight) is not nn.Parameter:
            return f"its {name} is a {type(weight).__name__}, whose products are its own"
        if weight.dtype not in DTYPES:
            return f"its {name} is {str(weight.dtype).removeprefix('torch.')}: torch's own product runs"
    return ""


def _restore_cell(module: nn.Module) -> None:
    module.__dict__.pop(GRADIENTS, None)


#: Attributes of torch's recurrent modules that refer to their weights once more.
_FLAT = ("_flat_weights", "_flat_weight_refs")


def _prepare_rnn(module: nn.Module) -> None:
    """Give a recurrent module of torch the attributes of this package's."""
    kind: Any = type(module)
    nonlinearity = getattr(module, "nonlinearity", "tanh")
    module.__dict__["cell"] = CELLS.get(kind) or ("elman" if nonlinearity == "tanh" else "elman_relu")
    module.__dict__.update(num_heads=1, backend="auto", config=None, gradient_recurrent_clip=None)
    for name in _FLAT:
        module.__dict__.pop(name, None)


def _restore_rnn(module: Any) -> None:
    for name in ("cell", "num_heads", "backend", "config", "gradient_recurrent_clip"):
        module.__dict__.pop(name, None)
    module._init_flat_weights()
