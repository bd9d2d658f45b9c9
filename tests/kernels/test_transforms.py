"""Transforms of torch.func and forward-mode AD see through every operation: torch's own derivatives, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import numpy as np
import torch
import torch.autograd.forward_ad
from torch import Tensor

import constrint
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.gated import gated_matmul
from constrint.kernels.launch.plan.table import listeners
from constrint.kernels.spmv import spmv

# Torch's own remarks about what forward-mode AD, sparse and nested tensors use.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]
AXPY: Any = constrint.axpy
#: Without types.
forward_ad: Any = torch.autograd.forward_ad


def _drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


A, B, C, X, Y = _drawn(0, 3, 4), _drawn(1, 4, 5), _drawn(2, 4, 5), _drawn(3, 4), _drawn(4, 4)
U = _drawn(5, 6, 7)


def _swept(u: Tensor) -> Tensor:
    """One sweep of the 5-point star without a right-hand side."""
    inner = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    middle = torch.cat([u[1:-1, :1], inner, u[1:-1, -1:]], 1)
    return torch.cat([u[:1], middle, u[-1:]])


Function = Callable[[Tensor], Tensor]
#: Our function of one tensor, the same by torch, and the tensor.
CASES: dict[str, tuple[Function, Function, Tensor]] = {
    "axpy": (lambda t: AXPY(2.0, t, Y), lambda t: 2.0 * t + Y, X),
    "axpy, alpha": (lambda t: AXPY(t, X, Y), lambda t: t * X + Y, torch.tensor(1.5, dtype=torch.float64)),
    "axpy, both": (lambda t: AXPY(0.5, t, t), lambda t: 1.5 * t, X),
    "gemv, x": (lambda t: constrint.gemv(A, t), lambda t: A @ t, X),
    "gemv, a": (lambda t: constrint.gemv(t, X), lambda t: t @ X, A),
    "matmul": (lambda t: matmul(t, B), lambda t: t @ B, A),
    "matmul, relu": (lambda t: matmul(t, B, activation="relu"), lambda t: torch.relu(t @ B), A),
    "matmul, traced": (lambda t: matmul(t, B, epilogue=lambda acc: acc * 3.0), lambda t: (t @ B) * 3.0, A),
    "gated": (lambda t: gated_matmul(t, B, C), lambda t: torch.nn.functional.silu(t @ B) * (t @ C), A),
    "jacobi": (lambda t: constrint.jacobi(t), _swept, U),
}


def _dual(function: Function, at: Tensor) -> Tensor | None:
    """The derivative of forward-mode AD; None where it was lost."""
    with forward_ad.dual_level():
        dual = function(forward_ad.make_dual(at, torch.ones_like(at)))
        found: Tensor | None = forward_ad.unpack_dual(dual).tangent
        return found


@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_transforms_are_torch_s(name: str) -> None:
    ours, torchs, at = CASES[name]
    around = (at,), (torch.ones_like(at),)
    expected = torch.func.jvp(torchs, *around)[1]
    assert expected.abs().sum() > 0
    torch.testing.assert_close(torch.func.jvp(ours, *around)[1], expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(_dual(ours, at), expected, rtol=1e-5, atol=1e-5)
    gradients = [torch.func.grad(lambda t, f=f: f(t).square().sum())(at) for f in (ours, torchs)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)
    stacked = torch.stack([at, 2 * at])
    batches = [torch.func.vmap(f)(stacked) for f in (ours, torchs)]
    torch.testing.assert_close(*batches, rtol=1e-5, atol=1e-5)


def test_no_plan_runs_under_forward_mode() -> None:
    # A plan would give numbers without a derivative.
    assert not any(is_on() for is_on in listeners())
    with forward_ad.dual_level():
        assert any(is_on() for is_on in listeners())


def test_a_sparse_product_refuses_forward_mode() -> None:
    matrix = torch.eye(4, dtype=torch.float64).to_sparse_csr()
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match="spmv: products with CSR tensors have no forward-mode derivatives"):
            spmv(matrix, forward_ad.make_dual(X, Y))
        torch.testing.assert_close(spmv(matrix, X), X)


@pytest.mark.parametrize(
    "alpha", [Fraction(3, 2), np.float32(1.5), np.array(1.5), torch.tensor([[1.5]], dtype=torch.float64)], ids=repr
)
def test_an_alpha_of_any_kind_scales_and_keeps_the_shape(alpha: Any) -> None:
    result = AXPY(alpha, X, Y)
    assert result.shape == X.shape
    torch.testing.assert_close(result, 1.5 * X + Y)
    torch.testing.assert_close(AXPY(2**70, X, Y), 2.0**70 * X + Y)


def test_axpy_takes_dense_tensors_alone() -> None:
    sparse = torch.eye(3).to_sparse()
    with pytest.raises(RuntimeError, match=r"axpy: x is dense \(torch\.strided\), got torch\.sparse_coo"):
        AXPY(1.0, sparse, sparse)
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    with pytest.raises(RuntimeError, match="got a nested tensor"):
        AXPY(1.0, nested, nested)
