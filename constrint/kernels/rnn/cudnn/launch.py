"""Calls of cuDNN's layers by the operator that `torch.nn` calls, with weights anywhere in memory.

cuDNN reads all weights from one buffer. Parameters that lie in such a buffer, as those of `torch.nn` do and as
`lie_flat` lays them, are read where they are; others are concatenated at every call. cuDNN states the place of each
weight once.

fp32 operands are multiplied in tf32 where `torch.backends.cuda.matmul.allow_tf32` says so, as in every other back-end,
and not where torch's own switch for cuDNN does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.kernels.launch.plan.nodes import apply_of

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
    if not call.is_exact or not torch._C._get_cudnn_allow_tf32():
        output, last_h, last_c, *_ = _forward(call, x, weights, h, c)
    elif call.trains:
        output, last_h, last_c = _apply_exact(call, x, h, c, *weights)
    else:
        with _WITHOUT_TF32:
            output, last_h, last_c, *_ = _forward(call, x, weights, h, c)
    return output, last_h, last_c if call.cell == "lstm" else None


def _forward(
    call: CudnnCall, x: Tensor, weights: Sequence[Tensor], h: Tensor, c: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    buffer = _buffer(call, weights)
    return torch._cudnn_rnn(x, list(weights), call.weights_per_layer, buffer, h, c, *_options(call))


@lru_cache(maxsize=256)
def _options(call: CudnnCall) -> tuple[Any, ...]:
    """The operator's arguments from the mode on: no projection of h, and no dropout."""
    return (
        *(MODES[call.cell], call.dim, 0, call.num_layers, call.batch_first, 0.0, call.trains, call.bidirectional),
        *(list(call.batch_sizes), None),
    )


def _buffer(call: CudnnCall, weights: Sequence[Tensor]) -> Tensor:
    """All weights in cuDNN's order and places, with zeros in between: where they lie, or concatenated."""
    first = weights[0]
    layout = _layout_of(call, first.dtype, first.device)
    if _are_flat(weights, layout):
        start = first.storage_offset() - layout.spans[0][0]
        return first.detach().as_strided((layout.length,), (1,), start)
    with torch.no_grad():
        parts = []
        for place, gap in layout.parts:
            parts.append(first.new_zeros(gap) if place is None else weights[place].detach().reshape(-1))
        return torch.cat(parts)


def _are_flat(weights: Sequence[Tensor], layout: BufferLayout) -> bool:
    """Whether weights lie in one buffer at cuDNN's places."""
    first = weights[0]
    start = first.data_ptr() - layout.spans[0][0] * first.itemsize
    for weight, (offset, _) in zip(weights, layout.spans, strict=True):
        if weight.data_ptr() != start + offset * first.itemsize or not weight.is_contiguous():
            return False
    # Two allocations may be neighbours by accident: the buffer is one.
    memory = first.untyped_storage()
    return memory.data_ptr() <= start and start + layout.length * first.itemsize <= memory.data_ptr() + memory.nbytes()


def lie_flat(call: CudnnCall, weights: Sequence[Tensor]) -> bool:
    """Move parameters into one buffer of cuDNN's; whether they lie in one afterwards.

    They stay where they are if a matrix would begin at another multiple than `MATRIX_STEP_BYTES`, which kernels of
    ours would have to load in smaller pieces, if one does not own its memory, or if two share it.
    """
    first = weights[0]
    layout = _layout_of(call, first.dtype, first.device)
    if _are_flat(weights, layout):
        return True
    for weight, (offset, size) in zip(weights, layout.spans, strict=True):
        step = MATRIX_STEP_BYTES if weight.dim() > 1 else BIAS_STEP_BYTES
        is_alone = weight.numel() == size and weight.untyped_storage().nbytes() == size * weight.itemsize
        if offset * weight.itemsize % step or not is_alone or not weight.is_contiguous():
            return False
    if len({weight.data_ptr() for weight in weights}) < len(weights):
        return False
    with torch.no_grad():
        _flattened(call, list(weights))
    return True


#: Multiples of bytes at which matrices and biases have to begin: allocations of their own begin at such places, too.
MATRIX_STEP_BYTES, BIAS_STEP_BYTES = 128, 16


class BufferLayout(NamedTuple):
    """The layout of cuDNN's buffer.

    Args:
        spans: Offset and number of elements of each weight.
        parts: The parts in order: the place of a weight, or None and the length of a gap.
        length: Elements.
    """

    spans: tuple[tuple[int, int], ...]
    parts: tuple[tuple[int | None, int], ...]
    length: int


@lru_cache(maxsize=256)
def _layout_of(call: CudnnCall, dtype: torch.dtype, device: torch.device) -> BufferLayout:
    """The layout of a call's buffer, which depends on neither its purpose nor its input."""
    return _layout(call._replace(trains=False, is_exact=False, batch_sizes=()), dtype, device)


@lru_cache(maxsize=256)
def _layout(call: CudnnCall, dtype: torch.dtype, device: torch.device) -> BufferLayout:
    """The buffer's layout: torch moves weights into a buffer of its own; their place in it is read afterwards."""
    directions, gates = 2 if call.bidirectional else 1, {"lstm": 4, "gru": 3}.get(call.cell, 1)
    shapes: list[tuple[int, ...]] = []
    for layer in range(call.num_layers):
        inputs = call.input_size if layer == 0 else call.dim * directions
        rows = gates * call.dim
        shapes += [(rows, inputs), (rows, call.dim), *([(rows,)] * (call.weights_per_layer - 2))] * directions
    with torch.no_grad():
        dummies = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        length = _flattened(call, dummies).numel()
    spans = tuple((int(dummy.storage_offset()), dummy.numel()) for dummy in dummies)
    return BufferLayout(spans, tuple(_parts(spans, length)), length)


def _flattened(call: CudnnCall, weights: list[Tensor]) -> Tensor:
    """The buffer into which torch has moved weights."""
    options = call.weights_per_layer, call.input_size, MODES[call.cell], call.dim, 0, call.num_layers
    return torch._cudnn_rnn_flatten_weight(weights, *options, call.batch_first, call.bidirectional)


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


class _WithoutTf32:
    """Let cuDNN multiply fp32 operands as they are. The switch is the process's: the last one to leave resets it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                torch._C._set_cudnn_allow_tf32(False)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch._C._set_cudnn_allow_tf32(True)


_WITHOUT_TF32 = _WithoutTf32()


class _Exact(torch.autograd.Function):
    """The operator and its gradient without tf32, although torch lets cuDNN use it."""

    @staticmethod
    def forward(
        ctx: Any, call: CudnnCall, x: Tensor, h: Tensor, c: Tensor | None, *weights: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        with _WITHOUT_TF32:
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
        with _WITHOUT_TF32:
            # cuDNN writes to the reserve; a graph that is kept needs it again.
            reserve = reserve.clone() if _is_kept() else reserve
            d_x, d_h, d_c, d_weights = _backward_operator(
                *(x, weights, call.weights_per_layer, buffer, h, c, output),
                *(of_output, of_h, of_c if c is not None else None, *_options(call), reserve, mask),
            )
        return None, d_x, d_h, d_c if c is not None else None, *(d_weights if mask[3] else [None] * len(weights))


#: Whether the graph of the backward pass that runs is kept; older versions of torch do not say.
_is_kept: Any = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)
_apply_exact = apply_of(_Exact)
