"""Products and layers that autograd records: both kinds of nodes give one result, and how they are tried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import Tensor

from constrint.kernels.gemm import linear, op, training
from constrint.kernels.gemm.linear import end_of
from constrint.kernels.gemm.operator import PLAIN
from constrint.kernels.gemm.reference import ACTIVATIONS
from constrint.kernels.gemm.training import OURS, TORCHS
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.trial import use_trials


@pytest.fixture(autouse=True)
def _trials() -> Iterator[None]:
    use_trials(True)
    yield
    use_trials(False)


def operands(*of_a: int, is_layer: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    weight = torch.randn(10, 8, dtype=torch.float64)
    given = [torch.randn(*of_a, 8, dtype=torch.float64), weight if is_layer else weight.t().contiguous()]
    return [t.requires_grad_() for t in (*given, torch.randn(10, dtype=torch.float64))]


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("of_a", [(6,), (2, 3)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_both_nodes_give_the_same(activation: str | None, of_a: tuple[int, ...], with_bias: bool) -> None:
    for module, is_layer in ((op, False), (linear, True)):
        a, b, bias = operands(*of_a, is_layer=is_layer)
        given = a, b, bias if with_bias else None, None
        leaves = [t for t in given if t is not None]
        results: list[tuple[Tensor, ...]] = []
        for who in (OURS, TORCHS):
            run = module.RECORDED.function_of({"by": who, "activation": activation})
            out = run(*given)
            results.append((out.detach(), *torch.autograd.grad(out, leaves, torch.cos(out.detach()))))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


def test_torchs_nodes_are_the_standard_of_a_trial_of_both_passes() -> None:
    a, b, bias = (t.detach().bfloat16().requires_grad_() for t in operands(6))
    made = op.RECORDED.build((a, b, bias, None), end_of("gelu"))
    assert made.rivals is not None
    assert made.recipe.function == {"by": OURS, "activation": "gelu"}
    assert [recipe.function for recipe in made.rivals.recipes] == [{"by": TORCHS, "activation": "gelu"}]
    assert list(made.rivals.labels) == [OURS, TORCHS]
    assert list(made.rivals.standards) == [1]
    assert made.rivals.preferred == 1
    assert op.RECORDED.function_of is not None
    for recipe in (made.recipe, *made.rivals.recipes):
        run = op.RECORDED.function_of(recipe.function)
        assert made.rivals.timed is not None
        of_a, of_b, of_bias = made.rivals.timed(run)(a, b, bias, None)
        assert (of_a.shape, of_b.shape, of_bias.shape) == (a.shape, b.shape, bias.shape)
    assert a.grad is b.grad is bias.grad is None, "the caller's graph is left alone"


def test_gradients_that_nobody_needs_are_not_timed() -> None:
    a, b, _ = operands(6)
    timed = training._both_passes(lambda a, b, bias, c: a @ b)
    (only,) = timed(a.detach(), b, None, None)
    assert only.shape == b.shape


def test_nothing_is_tried_of_other_types_or_where_trials_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, bias = operands(6)
    narrow = a.detach().bfloat16(), b.detach().bfloat16()
    refused: list[Any] = [(a, b, bias, None), (*narrow, bias, None)]
    use_trials(False)
    refused.append((*narrow, None, None))
    for given in refused:
        with pytest.raises(NotPlannedError):
            op.RECORDED.build(given, PLAIN)
    use_trials(True)
    assert op.RECORDED.build(refused[-1], PLAIN).rivals is not None
    monkeypatch.setattr(torch._C, "_get_cublas_allow_fp16_accumulation", lambda: True)
    in_fp16 = tuple(t.half() for t in narrow)
    with pytest.raises(NotPlannedError):
        op.RECORDED.build((*in_fp16, None, None), PLAIN)


def test_a_trial_waits_for_backward_passes_and_for_the_trials_of_what_they_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed, running = 5, 0
    monkeypatch.setattr(training._Readiness, "_num_backward_passes", staticmethod(lambda: passed))
    monkeypatch.setattr(training, "running_trials", lambda *_: running)
    ready = training._Readiness()
    assert not any(ready() for _ in range(100)), "forward passes alone"
    ready, running = training._Readiness(), 1
    passed += training.BACKWARD_PASSES
    assert not ready()
    running = 0
    assert ready()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert not ready(), "others keep the tensors"
    x = torch.ones(1, requires_grad=True)
    seen = []
    y = x * 2
    y.register_hook(lambda grad: seen.append(ready()))  # type: ignore[no-untyped-call]
    torch.autograd.grad(y, x)
    assert seen == [False], "a backward pass computes again"
    running = 1
    assert any(ready() for _ in range(training.MOST_WAITING)), "a trial may never end"
