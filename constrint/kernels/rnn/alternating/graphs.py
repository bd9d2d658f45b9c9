"""The `alternating` back-end: per step one matrix product and one pointwise step; any head dimension, any device.

On a GPU with Triton a CUDA graph runs the products and fused pointwise kernels; elsewhere `loop.py` runs PyTorch calls.

A graph holds the K steps of a chunk, on buffers of its own; sequences are copied through it chunk by chunk, so few
graphs serve every sequence length (`steps.py`). Graphs are kept per layer shape, batch size and stream.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from constrint.choose import Decision
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.rnn.alternating.chunks import GraphChunk, KeptChunks
from constrint.kernels.rnn.alternating.cost import steps_of_graph
from constrint.kernels.rnn.alternating.loop import loop_backward, loop_forward, previous_states, recompute_gates
from constrint.kernels.rnn.cells import CELLS, RecurrentCell
from constrint.kernels.rnn.generated.triton import step_function
from constrint.kernels.rnn.gradients import gradients_of
from constrint.kernels.rnn.interface import ForwardOutputs, RnnGradients, RnnInputs, RnnUpstream, zero_states
from constrint.select.spec import Launch

#: Units per program of the pointwise kernels.
TILE = 128
#: Graphs kept, with their buffers; the least recently used one goes first.
MAX_GRAPHS = 16


class AlternatingBackend:
    """A loop of PyTorch calls; on a GPU with Triton a CUDA graph of products and fused pointwise kernels."""

    def forward(self, inputs: RnnInputs, choice: Decision, *, save_gates: bool) -> ForwardOutputs:
        """See `RnnBackend.forward`."""
        if _has_kernels(inputs):
            with torch.cuda.device(inputs.wx.device):
                return graph_forward(inputs, save_gates=save_gates)
        return loop_forward(inputs, save_gates=save_gates)

    def backward(
        self, inputs: RnnInputs, saved: ForwardOutputs, upstream: RnnUpstream, choice: Decision, *, clip: float
    ) -> RnnGradients:
        """See `RnnBackend.backward`."""
        if _has_kernels(inputs):
            with torch.cuda.device(inputs.wx.device):
                return graph_backward(inputs, saved, upstream, clip=clip)
        return loop_backward(inputs, saved, upstream, clip=clip)

    def plan_forward(self, *arguments: Any) -> Sequence[Launch]:
        """There is no plan: a loop of PyTorch calls, or a graph of its own."""
        raise NotPlannedError("the back-end 'alternating' is no list of launches")

    def plan_backward(self, *arguments: Any, **options: Any) -> Sequence[Launch]:
        """There is no plan, for the same reason."""
        raise NotPlannedError("the back-end 'alternating' is no list of launches")


def _has_kernels(inputs: RnnInputs) -> bool:
    """Whether the pointwise steps can be kernels: on a GPU, with Triton, in at most 32 bits."""
    return inputs.wx.is_cuda and inputs.wx.element_size() <= 4 and _has_triton()


@lru_cache(maxsize=1)
def _has_triton() -> bool:
    return find_spec("triton") is not None


@dataclass(frozen=True)
class GraphKey:
    """Key of a recorded graph: everything that it depends on."""

    cell: str
    device: torch.device
    stream: int
    dtype: torch.dtype
    batch: int
    heads: int
    head_dim: int
    num_steps: int
    flags: tuple[int, ...]

    @property
    def kind(self) -> RecurrentCell:
        """The cell's gates and states."""
        return CELLS[self.cell]


def _key(inputs: RnnInputs, *flags: int) -> GraphKey:
    wx = inputs.wx
    batch, time, gates, heads, dim = wx.shape
    stream = torch.cuda.current_stream(wx.device).cuda_stream if wx.is_cuda else 0
    per_step = batch * gates * heads * dim * wx.element_size()
    steps = steps_of_graph(time, per_step)
    return GraphKey(inputs.cell, wx.device, stream, wx.dtype, batch, heads, dim, steps, flags)


@lru_cache(maxsize=1)
def has_wide_products() -> bool:
    """Whether 16-bit products can be given in fp32 (torch 2.8 on CUDA); else they are rounded once per step."""
    return torch.version.hip is None and hasattr(torch.ops.aten.bmm, "dtype_out")


class Chunk(GraphChunk):
    """The buffers of K steps of a built-in cell, or of one with a generated step."""

    def __init__(self, key: GraphKey) -> None:
        super().__init__(key.dtype, key.device, key.num_steps, key.batch)
        self.key = key
        kind, wide = key.kind, key.dtype if not has_wide_products() else torch.float32
        batch, heads, dim, gates = key.batch, key.heads, key.head_dim, kind.num_gates
        self.product_dtype = wide if key.device.type == "cuda" else torch.float32
        self.carry = self.new(kind.num_states, heads, batch, dim, dtype=torch.float32)
        self.gates = self.new(key.num_steps, batch, gates, heads, dim)
        self.grid = (-(-batch * heads * dim // TILE),)
        is_nvidia = key.device.type == "cuda" and torch.version.hip is None
        self.constants: dict[str, Any] = {"num_gates": gates, "num_slots": kind.num_slots, "head_dim": dim}
        self.constants["num_params"] = kind.num_params
        self.params = self.new(max(1, kind.num_params), heads, dim, dtype=torch.float32)
        self.constants |= {"num_states": kind.num_states, "fast": is_nvidia and key.dtype.itemsize == 2, "tile": TILE}

    @abstractmethod
    def enqueue(self, steps: int) -> None:
        """Enqueue the first (or, backwards, the last) `steps` steps."""

    def enqueue_one(self) -> None:
        """Enqueue a single step."""
        self.enqueue(1)

    def enqueue_all(self) -> None:
        """Enqueue all steps."""
        self.enqueue(self.key.num_steps)


class ForwardChunk(Chunk):
    """K steps forwards; flags: whether there is a bias, whether pre-activations are saved."""

    def __init__(self, key: GraphKey) -> None:
        super().__init__(key)
        batch, heads, dim, gates = key.batch, key.heads, key.head_dim, key.kind.num_gates
        self.wx = self.new(key.num_steps, batch, gates, heads, dim)
        self.bias = self.new(gates, heads, dim, dtype=torch.float32)
        self.weights = self.new(heads, dim, gates * dim)
        self.operand = self.new(heads, batch, dim)
        self.product = self.new(heads, batch, gates * dim, dtype=self.product_dtype)
        self.states = self.new(key.kind.num_states, key.num_steps, batch, heads, dim)

    def enqueue(self, steps: int) -> None:
        """See `Chunk.enqueue`."""
        from constrint.kernels.rnn.alternating.kernel import pointwise_forward_kernel

        cell = step_function(self.key.kind.step, "forward")
        has_bias, save_gates = self.key.flags
        sizes = (self.key.batch, self.key.heads, self.key.num_steps)
        for step in range(steps):
            multiply(self.operand, self.weights, self.product)
            pointwise_forward_kernel[self.grid](
                self.wx, self.product, self.bias, self.carry, self.operand, self.states, self.gates, self.remaining,
                self.reset, self.params, step, *sizes, cell=cell, has_bias=bool(has_bias), save_gates=bool(save_gates),
                **self.constants,
            )  # fmt: skip


class BackwardChunk(Chunk):
    """K steps backwards; flags: which states have upstream gradients (bits), whether to clip, and `shift_free`."""

    def __init__(self, key: GraphKey) -> None:
        super().__init__(key)
        kind, steps = key.kind, key.num_steps
        batch, heads, dim, gates = key.batch, key.heads, key.head_dim, kind.num_gates
        self.limit = self.new(1, dtype=torch.float32)
        self.of_params = self.new(max(1, kind.num_params), heads, batch, dim, dtype=torch.float32)
        self.upstream = self.new(kind.num_states, steps, batch, heads, dim)
        self.through = self.new(heads, batch, dim, dtype=self.product_dtype)
        self.wx = self.new(steps, batch, heads, dim)
        self.states = self.new(kind.num_states, steps + 1, batch, heads, dim)
        self.slots = self.new(steps, batch, kind.num_slots, heads, dim)
        self.weights = self.new(heads, gates * dim, dim)
        self.operand = self.new(heads, batch, gates * dim)

    def enqueue(self, steps: int) -> None:
        """See `Chunk.enqueue`."""
        from constrint.kernels.rnn.alternating.kernel import pointwise_backward_kernel

        cell = step_function(self.key.kind.step, "backward")
        upstream_mask, has_clip, shift_free = self.key.flags
        sizes = (self.key.batch, self.key.heads, self.key.num_steps)
        for step in range(self.key.num_steps - 1, self.key.num_steps - 1 - steps, -1):
            pointwise_backward_kernel[self.grid](
                self.upstream, self.through, self.carry, self.wx, self.gates, self.states, self.slots, self.operand,
                self.remaining, self.reset, self.limit, self.params, self.of_params, step, *sizes, cell=cell,
                upstream_mask=upstream_mask,
                has_clip=bool(has_clip), shift_free=bool(shift_free), **self.constants,
            )  # fmt: skip
            multiply(self.operand, self.weights, self.through)


def multiply(left: Tensor, right: Tensor, out: Tensor) -> None:
    """out (N, B, J) = left (N, B, I) @ right (N, I, J), summed in fp32 and written in the dtype of `out`."""
    heads = len(left)
    if left.dtype == out.dtype:
        torch.mm(left[0], right[0], out=out[0]) if heads == 1 else torch.bmm(left, right, out=out)
    elif not left.is_cuda:
        torch.bmm(left.to(out.dtype), right.to(out.dtype), out=out)
    elif heads == 1:
        torch.ops.aten.mm.dtype_out(left[0], right[0], out.dtype, out=out[0])
    else:
        torch.ops.aten.bmm.dtype_out(left, right, out.dtype, out=out)


_CHUNKS: KeptChunks[GraphKey] = KeptChunks(MAX_GRAPHS)


def _resets(inputs: RnnInputs, num_steps: int) -> Tensor | None:
    """Resets step by step, (T + K + 1, B), none beyond T."""
    if inputs.reset is None:
        return None
    return pad(inputs.reset.t().to(torch.int8), (0, 0, 0, num_steps + 1))


def graph_forward(inputs: RnnInputs, *, save_gates: bool) -> ForwardOutputs:
    """Run over time; see `RnnBackend.forward`."""
    wx = inputs.wx
    batch, time, gates, heads, dim = wx.shape
    key = _key(inputs, int(inputs.b is not None), int(save_gates))
    chunk = _CHUNKS.of(ForwardChunk, key, key.device)
    chunk.weights.view(heads, dim, gates, dim).copy_(inputs.r.permute(1, 3, 0, 2))
    if inputs.b is not None:
        chunk.bias.copy_(inputs.b)
    if inputs.params is not None:
        chunk.params.copy_(inputs.params)
    chunk.carry.copy_(_fresh(inputs, zero_states(inputs)).transpose(1, 2))
    chunk.operand.copy_(chunk.carry[0])
    resets = _resets(inputs, key.num_steps)
    states = wx.new_empty((key.kind.num_states, batch, time, heads, dim))
    saved = wx.new_empty((batch, time, gates, heads, dim)) if save_gates else None
    for start in range(0, time, key.num_steps):
        end = min(time, start + key.num_steps)
        chunk.wx[: end - start].copy_(wx[:, start:end].transpose(0, 1))
        chunk.set_masks(inputs.lengths, inputs.wx.shape[1], resets, start)
        chunk.run()
        states[:, :, start:end].copy_(chunk.states[:, : end - start].transpose(1, 2))
        if saved is not None:
            saved[:, start:end].copy_(chunk.gates[: end - start].transpose(0, 1))
    return ForwardOutputs(states, saved)


def _fresh(inputs: RnnInputs, values: Tensor) -> Tensor:
    """Values (S, B, N, D) that pass between the initial states and the first step: none where that is reset."""
    if inputs.reset is None:
        return values
    anew = inputs.reset[:, 0]
    if inputs.lengths is not None:
        anew = anew & (inputs.lengths > 0)
    return torch.where(anew[None, :, None, None], 0.0, values)


def graph_backward(inputs: RnnInputs, saved: ForwardOutputs, upstream: RnnUpstream, *, clip: float) -> RnnGradients:
    """Gradients backwards over time; see `RnnBackend.backward`."""
    wx, kind = inputs.wx, inputs.kind
    batch, time, gates, heads, dim = wx.shape
    mask = sum(1 << s for s, grad in enumerate(upstream.states) if grad is not None)
    only_h = mask in (0, 1) and all(grad is None for grad in upstream.last[1:])
    key = _key(inputs, mask, int(clip > 0), int(only_h and wx.element_size() == 2))
    chunk = _CHUNKS.of(BackwardChunk, key, key.device)
    chunk.weights.view(heads, gates, dim, dim).copy_(inputs.r.transpose(0, 1))
    chunk.limit.fill_(clip)
    if inputs.params is not None:
        chunk.params.copy_(inputs.params)
        chunk.of_params.zero_()
    chunk.through.zero_()
    for carry, grad in zip(chunk.carry, upstream.last, strict=True):
        carry.zero_() if grad is None else carry.copy_(grad.transpose(0, 1))
    before = previous_states(inputs, saved.states)
    p = recompute_gates(inputs, before).to(wx.dtype) if saved.gates is None else saved.gates
    resets = _resets(inputs, key.num_steps)
    slots = wx.new_empty((batch, time, kind.num_slots, heads, dim))
    for start in reversed(range(0, time, key.num_steps)):
        end = min(time, start + key.num_steps)
        number = end - start
        for buffer, grad in zip(chunk.upstream, upstream.states, strict=True):
            if grad is not None:
                buffer[:number].copy_(grad[:, start:end].transpose(0, 1))
        if kind.keeps_parts_apart:
            chunk.wx[:number].copy_(wx[:, start:end, -1].transpose(0, 1))
        chunk.gates[:number].copy_(p[:, start:end].transpose(0, 1))
        chunk.states[:, 0].copy_(before[:, :, start])
        chunk.states[:, 1 : number + 1].copy_(saved.states[:, :, start:end].transpose(1, 2))
        chunk.set_masks(inputs.lengths, inputs.wx.shape[1], resets, start)
        chunk.run()
        slots[:, start:end].copy_(chunk.slots[:number].transpose(0, 1))
    initial = None if inputs.initial is None else _initial_gradient(inputs, chunk)
    of_params = None if inputs.params is None else chunk.of_params.transpose(1, 2)
    return gradients_of(inputs, slots, before[0], initial, of_params, sums_by_sequence=False)


def _initial_gradient(inputs: RnnInputs, chunk: BackwardChunk) -> Tensor:
    """Gradient of the initial states (S, B, N, D): the last carry, and the part through r."""
    carry, through = chunk.carry.clone(), chunk.through.float()
    has_clip = chunk.key.flags[1]
    carry[0] += torch.clamp(through, -chunk.limit, chunk.limit) if has_clip else through
    return _fresh(inputs, carry.transpose(1, 2)).contiguous()
