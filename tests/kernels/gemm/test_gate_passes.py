"""The passes of a gated pair: results and gradients in Triton's interpreter, compiled for Hopper, and by torch."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages
from tests.support.shared import SharedResults

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.gated import passes
from constrint.kernels.gemm.gated.passes import gate, gate_gradient_launch, gate_launch
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.launch.plan.shape import NotPlannedError

H200 = load_gpu("h200")
CASES: dict[str, dict[str, Any]] = {
    f"{name}, {'side by side' if is_one else 'two tensors'}": {"activation": name, "is_one": is_one, "sizes": [13, 70]}
    for name in ACTIVATIONS
    for is_one in (False, True)
} | {
    "many columns": {"activation": "silu", "is_one": True, "sizes": [5, 1030]},
    "one column": {"activation": "gelu", "is_one": False, "sizes": [200, 1]},
    "fp32": {"activation": "gelu", "is_one": True, "sizes": [13, 70], "dtype": "fp32"},
}


@pytest.fixture(scope="module")
def outcomes(shared_results: SharedResults) -> dict[str, bool]:
    function = "tests.support.interpreted_backward:gate_is_right"
    return dict(shared_results.once(function, lambda: interpreted(function, CASES)))


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_round_once(name: str, outcomes: dict[str, bool]) -> None:
    assert outcomes[name]


@pytest.mark.parametrize("activation", ["silu", "gelu", "gelu_tanh"])
def test_passes_compile_for_hopper_without_spills(activation: str) -> None:
    out, both = (torch.empty(8192, n, dtype=torch.bfloat16, device="meta") for n in (4096, 8192))
    for z, u in ((out, out), (both, None)):
        assert gate_launch(z, u, out, activation).compile(H200).spill_bytes == 0
        assert gate_gradient_launch(out, z, u, z, u, activation).compile(H200).spill_bytes == 0


def test_operands_that_the_kernels_do_not_read_have_no_plan() -> None:
    z = torch.zeros(4, 6)
    for first, second in ((z.t(), z.t()), (z.double(), z.double()), (z[:, :5], None), (z, z[:2]), (z[:0], None)):
        with pytest.raises(NotPlannedError):
            passes._plan_of_gate((first, second), "silu")
    with pytest.raises(NotPlannedError):
        passes._plan_of_gradients((z.t().contiguous().t(), z, z), "silu")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_by_torch_are_those_of_the_two_operations(activation: str) -> None:
    """What runs where no plan does: on the CPU, and where gradients are differentiated again."""
    z, u, gradient = (torch.randn(5, 8, dtype=torch.float64, requires_grad=True) for _ in range(3))
    exact = torch.autograd.grad(ACTIVATIONS[activation](z) * u, (z, u), gradient)
    torch.testing.assert_close(gate(z, u, activation), ACTIVATIONS[activation](z) * u)
    torch.testing.assert_close(passes._gradients_by_torch(gradient, z, u, activation), exact)
    both = passes._gradients_by_torch(gradient, torch.cat((z, u), -1), None, activation)
    torch.testing.assert_close(both, torch.cat(exact, -1))
