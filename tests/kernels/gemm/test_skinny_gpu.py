"""The GEMM for short sides on an NVIDIA GPU: random products, strides and ends against fp64, by launches and plans.

Every element is compared under a bound that follows from the dtype and K; what lies beside the results stays as it was.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]", allow_module_level=True)

import torch

from benchmarks.gemm.skinny.fit import config_of
from constrint.errors import InfeasibleError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import matmul
from constrint.kernels.gemm.operator import PLANS
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.reference import gemm_reference
from constrint.kernels.gemm.skinny.shape import SkinnyLayout
from constrint.kernels.launch.device import gpu_of
from tests.support.gemm import gemm
from tests.support.skinny_products import SPEC, Case, Drawn, End, drawn_products, wrong_of


def _able() -> GpuModel | None:
    gpu = gpu_of(torch.device("cuda", 0)) if torch.cuda.is_available() else None
    return gpu if gpu is not None and not SPEC.refusal(gpu, Product.of(gemm(1, 4096, 4096))) else None


ABLE = _able()
GPU = ABLE or load_gpu("h200")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(ABLE is None, reason="needs an NVIDIA GPU from sm_80 on, of which there is a model"),
]
HALF: dict[str, Any] = {"device": "cuda", "dtype": torch.float16}


NUM_DRAWN = 60


@cache
def drawn() -> list[Drawn]:
    return list(drawn_products(GPU, NUM_DRAWN, 20261123))


@pytest.mark.parametrize("number", range(NUM_DRAWN))
def test_random_products_configurations_and_ends(number: int) -> None:
    """Two launches each: counters have to be left at zero, and sums in their order."""
    assert wrong_of(GPU, drawn()[number])[0] == "", drawn()[number]


@pytest.mark.parametrize("variant", ["", " s2", " f4", " s2 f4"])
@pytest.mark.parametrize("blocks", [1, 100, 132, 999])
def test_blocks_that_share_tiles_however_they_add(blocks: int, variant: str) -> None:
    for layout, is_k_major in (("rc", True), ("rr", False)):
        way = SkinnyLayout(is_k_major)
        for name in ("mma8 t1 u2 w2x4 r1", "fma1 t1 u1 w1x8 r1"):
            config = config_of(name + variant, "bf16", way, turned=True)
            for shape in ((1, 256, 65536), (1, 1, 1000000), (1, 100000, 64)):
                one = Drawn(Case(shape, "bf16", layout), End(), way, config, blocks)
                if shape[1] > 1 or is_k_major:
                    assert wrong_of(GPU, one)[0] == "", one


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`matmul` is asked for this kernel by name, with plans of its own."""
    PLANS.clear()
    yield
    PLANS.clear()


@pytest.mark.usefixtures("whole_tables", "chosen")  # tables of tests have no row for one of these products
@pytest.mark.parametrize("seed", range(16))
def test_matmul_by_plans_is_right_in_the_first_call_and_later(seed: int) -> None:
    draw = random.Random(seed)
    short, long, k = draw.randint(1, 32), int(2 ** draw.uniform(0, 13)), int(2 ** draw.uniform(0, 13))
    m, n = (short, long) if seed % 4 else (long, short)
    x, y = torch.randn(m, k, **HALF), torch.randn(n, k, **HALF).T if seed % 2 else torch.randn(k, n, **HALF)
    if seed % 5 == 0:
        x = torch.randn(m, k + 3, **HALF)[:, 1 : k + 1]
    bias = torch.randn(n, **HALF) if seed % 3 == 0 else None
    c = torch.randn(m, n, **HALF) if seed % 4 == 0 else None
    ends: dict[str, Any] = {"alpha": 0.5, "beta": 2.0 if c is not None else 0.0, "c": c}
    ends |= {"activation": draw.choice((None, "relu", "gelu", "silu"))}
    exact = gemm_reference(x.double(), y.double(), bias, out_dtype=torch.float64, **ends)
    for _ in range(3):
        actual = matmul(x, y, bias, kernel="skinny", **ends)
        assert torch.allclose(actual.double(), exact, rtol=4e-3, atol=4e-3 * k**0.5)


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_matmul_of_other_dtypes(dtype: torch.dtype) -> None:
    # Without matrix instructions a thread has registers for the sums of four rows.
    rows = 4 if dtype == torch.float32 else 5
    x, y = torch.randn(rows, 3000, device="cuda"), torch.randn(3000, 777, device="cuda")
    if dtype == torch.int8:
        x, y = (20 * x).clamp(-100, 100), (20 * y).clamp(-100, 100)
    x, y = x.to(dtype), y.to(dtype)
    actual = matmul(x, y, kernel="skinny")
    exact = x.double() @ y.double()
    # fp32 is multiplied as it is, whatever torch's precision is.
    allowed = {torch.float32: 1e-3, torch.bfloat16: 0.6, torch.int8: 0.0}[dtype]
    assert float((actual.double() - exact).abs().max()) <= allowed


@pytest.mark.usefixtures("chosen")
def test_matmul_in_a_graph_and_on_two_streams() -> None:
    x, y = torch.randn(4, 16384, **HALF), torch.randn(16384, 256, **HALF)
    expected = matmul(x, y, kernel="skinny")
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outs = [matmul(x, y, kernel="skinny") for _ in range(10)]
    cuda: Any = torch.cuda
    other = cuda.Stream()
    for _ in range(5):
        for out in outs:
            out.fill_(float("nan"))
        torch.cuda.synchronize()
        graph.replay()
        with torch.cuda.stream(other):
            direct = [matmul(x, y, kernel="skinny") for _ in range(10)]
        torch.cuda.synchronize()
        assert all(torch.equal(t, expected) for t in (*outs, *direct))


@pytest.mark.usefixtures("chosen")
def test_sizes_of_zero_and_what_it_refuses() -> None:
    assert matmul(torch.empty(0, 8, **HALF), torch.empty(8, 4, **HALF), kernel="skinny").shape == (0, 4)
    assert bool((matmul(torch.empty(3, 0, **HALF), torch.empty(0, 4, **HALF), kernel="skinny") == 0).all())
    with pytest.raises(InfeasibleError, match=r"gemm\.skinny"):
        matmul(torch.randn(128, 64, **HALF), torch.randn(64, 128, **HALF), kernel="skinny")


@pytest.mark.usefixtures("chosen")
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_spread_as_in_torch(value: float) -> None:
    x, y = torch.randn(4, 64, **HALF), torch.randn(64, 72, **HALF)
    x[1, 2], y[5, 6] = value, value
    expected = (x.float() @ y.float()).half()
    actual = matmul(x, y, kernel="skinny")
    assert torch.allclose(actual.float(), expected.float(), rtol=2e-3, atol=2e-2, equal_nan=True)
