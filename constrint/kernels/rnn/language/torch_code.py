"""Tapes evaluated in plain PyTorch, and the plain loop over time that every back-end is tested against."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from constrint.kernels.rnn.language.backends import CellCall, CellResults
from constrint.kernels.rnn.language.functions import FUNCTIONS, rounded_down
from constrint.kernels.rnn.language.graph import LEAVES, CellDefinition, CellNode, CellTape, CellTapeWriter
from constrint.kernels.rnn.reference import accumulation_dtype, clamp_gradient

#: A late product: from the gate's name, the value (..., N, B, D), and whether R is transposed.
Product = Callable[[str, Tensor, bool], Tensor]


def _no_product(name: str, value: Tensor, is_transposed: bool) -> Tensor:
    raise AssertionError(f"gate {name} has a late product")


class TapeRunner:
    """Evaluates some nodes of a tape on tensors.

    Args:
        tape: The tape.
        places: The nodes to evaluate, in order; others are given.
        dim: D, units of a head, the size of the last axis of values.
        stored: The dtype in which states are stored.
    """

    def __init__(self, tape: CellTape, places: Iterable[int], dim: int, stored: torch.dtype) -> None:
        self.tape = tape
        self._steps = [
            (at, tape.nodes[at].args, self._function(tape.nodes[at], dim, stored), tape.nodes[at].name)
            for at in places
            if tape.nodes[at].op not in LEAVES
        ]

    def _function(self, node: CellNode, dim: int, stored: torch.dtype) -> Callable[..., Tensor] | bool:
        if node.op in ("product", "product_t"):
            return node.op == "product_t"
        if node.op in ("head_sum", "head_mean"):
            reduced = torch.sum if node.op == "head_sum" else torch.mean

            def over_units(x: Tensor) -> Tensor:
                return reduced(x.expand(*x.shape[:-1], dim), -1, keepdim=True)

            return over_units
        if node.op == "rounded_down":
            return lambda x: rounded_down(x, stored)
        return FUNCTIONS[node.op]

    def run(self, values: list[Tensor], product: Product = _no_product) -> None:
        """Fill in the values of the nodes; those of all others that they need are there."""
        for at, args, function, name in self._steps:
            if isinstance(function, bool):
                values[at] = product(name, values[args[0]], function)
            else:
                values[at] = function(*[values[place] for place in args])


def places_after(tape: CellTape, is_source: Callable[[CellNode], bool]) -> set[int]:
    """The places of a tape that depend on a source, or are one."""
    found: set[int] = set()
    for at, node in enumerate(tape.nodes):
        if is_source(node) or any(place in found for place in node.args):
            found.add(at)
    return found


def leaf_values(tape: CellTape, leaf: Callable[[str, str], Tensor], like: Tensor) -> list[Tensor]:
    """Values of a tape with the leaves filled in, by `leaf(op, name)`; constants are like `like`."""
    return [
        like.new_full((), node.value)
        if node.op == "constant"
        else leaf(node.op, node.name)
        if node.op in LEAVES
        else like
        for node in tape.nodes
    ]


def evaluated(
    tape: CellTape, leaves: Mapping[tuple[str, str], Tensor], shape: Sequence[int], product: Product = _no_product
) -> dict[str, Tensor]:
    """The outputs of a tape, each of `shape`.

    Args:
        tape: The tape.
        leaves: Values by op and name, broadcastable to `shape`, of one dtype.
        shape: (..., D).
        product: Late products.
    """
    like = next(iter(leaves.values()))
    values = leaf_values(tape, lambda op, name: leaves[op, name], like)
    TapeRunner(tape, range(len(tape.nodes)), shape[-1], like.dtype).run(values, product)
    return {name: values[place].expand(*shape) for name, place in tape.outputs}


def smooth(cell: CellDefinition) -> CellDefinition:
    """The cell with the second argument of every `surrogate` in its place: what the derivative is that of."""
    writer, moved = CellTapeWriter(), list[int]()
    for node in cell.traced.nodes:
        args = tuple(moved[at] for at in node.args)
        if node.op == "surrogate":
            moved.append(args[1])
        elif node.op in LEAVES:
            moved.append(writer.constant(node.value) if node.op == "constant" else writer.leaf(node.op, node.name))
        else:
            moved.append(writer.operation(node.op, *args, name=node.name))
    return replace(cell, traced=writer.ended({name: moved[place] for name, place in cell.traced.outputs}))


def derivative_error(cell: CellDefinition, seed: int = 0, step: float = 1e-5) -> float:
    """The largest difference between the backward tape and central differences of the step, in fp64.

    Relative to the largest gradient of a leaf. One step of two sequences, two heads and three units at random values;
    late products have random weights.
    """
    cell = smooth(cell)
    forward, backward = cell.forward, cell.backward
    generator = torch.Generator().manual_seed(seed)
    shape = 2, 2, 3

    def draw(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, dtype=torch.float64)

    names = [("slot", name) for name in cell.slots] + [("state", name) for name in cell.states]
    names += [("parameter", each.name) for each in cell.parameters] + [("input", each.name) for each in cell.inputs]
    leaves = {name: draw(*shape) for name in names}
    weights = {gate.name: draw(2, 3, 3) for gate in cell.late_gates}
    upstream = {name: draw(*shape) for name in cell.states}

    def stepped(values: Mapping[tuple[str, str], Tensor]) -> dict[str, Tensor]:
        def product(name: str, value: Tensor, is_transposed: bool) -> Tensor:
            late = torch.einsum("bni,noi->bno", value.expand(shape), weights[name])
            offsets[name] = late.detach()
            return late + values["slot", f"{name}.recurrent"]

        return evaluated(forward, values, shape, product)

    def back(name: str, value: Tensor, is_transposed: bool) -> Tensor:
        return torch.einsum("bno,noi->bni", value.expand(shape), weights[name])

    offsets: dict[str, Tensor] = {}
    new = stepped(leaves)
    known = leaves | {("new", name): value for name, value in new.items()}
    known |= {
        ("slot", f"{name}.recurrent"): leaves["slot", f"{name}.recurrent"] + late for name, late in offsets.items()
    }
    known |= {("gradient", name): value for name, value in upstream.items()}
    known["flag", "only_h"] = torch.tensor(False)
    gradients = evaluated(backward, known, shape, back)
    worst, largest = 0.0, 1.0
    for op, name in names:
        numeric = torch.zeros(shape, dtype=torch.float64)
        for at in range(numeric.numel()):
            ends = []
            for sign in (1.0, -1.0):
                moved = leaves[op, name].clone()
                moved.view(-1)[at] += sign * step
                ends.append(sum((stepped({**leaves, (op, name): moved})[s] * upstream[s]).sum() for s in cell.states))
            numeric.view(-1)[at] = (ends[0] - ends[1]) / (2 * step)
        worst = max(worst, float((gradients[f"{op}:{name}"] - numeric).abs().max()))
        largest = max(largest, float(numeric.abs().max()))
    return worst / largest


def recurrent_gates(cell: CellDefinition) -> tuple[str, ...]:
    """Names of the gates with a recurrent part, in the order of R."""
    return tuple(gate.name for gate in cell.gates if gate.has_recurrent)


def input_gates(cell: CellDefinition) -> tuple[str, ...]:
    """Names of the gates with an input's part, in the order of wx."""
    return tuple(gate.name for gate in cell.gates if gate.has_input)


def first_states(call: CellCall) -> tuple[Tensor, ...]:
    """The cell's own states before a first step, (B, N, D) each."""
    batch, _, _, heads, dim = call.wx.shape
    kind = accumulation_dtype(call.wx.dtype)
    return tuple(call.wx.new_full((batch, heads, dim), value, dtype=kind) for value in call.cell.initial)


def reference(call: CellCall) -> CellResults:
    """Run a cell over time in plain PyTorch, one loop, differentiated by autograd: exact and slow.

    Padding and resets as in `rnn_reference`; a reset puts the cell's own first states in.
    """
    cell, kind = call.cell, accumulation_dtype(call.wx.dtype)
    batch, time, _, heads, dim = call.wx.shape
    shape = batch, heads, dim
    late = {gate.name for gate in cell.late_gates}
    r = None if call.r is None else dict(zip(recurrent_gates(cell), call.r.to(kind), strict=True))
    b = None if call.b is None else dict(zip(recurrent_gates(cell), call.b.to(kind), strict=True))

    def times(name: str, value: Tensor) -> Tensor:
        assert r is not None
        result = torch.einsum("bni,noi->bno", value.expand(shape), r[name])
        return result if b is None else result + b[name]

    x, step_inputs = call.wx.to(kind), list(call.inputs)
    if call.lengths is not None:  # values in the padding, NaN even, reach neither results nor gradients
        inside = torch.arange(time, device=x.device) < call.lengths[:, None]
        x = torch.where(inside[:, :, None, None, None], x, 0.0)
        step_inputs = [torch.where(inside[:, :, None, None], value, 0.0) for value in step_inputs]
    start = first_states(call)
    states = start if call.initial is None else tuple(call.initial.to(kind).unbind(0))
    fixed = {("parameter", p.name): value for p, value in zip(cell.parameters, call.parameters, strict=True)}
    shown: list[Tensor] = []
    for t in range(time):
        running = None if call.lengths is None else (t < call.lengths)[:, None, None]
        if call.reset is not None:
            fresh = call.reset[:, t, None, None] if running is None else call.reset[:, t, None, None] & running
            states = tuple(torch.where(fresh, s, old) for s, old in zip(start, states, strict=True))
        leaves = fixed | {("state", name): state for name, state in zip(cell.states, states, strict=True)}
        leaves |= {("input", each.name): value[:, t] for each, value in zip(cell.inputs, step_inputs, strict=True)}
        h = clamp_gradient(states[0], call.clip) if call.clip > 0 else states[0]
        parts = dict(zip(input_gates(cell), x[:, t].unbind(1), strict=True))
        for gate in cell.gates:
            recurrent = times(gate.name, h) if gate.has_recurrent and gate.name not in late else None
            if not gate.is_apart:
                assert recurrent is not None
                leaves["slot", gate.name] = parts[gate.name] + recurrent
                continue
            if gate.has_input:
                leaves["slot", f"{gate.name}.input"] = parts[gate.name]
            if recurrent is not None:
                leaves["slot", f"{gate.name}.recurrent"] = recurrent
        after = evaluated(cell.traced, leaves, shape, lambda name, value, _: times(name, value))
        new = tuple(after[name] for name in cell.states)
        shown.append(torch.stack(new if running is None else tuple(torch.where(running, s, 0.0) for s in new)))
        if running is not None:
            new = tuple(torch.where(running, s, old) for s, old in zip(new, states, strict=True))
        states = new
    every = torch.stack(shown, 2).to(call.wx.dtype)
    return CellResults(every[0], every[1:], torch.stack(states).to(call.wx.dtype), None)
