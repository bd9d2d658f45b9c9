"""Head dimensions that the fused kernels do not take: padded, run, cropped - with the kernels played by the loop."""

from __future__ import annotations

import pytest
import torch

from constrint.kernels.rnn.alternating.loop import loop_backward, loop_forward
from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.interface import RnnGradients, RnnInputs, RnnSaved, RnnUpstream
from constrint.kernels.rnn.triton.layer import padded_head_dim
from constrint.select.first_choice import Choice

CHOICE = Choice(None, "lstm.triton", {})


class Launches:
    """Stands for the launches of the Triton kernels: refuses what the kernels cannot take, and computes the rest."""

    def forward(self, inputs: RnnInputs, choice: Choice, *, save_gates: bool) -> RnnSaved:
        assert choice is CHOICE
        assert inputs.wx.shape[-1] % 16 == 0
        return loop_forward(inputs, save_gates=save_gates)

    def backward(
        self, inputs: RnnInputs, saved: RnnSaved, upstream: RnnUpstream, choice: Choice, *, clip: float
    ) -> RnnGradients:
        assert choice is CHOICE
        assert saved.states.shape[-1] % 16 == 0
        return loop_backward(inputs, saved, upstream, clip=clip)


@pytest.mark.parametrize("dim", [16, 5, 33])
@pytest.mark.parametrize("cell", CELLS)
def test_padded_units_leave_no_trace(cell: str, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = pytest.importorskip("constrint.kernels.rnn.triton.launch", reason="needs the extra [torch]: triton")
    from constrint.kernels.rnn.triton.backend import TritonBackend

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
    found = TritonBackend().forward(inputs, CHOICE, save_gates=True)
    expected = loop_forward(inputs, save_gates=True)
    torch.testing.assert_close(found.states, expected.states)
    torch.testing.assert_close(found.gates, expected.gates)
    gradients = TritonBackend().backward(inputs, found, upstream, CHOICE, clip=0.1)
    right = loop_backward(inputs, expected, upstream, clip=0.1)
    for name in ("wx", "r", "b", "initial"):
        tensor = getattr(gradients, name)
        torch.testing.assert_close(tensor, getattr(right, name))
        assert tensor.is_contiguous()
    assert padded_head_dim(dim) % 16 == 0
    assert 0 <= padded_head_dim(dim) - dim < 16
