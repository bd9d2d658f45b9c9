"""Results in fp8 and norms of rows: by torch, in Triton's interpreter, compiled for Hopper, and on a GPU."""

from __future__ import annotations

import pytest

from tests.support.interpreter import interpreted
from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.rowwise import matmul_fp8, matmul_rms
from constrint.kernels.gemm.rowwise.passes import in_fp8_by_torch, rows_launch

CASES = {
    f"{kind} {m}x{n}": {"kind": kind, "sizes": [m, n]}
    for kind in ("rms", "scaled", "rows")
    for m, n in ((5, 70), (3, 1500), (200, 1))
}


def test_rows_are_right_in_the_interpreter() -> None:
    assert interpreted("tests.support.interpreted_rowwise:rows_are_right", CASES) == dict.fromkeys(CASES, True)


def test_results_and_what_is_found_on_the_cpu() -> None:
    torch.manual_seed(1)
    a, b, bias = torch.randn(4, 6, 32).half(), torch.randn(32, 20).half(), torch.randn(20).half()
    out, rms = matmul_rms(a, b, bias, eps=1e-5)
    exact = a.double() @ b.double() + bias.double()
    torch.testing.assert_close(out.double(), exact, rtol=2e-3, atol=2e-2)
    expected = 1 / (out.double().square().mean(-1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(rms.double(), expected, rtol=1e-5, atol=0)
    small, scales = matmul_fp8(a, b, bias, activation="relu")
    assert small.dtype == torch.float8_e4m3fn
    assert scales.shape == (4, 6, 1)
    # Half a unit of e4m3, and of the product.
    again = small.double() * scales.double()
    assert ((again - exact.clamp(min=0)).abs() <= 2**-4 * exact.abs() + 2**-9 * scales + 2e-2).all()
    _, largest = matmul_fp8(a, b, bias, scale=torch.tensor(0.5))
    torch.testing.assert_close(largest, out.float().abs().amax(-1, keepdim=True))


def test_what_is_beyond_fp8_saturates_and_nan_stays() -> None:
    z = torch.tensor([[1e4, -1e4, 1.0], [0.0, 0.0, 0.0], [float("nan"), 1.0, 2.0]])
    out, found = in_fp8_by_torch(z, torch.tensor([1.0]))
    assert out[0].float().tolist() == [448.0, -448.0, 1.0]
    assert out[2].float().isnan().tolist() == [True, False, False]
    assert found.flatten().tolist() == [1e4, 0.0, float("inf")]
    assert in_fp8_by_torch(z[:2], None)[1].flatten().tolist() == [pytest.approx(1e4 / 448), 1.0]


def test_scales_of_other_kinds_are_refused() -> None:
    a = torch.zeros(2, 2)
    for scale in (torch.ones(2), torch.ones(1).double(), 1.0):
        with pytest.raises(UsageError, match="one fp32 number"):
            matmul_fp8(a, a, scale=scale)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [70, 4096])
def test_the_pass_compiles_for_hopper_without_spills(n: int) -> None:
    z, out = (torch.empty(300, n, dtype=dtype, device="meta") for dtype in (torch.bfloat16, torch.float8_e4m3fn))
    found, scale = (torch.empty(size, device="meta") for size in (300, 1))
    for of_rows, result in ((None, None), (scale, out), (None, out)):
        assert rows_launch(z, of_rows, result, found, 1e-6).compile(load_gpu("h200")).spill_bytes == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine")
@pytest.mark.parametrize("sizes", [(300, 4096, 256), (7, 1000, 64)])
def test_the_pass_is_that_of_torch_on_a_gpu(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    torch.manual_seed(m)
    a, b = torch.randn(m, k, device="cuda").bfloat16(), torch.randn(n, k, device="cuda").bfloat16().t()
    for _ in range(2):
        out, rms = matmul_rms(a, b, eps=1e-6, kernel="library")
        torch.testing.assert_close(rms, (out.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt(), rtol=1e-5, atol=0)
        for scale in (None, torch.full((1,), 0.25, device="cuda")):
            small, found = matmul_fp8(a, b, scale=scale, kernel="library")
            expected, same = in_fp8_by_torch(out, scale)
            assert torch.equal(small.float(), expected.float())
            torch.testing.assert_close(found, same, rtol=1e-6, atol=0)
