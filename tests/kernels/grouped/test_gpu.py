"""Batches and grouped products on a Hopper GPU, by launches and by plans, beside fp64; what is not theirs stays."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

from constrint.kernels.gemm import matmul
from constrint.kernels.grouped import grouped_matmul
from constrint.kernels.grouped.reference import grouped_reference
from constrint.kernels.launch.device import gpu_of


def _is_hopper() -> bool:
    gpu = gpu_of(torch.device("cuda", 0)) if torch.cuda.is_available() else None
    return gpu is not None and gpu.arch.target.startswith("sm_90")


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not _is_hopper(), reason="needs a Hopper GPU on this machine")]
DTYPES = (torch.bfloat16, torch.float16)
#: Half a unit in the last place of a result, as a share of it.
ROUNDED = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def matrix(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def is_right(out: Tensor, exact: Tensor, weight: Tensor, depth: int) -> bool:
    """Whether results are within rounding of sums to fp32 and of results to their type."""
    bound = depth * 2.0**-23 * weight + ROUNDED[out.dtype] * exact.abs() + 1e-7
    return bool(((out.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("kernel", ["cuda", "skinny", "auto"])
@pytest.mark.parametrize("shape", [(3, 200, 136, 72), (40, 1, 512, 128), (7, 9, 264, 1000), (16, 16, 64, 64)], ids=str)
@pytest.mark.parametrize("shared", ["", "a"])
def test_batches(kernel: str, shape: tuple[int, int, int, int], shared: str) -> None:
    batch, m, n, k = shape
    if kernel == "skinny" and m > 16:
        pytest.skip("gemm.skinny is for a short side")
    for dtype in DTYPES:
        a, b = matrix(1 if shared else batch, m, k, dtype=dtype), matrix(batch, n, k, dtype=dtype).transpose(1, 2)
        a = a.expand(batch, m, k)
        exact, weight = a.double() @ b.double(), a.double().abs() @ b.double().abs()
        for _ in range(2):  # the second call runs the plan of the first
            assert is_right(matmul(a, b, kernel=kernel), exact, weight, k)


@pytest.mark.parametrize("ends", [(0, 100, 100, 299), (10, 20, 30, 300), (-3, 140, 20, 900)], ids=str)
@pytest.mark.parametrize("columns", [136, 77])
@pytest.mark.parametrize("kernel", ["cuda", "auto", "loop"])
def test_grouped_products(ends: tuple[int, ...], columns: int, kernel: str) -> None:
    offsets = torch.tensor(ends, dtype=torch.int32, device="cuda")
    for dtype in DTYPES:
        a = matrix(300, 200, dtype=dtype)
        b = matrix(4, 200, -(-columns // 8) * 8, dtype=dtype)[:, :, :columns]
        for bias in (None, matrix(columns, dtype=dtype), matrix(4, columns, dtype=dtype)):
            wide = None if bias is None else bias.double()
            exact = grouped_reference(a.double(), b.double(), offsets, wide)
            weight = grouped_reference(
                a.double().abs(), b.double().abs(), offsets, None if wide is None else wide.abs()
            )
            for _ in range(2):
                assert is_right(grouped_matmul(a, b, offsets, bias=bias, kernel=kernel), exact, weight, 200)


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_gradients_of_grouped_products(activation: str | None) -> None:
    offsets = torch.tensor((0, 100, 100, 290), dtype=torch.int32, device="cuda")
    leaves = [t.requires_grad_() for t in (matrix(300, 200), matrix(4, 200, 136), matrix(4, 136))]
    wide = [t.detach().double().requires_grad_() for t in leaves]
    gradient = matrix(300, 136)
    found = torch.autograd.grad(
        grouped_matmul(leaves[0], leaves[1], offsets, bias=leaves[2], activation=activation), leaves, gradient
    )
    exact = torch.autograd.grad(
        grouped_reference(wide[0], wide[1], offsets, wide[2], 1.0, activation), wide, gradient.double()
    )
    for one, other in zip(found, exact, strict=True):
        assert float((one.double() - other).abs().max()) <= 0.02 * float(other.abs().max())
