"""Whole modules by cuDNN, where the decision takes it or a module names it.

`refusal_of_call` says whether cuDNN can run a kind of call, `run_dense` and `run_packed` run the call. These return
None for operands that cuDNN does not take: the module then runs its recurrences, and one with `backend="cudnn"` raises
the reason.

Layers run one at a time where cuDNN's persistent algorithm takes them, which runs no more than one, and where dropout
acts between them; else all in one call, in which cuDNN may overlap them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from constrint.errors import UnsupportedError
from constrint.flashrnn.libraries.cpu import PLAIN, Results, States, layout_of
from constrint.flashrnn.observers import needs_plain_torch
from constrint.kernels.rnn.cudnn.launch import MODES, CudnnCall, run_layers
from constrint.kernels.rnn.cudnn.launch import lie_flat as move_flat
from constrint.kernels.rnn.cudnn.spec import CUDNN, CudnnLayer, is_persistent
from constrint.kernels.rnn.dispatch import dtype_name

if TYPE_CHECKING:
    from constrint.flashrnn.decisions import CallKind
    from constrint.flashrnn.parameters import RecurrentParameters

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def refusal_of_call(module: RecurrentParameters, dtype: torch.dtype, kind: CallKind) -> str:
    """Why cuDNN does not run a kind of call; empty if it does.

    Args:
        module: The module.
        dtype: The dtype of products with the input.
        kind: The kind of the call.
    """
    is_auto = module.backend != CUDNN
    if kind.has_lengths or kind.has_resets:
        return "it takes neither lengths nor reset; pass a PackedSequence for lengths"
    if module.config is not None:
        return "there is nothing to configure"
    if needs_plain_torch() or torch._C._len_torch_dispatch_stack():
        return "transforms and modes of torch cannot look into it"
    if module.cell not in MODES:
        return f"it has no {module.cell}"
    if module.num_heads != 1 or module.proj_size or module.gradient_recurrent_clip is not None:
        return "it takes one head, no projection of h (proj_size) and no gradient_recurrent_clip"
    if is_auto and kind.is_packed:
        return "it runs packed sequences where backend='cudnn' names it"
    if is_auto and torch.are_deterministic_algorithms_enabled():
        return "torch is set to deterministic algorithms"
    if is_auto and (dtype not in DTYPES or (dtype == torch.float32 and not has_precision())):
        return f"it takes float32, bfloat16 or float16 in torch's precision, the input is {dtype}"
    return ""


def run_dense(
    module: RecurrentParameters,
    x: Tensor,  # (T, B, features), or (B, T, features) if `module.batch_first`
    states: States | None,  # (layers * directions, B, size) each
    lengths: Tensor | None,
) -> Results | None:
    """Run all layers of a checked dense batch, which has no lengths; None for operands that cuDNN does not take.

    Raises:
        UnsupportedError: Instead of None, when the module names cuDNN.
    """
    if not _takes(module, x, states):
        return None
    output, last = _run(module, x, states, ())
    return output.contiguous(), last


def run_of(module: RecurrentParameters, x: Tensor, *, trains: bool) -> Callable[..., tuple[Any, Any]] | None:
    """A function of the input and the weights for calls like this one, from zeros on; None where there is none.

    Args:
        module: The module.
        x: A checked dense batch.
        trains: Whether a gradient is wanted.
    """
    batch = x.shape[0 if module.batch_first else 1]
    if _refusal(module, x, None) or len(_cuts(module, x, x.dtype, batch, is_packed=False)) > 2:
        return None
    call = CudnnCall(
        *(module.cell, x.shape[-1], module.hidden_size, module.num_layers, module.bidirectional, module.bias),
        *(module.batch_first, trains, dtype_name(x.dtype) == "fp32"),
    )
    rows, dim, has_c = module.num_layers * module.num_directions, module.hidden_size, module.cell == "lstm"

    def run(x: Tensor, *weights: Tensor) -> tuple[Any, Any]:
        start = zeros((rows, batch, dim), x)
        output, last_h, last_c = run_layers(call, x, weights, start, start if has_c else None)
        return output.contiguous(), (last_h, last_c) if has_c else last_h

    return run


def zeros(shape: tuple[int, ...], like: Tensor) -> Tensor:
    """Zeros that nobody changes; small ones are kept."""
    if not like.is_cuda or shape[0] * shape[1] * shape[2] > KEPT_ELEMENTS:
        return like.new_zeros(shape)
    key = shape, like.dtype, like.get_device()
    kept = _ZEROS.get(key)
    if kept is None:
        if torch.cuda.is_current_stream_capturing():
            return like.new_zeros(shape)
        with torch.inference_mode(mode=False):
            kept = torch.zeros(shape, dtype=like.dtype, device=like.device)
        torch.cuda.current_stream(like.device).synchronize()  # they are there for every stream
        if len(_ZEROS) >= MOST_KEPT:
            _ZEROS.clear()
        _ZEROS[key] = kept
    return kept


#: Elements of the largest zeros that are kept, and how many are.
KEPT_ELEMENTS, MOST_KEPT = 1 << 16, 64
_ZEROS: dict[tuple[Any, ...], Tensor] = {}


def lie_flat(module: RecurrentParameters) -> None:
    """Move the weights of a module that cuDNN may run into one buffer, where it reads them; see `launch.lie_flat`."""
    if module.cell not in MODES or module.num_heads != 1 or module.proj_size:
        return
    registered = [module._parameters.get(name) for name, _ in layout_of(module)]
    plain = [w for w in registered if w is not None and type(w) in PLAIN and w.layout == torch.strided]
    if len(plain) < len(registered) or torch._C._len_torch_dispatch_stack() or is_compiling():
        return
    first = plain[0]
    if not first.is_cuda:
        return
    are_alike = all(weight.device == first.device and weight.dtype == first.dtype for weight in plain)
    are_whole = all(weight.shape == shape for weight, (_, shape) in zip(plain, layout_of(module), strict=True))
    if are_alike and are_whole and first.dtype in DTYPES and _has_cudnn(first):
        shape = module.input_size, module.hidden_size, module.num_layers, module.bidirectional, module.bias
        with torch.cuda.device(first.device):
            move_flat(CudnnCall(module.cell, *shape, module.batch_first, False, False), plain)


def run_packed(module: RecurrentParameters, packed: PackedSequence, states: States | None) -> Results | None:
    """Run all layers of a checked packed sequence, whose order `states` have; None and errors as in `run_dense`."""
    if not _takes(module, packed.data, states):
        return None
    return _run(module, packed.data, states, tuple(packed.batch_sizes.tolist()))


def _takes(module: RecurrentParameters, x: Tensor, states: States | None) -> bool:
    """Whether cuDNN takes the operands of a call; raises the reason where the module names it."""
    reason = _refusal(module, x, states)
    if reason and module.backend == CUDNN:
        raise UnsupportedError(f"backend 'cudnn' cannot run this layer: {reason}. Use 'auto', which takes what can.")
    return not reason


def _refusal(module: RecurrentParameters, x: Tensor, states: States | None) -> str:
    """Why cuDNN does not take the operands of a call; empty if it does."""
    weights = _weights(module)
    if any(type(t) not in PLAIN or t.layout != torch.strided for t in (x, *weights, *(states or ()))):
        return "it takes plain dense tensors"
    if not _has_cudnn(x):
        return f"it needs an NVIDIA GPU with cuDNN enabled, the input is on {x.device}"
    if any(tensor.device != x.device for tensor in (*weights, *(states or ()))):
        return f"input, weights and states must be on one device, {x.device}"
    if _dtype(x) not in DTYPES or any(weight.dtype != weights[0].dtype for weight in weights):
        return f"it takes float32, bfloat16 or float16 weights and inputs, the input is {_dtype(x)}"
    if _dtype(x) == torch.float16 and module.num_layers > 1 and module.bidirectional:
        return "several layers in both directions came out wrong in float16 on an H200 (cuDNN 9.19)"
    if not x.numel():
        return "there is no step to run"
    if any(w.shape != shape for w, (_, shape) in zip(weights, layout_of(module), strict=True)):
        return "the weights do not have the shapes of the module"
    return ""


def _run(module: RecurrentParameters, x: Tensor, states: States | None, batch_sizes: tuple[int, ...]) -> Results:
    """Run all layers of operands that cuDNN can run."""
    dtype, trains = _dtype(x), _trains(module, x, states)
    with torch.autocast("cuda", enabled=False):
        weights = [weight.to(dtype) for weight in _weights(module)]
        batch = batch_sizes[0] if batch_sizes else x.shape[0 if module.batch_first else 1]
        hidden = _hidden(module, x, dtype, batch, states)
        per_layer = len(weights) // module.num_layers
        rows, ends = x.to(dtype), []
        for first, end in pairwise(_cuts(module, x, dtype, batch, is_packed=bool(batch_sizes))):
            if first and module.dropout and module.training:
                rows = dropout(rows, module.dropout)
            call = CudnnCall(
                *(module.cell, rows.shape[-1], module.hidden_size, end - first, module.bidirectional, module.bias),
                *(module.batch_first and not batch_sizes, trains, dtype_name(dtype) == "fp32", batch_sizes),
            )
            start = [s[first * module.num_directions : end * module.num_directions].contiguous() for s in hidden]
            own = weights[first * per_layer : end * per_layer]
            rows, *last = run_layers(call, rows, own, start[0], start[1] if len(start) > 1 else None)
            ends.append([state for state in last if state is not None])
    if len(ends) == 1:
        return rows, tuple(ends[0])
    return rows, tuple(torch.cat(parts) for parts in zip(*ends, strict=True))


def _cuts(module: RecurrentParameters, x: Tensor, dtype: torch.dtype, batch: int, *, is_packed: bool) -> list[int]:
    """The layers at which a new call begins, and their number."""
    shape = CudnnLayer(
        module.cell, dtype_name(dtype), batch, module.hidden_size, module.hidden_size, module.num_directions
    )
    alone = not is_packed and is_persistent(shape)
    if alone or (module.dropout and module.training):
        return list(range(module.num_layers + 1))
    return [0, module.num_layers]


def _hidden(
    module: RecurrentParameters, x: Tensor, dtype: torch.dtype, batch: int, states: States | None
) -> list[Tensor]:
    if states is not None:
        return [state.to(dtype) for state in states]
    rows = module.num_layers * module.num_directions
    zeros = x.new_zeros((rows, batch, module.hidden_size), dtype=dtype)
    return [zeros, zeros] if module.cell == "lstm" else [zeros]


def _weights(module: RecurrentParameters) -> list[Tensor]:
    """The weights of input and recurrence, and their biases, by layer and direction."""
    registered = module._parameters
    weights = ((name, registered.get(name)) for name, _ in layout_of(module))
    return [getattr(module, name) if weight is None else weight for name, weight in weights]


def _trains(module: RecurrentParameters, x: Tensor, states: States | None) -> bool:
    if not torch.is_grad_enabled():
        return False
    return any(tensor.requires_grad for tensor in (x, *(states or ()), *_weights(module)))


def _has_cudnn(x: Tensor) -> bool:
    """Whether a tensor is on an NVIDIA GPU, and cuDNN may be used for it."""
    return x.is_cuda and torch.version.cuda is not None and torch.cudnn_is_acceptable(x)


def _dtype(x: Tensor) -> torch.dtype:
    """The dtype that a product of the input has: autocast's, where it is on."""
    if torch.is_autocast_enabled("cuda") and x.dtype != torch.float64:
        return torch.get_autocast_dtype("cuda")
    return x.dtype


def has_precision() -> bool:
    """Whether cuDNN can be made to multiply fp32 in the precision of every other back-end."""
    try:
        allows = torch._C._get_cudnn_allow_tf32()
    except RuntimeError:  # the switches of cuDNN's operators differ from each other, and are not ours to set
        return False
    return allows or not torch._C._get_cublas_allow_tf32()
