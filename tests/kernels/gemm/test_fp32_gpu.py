"""The fp32 GEMM on a GPU: as near to fp64 as torch's own exact product, in every layout; infinities and NaN."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from constrint.kernels.gemm import matmul
from constrint.kernels.launch.device import gpu_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.fixture(autouse=True)
def precision() -> Any:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def matrix(rows: int, columns: int, order: str) -> torch.Tensor:
    t = torch.randn((rows, columns) if order == "r" else (columns, rows), device="cuda")
    return t if order == "r" else t.T


def needs_hopper() -> None:
    gpu = gpu_of(torch.device("cuda"))
    if gpu is None or gpu.arch.target != "sm_90a":
        pytest.skip("gemm.fp32 is written for Hopper")


@pytest.mark.parametrize("one_signed", [False, True])
@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
@pytest.mark.parametrize("shape", [(64, 1024, 8192), (200, 264, 320), (1000, 520, 4096), (16, 2048, 8192)])
def test_errors_are_no_larger_than_some_of_torchs(shape: tuple[int, int, int], layout: str, one_signed: bool) -> None:
    needs_hopper()
    torch.manual_seed(1)
    m, n, k = shape
    a, b = matrix(m, k, layout[0]), matrix(k, n, layout[1])
    if one_signed:
        a, b = a.abs(), b.abs()
    exact = a.double() @ b.double()
    error = float((matmul(a, b, kernel="fp32").double() - exact).norm() / exact.norm())
    assert error <= max(3 * float(((a @ b).double() - exact).norm() / exact.norm()), 1e-6)


def test_infinities_and_nan_are_where_torch_has_them() -> None:
    needs_hopper()
    torch.manual_seed(2)
    a, b = matrix(200, 320, "r"), matrix(320, 264, "r")
    a[3, 5], a[7, 9], b[6, 8], b[40, 50] = float("inf"), float("nan"), -float("inf"), float("nan")
    a[11], a[11, 2] = 0.0, 3.402e38
    b[2] = b[2].clamp(-0.9, 0.9)
    out, expected = matmul(a, b, kernel="fp32"), a @ b
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out.isinf(), expected.isinf())


def test_columns_whose_stride_is_odd() -> None:
    """Triton 3.6 read pairs of them at odd addresses (misaligned address)."""
    needs_hopper()
    torch.manual_seed(3)
    a, b = torch.randn(40, 133, device="cuda").T[:128], torch.randn(16, 48, device="cuda").T[:40]
    for left, right in ((a, b), (b.T, a.T)):
        torch.testing.assert_close(matmul(left, right, kernel="fp32"), left @ right, rtol=1e-5, atol=1e-5)
