"""`torch.nn.LSTMCell`, `GRUCell` and `RNNCell` on fused kernels: subclasses that run a step by one launch plan.

What has no plan (the CPU, other dtypes, autocast, torch.compile, transforms, exports) runs torch's own cell.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.compiler import is_compiling

from constrint.flashrnn.onestep import WeightGradients, Weights, step

_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
#: Attribute of a cell that holds the node of its weights; state dicts, copies and pickles are without it.
GRADIENTS = "_weight_gradients"

#: Torch's classes, whatever a program has put in their place since.
TORCH_CELLS: dict[str, type[nn.Module]] = {"LSTMCell": nn.LSTMCell, "GRUCell": nn.GRUCell, "RNNCell": nn.RNNCell}


class LSTMCell(nn.LSTMCell):
    """`torch.nn.LSTMCell` on fused kernels: same constructor, call, errors and state dict.

    Args:
        input_size: Features of the input.
        hidden_size: Hidden units H.
        bias: Whether there are bias terms.
        device: Device of the parameters.
        dtype: Dtype of the parameters.
    """

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """New h and c, (B, H) or (H,), from input (B, I) or (I,) and (h, c); zeros where `hx` is None."""
        if input.is_cuda and not is_compiling():
            states = stepped(self, "lstm", input, (None, None) if hx is None else hx)
            if states is not None:
                return states[0], states[1]
        return super().forward(input, hx)

    def __prepare_scriptable__(self) -> nn.Module:
        """The cell that torch.jit.script compiles in the place of this one."""
        return torch_cell(self, TORCH_CELLS["LSTMCell"])


class GRUCell(nn.GRUCell):
    """`torch.nn.GRUCell` on fused kernels: same constructor, call, errors and state dict.

    Arguments as in `LSTMCell`.
    """

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """New h, (B, H) or (H,), from input (B, I) or (I,) and h; zeros where `hx` is None."""
        if input.is_cuda and not is_compiling():
            states = stepped(self, "gru", input, (hx, None))
            if states is not None:
                return states[0]
        return super().forward(input, hx)

    def __prepare_scriptable__(self) -> nn.Module:
        """The cell that torch.jit.script compiles in the place of this one."""
        return torch_cell(self, TORCH_CELLS["GRUCell"])


class RNNCell(nn.RNNCell):
    """`torch.nn.RNNCell` (Elman) on fused kernels: same constructor, call, errors and state dict.

    Arguments as in `LSTMCell`; `nonlinearity`, after `bias`, is `tanh` or `relu`.
    """

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """New h, (B, H) or (H,), from input (B, I) or (I,) and h; zeros where `hx` is None."""
        if input.is_cuda and not is_compiling() and self.nonlinearity in ("tanh", "relu"):
            cell = "elman" if self.nonlinearity == "tanh" else "elman_relu"
            states = stepped(self, cell, input, (hx, None))
            if states is not None:
                return states[0]
        return super().forward(input, hx)

    def __prepare_scriptable__(self) -> nn.Module:
        """The cell that torch.jit.script compiles in the place of this one."""
        return torch_cell(self, TORCH_CELLS["RNNCell"])


def stepped(module: nn.RNNCellBase, cell: str, x: Tensor, states: Any) -> tuple[Tensor, ...] | None:
    """New states by a plan, shaped as the input; None where torch's cell is to run, which says what is wrong."""
    if torch._C._is_any_autocast_enabled() or len(states) != 2:
        return None
    h, c = states
    is_alone = x.dim() == 1
    if is_alone:
        if not all(state is None or state.dim() == 1 for state in states):
            return None
        x, h, c = x[None], None if h is None else h[None], None if c is None else c[None]
    elif x.dim() != 2:
        return None
    made = step(cell, gradients_of(module)[0], x, h, c, _weights(module))
    if made is None or not is_alone:
        return made
    return tuple(state[0] for state in made)


def gradients_of(module: nn.Module, layers: int = 1) -> tuple[WeightGradients, ...]:
    """The nodes of a module's weights, one for each layer."""
    gradients: tuple[WeightGradients, ...] | None = module.__dict__.get(GRADIENTS)
    if gradients is None:
        gradients = module.__dict__[GRADIENTS] = tuple(WeightGradients() for _ in range(layers))
    return gradients


def _weights(module: nn.Module) -> Weights:
    own = module._parameters
    try:
        return own["weight_ih"], own["weight_hh"], own["bias_ih"], own["bias_hh"]  # type: ignore[return-value]
    except KeyError:  # a parametrization computes one
        return tuple(getattr(module, name) for name in _NAMES)


def torch_cell(module: Any, kind: type[nn.Module]) -> nn.Module:
    """A cell of `torch.nn` with the same parameters: the tensors themselves, no copies."""
    cell = kind.__new__(kind)
    cell.__dict__.update({name: value for name, value in module.__dict__.items() if name != GRADIENTS})
    return cell
