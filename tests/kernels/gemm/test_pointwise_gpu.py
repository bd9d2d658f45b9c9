"""cuBLAS and one pointwise kernel on the GPU of this machine, against fp64: by launches, by plans, in graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.operator import PLANS
from constrint.kernels.gemm.reference import ACTIVATIONS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]

COMPOSED = "library+pointwise"
ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
SHAPES = ((256, 384, 512), (333, 777, 1555), (1, 4096, 512), (2048, 2048, 1024), (70, 45, 33))
ENDS: dict[str, dict[str, Any]] = {
    "gelu": {"activation": "gelu"},
    "bias gelu": {"bias": True, "activation": "gelu"},
    "all silu": {"bias": True, "c": True, "alpha": 2.0**-4, "beta": 2.0, "activation": "silu"},
    "c by columns": {"c": True, "by_columns": True, "alpha": 0.25, "beta": 2.0, "activation": "silu"},
}


@pytest.fixture(autouse=True)
def _own_plans() -> Any:
    PLANS.clear()
    yield
    PLANS.clear()


def excess(dtype: torch.dtype, shape: tuple[int, int, int], end: dict[str, Any], layout: str = "rr") -> float:
    """The worst error over its bound: sums of K products and arithmetic in fp32, and two roundings.

    The library's product, with as much of the epilogue as it takes, is rounded to the type that the kernel reads.
    """
    m, n, k = shape
    generator = torch.Generator(device="cuda").manual_seed(m + n + k)

    def one(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, device="cuda", generator=generator).to(dtype)

    a = one(m, k) if layout[0] == "r" else one(k, m).t()
    b = one(k, n) if layout[1] == "r" else one(n, k).t()
    bias, c = (one(n) if end.get("bias") else None), (one(m, n) if end.get("c") else None)
    c = c.t().contiguous().t() if c is not None and end.get("by_columns") else c
    alpha, beta, activation = end.get("alpha", 1.0), end.get("beta", 0.0), end.get("activation")
    z, sums = alpha * (a.double() @ b.double()), alpha * (a.double().abs() @ b.double().abs())
    terms, read = sums.clone(), z.abs()
    for factor, added in ((beta, c), (1.0, bias)):
        if added is not None:
            z, terms = z + factor * added.double(), terms + abs(factor) * added.double().abs()
            read = torch.maximum(read, z.abs())
    z = ACTIVATIONS[activation](z) if activation else z
    # 1.13 is the steepest slope of gelu.
    # Activations for bf16 may miss by a sixteenth of a unit before they are rounded (`test_activations.py`).
    rounding = ROUNDOFF[dtype] * (1.125 if activation and dtype == torch.bfloat16 else 1.0)
    arithmetic = sums * k * 2.0**-24 + 2.0**-22 * terms
    bound = 1.01 * 1.13 * (arithmetic + ROUNDOFF[dtype] * read) + rounding * z.abs() + 2.0**-24
    worst = 0.0
    for _ in range(3):  # the first call records the plan, later ones run it
        out = matmul(a, b, bias, c=c, alpha=alpha, beta=beta, activation=activation, kernel=COMPOSED)
        worst = max(worst, float(((out.double() - z).abs() / bound).nan_to_num(float("inf")).max()))
    return worst


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", list(ROUNDOFF), ids=str)
def test_products_are_right(dtype: torch.dtype, shape: tuple[int, int, int], end: str) -> None:
    assert excess(dtype, shape, ENDS[end]) <= 1.0


@pytest.mark.parametrize("layout", ["rr", "rc", "cr", "cc"])
def test_layouts_are_right(layout: str) -> None:
    assert excess(torch.bfloat16, (512, 640, 768), ENDS["bias gelu"], layout) <= 1.0


def test_its_plan_is_recorded_and_why_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    a, b = torch.randn(512, 512, device="cuda").bfloat16(), torch.randn(512, 512, device="cuda").bfloat16()
    matmul(a, b, activation="gelu", kernel=COMPOSED)
    assert PLANS.state().entries == 1
    decision = matmul.why(a, b, activation="gelu", kernel=COMPOSED)  # type: ignore[attr-defined]
    assert decision.program.name == decision.recorded == "gemm.library+pointwise"


def test_it_is_captured_into_a_graph() -> None:
    a, b = torch.randn(256, 512, device="cuda").bfloat16(), torch.randn(512, 384, device="cuda").bfloat16()
    expected = matmul(a, b, activation="silu", kernel=COMPOSED)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = matmul(a, b, activation="silu", kernel=COMPOSED)
    a.copy_(torch.randn_like(a))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, matmul(a, b, activation="silu", kernel=COMPOSED))
    assert not torch.equal(out, expected)


def test_gradients_go_through_it() -> None:
    a = torch.randn(64, 96, device="cuda").bfloat16().requires_grad_()
    b = torch.randn(96, 80, device="cuda").bfloat16().requires_grad_()
    ours = torch.autograd.grad(matmul(a, b, activation="gelu", kernel=COMPOSED).float().sum(), (a, b))
    wide = [t.detach().double().requires_grad_() for t in (a, b)]
    theirs = torch.autograd.grad(torch.nn.functional.gelu(wide[0] @ wide[1]).sum(), wide)
    for mine, exact in zip(ours, theirs, strict=True):
        assert float((mine.double() - exact).norm() / exact.norm()) < 2e-2
