"""Calls of one step: each layer by the plan of a cell's step (`constrint.flashrnn.onestep`).

`refusal_of_call` says whether a kind of call has such plans, `run_dense` runs it. This returns None for operands that
have no plan: the module then runs its recurrences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import dropout

from constrint.flashrnn.libraries.cpu import Results, States
from constrint.flashrnn.observers import needs_plain_torch
from constrint.flashrnn.onestep import STEP_CELLS, Weights, step
from constrint.flashrnn.stepcells import gradients_of
from constrint.kernels.rnn.dispatch import AUTO

if TYPE_CHECKING:
    from constrint.flashrnn.decisions import CallKind
    from constrint.flashrnn.parameters import RecurrentParameters


def refusal_of_call(module: RecurrentParameters, x: Tensor, kind: CallKind) -> str:
    """Why a kind of call of one step has no plan of its own; empty if it has one."""
    if kind.has_lengths or kind.has_resets or kind.is_packed:
        return "it takes dense batches without lengths and reset"
    if not is_plain(module):
        return "it takes no several heads, directions, projection of h, config and gradient_recurrent_clip"
    if needs_plain_torch() or torch._C._len_torch_dispatch_stack():
        return "transforms and modes of torch cannot look into it"
    if torch._C._is_any_autocast_enabled():
        return "autocast is on"
    if torch.version.hip is not None:
        return "its products are cuBLASLt's"
    return ""


def is_plain(module: RecurrentParameters) -> bool:
    """Whether a module is one of torch's cells without further options."""
    return (
        module.backend == AUTO
        and module.config is None
        and module.gradient_recurrent_clip is None
        and module.num_heads == 1
        and not module.bidirectional
        and not module.proj_size
        and module.cell in STEP_CELLS
    )


def run_dense(module: RecurrentParameters, x: Tensor, states: States | None, lengths: Tensor | None) -> Results | None:
    """Run a checked call that has no plan: None, since `run` has seen it before it was checked."""
    return None


def run(module: RecurrentParameters, x: Tensor, hx: Any) -> Results | None:
    """Run all layers for one step; None for operands that have no plan, or do not go together.

    Args:
        module: A module that `is_plain`.
        x: (1, B, I), or (B, 1, I) where the batch comes first.
        hx: The initial states as the module takes them.
    """
    if torch._C._is_any_autocast_enabled():
        return None
    time_dim, num_layers, is_lstm = 1 if module.batch_first else 0, module.num_layers, module.cell == "lstm"
    starts: Any = hx if is_lstm else (hx,)
    if hx is None:
        starts = (None, None)[: 1 + is_lstm]
    elif isinstance(starts, Tensor) or len(starts) != 1 + is_lstm or not all(_fits(s, num_layers) for s in starts):
        return None
    gradients, rows, ends = gradients_of(module, num_layers), x.squeeze(time_dim), []
    by_layer = [
        [None] * num_layers if s is None else s.unbind(0) if num_layers > 1 else (s.squeeze(0),) for s in starts
    ]
    for layer in range(num_layers):
        if layer and module.dropout and module.training:
            rows = dropout(rows, module.dropout)
        own = [states[layer] for states in by_layer]
        made = step(module.cell, gradients[layer], rows, own[0], own[1] if is_lstm else None, _weights(module, layer))
        if made is None:
            return None
        rows = made[0]
        ends.append(made)
    if num_layers == 1:
        last = tuple(state.unsqueeze(0) for state in ends[0])
    else:
        last = tuple(torch.stack(states) for states in zip(*ends, strict=True))
    return rows.unsqueeze(time_dim), last


def _fits(state: Any, num_layers: int) -> bool:
    return isinstance(state, Tensor) and state.dim() == 3 and len(state) == num_layers


def _weights(module: RecurrentParameters, layer: int) -> Weights:
    own = module._parameters
    weights = []
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[: 4 if module.bias else 2]:
        weight = own.get(f"{name}_l{layer}")
        # A parametrization computes it.
        weights.append(getattr(module, f"{name}_l{layer}") if weight is None else weight)
    return (*weights, None, None)[:4]  # type: ignore[return-value]
