"""The decision for a module's call: our kernels, one step's plan, cuDNN, or torch's layers on the CPU.

`library_of` makes one request per signature: the module's options, the input's shape, dtype and device, and the modes
of torch that a library cannot take. Later calls of a signature are one look-up.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from constrint.choose import Request
from constrint.errors import UnsupportedError
from constrint.flashrnn.checks import DTYPES, REFERENCE, check_configs
from constrint.flashrnn.libraries import cpu, cudnn, onestep
from constrint.flashrnn.observers import autocast_dtype, needs_plain_torch
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.candidates import ONE_STEP, TORCH, LayerDetail, ModuleCall
from constrint.kernels.rnn.cudnn.spec import CUDNN
from constrint.kernels.rnn.dispatch import AUTO, MODULES, decide_module, dtype_name, layer_request

if TYPE_CHECKING:
    from constrint.flashrnn.parameters import RecurrentParameters

#: Libraries that run whole modules, with their Python modules.
LIBRARIES: dict[str, Any] = {TORCH: cpu, CUDNN: cudnn}
#: All that runs whole modules; a module cannot name the one of calls of one step.
_RUNNERS: dict[str, Any] = {**LIBRARIES, ONE_STEP: onestep}


class CallKind(NamedTuple):
    """Properties of a call, beside its input, that decide whether a library can run it.

    Args:
        has_lengths: Whether the sequences of a dense batch have lengths.
        has_resets: Whether sequences start anew inside of the batch.
        is_packed: Whether the input is a PackedSequence.
    """

    has_lengths: bool = False
    has_resets: bool = False
    is_packed: bool = False


DENSE, PACKED = CallKind(), CallKind(is_packed=True)


def library_of(module: RecurrentParameters, x: Tensor, batch: int, time: int, kind: CallKind) -> Any:
    """The library that runs a call, or None where the recurrences of the module do.

    Args:
        module: The module.
        x: The input; its last dimension are the features.
        batch: Sequences.
        time: Steps.
        kind: The kind of the call.

    Raises:
        UnsupportedError: When the module names a library that cannot run the call.
    """
    backend = module.backend
    if backend in LIBRARIES:
        refusal = "torch.compile cannot look into it" if is_compiling() else _refusals(module, x, kind)[backend]
        if refusal:
            raise unsupported(backend, refusal)
        return LIBRARIES[backend]
    if backend != AUTO or module.config is not None or x.dtype not in DTYPES or is_compiling():
        return None
    options = module.cell, module.num_heads, module.hidden_size, module.num_layers, module.bidirectional
    signature: Hashable = *options, module.proj_size, module.gradient_recurrent_clip, kind, *_modes(x), x.dtype
    if x.is_cuda:
        sizes = _plain_sizes(batch, time, module.input_size)
        signature = signature, sizes, x.device, torch.is_grad_enabled()
    decision = MODULES.get(signature)
    if decision is None:
        decision = decide_module(signature, request_of(module, x, batch, time, kind))
    return _RUNNERS.get(decision.program.name)


def request_of(
    module: RecurrentParameters, x: Tensor, batch: int, time: int, kind: CallKind, gpu: str | None = None
) -> Request:
    """The request for a call; the arguments of `library_of`, and the name of a GPU that is not here."""
    batch, time = _plain_sizes(batch, time)
    refusals = _refusals(module, x, kind)
    if time == 1:
        refusals[ONE_STEP] = onestep.refusal_of_call(module, x, kind)
    if refusals.get(module.backend):
        raise unsupported(module.backend, refusals[module.backend])
    call = ModuleCall(
        *(batch, time, module.input_size, module.num_layers, module.num_directions, torch.is_grad_enabled()),
        refusals=tuple((name, reason) for name, reason in refusals.items() if reason),
    )
    detail = LayerDetail(module=call, configs=check_configs(module.config))
    # A layer's directions are heads of one recurrence.
    sizes = max(batch, 1), module.num_heads * module.num_directions, module.head_dim
    backend = AUTO if module.backend == REFERENCE else module.backend
    dtype = dtype_name(_product_dtype(x))
    request = layer_request(module.cell, sizes, dtype, x.device, backend, detail)
    return request if gpu is None else replace(request, gpu=load_gpu(gpu), device=None)


def _refusals(module: RecurrentParameters, x: Tensor, kind: CallKind) -> dict[str, str]:
    """Reasons, by library, why it cannot run a kind of call; empty texts where it can."""
    dtype = _product_dtype(x)
    return {CUDNN: cudnn.refusal_of_call(module, dtype, kind), TORCH: cpu.refusal_of_call(module, x, kind)}


def unsupported(backend: str, reason: str) -> UnsupportedError:
    """The error of a library that a module names and that cannot run the call."""
    return UnsupportedError(f"backend {backend!r} cannot run this layer: {reason}. Use 'auto', which takes what can.")


def _modes(x: Tensor) -> tuple[Hashable, ...]:
    """Modes of torch that a library cannot take, or that change its products."""
    observed = needs_plain_torch() or bool(torch._C._len_torch_dispatch_stack())
    if not x.is_cuda:
        return observed, torch.is_autocast_enabled("cpu")
    tf32 = x.dtype == torch.float32 and (torch.backends.cuda.matmul.allow_tf32, cudnn.has_precision())
    return observed, autocast_dtype(x.device), torch.are_deterministic_algorithms_enabled(), tf32


def _product_dtype(x: Tensor) -> torch.dtype:
    """The dtype of products with the input: autocast's where it is on."""
    dtype = autocast_dtype(x.device)
    return x.dtype if dtype is None or x.dtype == torch.float64 else dtype


def _plain_sizes(*sizes: int) -> tuple[int, ...]:
    """Sizes as numbers: torch.jit.trace has tensors in their place."""
    if torch._C._get_tracing_state() is None:
        return sizes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(int(size) for size in sizes)
