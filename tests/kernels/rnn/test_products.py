"""Products beside a recurrence in fp32: where torch runs them, and on a Hopper GPU their results and gradients."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages, needs_hopper, needs_nvrtc

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from constrint.flashrnn import GRU, LSTM
from constrint.kernels.rnn import products
from constrint.kernels.rnn.products import exact_projection, exact_sum, is_exact

#: Class, units, layers, sequences, steps, whether the batch comes first.
LAYERS = ((LSTM, 300, 2, 20, 35, False), (LSTM, 64, 1, 32, 40, True), (GRU, 48, 1, 100, 30, False))
#: Calls of which the first are torch's, then those of plans and of their trials.
CALLS = 5


def test_tensors_elsewhere_are_left_to_torch() -> None:
    x, weight = torch.randn(4, 5, 3), torch.randn(7, 3)
    assert not is_exact(x)
    assert exact_projection(x, weight, None, trains=True) is None
    assert exact_sum(x.view(20, 3), torch.randn(20, 7)) is None


def test_other_dtypes_and_precisions_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        is_cuda, dtype, device = True, torch.float32, torch.device("cuda", 0)

    monkeypatch.setattr(products, "_is_hopper", lambda device: True)
    x = OnGpu()
    assert is_exact(x)  # type: ignore[arg-type]
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "high")
    assert not is_exact(x)  # type: ignore[arg-type]
    monkeypatch.undo()
    monkeypatch.setattr(products, "_is_hopper", lambda device: True)
    x.dtype = torch.float16
    assert not is_exact(x)  # type: ignore[arg-type]
    monkeypatch.setattr(products, "_is_hopper", lambda device: False)
    x.dtype = torch.float32
    assert not is_exact(x)  # type: ignore[arg-type]


@pytest.mark.gpu
@needs_hopper
@needs_nvrtc
@pytest.mark.parametrize("layer", LAYERS)
def test_calls_by_plans_have_the_results_of_fp64(layer: tuple[type, int, int, int, int, bool]) -> None:
    kind, dim, layers, batch, time, batch_first = layer
    torch.manual_seed(0)
    module = kind(dim, dim, num_layers=layers, batch_first=batch_first, device="cuda")
    plain = {LSTM: torch.nn.LSTM, GRU: torch.nn.GRU}[kind]
    exact = plain(dim, dim, num_layers=layers, batch_first=batch_first, device="cuda", dtype=torch.float64)
    exact.load_state_dict({name: value.double() for name, value in module.state_dict().items()})
    shape = (batch, time, dim) if batch_first else (time, batch, dim)
    x, grad = (torch.randn(shape, device="cuda") for _ in range(2))
    x.requires_grad_()
    x_exact = x.detach().double().requires_grad_()
    wanted = torch.autograd.grad(exact(x_exact)[0], [x_exact, *exact.parameters()], grad.double())
    for _ in range(CALLS):
        found = torch.autograd.grad(module(x)[0], [x, *module.parameters()], grad)
        for one, other in zip(found, wanted, strict=True):
            assert (one.double() - other).norm() <= 1e-5 * other.norm()
