"""`axpy` and `gemv` on a GPU beside fp64: random sizes, layouts, types; plans, trials, graphs, streams and memory."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs torch and triton", allow_module_level=True)

import torch
from torch import Tensor

import constrint

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def _bound(terms: int, size: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """Error of a sum of so many terms, added in fp32 or fp64 in chains of random errors, and rounded once."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    bound: Tensor = 2 * (terms**0.5 + 8) * torch.finfo(wide).eps * size + torch.finfo(dtype).eps * exact.abs() + 1e-30
    return bound


@pytest.mark.parametrize("seed", range(8))
def test_gemv_is_right_and_the_same_twice(seed: int) -> None:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype, transposed = DTYPES[seed % 4], draw.random() < 0.5
    m, n = (max(1, int(2 ** draw.uniform(0, 12))) for _ in range(2))
    batch, pad = draw.choice([(), (3,), (2, 2)]), draw.choice([0, 1, 8])
    a = torch.randn(*batch, m, n + pad, device="cuda", dtype=dtype)[..., :n]
    a = a.mT.contiguous().mT if draw.random() < 0.5 else a
    x = torch.randn(*batch, m if transposed else n, device="cuda", dtype=dtype)
    y = torch.randn(n if transposed else m, device="cuda", dtype=dtype).expand(*batch, -1)
    wide = (a.mT if transposed else a).double()
    for kernel in ("triton", "library", "auto"):
        for alpha, beta in ((1.0, 0.0), (-0.7, 0.3)):
            results = [
                constrint.gemv(a, x, y=y, alpha=alpha, beta=beta, transposed=transposed, kernel=kernel)
                for _ in range(3)
            ]
            exact = alpha * (wide @ x.double().unsqueeze(-1)).squeeze(-1) + beta * y.double()
            size = abs(alpha) * (wide.abs() @ x.double().abs().unsqueeze(-1)).squeeze(-1) + abs(beta) * y.abs().double()
            bound = _bound(wide.shape[-1], size, exact, dtype)
            if kernel != "triton":  # the library rounds the product before it adds y
                bound = bound + torch.finfo(dtype).eps * size
            wrong = ((results[0].double() - exact).abs() > bound).nonzero()
            assert not len(wrong), (kernel, dtype, tuple(a.shape), alpha, beta, wrong[:3].tolist())
            if kernel == "triton":
                assert torch.equal(results[0], results[1])
                assert torch.equal(results[0], results[2])


def test_long_rows_are_split_and_counters_are_left_at_zero() -> None:
    a, x = torch.randn(3, 300_001, device="cuda"), torch.randn(300_001, device="cuda")
    config = {"tile_m": 1, "tile_n": 1024, "splits": 64, "vector": 1, "num_warps": 4, "num_stages": 1}
    config |= {"evict_first": 1}
    first = constrint.gemv(a, x, kernel="triton", config=config)
    exact = (a.double() @ x.double()).float()
    torch.testing.assert_close(first, exact, rtol=1e-4, atol=1e-2)
    assert all(torch.equal(first, constrint.gemv(a, x, kernel="triton", config=config)) for _ in range(20))


def test_an_8_bit_matrix_and_special_values() -> None:
    a = torch.randn(512, 1024, device="cuda").to(torch.float8_e4m3fn)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        x = torch.randn(1024, device="cuda", dtype=dtype)
        exact = a.double() @ x.double()
        size = a.double().abs() @ x.double().abs()
        out = constrint.gemv(a, x)
        assert out.dtype == dtype
        assert bool(((out.double() - exact).abs() <= _bound(1024, size, exact, dtype)).all())
    b = torch.ones(64, 64, device="cuda")
    b[3, 5], b[7, 1] = float("inf"), float("nan")
    out = constrint.gemv(b, torch.ones(64, device="cuda"), kernel="triton")
    assert out[3] == float("inf")
    assert bool(out[7].isnan())
    assert int(out.isfinite().sum()) == 62
    y = torch.full((64,), float("nan"), device="cuda")
    assert int(constrint.gemv(b, torch.ones(64, device="cuda"), y=y).isfinite().sum()) == 62
    assert constrint.gemv(b[:0], torch.ones(64, device="cuda")).shape == (0,)
    assert bool((constrint.gemv(b[:, :0], torch.empty(0, device="cuda")) == 0).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_axpy_is_right_for_every_layout(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    for shape, step in (((1,), 1), ((1000,), 1), ((3, 1001), 1), ((7, 33), 3), ((70_000, 3), 2), ((2, 3, 4, 5), 1)):
        x = torch.randn(*shape[:-1], shape[-1] * step + 1, device="cuda", dtype=dtype)[..., 1::step][..., : shape[-1]]
        y = torch.randn(shape, device="cuda", dtype=dtype)
        for alpha in (0.3, torch.tensor(0.3, device="cuda", dtype=dtype)):
            exact = float(alpha) * x.double() + y.double()
            size = 0.3 * x.double().abs() + y.double().abs()
            kept = y.clone()
            for out in (
                constrint.axpy(alpha, x, y),
                constrint.axpy(alpha, x, y, out=torch.full_like(y, float("nan"))),
                constrint.axpy(alpha, x, kept, inplace=True),
            ):
                assert bool(((out.double() - exact).abs() <= _bound(1, size, exact, dtype)).all())


def test_operands_that_interleave_with_the_result_are_read_first() -> None:
    memory = torch.randn(2001, device="cuda")
    x, y = memory[:2000:2], memory[1:2001:2]
    exact = 2.0 * x + y
    assert torch.equal(constrint.axpy(2.0, x, y, inplace=True), y)
    torch.testing.assert_close(y, exact)
    shifted = memory[2:2001:2][:999]
    exact = 2.0 * memory[:1998:2] + shifted
    constrint.axpy(2.0, memory[:1998:2], shifted, out=shifted)
    torch.testing.assert_close(shifted, exact)


def test_a_transpose_of_the_result_is_refused() -> None:
    square = torch.randn(64, 64, device="cuda")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="overlaps x"):
            constrint.axpy(2.0, square.T, square, inplace=True)
    kept = square.clone()
    torch.testing.assert_close(constrint.axpy(2.0, square, square, inplace=True), 3.0 * kept)


def test_factors_change_without_new_plans() -> None:
    from constrint.kernels.launch.plan.table import plan_states

    x, y, a = torch.randn(100, device="cuda"), torch.randn(100, device="cuda"), torch.randn(100, 100, device="cuda")
    for _ in range(4):
        constrint.axpy(0.5, x, y)
        constrint.gemv(a, x, y=y, alpha=0.5, beta=0.5)
    torch.cuda.synchronize()
    before = {name: plan_states()[name].entries for name in ("axpy", "gemv")}
    for number in range(2, 50):
        torch.testing.assert_close(constrint.axpy(number, x, y), number * x + y)
        constrint.gemv(a, x, y=y, alpha=1 / number, beta=1.0 * number)
    assert {name: plan_states()[name].entries for name in ("axpy", "gemv")} == before


def test_calls_run_in_graphs_and_on_streams_and_have_gradients() -> None:
    a = torch.randn(200, 3000, device="cuda", requires_grad=True)
    x, y = torch.randn(3000, device="cuda", requires_grad=True), torch.randn(200, device="cuda", requires_grad=True)
    out = constrint.axpy(2.0, constrint.gemv(a, x, y=y, beta=0.5), y)
    grads = torch.autograd.grad(out.square().sum(), (a, x, y))
    plain = 2.0 * (a @ x + 0.5 * y) + y
    for ours, theirs in zip(grads, torch.autograd.grad(plain.square().sum(), (a, x, y)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-1)
    with torch.no_grad():
        exact = constrint.gemv(a, x)
        new: Any = torch.cuda.Stream
        stream = new()
        with torch.cuda.stream(stream):
            torch.testing.assert_close(constrint.gemv(a, x), exact)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = constrint.gemv(a, x)
        for _ in range(3):
            graph.replay()
            torch.cuda.synchronize()
            torch.testing.assert_close(captured, exact)
