"""Cells of several stages a step: a CUDA graph of K steps, each of products and of one kernel per stage.

A graph runs on buffers of its own; sequences are copied through it chunk by chunk, so few graphs serve every sequence
length. Graphs are kept per cell, layer shape, batch size and stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from constrint.kernels.rnn.alternating.chunks import GraphChunk, KeptChunks
from constrint.kernels.rnn.alternating.cost import steps_of_graph
from constrint.kernels.rnn.alternating.graphs import has_wide_products, multiply
from constrint.kernels.rnn.language.backends import CellCall, CellGradients, CellResults
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.torch_code import first_states
from constrint.kernels.rnn.staged.stages import StagedStep
from constrint.kernels.rnn.staged.text import (
    arguments_of,
    early_gates,
    input_gates,
    recurrent_gates,
    slot_of,
    stage_kernels,
)

#: Units of a program where no reduction asks for all of a head; graphs kept, the least recently used one goes first.
TILE, MAX_GRAPHS = 128, 16


@dataclass(frozen=True)
class StagedKey:
    """Key of a recorded graph: everything that it depends on.

    `flags` are those of `text.FLAGS` for the direction.
    """

    cell: CellDefinition
    is_backward: bool
    device: torch.device
    stream: int
    dtype: torch.dtype
    batch: int
    heads: int
    head_dim: int
    num_steps: int
    flags: tuple[int, ...]

    @property
    def step(self) -> StagedStep:
        """The direction of the step."""
        return StagedStep(self.cell, self.is_backward)


def _key(call: CellCall, *flags: int, is_backward: bool) -> StagedKey:
    wx = call.wx
    batch, time, _, heads, dim = wx.shape
    stream = torch.cuda.current_stream(wx.device).cuda_stream if wx.is_cuda else 0
    steps = steps_of_graph(time, batch * len(call.cell.slots) * heads * dim * wx.element_size())
    return StagedKey(call.cell, is_backward, wx.device, stream, wx.dtype, batch, heads, dim, steps, flags)


class StagedChunk(GraphChunk):
    """The buffers of K steps, and the graph that runs them.

    `buffers` are the kernels' arguments by name; results of the early product, or backwards of its transpose, are
    `product`, and `operand` is what it multiplies.
    """

    def __init__(self, key: StagedKey) -> None:
        super().__init__(key.dtype, key.device, key.num_steps, key.batch)
        self.key, self.step = key, key.step
        cell, steps, batch, heads, dim = key.cell, key.num_steps, key.batch, key.heads, key.head_dim
        self.early = early_gates(cell)
        states, in_x, in_r = len(cell.states), len(input_gates(cell)), len(recurrent_gates(cell))
        wide = torch.float32 if key.device.type != "cuda" or has_wide_products() else key.dtype
        per_step = steps, batch

        def of_steps(count: int) -> Tensor:
            return self.new(*per_step, max(1, count), heads, dim)

        def of_heads(count: int, dtype: torch.dtype) -> Tensor:
            return self.new(heads, batch, max(1, count) * dim, dtype=dtype)

        parameters = self.new(max(1, len(cell.parameters)), heads, dim, dtype=torch.float32)
        one_way = len(self.early), 1
        inner, outer = one_way[::-1] if not key.is_backward else one_way
        self.buffers: dict[str, Tensor] = {
            "wx": of_steps(in_x),
            "saved": of_steps(in_r),
            "carry": self.new(states, heads, batch, dim, dtype=torch.float32),
            "operand": of_heads(inner, key.dtype),
            "product": of_heads(outer, wide),
            "elementwise": parameters,
        }
        if key.is_backward:
            self.buffers |= {name: of_steps(states) for name in ("before", "after", "upstream")}
            self.buffers |= {"slots": of_steps(len(cell.slots)), "operands": of_steps(len(tuple(cell.late_gates)))}
            self.buffers["limit"] = self.new(1, dtype=torch.float32)
            self.buffers["of_elementwise"] = self.new(len(parameters), heads, batch, dim, dtype=torch.float32)
        else:
            self.buffers["states"] = of_steps(states)
            self.buffers["bias"] = self.new(max(1, in_r), heads, dim, dtype=torch.float32)
        for number, each in enumerate(cell.inputs):
            shape = (*per_step, heads, dim) if each.kind == "unit" else per_step
            self.buffers[f"given{number}"] = self.new(*shape, dtype=torch.float32)
            if key.is_backward:
                self.buffers[f"of_given{number}"] = self.new(*per_step, heads, dim, dtype=torch.float32)
        self.weights = self.new(heads, inner * dim, outer * dim) if self.early else None
        self.late_weights: list[Tensor] = []
        for product in self.step.products:
            self.buffers[f"factor{product.number}"] = of_heads(1, key.dtype)
            self.buffers[f"result{product.number}"] = of_heads(len(product.gates), wide)
            self.late_weights.append(self.new(heads, dim, len(product.gates) * dim))

    def enqueue(self, steps: range) -> None:
        """Enqueue steps: the product ahead of each, or backwards behind each, and its stages."""
        key, is_forward = self.key, not self.key.is_backward
        kernels = stage_kernels(self.step)
        is_whole = any(step.has_reductions for step in (StagedStep(key.cell, False), StagedStep(key.cell, True)))
        tile = 1 << (key.head_dim - 1).bit_length()
        tile = tile if is_whole else min(TILE, tile)
        grid = key.heads * key.batch, -(-key.head_dim // tile)
        pointers = [self.buffers[name] for name in arguments_of(self.step)]
        is_nvidia = key.device.type == "cuda" and torch.version.hip is None
        options = {"fast": is_nvidia and key.dtype.itemsize == 2, "dtype": _triton_dtype(key.dtype)}
        sizes = key.batch, key.heads, key.head_dim, tile
        for step in steps:
            if self.weights is not None and is_forward:
                multiply(self.buffers["operand"], self.weights, self.buffers["product"])
            for stage, kernel in enumerate(kernels):
                for product, weights in zip(self.step.products, self.late_weights, strict=True):
                    if product.level == stage:
                        n = product.number
                        multiply(self.buffers[f"factor{n}"], weights, self.buffers[f"result{n}"])
                flags = (*options.values(), *key.flags)
                kernel[grid](*pointers, self.remaining, self.reset, step, *sizes, *flags, num_warps=_warps(tile))
            if self.weights is not None and not is_forward:
                multiply(self.buffers["operand"], self.weights, self.buffers["product"])

    @property
    def steps(self) -> range:
        """All steps, in the order of the direction."""
        count = self.key.num_steps
        return range(count - 1, -1, -1) if self.key.is_backward else range(count)

    def enqueue_one(self) -> None:
        """Enqueue the first step of the direction."""
        self.enqueue(self.steps[:1])

    def enqueue_all(self) -> None:
        """Enqueue all steps."""
        self.enqueue(self.steps)

    def fill(self, call: CellCall, resets: Tensor | None, start: int, end: int) -> None:
        """Copy the input's part, inputs and masks of steps in."""
        number = end - start
        self.buffers["wx"][:number].copy_(call.wx[:, start:end].transpose(0, 1))
        for n, value in enumerate(call.inputs):
            into = self.buffers[f"given{n}"]
            value = value[:, start:end].transpose(0, 1)
            into[:number].copy_(value if into.dim() > 2 else value[:, :, 0, 0])
        self.set_masks(call.lengths, call.wx.shape[1], resets, start)


def _warps(tile: int) -> int:
    return max(1, min(8, tile // 128))


def _triton_dtype(dtype: torch.dtype) -> Any:
    import triton.language as tl

    return {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}[dtype]


_CHUNKS: KeptChunks[StagedKey] = KeptChunks(MAX_GRAPHS)


def _resets(call: CellCall, num_steps: int) -> Tensor | None:
    """Resets step by step, (T + K + 1, B), none beyond T."""
    return None if call.reset is None else pad(call.reset.t().to(torch.int8), (0, 0, 0, num_steps + 1))


def _starts(call: CellCall) -> Tensor:
    """The states before the first step as it reads them, (S, B, N, D)."""
    own = torch.stack(first_states(call))
    initial = own if call.initial is None else call.initial
    if call.reset is None:
        return initial
    anew = call.reset[:, 0] if call.lengths is None else call.reset[:, 0] & (call.lengths > 0)
    return torch.where(anew[None, :, None, None], own, initial)


def _parameters(call: CellCall, into: Tensor) -> None:
    for row, value in zip(into, call.parameters, strict=False):
        row.copy_(value.expand(row.shape))


def staged_forward(call: CellCall, *, saves: bool) -> CellResults:
    """Run all steps; see `CellBackend.forward`."""
    wx, cell = call.wx, call.cell
    batch, time, _, heads, dim = wx.shape
    key = _key(call, int(call.b is not None), int(saves), is_backward=False)
    chunk = _CHUNKS.of(StagedChunk, key, key.device)
    buffers = chunk.buffers
    in_r = recurrent_gates(cell)
    if chunk.weights is not None and call.r is not None:
        for e, gate in enumerate(chunk.early):
            chunk.weights[:, :, e * dim : (e + 1) * dim].copy_(call.r[in_r.index(gate)].transpose(1, 2))
    for product, weights in zip(chunk.step.products, chunk.late_weights, strict=True):
        assert call.r is not None
        for j, gate in enumerate(product.gates):
            weights[:, :, j * dim : (j + 1) * dim].copy_(call.r[in_r.index(gate)].transpose(1, 2))
    if call.b is not None:
        buffers["bias"].copy_(call.b)
    _parameters(call, buffers["elementwise"])
    buffers["carry"].copy_(_starts(call).transpose(1, 2))
    buffers["operand"].copy_(buffers["carry"][0])
    resets = _resets(call, key.num_steps)
    states = wx.new_empty((len(cell.states), batch, time, heads, dim))
    saved = wx.new_empty((batch, time, len(in_r), heads, dim)) if saves else None
    for start in range(0, time, key.num_steps):
        end = min(time, start + key.num_steps)
        chunk.fill(call, resets, start, end)
        chunk.run()
        states[:, :, start:end].copy_(buffers["states"][: end - start].permute(2, 1, 0, 3, 4))
        if saved is not None and in_r:
            saved[:, start:end].copy_(buffers["saved"][: end - start].transpose(0, 1))
    last = _last(call, states)
    return CellResults(states[0], states[1:], last, saved)


def _last(call: CellCall, states: Tensor) -> Tensor:
    """The states after the last step of each sequence (S, B, N, D)."""
    if call.lengths is None:
        return states[:, :, -1].clone()
    rows = torch.arange(states.shape[1], device=states.device)
    last = states[:, rows, (call.lengths.long() - 1).clamp(min=0)]
    initial = torch.stack(first_states(call)) if call.initial is None else call.initial
    return torch.where((call.lengths == 0)[None, :, None, None], initial.to(last.dtype), last)


def staged_backward(
    call: CellCall, results: CellResults, d_hidden: Tensor | None, d_rest: Tensor | None, d_last: Tensor | None
) -> CellGradients:
    """Gradients of the operands; see `CellBackend.backward`."""
    wx, cell = call.wx, call.cell
    batch, time, _, heads, dim = wx.shape
    upstream = [d_hidden, *((None,) * (len(cell.states) - 1) if d_rest is None else d_rest.unbind(0))]
    mask = sum(1 << s for s, grad in enumerate(upstream) if grad is not None)
    key = _key(call, int(call.clip > 0), mask, int(call.needs_inputs), is_backward=True)
    chunk = _CHUNKS.of(StagedChunk, key, key.device)
    buffers, in_r, late = chunk.buffers, recurrent_gates(cell), [gate.name for gate in cell.late_gates]
    if chunk.weights is not None and call.r is not None:
        for e, gate in enumerate(chunk.early):
            chunk.weights[:, e * dim : (e + 1) * dim].copy_(call.r[in_r.index(gate)])
    for product, weights in zip(chunk.step.products, chunk.late_weights, strict=True):
        assert call.r is not None
        weights.copy_(call.r[in_r.index(product.gates[0])])
    _parameters(call, buffers["elementwise"])
    buffers["limit"].fill_(call.clip)
    buffers["of_elementwise"].zero_()
    buffers["product"].zero_()
    if d_last is None:
        buffers["carry"].zero_()
    else:
        buffers["carry"].copy_(d_last.transpose(1, 2))
    every = torch.cat([results.hidden[None], results.rest])
    before = _before(call, every)
    resets = _resets(call, key.num_steps)
    slots = wx.new_empty((batch, time, len(cell.slots), heads, dim))
    operands = wx.new_empty((batch, time, len(late), heads, dim))
    of_inputs = [torch.empty((batch, time, heads, dim), device=wx.device) for _ in cell.inputs if call.needs_inputs]
    for start in reversed(range(0, time, key.num_steps)):
        end = min(time, start + key.num_steps)
        number = end - start
        chunk.fill(call, resets, start, end)
        for s, grad in enumerate(upstream):
            if grad is not None:
                buffers["upstream"][:number, :, s].copy_(grad[:, start:end].transpose(0, 1))
        if in_r and results.saved is not None:
            buffers["saved"][:number].copy_(results.saved[:, start:end].transpose(0, 1))
        buffers["before"][:number].copy_(before[:, :, start:end].permute(2, 1, 0, 3, 4))
        buffers["after"][:number].copy_(every[:, :, start:end].permute(2, 1, 0, 3, 4))
        chunk.run()
        slots[:, start:end].copy_(buffers["slots"][:number].transpose(0, 1))
        if late:
            operands[:, start:end].copy_(buffers["operands"][:number].transpose(0, 1))
        for n, into in enumerate(of_inputs):
            into[:, start:end].copy_(buffers[f"of_given{n}"][:number].transpose(0, 1))
    initial = None
    if call.initial is not None:
        initial = _initial(call, chunk).to(call.initial.dtype)
    of_elementwise = buffers["of_elementwise"].sum(2)
    d_r, d_b = _of_weights(call, slots, operands, before[0])
    return CellGradients(
        _of_input(call, slots),
        d_r,
        d_b,
        initial,
        tuple(
            total.sum_to_size(value.shape).to(value.dtype)
            for value, total in zip(call.parameters, of_elementwise, strict=False)
        ),
        tuple(d.sum_to_size(value.shape).to(value.dtype) for value, d in zip(call.inputs, of_inputs, strict=False)),
    )


def _before(call: CellCall, states: Tensor) -> Tensor:
    """States (S, B, T, N, D) as they enter each step."""
    own = torch.stack(first_states(call))
    first = (own if call.initial is None else call.initial).to(states.dtype)[:, :, None]
    before = torch.cat([first, states[:, :, :-1]], dim=2)
    if call.reset is not None:
        before = torch.where(call.reset[None, :, :, None, None], own[:, :, None].to(states.dtype), before)
    return before


def _initial(call: CellCall, chunk: StagedChunk) -> Tensor:
    """Gradients of the initial states (S, B, N, D): the carried ones, and what came back through R."""
    carry = chunk.buffers["carry"].clone()
    if chunk.weights is not None:
        through = chunk.buffers["product"].float()
        carry[0] += through.clamp(-call.clip, call.clip) if call.clip > 0 else through
    carry = carry.transpose(1, 2)
    if call.reset is None:
        return carry
    anew = call.reset[:, 0] if call.lengths is None else call.reset[:, 0] & (call.lengths > 0)
    return torch.where(anew[None, :, None, None], 0.0, carry)


def _of_input(call: CellCall, slots: Tensor) -> Tensor:
    """The gradient of wx, from those of all slots (B, T, L, N, D)."""
    names = call.cell.slots
    gates = [gate for gate in call.cell.gates if gate.has_input]
    places = [names.index(f"{gate.name}.input" if gate.is_apart else gate.name) for gate in gates]
    return slots if places == list(range(len(names))) else slots[:, :, places]


def _of_weights(call: CellCall, slots: Tensor, operands: Tensor, before: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of r and b, from those of the slots, what late products multiplied, and h before each step."""
    cell, r, heads, dim = call.cell, call.r, *slots.shape[3:]
    if r is None:
        return None, None
    late = [gate.name for gate in cell.late_gates]
    wide = slots.dtype if slots.is_cuda else torch.float32
    of_gates = [slots[:, :, cell.slots.index(slot_of(cell, gate))] for gate in recurrent_gates(cell)]
    rows = [each.to(wide).permute(2, 0, 1, 3).reshape(heads, -1, dim) for each in of_gates]
    right = before.to(wide).permute(2, 0, 1, 3).reshape(heads, -1, dim)
    d_r = []
    for gate, row in zip(recurrent_gates(cell), rows, strict=True):
        own = right
        if gate in late:
            own = operands[:, :, late.index(gate)].to(wide).permute(2, 0, 1, 3).reshape(heads, -1, dim)
        d_r.append(row.transpose(1, 2) @ own)
    d_b = None if call.b is None else torch.stack([each.float().sum((0, 1)) for each in of_gates]).to(call.b.dtype)
    return torch.stack(d_r).to(r.dtype), d_b
