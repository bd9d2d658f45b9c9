"""The product over all slots that gives the weights' gradient, split into as many as fill a device."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.gradients import FULL_TILES, TILE, _num_parts, fused_weight_gradient, weight_gradient


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman"])
@pytest.mark.parametrize(
    ("batch", "time", "heads", "dim"), [(6, 5, 1, 40), (1, 3, 1, 24), (4, 2, 3, 17), (5, 1, 1, 300)]
)
def test_it_is_the_sum_over_steps_and_sequences(cell: str, batch: int, time: int, heads: int, dim: int) -> None:
    kind = CELLS[cell]
    slots = torch.randn(batch, time, kind.num_slots, heads, dim)
    before = torch.randn(batch, time, heads, dim)
    of_slots = torch.einsum("btsnd,btne->snde", slots.double(), before.double())
    expected = of_slots[list(kind.recurrent_slots)]
    for found in (
        fused_weight_gradient(kind, slots, before),
        weight_gradient(slots, before, kind.recurrent_slots, sums_by_sequence=True),
    ):
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("batch", "rows", "dim", "parts"),
    [
        (20, 6000, 1500, 1),
        (20, 2600, 650, 4),
        (256, 1024, 256, 16),
        (16, 256, 64, 16),
        (7, 2600, 650, 7),
        (1, 64, 16, 1),
    ],
)
def test_there_are_no_more_parts_than_fill_a_device(batch: int, rows: int, dim: int, parts: int) -> None:
    assert _num_parts(batch, rows, dim) == parts
    fewer = [each for each in range(1, parts) if batch % each == 0]
    assert all(each * -(-rows // TILE) * -(-dim // TILE) < FULL_TILES for each in fewer)
