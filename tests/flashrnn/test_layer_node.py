"""A layer in training as one node of autograd, against the nodes by themselves: values, gradients, their gradients."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra [torch]")

import torch
from torch import Tensor

from constrint import flashrnn
from constrint.flashrnn import layer_node, layers

LAYERS = {"lstm": flashrnn.LSTM, "gru": flashrnn.GRU, "rnn": flashrnn.RNN, "slstm": flashrnn.SLSTM}
BATCH, TIME, FEATURES, UNITS = 3, 5, 6, 8


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node as a GPU takes it; the recurrence runs by the operator."""
    monkeypatch.setattr(layer_node, "takes", lambda *_: True)
    monkeypatch.setattr(layers, "library_of", lambda *_: None)


def made(cell: str, **options: Any) -> Any:
    torch.manual_seed(1)
    return LAYERS[cell](FEATURES, UNITS, dtype=torch.float64, **options)


def by_themselves(module: Any, monkeypatch: pytest.MonkeyPatch, run: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setattr(layer_node, "takes", lambda *_: False)
        return run(module)


def nodes_of(result: Tensor) -> set[str]:
    found, ahead = set[str](), [result.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None:
            found.add(type(node).__name__)
            ahead += [other for other, _ in node.next_functions]
    return found


@pytest.mark.parametrize("cell", LAYERS)
@pytest.mark.parametrize("options", [{}, {"batch_first": True, "num_layers": 2}, {"bias": False}, {"num_heads": 2}])
@pytest.mark.parametrize("used", ["output", "ends", "both"])
def test_values_and_gradients_are_those_of_the_nodes_by_themselves(
    cell: str, options: dict[str, Any], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = made(cell, **options)
    x = torch.randn(BATCH, TIME, FEATURES, dtype=torch.float64, requires_grad=True)

    def run(module: Any) -> list[Tensor]:
        output, ends = module(x)
        ends = ends if isinstance(ends, tuple) else (ends,)
        results = {"output": [output], "ends": [*ends], "both": [output, *ends]}[used]
        loss = sum((each * (1 + torch.arange(each.shape[-1]))).square().sum() for each in results)
        every = [x, *module.parameters()]
        return [*results, *torch.autograd.grad(loss, every)]

    expected = by_themselves(module, monkeypatch, run)
    assert "_LayerNodeBackward" in nodes_of(module(x)[0])
    for one, other in zip(run(module), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_what_needs_no_gradient_gets_none() -> None:
    module = made("gru")
    x = torch.randn(TIME, BATCH, FEATURES, dtype=torch.float64)
    module.weight_hh_l0.requires_grad_(False)
    module.bias_ih_l0.requires_grad_(False)
    module(x)[0].sum().backward()
    assert module.weight_hh_l0.grad is None
    assert module.bias_ih_l0.grad is None
    assert module.weight_ih_l0.grad is not None
    assert module.bias_hh_l0.grad is not None
    output = module(x)[0]
    module.requires_grad_(False)
    assert "_LayerNodeBackward" not in nodes_of(module(x.clone())[0])
    with torch.no_grad():
        assert module(x)[0].grad_fn is None
    assert output.requires_grad


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gradients_can_be_differentiated_again(cell: str) -> None:
    module = made(cell)
    x = torch.randn(TIME, BATCH, FEATURES, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in module.named_parameters()]

    def loss(x: Tensor, *weights: Tensor) -> Tensor:
        for name, weight in zip(names, weights, strict=True):
            module._parameters[name] = weight
        output: Tensor = module(x)[0]
        return output.square().sum()

    weights = [weight.detach().clone().requires_grad_() for weight in module.parameters()]
    assert torch.autograd.gradgradcheck(loss, (x, *weights), nondet_tol=1e-9)


def test_a_wrong_weight_is_told_of_as_before() -> None:
    module = made("lstm")
    module.weight_hh_l0 = torch.nn.Parameter(module.weight_hh_l0.detach().float())
    with pytest.raises(Exception, match="dtype"):
        module(torch.randn(TIME, BATCH, FEATURES, dtype=torch.float64))


def test_layers_with_more_have_the_nodes_by_themselves() -> None:
    x = torch.randn(TIME, BATCH, FEATURES, dtype=torch.float64)
    h = torch.zeros(1, BATCH, UNITS, dtype=torch.float64)
    assert "_LayerNodeBackward" not in nodes_of(made("rnn")(x, h)[0])
    assert "_LayerNodeBackward" not in nodes_of(made("rnn", bidirectional=True)(x)[0])
    assert "_LayerNodeBackward" not in nodes_of(made("rnn")(x, lengths=[5, 2, 1])[0])
    assert "_LayerNodeBackward" not in nodes_of(made("lstm", proj_size=2)(x)[0])
