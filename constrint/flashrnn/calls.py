"""Calls of modules that were seen before: one look-up, and the library or the layers' plans.

A call on a dense batch alone (no initial states, lengths or resets) is checked and decided once for each signature:
the module's options, shapes, types and strides of the input and of the weights, gradients, torch's precision. Later
calls run a function of the input and the weights, by cuDNN, or by each layer's projection and recurrence. Observed
calls, and those of modules with more weights than a table takes, go the way of a first call (`layers.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.flashrnn import layer_node
from constrint.flashrnn.checks import REFERENCE
from constrint.flashrnn.decisions import DENSE, library_of
from constrint.flashrnn.libraries import cudnn
from constrint.flashrnn.libraries.cpu import layout_of
from constrint.flashrnn.sequences import time_first
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, WANTS_GRAD, PlanTable

if TYPE_CHECKING:
    from constrint.flashrnn.layers import Recurrent

#: Takes the input and the weights in torch's order; gives the output and the last states as the module does.
Run = Callable[..., tuple[Any, Any]]


def _no_plan(tensors: tuple[Any, ...], extra: Any) -> Any:
    raise NotPlannedError("functions of calls are inserted")


def _precision() -> tuple[bool, bool]:
    return torch._C._get_cublas_allow_tf32(), cudnn.has_precision()


CALLS = PlanTable("module", _no_plan, _precision)


def seen_before(module: Recurrent, x: Any) -> tuple[Any, Any] | None:
    """The result of a call that is known, or becomes so; None where the call goes the way of a first one.

    Raises:
        RuntimeError, ValueError: For an input that does not go with the module.
    """
    if not isinstance(x, Tensor) or not x.is_cuda or is_compiling() or torch._C._is_any_autocast_enabled():
        return None
    # A call of one step has a plan, and a look-up, of its own.
    if module.config is not None or x.dim() != 3 or x.shape[1 if module.batch_first else 0] == 1:
        return None
    own = module._parameters
    weights: list[Tensor | None] = [own.get(name) for name, _ in layout_of(module)]
    options: tuple[Any, ...] = (
        type(module), module.cell, module.hidden_size, module.num_layers, module.bidirectional, module.batch_first,
        module.backend, module.num_heads, module.proj_size, module.gradient_recurrent_clip,
        module.dropout if module.training else 0.0, torch.is_grad_enabled(), torch._C._get_cudnn_enabled(),
    )  # fmt: skip
    trains = False
    found: Any = CALLS.call(False, options, x, *weights)
    if found is WANTS_GRAD:
        trains, options = True, (*options, True)
        found = CALLS.call(True, options, x, *weights)
    if found is IS_NEW:
        run = _run_of(module, x, weights, trains=trains)
        CALLS.insert(options, run, x, *weights)
        return None if run is None else run(x, *weights)
    known: tuple[Any, Any] | None = found
    return known


def _run_of(module: Recurrent, x: Tensor, weights: list[Tensor | None], *, trains: bool) -> Run | None:
    """The function of a new signature; None for calls that go the way of a first one."""
    if not module.is_usual() or not x.numel() or module.proj_size or any(weight is None for weight in weights):
        return None
    module._check_input(x)
    batch, time = x.shape[0 if module.batch_first else 1], x.shape[1 if module.batch_first else 0]
    library = library_of(module, x, batch, time, DENSE)
    if library is not None:
        return cudnn.run_of(module, x, trains=trains) if library is cudnn else None
    drops = module.num_layers > 1 and module.dropout and module.training
    if module.bidirectional or drops or module.backend == REFERENCE or not layer_node.takes(x):
        return None
    return _by_layers(module)


def _by_layers(module: Recurrent) -> Run:
    """The layers one after another, each in one call."""
    num_layers, batch_first = module.num_layers, module.batch_first
    per_layer = 4 if module.bias else 2
    shapes = [module.shape_of_layer(batch_first=batch_first or layer > 0) for layer in range(num_layers)]

    def run(x: Tensor, *weights: Tensor) -> tuple[Any, Any]:
        rows, ends = x, []
        for layer, shape in enumerate(shapes):
            own: Any = weights[layer * per_layer : (layer + 1) * per_layer]
            rows, end_h, end_rest = layer_node.run(shape, rows, *own, *(None,) * (4 - per_layer), is_unseen=True)
            ends.append(layer_node.ends_of(end_h, end_rest))
        last = ends[0] if num_layers == 1 else tuple(torch.cat(parts) for parts in zip(*ends, strict=True))
        return rows if batch_first else time_first(rows), last[0] if len(last) == 1 else last

    return run
