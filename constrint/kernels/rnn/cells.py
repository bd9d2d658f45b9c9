"""The recurrent cells: gates, states, slots, and the number of special operations of their pointwise parts.

A *slot* is one pre-activation of a step. Most cells have one slot per gate: the sum of the input's part and the
recurrence's part. The GRU multiplies the recurrent part of its candidate by the reset gate before it adds the input's
part. It keeps the parts of this last gate apart and has one slot more: r, z, input's part of n, recurrent part of n.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from constrint.kernels.rnn.language.graph import CellDefinition


@dataclass(frozen=True)
class RecurrentCell:
    """A recurrent cell.

    Args:
        name: The operation's name.
        gates: Gates in the order in which wx, r and b hold them.
        states: States in the order in which they are returned.
        forward_specials: Special-function operations (exp, tanh, division) per element of a forward step.
        backward_specials: The same of a backward step.
        keeps_parts_apart: Whether the two parts of the last gate are slots of their own.
        idle_states: Values of the states of a unit whose inputs and weights are zero.
        reads_h: Whether a backward step reads h before the step.
        reads_new: Whether it reads the other states after the step.
        parameters: Elementwise parameters, one number of a unit each.
        definition: Its step, where a user wrote it; None for a built-in cell, whose step is in `equations.py`.
    """

    name: str
    gates: tuple[str, ...]
    states: tuple[str, ...]
    forward_specials: int
    backward_specials: int
    keeps_parts_apart: bool = False
    idle_states: tuple[float, ...] = (0.0,)
    reads_h: bool = False
    reads_new: bool = True
    parameters: tuple[str, ...] = ()
    definition: CellDefinition | None = field(default=None, repr=False, compare=False)

    @property
    def step(self) -> CellDefinition:
        """Its step, from which every kernel's pointwise part is written."""
        if self.definition is not None:
            return self.definition
        from constrint.kernels.rnn.equations import EQUATIONS

        return EQUATIONS[self.name]

    @property
    def num_gates(self) -> int:
        """Gates with an input and a recurrent part."""
        return len(self.gates)

    @property
    def num_states(self) -> int:
        """States that a step hands to the next."""
        return len(self.states)

    @property
    def num_slots(self) -> int:
        """Pre-activations of a step."""
        return self.num_gates + self.keeps_parts_apart

    @property
    def recurrent_slots(self) -> tuple[int, ...]:
        """The slot of every gate's recurrent part."""
        return (*range(self.num_gates - 1), self.num_slots - 1)

    @property
    def is_exponential(self) -> bool:
        """Whether gates are exponentials, so that states are divided by a normaliser."""
        if self.definition is not None:
            return any(node.op in GROWING for node in self.definition.forward.nodes)
        return "n" in self.states

    @property
    def num_params(self) -> int:
        """Elementwise parameters."""
        return len(self.parameters)

    @property
    def built_in(self) -> str:
        """The built-in cell that it is, or whose step is most like its own in slots and states."""
        if self.definition is None:
            return self.name
        if self.num_states > 2:
            return "slstm"
        if self.keeps_parts_apart:
            return "gru"
        return "lstm" if self.num_gates > 1 else "elman"

    def num_loads(self, direction: str) -> int:
        """Tensors that a step reads: inputs; or pre-activations, the states they need, and the gradient of h."""
        if direction == "forward":
            return self.num_gates
        states = (1 + self.reads_new) * (self.num_states - 1) + self.reads_h
        return self.num_slots + states + 1


#: Operations whose result grows without bound with a state's error, so that roundings add up over steps.
GROWING = ("exp",)
BUILT_IN = {
    cell.name: cell
    for cell in (
        RecurrentCell("lstm", ("i", "f", "z", "o"), ("h", "c"), 5, 5, idle_states=(0.0, 0.0)),
        RecurrentCell("gru", ("r", "z", "n"), ("h",), 3, 3, keeps_parts_apart=True, reads_h=True, reads_new=False),
        RecurrentCell("slstm", ("i", "f", "z", "o"), ("h", "c", "n", "m"), 7, 9, idle_states=(0.0, 0.0, 1.0, 0.0)),
        RecurrentCell("elman", ("g",), ("h",), 1, 1),
        RecurrentCell("elman_relu", ("g",), ("h",), 0, 0),
    )
}
#: All cells by name: those that are built in, and those that were registered (`generated/register.py`).
CELLS = dict(BUILT_IN)
