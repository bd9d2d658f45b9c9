"""Calls of cuDNN's layers by the operator that `torch.nn` calls, with weights anywhere in memory.

cuDNN reads all weights from one buffer. `torch.nn` keeps its parameters in such a buffer; here the parameters stay what
they are, and the buffer is filled at every call by one concatenation. cuDNN states the place of each weight once.

fp32 operands are multiplied in tf32 where `torch.backends.cuda.matmul.allow_tf32` says so, as in every other back-end,
and not where torch's own switch for cuDNN does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: torch's numbers of cuDNN's cells.
MODES = {"elman_relu": 0, "elman": 1, "lstm": 2, "gru": 3}

_backward_operator: Any = torch.ops.aten._cudnn_rnn_backward


class CudnnCall(NamedTuple):
    """One call: layers of the same cell, which run one after another.

    Args:
        cell: A key of `MODES`.
        input_size: Features of the first layer's input.
        dim: Units of each direction.
        num_layers: Layers.
        bidirectional: Whether each layer also runs backwards in time.
        bias: Whether each layer has its two biases.
        batch_first: Whether a dense input is (B, T, features) rather than (T, B, features).
        trains: Whether the gradient's needs are stored.
        is_exact: Whether fp32 operands must not be multiplied in tf32.
        batch_sizes: Sequences at each step of packed rows; empty for a dense input.
    """

    cell: str
    input_size: int
    dim: int
    num_layers: int
    bidirectional: bool
    bias: bool
    batch_first: bool
    trains: bool
    is_exact: bool
    batch_sizes: tuple[int, ...] = ()

    @property
    def weights_per_layer(self) -> int:
        """Tensors of one layer and direction."""
        return 4 if self.bias else 2


def run_layers(
    call: CudnnCall, x: Tensor, weights: Sequence[Tensor], h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Outputs of all steps, the last h, and the last c if there is one.

    Args:
        call: The call of cuDNN.
        x: (T, B, features), (B, T, features) if `batch_first`, or packed rows (rows, features).
        weights: Per layer and direction those of input and recurrence, and their biases, in torch's order of gates.
        h: (layers * directions, B, H), contiguous.
        c: The same of an LSTM's c.
    """
    if call.is_exact and torch._C._get_cudnn_allow_tf32():
        output, last_h, last_c = _apply_exact(call, x, h, c, *weights)
    else:
        output, last_h, last_c, *_ = _forward(call, x, weights, h, c)
    return output, last_h, last_c if call.cell == "lstm" else None


def _forward(
    call: CudnnCall, x: Tensor, weights: Sequence[Tensor], h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    buffer = _buffer(call, weights)
    return torch._cudnn_rnn(x, list(weights), call.weights_per_layer, buffer, h, c, *_options(call))


def _options(call: CudnnCall) -> tuple[Any, ...]:
    """The operator's arguments from the mode on: no projection of h, and no dropout."""
    return (
        *(MODES[call.cell], call.dim, 0, call.num_layers, call.batch_first, 0.0, call.trains, call.bidirectional),
        *(list(call.batch_sizes), None),
    )


def _buffer(call: CudnnCall, weights: Sequence[Tensor]) -> Tensor:
    """All weights in cuDNN's order and places, with zeros in between."""
    with torch.no_grad():
        first = weights[0]
        parts = []
        for place, gap in _layout(
            call._replace(trains=False, is_exact=False, batch_sizes=()), first.dtype, first.device
        ):
            parts.append(first.new_zeros(gap) if place is None else weights[place].detach().reshape(-1))
        return torch.cat(parts)


@lru_cache(maxsize=256)
def _layout(call: CudnnCall, dtype: torch.dtype, device: torch.device) -> tuple[tuple[int | None, int], ...]:
    """The buffer's parts in order: the place of a weight, or None and the length of a gap.

    torch moves the weights into a buffer of its own; their place in it is read afterwards.
    """
    directions, gates = 2 if call.bidirectional else 1, {"lstm": 4, "gru": 3}.get(call.cell, 1)
    shapes: list[tuple[int, ...]] = []
    for layer in range(call.num_layers):
        inputs = call.input_size if layer == 0 else call.dim * directions
        rows = gates * call.dim
        shapes += [(rows, inputs), (rows, call.dim), *([(rows,)] * (call.weights_per_layer - 2))] * directions
    with torch.no_grad():
        dummies = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        buffer = torch._cudnn_rnn_flatten_weight(
            dummies,
            call.weights_per_layer,
            call.input_size,
            MODES[call.cell],
            call.dim,
            0,
            call.num_layers,
            call.batch_first,
            call.bidirectional,
        )
    return tuple(_parts([(int(d.storage_offset()), d.numel()) for d in dummies], buffer.numel()))


def _parts(spans: Sequence[tuple[int, int]], length: int) -> Iterator[tuple[int | None, int]]:
    """The parts of a buffer of that length in which weights lie at spans (offset, length)."""
    end = 0
    for place in sorted(range(len(spans)), key=spans.__getitem__):
        offset, size = spans[place]
        if offset > end:
            yield None, offset - end
        yield place, size
        end = offset + size
    if length > end:
        yield None, length - end


_TF32_LOCK = threading.Lock()
_num_exact = 0


@contextmanager
def _without_tf32() -> Iterator[None]:
    """Let cuDNN multiply fp32 operands as they are. The switch is the process's: the last one to leave resets it."""
    global _num_exact
    with _TF32_LOCK:
        if not _num_exact:
            torch._C._set_cudnn_allow_tf32(False)
        _num_exact += 1
    try:
        yield
    finally:
        with _TF32_LOCK:
            _num_exact -= 1
            if not _num_exact:
                torch._C._set_cudnn_allow_tf32(True)


class _Exact(torch.autograd.Function):
    """The operator and its gradient without tf32, although torch lets cuDNN use it."""

    @staticmethod
    def forward(
        ctx: Any, call: CudnnCall, x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        with _without_tf32():
            output, last_h, last_c, reserve, buffer = _forward(call, x, weights, h, c)
        ctx.call = call
        ctx.save_for_backward(x, h, c, output, reserve, buffer, *weights)
        ctx.set_materialize_grads(False)
        return output, last_h, last_c

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        x, h, c, output, reserve, buffer, *weights = ctx.saved_tensors
        call: CudnnCall = ctx.call
        _, *needs = ctx.needs_input_grad
        if all(grad is None for grad in grads):
            return (None,) * len(ctx.needs_input_grad)
        of_output, of_h, of_c = grads
        mask = [needs[0], needs[1], c is not None and needs[2], any(needs[3:])]
        with _without_tf32():
            # cuDNN writes to the reserve; a graph that is kept needs it again.
            d_x, d_h, d_c, d_weights = _backward_operator(
                *(x, weights, call.weights_per_layer, buffer, h, c, output),
                *(of_output, of_h, of_c if c is not None else None, *_options(call), reserve.clone(), mask),
            )
        return None, d_x, d_h, d_c if c is not None else None, *(d_weights if mask[3] else [None] * len(weights))


_apply_exact: Any = _Exact.apply
