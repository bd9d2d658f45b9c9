"""The jitted step of any cell: written by hand for those that are built in, else generated. Needs triton."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from constrint.kernels.rnn.cells import RecurrentCell


def step_function(cell: RecurrentCell, direction: str, by_hand: ModuleType) -> Any:
    """The `triton.jit` function of one direction of a cell's step.

    Args:
        cell: The cell.
        direction: "forward" or "backward".
        by_hand: The module `kernel_cells`: whoever launches imports it, so that it is part of the kernel's device code.
    """
    if cell.definition is not None:
        from constrint.kernels.rnn.generated.triton import triton_functions

        return triton_functions(cell.definition)[direction]
    return getattr(by_hand, f"{cell.name}_{direction}")
