"""Recurrent cells as graphs: gates, states, parameters and inputs, and the step's tapes (`tape.py`). No torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import NamedTuple

from constrint.kernels.rnn.language.derivative import backward_tape
from constrint.kernels.rnn.language.tape import (
    CELL_OPERATIONS as CELL_OPERATIONS,
)
from constrint.kernels.rnn.language.tape import (
    FOLDED as FOLDED,
)
from constrint.kernels.rnn.language.tape import (
    LEAVES as LEAVES,
)
from constrint.kernels.rnn.language.tape import (
    STAGES as STAGES,
)
from constrint.kernels.rnn.language.tape import (
    CellNode as CellNode,
)
from constrint.kernels.rnn.language.tape import (
    CellTape as CellTape,
)
from constrint.kernels.rnn.language.tape import (
    CellTapeWriter as CellTapeWriter,
)

#: Gates, states, parameters and inputs of a step, at most.
MOST_GATES, MOST_STATES, MOST_PARAMETERS, MOST_INPUTS = 8, 8, 16, 4


class CellGate(NamedTuple):
    """A gate: rows of the input's weights, of R and of the bias.

    Args:
        name: Its name.
        is_apart: Whether the input's part and the recurrence's part are slots of their own.
        has_input: Whether the input's part is used.
        has_recurrent: Whether the recurrence's part is used.
        is_late: Whether R multiplies a value of the step (a `product`) instead of the state before it.
    """

    name: str
    is_apart: bool = False
    has_input: bool = True
    has_recurrent: bool = True
    is_late: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of its slots."""
        if not self.is_apart:
            return (self.name,)
        used = (("input", self.has_input), ("recurrent", self.has_recurrent))
        return tuple(f"{self.name}.{part}" for part, is_used in used if is_used)


class Parameter(NamedTuple):
    """An elementwise parameter of a cell.

    Args:
        name: Its name.
        kind: "unit" for one number of every unit (N, D), "head" of every head (N, 1), "layer" for one number (1, 1).
        initial: Its value in a new layer.
    """

    name: str
    kind: str = "unit"
    initial: float = 0.0


class StepInput(NamedTuple):
    """An input of every step besides x; it needs a gradient only where the caller's tensor does.

    Args:
        name: Its name.
        kind: "sequence" for one number of a sequence and step (B, T), "unit" for one of every unit too (B, T, N, D).
    """

    name: str
    kind: str = "sequence"


PARAMETER_KINDS, INPUT_KINDS = ("unit", "head", "layer"), ("sequence", "unit")


@dataclass(frozen=True)
class CellDefinition:
    """A recurrent cell: what its function was traced to, and what follows.

    Args:
        name: Its name.
        gates: Gates in the order of rows of weights.
        states: States; R multiplies the first one, which is also the layer's output.
        initial: Values of the states before the first step of a sequence, where none are given.
        parameters: Elementwise parameters.
        inputs: Inputs of a step besides x.
        traced: The step as it was written, surrogates in it.
        stated: The derivative of a step where it was written too; None where it is made from the step.
    """

    name: str
    gates: tuple[CellGate, ...]
    states: tuple[str, ...]
    initial: tuple[float, ...]
    parameters: tuple[Parameter, ...]
    inputs: tuple[StepInput, ...]
    traced: CellTape
    stated: CellTape | None = None

    def __hash__(self) -> int:
        return hash(self.content)

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Names of pre-activations: those of the gates in turn. Those of late products are among them."""
        return tuple(slot for gate in self.gates for slot in gate.slots)

    @cached_property
    def forward(self) -> CellTape:
        """The step: every `surrogate` is its first argument."""
        writer, moved = CellTapeWriter(), list[int]()
        for node in self.traced.nodes:
            args = tuple(moved[at] for at in node.args)
            if node.op == "surrogate":
                moved.append(args[0])
            elif node.op == "constant":
                moved.append(writer.constant(node.value))
            elif node.op in LEAVES:
                moved.append(writer.leaf(node.op, node.name))
            else:
                moved.append(writer.operation(node.op, *args, name=node.name))
        return writer.ended({name: moved[place] for name, place in self.traced.outputs})

    @cached_property
    def backward(self) -> CellTape:
        """The derivative of a step: as it was stated, or else made; see `derivative.py`."""
        if self.stated is not None:
            return self.stated
        parameters, inputs = (tuple(each.name for each in leaves) for leaves in (self.parameters, self.inputs))
        return backward_tape(self.traced, self.states, self.slots, parameters, inputs)

    @cached_property
    def text(self) -> str:
        """All that a kernel depends on, in one line; the name is no part of it."""
        gates = ",".join(f"{gate.name}:{''.join('01'[flag] for flag in (gate[1:]))}" for gate in self.gates)
        states = ",".join(f"{name}={value.hex()}" for name, value in zip(self.states, self.initial, strict=True))
        parameters = ",".join(f"{leaf.name}:{leaf.kind}" for leaf in self.parameters)
        inputs = ",".join(f"{leaf.name}:{leaf.kind}" for leaf in self.inputs)
        stated = () if self.stated is None else (self.stated.text,)
        return "/".join((gates, states, parameters, inputs, self.traced.text, *stated))

    @property
    def named_text(self) -> str:
        """The name and `text`: an argument of the operators."""
        return f"{self.name}@{self.text}"

    @cached_property
    def content(self) -> str:
        """Digest of `text`: equal for the same cell in another process, another for a changed one."""
        return sha256(f"cell 1/{self.text}".encode()).hexdigest()[:16]

    @property
    def operation(self) -> str:
        """The operation's name in the registry of kernels."""
        return f"{self.name.lower()}_{self.content[:8]}"

    @property
    def is_pointwise(self) -> bool:
        """Whether a step is one product and pointwise operations, as kernels of one stage need."""
        return self.forward.is_pointwise

    @property
    def late_gates(self) -> Iterator[CellGate]:
        """Gates whose product comes late in a step."""
        return (gate for gate in self.gates if gate.is_late)
