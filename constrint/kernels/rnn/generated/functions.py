"""The jitted step of any cell: written by hand for those that are built in, else generated. Needs triton."""

from __future__ import annotations

from typing import Any

from constrint.kernels.rnn.cells import RecurrentCell


def step_function(cell: RecurrentCell, direction: str) -> Any:
    """The `triton.jit` function of one direction of a cell's step."""
    if cell.definition is not None:
        from constrint.kernels.rnn.generated.triton import triton_functions

        return triton_functions(cell.definition)[direction]
    from constrint.kernels.rnn import kernel_cells

    return getattr(kernel_cells, f"{cell.name}_{direction}")
