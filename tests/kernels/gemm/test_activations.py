"""Every activation in CUDA C++ and in Triton is right over all inputs, to a share of a unit of the output's type."""

from __future__ import annotations

import shutil

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton") or shutil.which("g++") is None:
    pytest.skip("needs torch, triton and g++", allow_module_level=True)

import numpy as np
import torch

from constrint.kernels.gemm import implementations
from constrint.kernels.gemm.epilogue.activations import ACTIVATIONS
from constrint.kernels.gemm.reference import ACTIVATIONS as REFERENCES
from constrint.kernels.gemm.reference import activation_gradient
from tests.support.activations_on_cpu import (
    EXACT,
    POWER_ERROR,
    RECIPROCAL_ERROR,
    TANH_ERROR,
    in_cuda,
    numbers,
    unit_of,
)
from tests.support.interpreter import interpreted

#: Units of the output's type by which an activation may miss the exact value before it is rounded, which adds half a
#: unit: 1/16; an instruction for tanh, which serves bf16, misses by an eighth and little more.
SHARE, TANH_SHARE = 1 / 16, 0.127
#: What may be missing of results so small: torch's own gelu in fp32 misses more, 1 + erf(x) being a difference.
LEAST = 2.0**-30


def missed(made: np.ndarray, x: np.ndarray, name: str, output: str) -> float:
    """The most units by which results miss exact values, with the errors of the GPU's own instructions."""
    wide = torch.from_numpy(x).double()
    exact = EXACT[name](wide)
    off = (torch.from_numpy(made).double() - exact).abs()
    if name not in ("relu", "relu2"):
        # A power, a reciprocal, and an exponent's roundings: no exponent that matters exceeds 128.
        off = off + exact.abs() * (POWER_ERROR + RECIPROCAL_ERROR)
    if (name, output) == ("tanh", "bf16"):
        off = off + exact.abs() * TANH_ERROR
    largest = {"bf16": 3.3e38, "fp16": 65504.0}[output]
    counted = exact.abs() < largest
    return float(((off - LEAST).clamp_min(0) / unit_of(exact, output))[counted].max())


@pytest.mark.parametrize("output", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_cuda_is_exact_to_half_a_unit_and_little_more(name: str, output: str) -> None:
    x = numbers()
    share = TANH_SHARE if (name, output) == ("tanh", "bf16") else SHARE
    assert missed(in_cuda(x, name, output), x, name, output) <= share


@pytest.mark.parametrize("output", ["bf16", "fp16", "fp32"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_numbers_that_are_not_finite_become_what_torch_makes_of_them(name: str, output: str) -> None:
    x = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0], dtype=np.float32)
    made = torch.from_numpy(in_cuda(x, name, output))
    # Not more than 8 numbers: torch's vectors on the CPU make NaN of gelu(infinity).
    expected = torch.stack([REFERENCES[name](each) for each in torch.from_numpy(x)])
    if name == "gelu":
        expected[0] = torch.inf
    torch.testing.assert_close(made, expected, equal_nan=True, rtol=1e-6, atol=1e-30)


def test_triton_is_exact_to_half_a_unit_and_little_more() -> None:
    cases = {
        f"{name} {output}": {"name": name, "output": output} for name in ACTIVATIONS for output in ("bf16", "fp16")
    }
    found = interpreted("tests.support.interpreted_activations:missed_in_triton", cases)
    assert {name: share for name, share in found.items() if not share <= SHARE} == {}


def test_every_activation_is_everywhere() -> None:
    assert set(ACTIVATIONS) == set(REFERENCES) == set(EXACT) == set(implementations.ACTIVATIONS)
    numbers_ = [each.number for each in ACTIVATIONS.values()]
    assert sorted(numbers_) == list(range(1, len(numbers_) + 1))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_are_those_of_autograd(name: str) -> None:
    z = torch.linspace(-4, 4, 41, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(REFERENCES[name](z).sum(), z)
    torch.testing.assert_close(activation_gradient(name, torch.ones_like(z), z), expected)
