"""Head dimensions that the fused kernels do not take: padded, run, cropped - with the kernels played by the loop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from constrint.flashrnn.backends.loop import loop_backward, loop_forward
from constrint.flashrnn.backends.triton import TritonBackend, padded_head_dim
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.op import RnnInputs, RnnSaved, RnnUpstream


class Launches:
    """Stands for `kernels.rnn.launch`: refuses what its kernels cannot take, and computes the rest."""

    def forward(self, cell: str, wx: Tensor, *rest: Any, save_gates: bool, **masks: Any) -> tuple[Tensor, Any]:
        assert wx.shape[-1] % 16 == 0
        saved = loop_forward(RnnInputs(cell, wx, *rest, **masks), save_gates=save_gates)
        return saved.states, saved.gates

    def backward(self, cell: str, states: Any, last: Any, *rest: Any, clip: float | None, **masks: Any) -> Any:
        *operands, all_states, gates = rest
        assert all_states.shape[-1] % 16 == 0
        inputs, saved = RnnInputs(cell, *operands, **masks), RnnSaved(all_states, gates)
        found = loop_backward(inputs, saved, RnnUpstream(states, last), clip=clip or 0.0)
        return found.wx, found.r, found.b, found.initial


@pytest.mark.parametrize("dim", [16, 5, 33])
@pytest.mark.parametrize("cell", CELLS)
def test_padded_units_leave_no_trace(cell: str, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("constrint.kernels.rnn.launch", reason="needs the extra [torch]: triton")
    fake = Launches()
    monkeypatch.setattr(kernels, "forward", fake.forward)
    monkeypatch.setattr(kernels, "backward", fake.backward)
    torch.manual_seed(1)
    kind = CELLS[cell]
    initial = torch.randn(kind.num_states, 3, 2, dim, dtype=torch.float64)
    if cell == "slstm":
        initial[2] = initial[2].abs() + 1.5
    inputs = RnnInputs(
        cell,
        torch.randn(3, 6, kind.num_gates, 2, dim, dtype=torch.float64),
        torch.randn(kind.num_gates, 2, dim, dim, dtype=torch.float64) / dim**0.5,
        torch.randn(kind.num_gates, 2, dim, dtype=torch.float64),
        initial,
        torch.tensor([6, 0, 4], dtype=torch.int32),
        torch.rand(3, 6) < 0.3,
    )
    upstream = RnnUpstream(
        (torch.randn(3, 6, 2, dim, dtype=torch.float64), *(None,) * (kind.num_states - 1)),
        tuple(torch.randn(3, 2, dim, dtype=torch.float64) for _ in range(kind.num_states)),
    )
    found = TritonBackend().forward(inputs, save_gates=True)
    expected = loop_forward(inputs, save_gates=True)
    torch.testing.assert_close(found.states, expected.states)
    torch.testing.assert_close(found.gates, expected.gates)
    gradients = TritonBackend().backward(inputs, found, upstream, clip=0.1)
    right = loop_backward(inputs, expected, upstream, clip=0.1)
    for name in ("wx", "r", "b", "initial"):
        tensor = getattr(gradients, name)
        torch.testing.assert_close(tensor, getattr(right, name))
        assert tensor.is_contiguous()
    assert padded_head_dim(dim) % 16 == 0
    assert 0 <= padded_head_dim(dim) - dim < 16
