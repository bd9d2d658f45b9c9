"""The CUDA kernels of each placement in what only a GPU has: CUDA graphs, streams, and compiled programs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.needs import missing_packages, needs_gpu, needs_hopper, needs_nvrtc

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch
from torch import Tensor

from constrint.flashrnn import rnn
from tests.support.busy_gpu import arguments
from tests.support.placed_layers import PLACEMENTS, gpu_here, usual_dims

pytestmark = [pytest.mark.gpu, needs_gpu, needs_hopper, needs_nvrtc]

placed = pytest.mark.parametrize("placement", PLACEMENTS)


def operands(placement: str) -> tuple[Tensor, Tensor]:
    """Those of a layer that the model puts into a placement."""
    return arguments(usual_dims(gpu_here().name)[PLACEMENTS[placement]])


def trained(wx: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """States, and the gradient of the inputs, which the loops alone give."""
    states, _ = rnn(wx, r, backend="cuda", hidden_only=True)
    return states.detach(), torch.autograd.grad(states.float().square().sum(), wx)[0]


def on_a_side_stream(run: Any) -> Any:
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = run()
    torch.cuda.current_stream().wait_stream(side)
    return found


@placed
def test_a_captured_layer_gives_what_it_gives_outside(placement: str) -> None:
    wx, r = operands(placement)
    on_a_side_stream(lambda: trained(wx, r))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = trained(wx, r)
    for seed in range(3):
        with torch.no_grad():
            wx.copy_(torch.randn(wx.shape, generator=torch.Generator().manual_seed(seed)))
        graph.replay()
        expected = trained(wx, r)
        torch.cuda.synchronize()
        assert all(torch.equal(a, b) for a, b in zip(captured, expected, strict=True)), seed


@placed
def test_a_layer_on_another_stream_gives_the_same(placement: str) -> None:
    wx, r = operands(placement)
    here, there = trained(wx, r), on_a_side_stream(lambda: trained(wx, r))
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


# torch's inductor imports what torch deprecates, and advises a lower precision than this test is about.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:TensorFloat32 tensor cores")
@placed
def test_a_layer_is_one_node_of_a_compiled_program(placement: str) -> None:
    wx, r = operands(placement)

    def loss(wx: Tensor, r: Tensor) -> Tensor:
        states, last = rnn(2 * wx, r, backend="cuda")
        return states[0].float().square().sum() + last.float().sum()

    compiled = torch.compile(loss, fullgraph=True)
    found, expected = (torch.autograd.grad(run(wx, r), (wx, r)) for run in (compiled, loss))
    for ours, right in zip(found, expected, strict=True):
        # The weights' gradient is a product over all steps, which may be summed in another order.
        torch.testing.assert_close(ours, right, rtol=2e-2, atol=2e-2 * float(right.abs().max()))
