"""What PyTorch's own tests check of a module's dropout, weights and life; the table is in `test_like_torch_own.py`."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

from constrint.flashrnn import RNN
from tests.support.layers import BACKENDS, MODULES, flat, hidden, same, trained

every_module = pytest.mark.parametrize("name", MODULES)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@every_backend
@pytest.mark.parametrize("p", [0, 0.276, 0.731, 1])
@pytest.mark.parametrize("train", [True, False])
def test_dropout_between_layers(backend: str, p: float, train: bool) -> None:
    """Ones everywhere, so that the output counts the units of the first layer that are left."""
    layer = RNN(10, 200, 2, "relu", bias=False, dropout=p, backend=backend, dtype=torch.float64).train(train)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.fill_(1)
    with torch.no_grad():
        output, last = layer(torch.ones(1, 1, 10).double(), torch.zeros(2, 1, 200).double())
    assert float(output.min()) == float(output.max())
    count = float(output[0, 0, 0])
    if p == 0 or not train:
        assert count == 2000
    elif p == 1:
        assert count == 0
    else:
        kept = count * (1 - p) / 10
        assert abs(kept - round(kept)) < 1e-6
        assert abs(kept / 200 - (1 - p)) < 0.25
    assert float(last[0].min()) == float(last[0].max()) == 10
    assert float(last[1, 0, 0]) == count


@every_backend
@pytest.mark.parametrize("p", [0, 0.4])
@pytest.mark.parametrize("train", [True, False])
def test_saved_module(backend: str, p: float, train: bool) -> None:
    layer = RNN(20, 20, 2, "relu", bias=False, dropout=p, backend=backend).train(train)
    x, hx = torch.rand(1, 1, 20), torch.rand(2, 1, 20)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, weights_only=False)
    loaded.flatten_parameters()
    results = [layer(x, hx)[0], layer(x, hx)[0], loaded(x, hx)[0]]
    is_random = bool(p and train)
    assert [torch.equal(results[0], other) for other in results[1:]] == [not is_random] * 2


@every_backend
@pytest.mark.parametrize("train", [True, False])
def test_changed_dropout(backend: str, train: bool) -> None:
    torch.manual_seed(2)
    layer = RNN(20, 20, 2, "relu", backend=backend).train(train)
    x, before = torch.rand(3, 2, 20), None
    for p in (0, 0.5, 0, 0.7, 0.2, 1, 0.2, 0):
        layer.dropout = p
        first, second = layer(x)[0], layer(x)[0]
        assert torch.equal(first, second) is (p in (0, 1) or not train)
        if before is not None:
            assert torch.equal(first, before) is not train
        before = first


@every_module
@every_backend
@pytest.mark.parametrize("bidirectional", [False, True])
def test_no_step(name: str, backend: str, bidirectional: bool) -> None:
    layer = MODULES[name][0](5, 6, bidirectional=bidirectional, backend=backend)
    with pytest.raises(RuntimeError, match="Expected sequence length to be larger than 0 in RNN"):
        layer(torch.ones(0, 10, 5))


@every_module
@every_backend
def test_no_sequence(name: str, backend: str) -> None:
    layer = MODULES[name][0](input_size=3, hidden_size=4, backend=backend)
    output, _ = layer(torch.zeros(5, 0, 3))
    assert output.shape == (5, 0, 4)
    output.sum().backward()


@every_module
@every_backend
def test_weight_norm(name: str, backend: str) -> None:
    weights = ["weight_hh_l0"] if name != "lstm" else ["weight_hh_l0", "weight_hr_l0"]
    for weight in weights:
        options = {"proj_size": 3} if "hr" in weight else {}
        layer, x = MODULES[name][0](10, 6, 2, backend=backend, **options), torch.randn(7, 6, 10)
        expected, number = layer(x), len(list(layer.parameters()))
        parametrizations.weight_norm(layer, weight)
        assert weight not in dict(layer.named_parameters())
        assert len(list(layer.parameters())) == number + 1
        same(layer(x), expected)
        parametrize.remove_parametrizations(layer, weight)
        assert weight in dict(layer.named_parameters())
        assert len(list(layer.parameters())) == number
        same(layer(x), expected)
        with torch.no_grad():
            getattr(layer, weight).zero_()
        assert not torch.allclose(flat(layer(x))[0], flat(expected)[0])


@every_module
def test_missing_weight(name: str) -> None:
    layer, x = MODULES[name][0](10, 6, 2), torch.randn(3, 2, 10)
    expected, weight = layer(x), layer.weight_hh_l0
    del layer.weight_hh_l0
    assert not hasattr(layer, "weight_hh_l0")
    layer.double()
    layer.weight_hh_l0 = nn.Parameter(weight.detach().double())
    same([t.float() for t in flat(layer(x.double()))], expected)


@every_module
@every_backend
def test_weight_in_other_memory(name: str, backend: str) -> None:
    layer = MODULES[name][0](10, 20, batch_first=True, backend=backend)
    x = torch.randn(5, 4, 10, requires_grad=True)
    before, weight = trained(layer, x, hidden(layer, 5))[0], layer.weight_hh_l0
    memory = weight.detach().clone()
    with torch.no_grad():
        weight.set_(memory)
    assert before.shape == layer(x)[0].shape
    same(layer(x), layer(x), 0)
    memory.fill_(4)
    assert bool((layer.weight_hh_l0 == 4).all())


@every_module
@every_backend
def test_tied_weights(name: str, backend: str) -> None:
    layers = [module(10, 20, batch_first=True, bidirectional=True) for module in MODULES[name]]
    layers[0].backend = backend
    layers[0].load_state_dict(layers[1].state_dict())
    x, results = torch.randn(5, 4, 10), []
    for layer in layers:
        layer.bias_ih_l0_reverse = layer.bias_ih_l0
        layer(x)[0].sum().backward()
        with torch.no_grad():
            for weight in layer.parameters():
                weight -= 0.1 * weight.grad
        assert len(list(layer.parameters())) == 7
        results.append(layer(x))
    same(*results)


@every_module
@every_backend
def test_frozen_weights(name: str, backend: str) -> None:
    layer = MODULES[name][0](2, 3, backend=backend).requires_grad_(False)
    x = torch.randn(1, 1, 2, requires_grad=True)
    layer(x)[0].sum().backward()
    assert x.grad is not None
    assert bool(x.grad.abs().sum() > 0)


@every_module
def test_life_of_a_module(name: str) -> None:
    ours, theirs = MODULES[name]
    layer = ours(2, 3, 2, bidirectional=True, device="meta", dtype=torch.float64)
    assert all(p.is_meta and p.dtype == torch.float64 for p in layer.parameters())
    layer = layer.to_empty(device="cpu")
    reference = theirs(2, 3, 2, bidirectional=True, dtype=torch.float64)
    layer.load_state_dict(reference.state_dict())
    assert repr(layer) == repr(reference)
    assert layer.mode == reference.mode
    x = torch.randn(4, 2, 2, dtype=torch.float64)
    expected = reference(x)
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    loaded = ours(2, 3, 2, bidirectional=True, dtype=torch.float64)
    loaded.load_state_dict(torch.load(buffer, weights_only=True), assign=True)
    for each in (layer, copy.deepcopy(layer), loaded, layer.to(torch.float32).to(torch.float64)):
        same(each(x), expected, 1e-6)
    assert layer.train() is layer
    assert layer.eval().training is False


@every_module
@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (ValueError, "hidden_size must be greater than zero", {"hidden_size": 0}),
        (ValueError, "num_layers must be greater than zero", {"num_layers": 0}),
        *((TypeError, "bias should be of type bool", {"bias": value}) for value in (0, 1, "True")),
        *((TypeError, "batch_first should be of type bool", {"batch_first": value}) for value in (0, 1, "False")),
        (TypeError, "hidden_size should be of type int, got: float", {"hidden_size": 5.0}),
        (ValueError, r"dropout should be a number in range \[0, 1\]", {"dropout": 1.5}),
    ],
)
def test_bad_constructors(name: str, error: type[Exception], message: str, options: dict[str, Any]) -> None:
    for module in MODULES[name]:
        with pytest.raises(error, match=message):
            module(**{"input_size": 3, "hidden_size": 5, **options})
    with pytest.raises(ValueError, match=r"RNN input dtype .* does not match weight dtype"):
        MODULES[name][0](3, 5)(torch.randn(2, 4, 3, dtype=torch.float64))
