"""Trials on the GPU of this machine: results are right before, while and after one, and the outcome is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.kernels.gemm import matmul, trial
from constrint.kernels.gemm.op import RECORDED
from constrint.kernels.gemm.operator import PLANS
from constrint.kernels.launch.plan.trial import use_trials
from tests.support.decisions import without_winners

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
]


@pytest.fixture(autouse=True)
def _trials(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    without_winners(monkeypatch)
    use_trials(True)
    PLANS.clear()
    yield
    use_trials(False)
    trial.forget_trials()
    PLANS.clear()


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()


def is_right(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    exact = a.double() @ b.double()
    bound = a.shape[1] * 2.0**-23 * (a.double().abs() @ b.double().abs()) + 2.0**-8 * exact.abs()
    return bool(((out.double() - exact).abs() <= bound).all())


def test_every_call_is_right_and_the_fastest_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    a, b = operands(488, 1272, 840)
    for _ in range(4):
        assert is_right(matmul(a, b), a, b)
        torch.cuda.synchronize()
    assert len(trial._FASTEST) == 1
    assert PLANS.state().entries == 1, "the candidates' own plans are dropped"
    assert "measured here" in matmul.why(a, b).recorded  # type: ignore[attr-defined]
    others = torch.randn_like(a), torch.randn_like(b)
    assert is_right(matmul(*others), *others)


def test_a_graph_is_captured_while_a_trial_waits() -> None:
    a, b = operands(72, 136, 200)
    matmul(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = matmul(a, b)
        new = matmul(a[:40], b)
    a.copy_(torch.randn_like(a))
    graph.replay()
    assert is_right(out, a, b)
    assert is_right(new, a[:40], b)
    assert is_right(matmul(a, b), a, b)


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning")  # of torch itself
def test_no_trial_where_the_same_result_is_asked_for_always() -> None:
    a, b = operands(88, 104, 264)
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            assert is_right(matmul(a, b), a, b)
            torch.cuda.synchronize()
    finally:
        torch.use_deterministic_algorithms(False)
    compiled = torch.compile(lambda x, y: matmul(x, y) + 0.0)
    for _ in range(3):
        assert is_right(compiled(a, b), a, b)
        torch.cuda.synchronize()
    assert not trial._FASTEST


def test_training_runs_one_kind_of_nodes_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    RECORDED.clear()
    a, b = (t.requires_grad_() for t in operands(520, 328, 264))
    upstream = torch.randn(520, 328, device="cuda").bfloat16()
    of_a, of_b = upstream.double() @ b.detach().double().t(), a.detach().double().t() @ upstream.double()
    for _ in range(8):
        a.grad = b.grad = None
        out = matmul(a, b)
        assert is_right(out.detach(), a.detach(), b.detach())
        out.backward(upstream)  # type: ignore[no-untyped-call]
        gradients: Any = (a.grad, of_a), (b.grad, of_b)
        for found, exact in gradients:
            assert float((found.double() - exact).abs().max()) < 2.0**-6 * float(exact.abs().max())
        torch.cuda.synchronize()
    assert "measured here" in RECORDED.note(None, a, b, None, None)
    assert RECORDED.state().entries == 1


def test_an_own_epilogue_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))
    a, b = operands(40, 1272, 840)
    r = torch.randn(40, 1272, device="cuda").bfloat16()
    call: dict[str, Any] = {"epilogue": "tanh(acc / 30) + r", "operands": {"r": r}}
    exact = torch.tanh(a.double() @ b.double() / 30) + r.double()
    for _ in range(4):
        out = matmul(a, b, **call)
        torch.testing.assert_close(out.double(), exact, rtol=2.0**-6, atol=2.0**-6)
        torch.cuda.synchronize()
    assert "measured here" in matmul.why(a, b, **call).recorded  # type: ignore[attr-defined]
