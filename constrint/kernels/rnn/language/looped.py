"""Cells over time in PyTorch: one product per step, the step's tape on tensors, and the backward tape's gradients.

Forward the inputs' parts of all steps are there ahead. Backward everything that does not depend on gradients is
computed for many steps at once, and what is left per step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from constrint.kernels.rnn.language.backends import TORCH, CellCall, CellGradients, CellResults
from constrint.kernels.rnn.language.graph import CellDefinition, CellTape
from constrint.kernels.rnn.language.torch_code import (
    TapeRunner,
    first_states,
    input_gates,
    leaf_values,
    places_after,
    recurrent_gates,
)
from constrint.kernels.rnn.reference import accumulation_dtype

#: Elements of values that a chunk of a backward pass holds at once, about.
CHUNK = 1 << 24
#: Leaves that differ from step to step.
_PER_STEP = ("slot", "state", "new", "input")


class _Gates(NamedTuple):
    """Gates by how they are computed, as positions.

    Args:
        early: Gates with a product at the begin of the step: name of its slot, position in R, and in wx if it is a sum.
        alone: Input's parts that are slots of their own: name of the slot, position in wx.
        late: Gates with a late product: name, position in R.
    """

    early: tuple[tuple[str, int, int | None], ...]
    alone: tuple[tuple[str, int], ...]
    late: tuple[tuple[str, int], ...]


def _gates_of(cell: CellDefinition) -> _Gates:
    in_r, in_x = recurrent_gates(cell), input_gates(cell)
    early: list[tuple[str, int, int | None]] = []
    for gate in cell.gates:
        if gate.has_recurrent and not gate.is_late:
            slot = f"{gate.name}.recurrent" if gate.is_apart else gate.name
            early.append((slot, in_r.index(gate.name), None if gate.is_apart else in_x.index(gate.name)))
    alone = [(f"{g.name}.input", in_x.index(g.name)) for g in cell.gates if g.is_apart and g.has_input]
    return _Gates(tuple(early), tuple(alone), tuple((g.name, in_r.index(g.name)) for g in cell.late_gates))


class _Operands:
    """Operands of a call in the order of the loop: (T, N, B, ...), in the accumulation dtype."""

    def __init__(self, call: CellCall) -> None:
        self.call, self.cell = call, call.cell
        self.kind = accumulation_dtype(call.wx.dtype)
        self.batch, self.time, _, self.heads, self.dim = call.wx.shape
        self.shape = self.heads, self.batch, self.dim
        self.gates = _gates_of(call.cell)
        x = call.wx.permute(1, 3, 0, 2, 4)  # (T, N, B, X, D)
        self.running: Tensor | None = None
        if call.lengths is not None:
            self.running = (torch.arange(self.time, device=x.device)[:, None] < call.lengths)[:, None, :, None]
            x = torch.where(self.running[..., None], x, 0.0)
        self.x = x.to(self.kind)
        self.fresh: Tensor | None = None
        if call.reset is not None:
            self.fresh = call.reset.t()[:, None, :, None]
            if self.running is not None:
                self.fresh = self.fresh & self.running
        self.start = tuple(state.transpose(0, 1) for state in first_states(call))
        self.first = self.start
        if call.initial is not None:
            self.first = tuple(state.transpose(0, 1) for state in call.initial.to(self.kind).unbind(0))
        self.inputs: dict[str, Tensor] = {}
        for each, value in zip(self.cell.inputs, call.inputs, strict=True):
            value = value.to(self.kind).permute(1, 2, 0, 3)  # (T, N or 1, B, D or 1)
            self.inputs[each.name] = value if self.running is None else torch.where(self.running, value, 0.0)
        self.parameters = {
            each.name: value.to(self.kind).unsqueeze(1)  # (N or 1, 1, D or 1)
            for each, value in zip(self.cell.parameters, call.parameters, strict=True)
        }
        r = None if call.r is None else call.r.to(self.kind)
        self.late = {} if r is None else {name: r[at] for name, at in self.gates.late}  # (N, D out, D in)
        self.late_bias: dict[str, Tensor] = {}
        if call.b is not None:
            self.late_bias = {name: call.b[at].to(self.kind).unsqueeze(1) for name, at in self.gates.late}
        self.weights: Tensor | None = None
        if r is not None and self.gates.early:
            # (N, E * D out, D in)
            early = r[[at for _, at, _ in self.gates.early]]
            self.weights = early.transpose(0, 1).reshape(self.heads, -1, self.dim)

    def sums(self) -> Tensor:
        """The sums that the products of the early gates are added to: (T, N, B, E, D)."""
        sums = self.x.new_zeros(self.time, *self.shape[:2], len(self.gates.early), self.dim)
        for into, (_, at, in_x) in zip(sums.unbind(3), self.gates.early, strict=True):
            if in_x is not None:
                into.copy_(self.x[:, :, :, in_x])
            if self.call.b is not None:
                into.add_(self.call.b[at].to(self.kind).unsqueeze(1))
        return sums

    def product(self, name: str, value: Tensor, is_transposed: bool) -> Tensor:
        """R of a late gate, or its transpose, times a value (N, B, D); the bias goes with R."""
        value = value.expand(self.shape)
        if is_transposed:
            return value @ self.late[name]
        result = value @ self.late[name].transpose(1, 2)
        return result + self.late_bias[name] if self.late_bias else result


class TorchBackend:
    """Runs any cell on any device."""

    name = TORCH

    def refusal(self, call: CellCall) -> str:
        """Nothing is refused."""
        return ""

    def forward(self, call: CellCall, *, saves: bool) -> CellResults:
        """Run all steps; see `CellBackend`."""
        own, cell = _Operands(call), call.cell
        tape = cell.forward
        sums = own.sums()
        flat = sums.flatten(3).unbind(0)
        slots = {name: sums[:, :, :, e].unbind(0) for e, (name, _, _) in enumerate(own.gates.early)}
        slots |= {name: own.x[:, :, :, at].unbind(0) for name, at in own.gates.alone}
        inputs = {name: value.unbind(0) for name, value in own.inputs.items()}
        base = leaf_values(tape, lambda op, name: own.parameters.get(name, own.x), own.x)
        changing = places_after(tape, lambda node: node.op in _PER_STEP)
        fixed = TapeRunner(tape, [at for at in range(len(base)) if at not in changing], own.dim, call.wx.dtype)
        fixed.run(base)
        stepper = TapeRunner(tape, sorted(changing), own.dim, call.wx.dtype)
        leaves = [(at, node.op, node.name) for at, node in enumerate(tape.nodes) if node.op in _PER_STEP]
        late: dict[str, list[Tensor]] = {name: [] for name, _ in own.gates.late}

        def product(name: str, value: Tensor, is_transposed: bool) -> Tensor:
            late[name].append(own.product(name, value, is_transposed))
            return late[name][-1]

        weights = None if own.weights is None else own.weights.transpose(1, 2).contiguous()
        places = [tape.places[name] for name in cell.states]
        states, shown = own.first, []
        for t in range(own.time):
            if own.fresh is not None:
                fresh = own.fresh[t]
                states = tuple(torch.where(fresh, s, old) for s, old in zip(own.start, states, strict=True))
            if weights is not None:
                flat[t].baddbmm_(states[0], weights)
            before = dict(zip(cell.states, states, strict=True))
            values = base.copy()
            for at, op, name in leaves:
                values[at] = before[name] if op == "state" else (slots if op == "slot" else inputs)[name][t]
            stepper.run(values, product)
            new = tuple(values[place].expand(own.shape) for place in places)
            if own.running is None:
                shown.append(new)
            else:
                running = own.running[t]
                shown.append(tuple(torch.where(running, state, 0.0) for state in new))
                new = tuple(torch.where(running, s, old) for s, old in zip(new, states, strict=True))
            states = new
        every = [torch.stack(each).permute(2, 0, 1, 3).to(call.wx.dtype) for each in zip(*shown, strict=True)]
        rest = torch.stack(every[1:]) if len(every) > 1 else every[0].new_empty(0, *every[0].shape)
        last = torch.stack([state.transpose(0, 1) for state in states]).to(call.wx.dtype)
        saved = _saved(own, sums, late) if saves else None
        return CellResults(every[0].contiguous(), rest.contiguous(), last, saved)

    def backward(
        self,
        call: CellCall,
        results: CellResults,
        d_hidden: Tensor | None,
        d_rest: Tensor | None,
        d_last: Tensor | None,
    ) -> CellGradients:
        """Gradients of the operands; see `CellBackend`."""
        own = _Operands(call)
        steps = _BackwardSteps(own, results)
        upstream = _upstream(own, d_hidden, d_rest)
        states = [own.x.new_zeros(own.shape) for _ in own.cell.states]
        if d_last is not None:
            states = [each.transpose(0, 1) for each in d_last.to(own.kind).unbind(0)]
        for t, values in steps:
            whole = [d if more is None else d + more[t] for d, more in zip(states, upstream, strict=True)]
            running = None if own.running is None else own.running[t]
            if running is not None:
                whole = [torch.where(running, d, 0.0) for d in whole]
            before = steps.step(t, values, whole, running)
            if own.fresh is not None:
                before = [torch.where(own.fresh[t], 0.0, d) for d in before]
            if running is not None:
                before = [torch.where(running, d, old) for d, old in zip(before, states, strict=True)]
            states = before
        return steps.gradients(states)


TORCH_BACKEND = TorchBackend()


def _saved(own: _Operands, sums: Tensor, late: dict[str, list[Tensor]]) -> Tensor:
    """(B, T, G, N, D) in the dtype of wx, by gates of R."""
    call = own.call
    saved = call.wx.new_empty(own.batch, own.time, len(recurrent_gates(call.cell)), own.heads, own.dim)
    for e, (_, at, _) in enumerate(own.gates.early):
        saved[:, :, at] = sums[:, :, :, e].permute(2, 0, 1, 3)
    for name, at in own.gates.late:
        saved[:, :, at] = torch.stack(late[name]).permute(2, 0, 1, 3)
    return saved


def _upstream(own: _Operands, d_hidden: Tensor | None, d_rest: Tensor | None) -> list[tuple[Tensor, ...] | None]:
    """Per state the gradients (N, B, D) of its steps; None for zeros."""
    count = len(own.cell.states) - 1
    parts = [d_hidden, *((None,) * count if d_rest is None else d_rest.unbind(0))]
    return [None if part is None else part.to(own.kind).permute(1, 2, 0, 3).unbind(0) for part in parts]


class _BackwardSteps:
    """The steps of a backward pass, last one first, and the gradients that they sum up."""

    def __init__(self, own: _Operands, results: CellResults) -> None:
        self.own, self.results = own, results
        cell, call = own.cell, own.call
        self.tape: CellTape = cell.backward
        names = [name for name, _ in self.tape.outputs if call.needs_inputs or not name.startswith("input:")]
        self.places = {name: self.tape.places[name] for name in names}
        needed = set(self.places.values())
        for at in range(len(self.tape.nodes) - 1, -1, -1):
            if at in needed:
                needed.update(self.tape.nodes[at].args)
        nodes = self.tape.nodes
        late = places_after(self.tape, lambda node: node.op == "gradient") & needed
        self.early = needed - late
        changing = places_after(self.tape, lambda node: node.op in _PER_STEP)
        read = {place for at in late for place in nodes[at].args} | set(self.places.values())
        self.handed = sorted(read & self.early & changing)
        dtype = call.wx.dtype
        self.whole = TapeRunner(self.tape, sorted(self.early), own.dim, dtype)
        self.stepper = TapeRunner(self.tape, sorted(late), own.dim, dtype)
        self.upstream = [
            next((at for at in late if nodes[at].op == "gradient" and nodes[at].name == name), None)
            for name in cell.states
        ]
        shape = own.time, *own.shape[:2]
        self.of_early = own.x.new_empty(*shape, len(own.gates.early), own.dim)
        self.of_alone = own.x.new_empty(*shape, len(own.gates.alone), own.dim)
        self.of_late = {name: own.x.new_empty(*shape, own.dim) for name, _ in own.gates.late}
        self.of_late_weights = {name: torch.zeros_like(own.late[name]) for name, _ in own.gates.late}
        self.of_parameters = {each.name: own.x.new_zeros(own.shape) for each in cell.parameters}
        self.of_inputs: dict[str, list[Tensor]] = {each.name: [] for each in cell.inputs if call.needs_inputs}

    def __iter__(self) -> Iterator[tuple[int, list[Tensor]]]:
        """Steps from the last to the first, with the values that do not depend on gradients."""
        own = self.own
        elements = max(1, len(self.early) * own.heads * own.batch * own.dim)
        size = max(1, min(own.time, CHUNK // elements))
        for begin in range((own.time - 1) // size * size, -1, -size):
            chunk = slice(begin, min(begin + size, own.time))
            values = leaf_values(self.tape, lambda op, name: self._leaf(op, name, chunk), own.x)  # noqa: B023
            self.whole.run(values)
            rows = {at: values[at].unbind(0) for at in self.handed}
            for t in range(chunk.stop - 1, chunk.start - 1, -1):
                step = values.copy()
                for at, row in rows.items():
                    step[at] = row[t - begin]
                yield t, step
            for name in self.of_late:
                operand = values[self.places[f"operand:{name}"]].expand(chunk.stop - begin, *own.shape)
                self.of_late_weights[name] += torch.einsum("tnbo,tnbi->noi", self.of_late[name][chunk], operand)

    def _leaf(self, op: str, name: str, chunk: slice) -> Tensor:
        """A leaf's values in some steps, (K, N, B, D); of a parameter (N or 1, 1, D or 1)."""
        own = self.own
        if op == "parameter":
            return own.parameters[name]
        if op == "input":
            return own.inputs[name][chunk]
        if op == "state":
            return self._before(own.cell.states.index(name), chunk)
        if op == "new":
            return self._after(own.cell.states.index(name), chunk)
        if op == "gradient":
            return own.x
        in_x = dict(own.gates.alone)
        if name in in_x:
            return own.x[chunk, :, :, in_x[name]]
        assert self.results.saved is not None
        at = recurrent_gates(own.cell).index(name.removesuffix(".recurrent"))
        return self.results.saved[:, chunk, at].permute(1, 2, 0, 3).to(own.kind)

    def _after(self, state: int, chunk: slice) -> Tensor:
        every = self.results.hidden if state == 0 else self.results.rest[state - 1]
        return every[:, chunk].permute(1, 2, 0, 3).to(self.own.kind)

    def _before(self, state: int, chunk: slice) -> Tensor:
        """A state as it enters some steps."""
        own = self.own
        first = own.first[state] if chunk.start == 0 else self._after(state, slice(chunk.start - 1, chunk.start))[0]
        before = torch.cat([first[None], self._after(state, slice(chunk.start, chunk.stop - 1))])
        return before if own.fresh is None else torch.where(own.fresh[chunk], own.start[state], before)

    def step(self, t: int, values: list[Tensor], after: list[Tensor], running: Tensor | None) -> list[Tensor]:
        """Gradients of the states before a step from those of the states after it; those of the rest are noted."""
        own = self.own
        for at, gradient in zip(self.upstream, after, strict=True):
            if at is not None:
                values[at] = gradient
        self.stepper.run(values, own.product)

        def output(name: str) -> Tensor:
            value = values[self.places[name]].expand(own.shape)
            return value if running is None else torch.where(running, value, 0.0)

        if own.gates.early:
            flat = self.of_early[t].flatten(2)
            torch.cat([output(f"slot:{name}") for name, _, _ in own.gates.early], -1, out=flat)
        for e, (name, _) in enumerate(own.gates.alone):
            self.of_alone[t, :, :, e] = output(f"slot:{name}")
        for name in self.of_late:
            self.of_late[name][t] = output(f"slot:{name}.recurrent")
        for name, total in self.of_parameters.items():
            total += output(f"parameter:{name}")
        for name, parts in self.of_inputs.items():
            parts.append(output(f"input:{name}"))
        before = [output(f"state:{name}") for name in own.cell.states]
        if own.weights is not None:
            if own.call.clip > 0:
                before[0] = before[0] + (flat @ own.weights).clamp_(-own.call.clip, own.call.clip)
            else:
                before[0] = torch.baddbmm(before[0], flat, own.weights)
        return before

    def gradients(self, first: list[Tensor]) -> CellGradients:
        """The sums, and the gradient of the first states."""
        own, call = self.own, self.own.call
        gates = own.gates
        d_wx = call.wx.new_empty(call.wx.shape)
        for e, (_, _, in_x) in enumerate(gates.early):
            if in_x is not None:
                d_wx[:, :, in_x] = self.of_early[:, :, :, e].permute(2, 0, 1, 3)
        for e, (_, at) in enumerate(gates.alone):
            d_wx[:, :, at] = self.of_alone[:, :, :, e].permute(2, 0, 1, 3)
        d_r = None if call.r is None else call.r.new_empty(call.r.shape)
        d_b = None if call.b is None else call.b.new_empty(call.b.shape)
        if gates.early and d_r is not None:
            before = self._before(0, slice(0, own.time)).transpose(0, 1).flatten(1, 2)  # (N, T B, D)
            flat = self.of_early.flatten(3).transpose(0, 1).flatten(1, 2)  # (N, T B, E D)
            products = (flat.transpose(1, 2) @ before).view(own.heads, len(gates.early), own.dim, own.dim)
            for e, (_, at, _) in enumerate(gates.early):
                d_r[at] = products[:, e]
        for name, at in gates.late:
            assert d_r is not None
            d_r[at] = self.of_late_weights[name]
        if d_b is not None:
            for e, (_, at, _) in enumerate(gates.early):
                d_b[at] = self.of_early[:, :, :, e].sum((0, 2))
            for name, at in gates.late:
                d_b[at] = self.of_late[name].sum((0, 2))
        d_inputs = []
        for value, parts in zip(call.inputs, self.of_inputs.values(), strict=False):
            whole = torch.stack(parts[::-1]).permute(2, 0, 1, 3)
            d_inputs.append(whole.sum_to_size(value.shape).to(value.dtype))
        return CellGradients(
            d_wx,
            d_r,
            d_b,
            None if call.initial is None else torch.stack([d.transpose(0, 1) for d in first]).to(call.initial.dtype),
            tuple(
                total.sum(1).sum_to_size(value.shape).to(value.dtype)
                for value, total in zip(call.parameters, self.of_parameters.values(), strict=True)
            ),
            tuple(d_inputs),
        )
