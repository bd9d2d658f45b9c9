"""Products on which the CUDA GEMM is checked: what is drawn is valid, and the bounds notice what is wrong."""

from __future__ import annotations

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from benchmarks.gemm.cuda.fit import product_of
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.reference import gemm_reference
from tests.support.cuda_products import SPEC, End, exact_product, launch_of, made, random_cases, share_of
from tests.support.gemm import broken_rules

H200 = load_gpu("h200")


def test_random_cases_are_valid_and_can_be_launched() -> None:
    cases = list(random_cases(H200, 24, 5))
    assert {case.dtype for case in cases} >= {"bf16", "fp16"}
    assert any(not case.end.is_plain for case in cases)
    for case in cases:
        product = product_of(case.shape, case.dtype, case.layout, is_plain=case.end.is_plain)
        # The order of tiles is drawn apart: a large group repeats a smaller one.
        assert broken_rules(SPEC.product_problem(H200, product), case.config) <= {"group_in_grid"}, case
        given = made(case.shape, case.dtype, case.layout, case.end, pad=case.pad, device="meta")
        assert launch_of(H200, case.config, given, case.end).source.function == "gemm"


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "tf32", "fp8", "int8"])
@pytest.mark.parametrize("end", [End(), End(0.5, 2.0, True, True, True, "gelu", "float32")], ids=["plain", "all"])
def test_bounds_hold_for_a_right_result_and_not_for_a_wrong_one(dtype: str, end: End) -> None:
    torch.manual_seed(1)
    given = made((70, 45, 160), dtype, "rc", end, device="cpu")
    a, b = (_rounded(t) if dtype == "tf32" else t for t in (given.a, given.b))
    bias, source = (None if t is None else t.double() for t in (given.bias, given.source))
    last = (end.alpha, end.beta, end.activation, torch.float64)
    exact = gemm_reference(a.double(), b.double(), bias, source, *last)
    given.out.copy_(exact.to(given.out.dtype))
    allowed = exact_product(given, dtype, end)
    assert share_of(allowed, given) <= 1
    given.out[3, 4] += 2
    assert share_of(allowed, given) > 1
    given.out.copy_(exact.to(given.out.dtype))
    given.whole[0, 45] = 0
    assert share_of(allowed, given) == float("inf")


def _rounded(t: torch.Tensor) -> torch.Tensor:
    words = t.contiguous().view(torch.int32)
    return ((words + 0xFFF + (words >> 13 & 1)) & ~0x1FFF).view(torch.float32)
