"""`quantised_matmul` on a GPU, against fp64."""

from __future__ import annotations

import pytest
import torch

from constrint.kernels.gemm.quantised import quantised_matmul
from constrint.kernels.gemm.quantised.weights import random_weight

SHAPES = [(1, 4096, 4096), (3, 130, 200), (8, 1000, 1111), (16, 4096, 11008)]
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("bits", "group"), [(4, 128), (4, 64), (8, 128)])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_fp64(shape: tuple[int, int, int], bits: int, group: int, dtype: torch.dtype) -> None:
    m, n, k = shape
    generator = torch.Generator("cuda").manual_seed(m + n)
    weight = random_weight(n, k, bits, group, dtype, device="cuda", generator=generator)
    x = torch.randn((m, k), device="cuda", generator=generator).to(dtype)
    wide = weight.dense(torch.float64)
    exact, terms = x.double() @ wide.T, x.double().abs() @ wide.abs().T
    half = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    bound = 1.01 * terms * (2.0**-22 + k * 2.0**-24) + half * exact.abs() + 2.0**-24
    for _ in range(2):
        assert ((quantised_matmul(x, weight).double() - exact).abs() <= bound).all()
