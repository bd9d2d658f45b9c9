"""A cell's step by calls of PyTorch: for the reference, and for the loop that alternates products and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.kernels.rnn.generated.body import StepBody, slot_numbers
from constrint.kernels.rnn.language.functions import FUNCTIONS, rounded_down
from constrint.kernels.rnn.language.graph import CellDefinition, CellNode, CellTape

States = tuple[Tensor, ...]
Bases = tuple[Tensor | None, ...]


def evaluated(
    tape: CellTape, places: Sequence[int], values: dict[int, Any], leaf: Callable[[CellNode], Any], stored: Any
) -> dict[int, Any]:
    """Values of places of a tape, in order, from leaves; those of `values` are known already."""
    for at in places:
        node = tape.nodes[at]
        if at in values:
            continue
        if not node.args:
            values[at] = leaf(node)
        elif node.op == "rounded_down":
            values[at] = rounded_down(values[node.args[0]], stored)
        else:
            values[at] = FUNCTIONS[node.op](*(values[a] for a in node.args))
    return values


def reference_step(
    definition: CellDefinition, p: Sequence[Tensor], states: States, params: Tensor | None, stored: Any = None
) -> States:
    """The states after a step under autograd, from pre-activations by slot, all (B, N, D), and parameters (P, N, D)."""
    tape = definition.traced
    leaf = _leaf_of(definition, p, states, params)
    values = evaluated(tape, range(len(tape.nodes)), {}, leaf, stored)
    places = tape.places
    return tuple(values[places[name]].expand_as(states[0]) for name in definition.states)


def _leaf_of(
    definition: CellDefinition, p: Sequence[Tensor], states: Sequence[Tensor], params: Tensor | None
) -> Callable[[CellNode], Tensor]:
    slots = slot_numbers(definition)
    names = [parameter.name for parameter in definition.parameters]

    def leaf(node: CellNode) -> Tensor:
        if node.op == "constant":
            return p[0].new_tensor(node.value)
        if node.op == "slot":
            return p[slots[node.name]]
        if node.op == "parameter":
            assert params is not None
            return params[names.index(node.name)]
        return states[definition.states.index(node.name)]

    return leaf


class GeneratedForward:
    """A forward step; see `alternating.pointwise.ForwardStep`.

    Args:
        definition: The cell.
        x: (T, N, B, G, D) pre-activations, which the loop completes; the recurrent part where a gate is apart.
        candidate: (T, N, B, D) the input's part of the last gate, where it is apart.
        states: (S, T, N, B, D), written.
        stored: The dtype in which states are stored.
        params: (P, N, D) elementwise parameters.
    """

    def __init__(
        self,
        definition: CellDefinition,
        x: Tensor,
        candidate: Tensor | None,
        states: Tensor,
        stored: torch.dtype,
        params: Tensor | None,
    ) -> None:
        self.definition, self.stored, self.states = definition, stored, states
        self.params = None if params is None else params.to(x.dtype)[:, :, None]
        self.slots = _by_slot(x, candidate)

    def __call__(self, t: int, before: States, *, may_be_empty: bool) -> States:
        """Run step `t`."""
        tape = self.definition.forward
        leaf = _leaf_of(self.definition, [slot[t] for slot in self.slots], before, self.params)
        values = evaluated(tape, range(len(tape.nodes)), {}, leaf, self.stored)
        places = tape.places
        for number, name in enumerate(self.definition.states):
            self.states[number, t].copy_(values[places[name]])
        return self.states[:, t].unbind(0)


def _by_slot(x: Tensor, candidate: Tensor | None) -> list[Tensor]:
    """The slots of pre-activations (T, N, B, G, D): (T, N, B, D) each."""
    gates = list(x.unbind(3))
    return gates if candidate is None else [*gates[:-1], candidate, gates[-1]]


class GeneratedBackward:
    """Some backward steps; see `alternating.pointwise.BackwardStep`.

    Args:
        definition: The cell.
        p: (K, N, B, G, D) pre-activations, replaced by the gradients of the recurrent slots.
        candidate: (K, N, B, D) the input's part of the last gate, where it is apart; replaced by its gradient.
        before, after: Give the states of one number before and after the steps, (K, N, B, D).
        params: (P, N, D) elementwise parameters.
        of_params: (P, N, B, D), to which the gradients of the parameters are added.
        ended: (K, 1, B, 1) where a sequence has ended; nothing that is computed there counts.
    """

    def __init__(
        self,
        definition: CellDefinition,
        p: Tensor,
        candidate: Tensor | None,
        before: Callable[[int], Tensor],
        after: Callable[[int], Tensor],
        params: Tensor | None,
        of_params: Tensor | None,
        ended: Tensor | None,
    ) -> None:
        self.ended = ended
        self.body = body = StepBody(definition)
        self.of_params, self.slots = of_params, _by_slot(p, candidate)
        own = None if params is None else params.to(p.dtype)[:, None, :, None]
        # The slots are overwritten step by step, and what is known of them is computed for all steps before.
        leaf_of_slots = _leaf_of(definition, [slot.clone() for slot in self.slots], (), own)

        def leaf(node: CellNode) -> Tensor:
            if node.op == "state":
                return before(definition.states.index(node.name))
            if node.op == "new":
                return after(definition.states.index(node.name))
            return leaf_of_slots(node)

        tape, is_known = body.chain, body.is_known
        known = [at for at in range(len(tape.nodes)) if is_known[at]]
        values = evaluated(tape, known, {}, leaf, None)
        self.kept = {
            at: values[at].expand(p.shape[0], *values[at].shape[-3:]) if values[at].dim() > 3 else values[at]
            for at in known
        }
        self.rest = [at for at in range(len(tape.nodes)) if not is_known[at]]

    def __call__(self, t: int, d: States, base: Bases) -> tuple[Tensor | None, States]:
        """Run step `t` backwards."""
        body = self.body
        values = {at: value[t] if value.dim() > 3 else value for at, value in self.kept.items()}
        evaluated(body.chain, self.rest, values, lambda node: d[body.operand(node)[1]], None)
        of_states: dict[int, Tensor] = {}
        for sort, number, place in body.gradient_outputs(body.chain):
            value = values[place].expand_as(d[0])
            if self.ended is not None:
                value = value.masked_fill(self.ended[t], 0)
            if sort == "slot":
                self.slots[number][t].copy_(value)
            elif sort == "state":
                of_states[number] = value
            elif self.of_params is not None:
                self.of_params[number] += value
        sums = [_sum(value, base[i]) for i, value in sorted(of_states.items())]
        return sums[0], tuple(sums[1:])


def _sum(value: Tensor, more: Tensor | None) -> Tensor:
    return value if more is None else value + more
