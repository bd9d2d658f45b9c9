"""Code that is written for `torch.nn`'s recurrent modules, and reads or calls what only these had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import constrint
from constrint.flashrnn import GRU, LSTM, RNN, SLSTM

PAIRS = [(LSTM, nn.LSTM), (GRU, nn.GRU), (RNN, nn.RNN)]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_weights_in_one_list(ours: Any, theirs: Any) -> None:
    mine, right = ours(3, 4, 2, bidirectional=True), theirs(3, 4, 2, bidirectional=True)
    assert mine._flat_weights_names == right._flat_weights_names
    assert [w.shape for w in mine._flat_weights] == [w.shape for w in right._flat_weights]
    assert all(w is getattr(mine, name) for w, name in zip(mine._flat_weights, mine._flat_weights_names, strict=True))
    mine._flat_weights = list(mine._flat_weights)
    patched = theirs(3, 4)
    constrint.patch(patched)
    assert [w.shape for w in patched._flat_weights] == [w.shape for w in theirs(3, 4)._flat_weights]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_weights_that_are_dropped_at_each_call(ours: Any, theirs: Any) -> None:
    """AWD-LSTM's way: the parameter is renamed, and a tensor computed of it takes its place in the list."""
    torch.manual_seed(0)
    right, x = theirs(3, 4), torch.randn(5, 2, 3)
    mine = ours(3, 4)
    mine.load_state_dict(right.state_dict())
    raw = mine.weight_hh_l0
    del mine.weight_hh_l0
    mine.register_parameter("weight_hh_l0_raw", raw)
    mine._flat_weights = [
        0.5 * raw if name == "weight_hh_l0" else getattr(mine, name) for name in mine._flat_weights_names
    ]
    with torch.no_grad():
        right.weight_hh_l0 *= 0.5
    torch.testing.assert_close(mine(x)[0], right(x)[0])
    mine(x)[0].sum().backward()
    assert raw.grad is not None


def _states(kind: Any, *shape: int) -> Any:
    return (torch.zeros(shape), torch.zeros(shape)) if kind is nn.LSTM else torch.zeros(shape)


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_checks_are_torchs(ours: Any, theirs: Any) -> None:
    mine, right = ours(3, 4, 2, batch_first=True), theirs(3, 4, 2, batch_first=True)
    x = torch.zeros(2, 5, 3)
    assert mine.get_expected_hidden_size(x, None) == right.get_expected_hidden_size(x, None) == (2, 2, 4)
    mine.check_forward_args(x, _states(theirs, 2, 2, 4), None)
    calls: list[tuple[Tensor, Any]] = [
        (x[0], _states(theirs, 2, 2, 4)),
        (x[..., :2], _states(theirs, 2, 2, 4)),
        (x.double(), _states(theirs, 2, 2, 4)),
        (x, _states(theirs, 1, 2, 4)),
    ]
    for input, states in calls:
        with pytest.raises((RuntimeError, ValueError)) as expected:
            right.check_forward_args(input, states, None)
        with pytest.raises(type(expected.value)) as found:
            mine.check_forward_args(input, states, None)
        assert str(found.value) == str(expected.value)
    order = torch.tensor([1, 0])
    torch.testing.assert_close(
        mine.permute_hidden(_states(theirs, 2, 2, 4), order), right.permute_hidden(_states(theirs, 2, 2, 4), order)
    )


def test_initialisers_that_walk_the_parameters() -> None:
    mine = LSTM(3, 4, 2)
    for name, weight in mine.named_parameters():
        if "weight_hh" in name:
            nn.init.orthogonal_(weight)
        elif "bias" in name:
            nn.init.zeros_(weight)
            weight.data[4:8] = 1.0
    for layer in mine.all_weights:
        assert torch.equal(layer[2][4:8], torch.ones(4))
        torch.testing.assert_close(layer[1].t() @ layer[1], 4 * torch.eye(4) / 4, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_quantize_dynamic_takes_the_module_of_torch() -> None:
    layer, x = LSTM(8, 16), torch.randn(5, 2, 8)
    model = nn.ModuleDict({"layer": layer.as_torch()})
    quantised = torch.ao.quantization.quantize_dynamic(model, {nn.LSTM})
    found = quantised["layer"](x)[0]
    assert type(quantised["layer"]).__module__.startswith("torch.ao")
    torch.testing.assert_close(found, layer(x)[0], rtol=0, atol=0.05)
    assert layer.as_torch().weight_hh_l0 is layer.weight_hh_l0
    with pytest.raises(constrint.ConstrintError, match="there is none"):
        SLSTM(8, 16).as_torch()
