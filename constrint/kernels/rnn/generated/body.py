"""A step's tapes as kernels compute them: pre-activations by slot, and a backward step in two parts.

Kernels see up to four slots, states and parameters by number. A backward step is linear in the gradients of the states
after it. What does not depend on them, its *known* part, is computed before they come; the rest is a chain that every
step waits for, so that factors of products along this chain are multiplied beforehand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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

    @property
    def backward(self) -> CellTape:
        """The backward step; its outputs are named by slots, states and parameters."""
        return self.definition.backward

    @cached_property
    def chain(self) -> CellTape:
        """The backward step with factors of its chain multiplied beforehand; the same outputs."""
        return folded(self.backward)

    @cached_property
    def is_known(self) -> tuple[bool, ...]:
        """By place of `chain`, whether the value does not depend on the gradients of the states."""
        return known_places(self.chain)

    @cached_property
    def carried(self) -> tuple[int, ...]:
        """Places of known values that the rest of the backward step uses, constants left out, in the order of use."""
        nodes, seen = self.chain.nodes, dict[int, None]()

        def visit(at: int) -> None:
            if at not in seen:
                for place in () if self.is_known[at] else nodes[at].args:
                    visit(place)
                seen[at] = None

        for _, place in self.chain.outputs:
            visit(place)
        return tuple(at for at in seen if self.is_known[at] and nodes[at].op not in ("constant", "flag"))

    def operand(self, node: CellNode) -> tuple[str, int]:
        """The sort and the number of a leaf: slot, state, new, gradient, parameter, flag."""
        if node.op == "flag":
            return "flag", 0
        if node.op == "slot":
            return "slot", slot_numbers(self.definition)[node.name]
        if node.op == "parameter":
            return "parameter", [parameter.name for parameter in self.definition.parameters].index(node.name)
        return node.op, self.definition.states.index(node.name)

    def gradient_outputs(self, tape: CellTape) -> Iterator[tuple[str, int, int]]:
        """Sort, number and place of every result of the backward step, in one of its tapes."""
        slots, definition = slot_numbers(self.definition), self.definition
        parameters = [parameter.name for parameter in definition.parameters]
        for name, place in tape.outputs:
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
    """The same tape with (d * x) * y as d * (x * y) where d depends on a gradient, and x and y do not.

    A d * x or 0, as a condition says, is d times x or 0. What is used more than once is computed once.
    """
    known, writer = known_places(tape), CellTapeWriter()
    uses = Counter(at for node in tape.nodes for at in node.args) + Counter(place for _, place in tape.outputs)
    #: By place: the value without a factor, and the factor, in the new tape.
    values: list[tuple[int, int | None]] = []
    one = writer.constant(1.0)

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
            if uses[at] > 1:
                values[at] = whole(at), None
        elif node.op == "div" and known[node.args[1]]:
            value, factor = values[node.args[0]]
            values.append((value, writer.operation("div", one if factor is None else factor, whole(node.args[1]))))
        elif node.op == "where" and uses[at] == 1 and known[node.args[0]] and (zero := _zero_of(tape, node)):
            value, factor = values[node.args[3 - zero]]
            branches = [one if factor is None else factor, writer.constant(0.0)]
            branches = branches if zero == 2 else branches[::-1]
            values.append((value, writer.operation("where", whole(node.args[0]), *branches)))
        else:
            values.append((writer.operation(node.op, *map(whole, node.args), name=node.name), None))
    return writer.ended({name: whole(place) for name, place in tape.outputs})


def _zero_of(tape: CellTape, node: CellNode) -> int:
    """Which argument of a `where` is the constant 0 beside a value that is none; 0 without one."""
    zeros = [number for number in (1, 2) if tape.nodes[node.args[number]].op == "constant"]
    return zeros[0] if len(zeros) == 1 and tape.nodes[node.args[zeros[0]]].value == 0.0 else 0


#: Formulas that are calls: what they give needs no parentheses.
_CALL = re.compile(r"[\w.]+\(.*\)")


def lines(
    nodes: Sequence[CellNode],
    places: Sequence[int],
    formulas: Mapping[str, str],
    leaf: Callable[[CellNode], str],
    written: dict[int, str],
    assign: Callable[[str, CellNode, str], str],
    wanted: Collection[int],
) -> list[str]:
    """Statements that compute places of a tape, in order; a value of one use stands where it is used.

    Args:
        nodes: The tape's nodes.
        places: The places that are computed, arguments before their use.
        formulas: By operation, its formula of `{0}`, `{1}` and so on.
        leaf: The text of a leaf.
        written: Texts of places that are known already; those of `places` are added.
        assign: A statement from a variable's name, its node and the formula.
        wanted: Places whose values are used after the statements.
    """
    uses = Counter(wanted)
    for at in places:
        # What a condition chooses between, or decides about, is computed before it.
        uses.update(nodes[at].args)
    statements = []
    for at in places:
        node = nodes[at]
        if at in written:
            continue
        if not node.args:
            written[at] = repr(node.value) if node.op == "constant" else leaf(node)
            continue
        formula = formulas[node.op].format(*(written[a] for a in node.args))
        if uses[at] == 1:
            written[at] = formula if _CALL.fullmatch(formulas[node.op]) else f"({formula})"
            continue
        statements.append(assign(f"x{at}", node, formula))
        written[at] = f"x{at}"
    return statements
