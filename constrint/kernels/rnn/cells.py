"""What each recurrent cell is made of: gates, states, and how many operations its pointwise part takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cell:
    """A recurrent cell.

    Args:
        name: The kernel's name.
        gates: Gates in the order in which wx, r and b hold them.
        states: States in the order in which they are returned.
        forward_specials: Special-function operations (exp, tanh, division) per element of a forward step.
        backward_specials: The same of a backward step.
    """

    name: str
    gates: tuple[str, ...]
    states: tuple[str, ...]
    forward_specials: int
    backward_specials: int

    @property
    def num_gates(self) -> int:
        """Gates with an input and a recurrent part."""
        return len(self.gates)

    @property
    def num_states(self) -> int:
        """States that a step hands to the next."""
        return len(self.states)


CELLS = {
    cell.name: cell
    for cell in (
        Cell("lstm", ("i", "f", "z", "o"), ("h", "c"), 5, 5),
        Cell("gru", ("r", "z", "n"), ("h",), 3, 3),
        Cell("slstm", ("i", "f", "z", "o"), ("h", "c", "n", "m"), 7, 9),
        Cell("elman", ("g",), ("h",), 1, 1),
        Cell("elman_relu", ("g",), ("h",), 0, 0),
    )
}
