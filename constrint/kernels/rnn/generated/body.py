"""A step's tapes as kernels compute them: pre-activations by slot, and a backward step in two parts.

Kernels see up to four slots, states and parameters by number. A backward step is linear in the gradients of the states
after it. What does not depend on them, its *known* part, is computed before they come; the rest is a chain that every
step waits for, so that factors of products along this chain are multiplied beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from constrint.kernels.rnn.language.graph import CellDefinition, CellNode, CellTape, CellTapeWriter

#: Slots, states and parameters that kernels have room for.
MOST_SLOTS, MOST_STATES, MOST_PARAMETERS = 4, 4, 4


def slot_numbers(definition: CellDefinition) -> dict[str, int]:
    """The slot of every pre-activation by its name: gates in turn, then the recurrent part of a gate that is apart."""
    numbers = dict[str, int]()
    for number, gate in enumerate(definition.gates):
        numbers |= {f"{gate.name}.input": number, f"{gate.name}.recurrent": len(definition.gates)}
        if not gate.is_apart:
            numbers[gate.name] = number
    return numbers


@dataclass(frozen=True)
class StepBody:
    """A cell's step as numbered operands.

    Args:
        definition: The cell.
    """

    definition: CellDefinition

    @property
    def forward(self) -> CellTape:
        """The step; its outputs are named by states."""
        return self.definition.forward

    @cached_property
    def backward(self) -> CellTape:
        """The backward step with factors of its chain multiplied beforehand; outputs as in the definition's tape."""
        return folded(self.definition.backward)

    @cached_property
    def is_known(self) -> tuple[bool, ...]:
        """By place of the backward tape, whether the value does not depend on the gradients of the states."""
        return known_places(self.backward)

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """Places of known values that the rest of the backward step uses, constants left out."""
        nodes = self.backward.nodes
        used = {at for node, known in zip(nodes, self.is_known, strict=True) if not known for at in node.args}
        used |= {place for _, place in self.backward.outputs}
        return tuple(sorted(at for at in used if self.is_known[at] and nodes[at].op != "constant"))

    def operand(self, node: CellNode) -> tuple[str, int]:
        """The sort and the number of a leaf: slot, state, new, gradient, parameter."""
        if node.op == "slot":
            return "slot", slot_numbers(self.definition)[node.name]
        if node.op == "parameter":
            return "parameter", [parameter.name for parameter in self.definition.parameters].index(node.name)
        return node.op, self.definition.states.index(node.name)

    def gradient_outputs(self) -> Iterator[tuple[str, int, int]]:
        """Sort, number and place of every result of the backward step."""
        slots, definition = slot_numbers(self.definition), self.definition
        parameters = [parameter.name for parameter in definition.parameters]
        for name, place in self.backward.outputs:
            sort, _, of = name.partition(":")
            if sort == "slot":
                yield sort, slots[of], place
            elif sort == "state":
                yield sort, definition.states.index(of), place
            elif sort == "parameter":
                yield sort, parameters.index(of), place


def known_places(tape: CellTape) -> tuple[bool, ...]:
    """By place, whether a value does not depend on a gradient."""
    known: list[bool] = []
    for node in tape.nodes:
        known.append(node.op != "gradient" and all(known[at] for at in node.args))
    return tuple(known)


def folded(tape: CellTape) -> CellTape:
    """The same tape with (d * x) * y as d * (x * y) where d depends on a gradient, and x and y do not."""
    known, writer = known_places(tape), CellTapeWriter()
    #: By place: the value without a factor, and the factor, in the new tape.
    values: list[tuple[int, int | None]] = []

    def whole(at: int) -> int:
        value, factor = values[at]
        return value if factor is None else writer.operation("mul", value, factor)

    def times(factor: int | None, by: int) -> int:
        return by if factor is None else writer.operation("mul", factor, by)

    for at, node in enumerate(tape.nodes):
        if node.op == "constant":
            values.append((writer.constant(node.value), None))
        elif not node.args:
            values.append((writer.leaf(node.op, node.name), None))
        elif known[at]:
            values.append((writer.operation(node.op, *map(whole, node.args), name=node.name), None))
        elif node.op == "mul" and known[node.args[0]] != known[node.args[1]]:
            given, by = node.args if known[node.args[1]] else reversed(node.args)
            value, factor = values[given]
            values.append((value, times(factor, whole(by))))
        elif node.op == "div" and known[node.args[1]]:
            value, factor = values[node.args[0]]
            one = writer.constant(1.0) if factor is None else factor
            values.append((value, writer.operation("div", one, whole(node.args[1]))))
        else:
            values.append((writer.operation(node.op, *map(whole, node.args), name=node.name), None))
    return writer.ended({name: whole(place) for name, place in tape.outputs})


def lines(
    nodes: Sequence[CellNode],
    places: Sequence[int],
    formulas: Mapping[str, str],
    leaf: Callable[[CellNode], str],
    written: dict[int, str],
    assign: Callable[[str, CellNode, str], str],
) -> list[str]:
    """Statements that compute places of a tape, in order.

    Args:
        nodes: The tape's nodes.
        places: The places that are computed, arguments before their use.
        formulas: By operation, its formula of `{0}`, `{1}` and so on.
        leaf: The text of a leaf.
        written: Texts of places that are known already; those of `places` are added.
        assign: A statement from a variable's name, its node and the formula.
    """
    statements = []
    for at in places:
        node = nodes[at]
        if at in written:
            continue
        if not node.args:
            written[at] = repr(node.value) if node.op == "constant" else leaf(node)
            continue
        variable = f"x{at}"
        statements.append(assign(variable, node, formulas[node.op].format(*(written[a] for a in node.args))))
        written[at] = variable
    return statements
