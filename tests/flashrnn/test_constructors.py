"""What an editor and a newcomer see of the layers: signatures, names, and what is said about a wrong one."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
from torch import nn

import constrint.flashrnn
from constrint.errors import UnknownNameError
from constrint.flashrnn import GRU, LSTM, RNN, SLSTM

OURS = ["num_heads", "backend", "config", "gradient_recurrent_clip"]
TORCHS = ["num_layers", "bias", "batch_first", "dropout", "bidirectional"]
SIZES = ["input_size", "hidden_size"]


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (LSTM, [*SIZES, *TORCHS, "proj_size", "device", "dtype", *OURS]),
        (GRU, [*SIZES, *TORCHS, "device", "dtype", *OURS, "proj_size"]),
        (SLSTM, [*SIZES, *TORCHS, "device", "dtype", *OURS, "proj_size"]),
        (RNN, [*SIZES, "num_layers", "nonlinearity", *TORCHS[1:], "device", "dtype", *OURS, "proj_size"]),
    ],
)
def test_a_signature_lists_every_argument(module: Any, names: list[str]) -> None:
    assert list(inspect.signature(module).parameters) == names
    with pytest.raises(TypeError, match=rf"{module.__name__}\.__init__\(\) got an unexpected keyword argument 'heads'"):
        module(3, 4, heads=2)


def test_an_unknown_back_end_is_refused_at_once() -> None:
    with pytest.raises(UnknownNameError, match="alternating, auto, cuda, cudnn, reference, torch, triton"):
        LSTM(8, 16, backend="xyz")
    for name in ("auto", "reference", "alternating", "cuda", "triton", "cudnn", "torch"):
        assert GRU(8, 16, backend=name).backend == name


def test_modes_are_named_as_torch_names_them() -> None:
    assert [LSTM(2, 3).mode, GRU(2, 3).mode, SLSTM(2, 3).mode] == ["LSTM", "GRU", "SLSTM"]
    for nonlinearity in ("tanh", "relu"):
        assert RNN(2, 3, nonlinearity=nonlinearity).mode == nn.RNN(2, 3, nonlinearity=nonlinearity).mode


def test_a_package_shows_what_it_offers_and_no_more() -> None:
    names = ["Elman", "GRU", "LSTM", "RNN", "SLSTM", "GRUCell", "LSTMCell", "RNNCell"]
    names += ["cell", "flashrnn", "module", "plan", "rnn"]
    assert dir(constrint.flashrnn) == sorted(names)
    assert all(callable(getattr(constrint.flashrnn, name)) for name in names)
    with pytest.raises(AttributeError, match="no attribute 'LSTN'"):
        constrint.flashrnn.LSTN  # noqa: B018


def test_the_warning_about_dropout_names_the_users_line() -> None:
    for module in (LSTM, GRU, RNN, SLSTM):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            module(3, 4, dropout=0.5)
        assert [warning.filename for warning in seen] == [__file__]


def test_lengths_and_resets_may_stand_in_order() -> None:
    layer, x = GRU(3, 4, batch_first=True), torch.randn(2, 5, 3)
    assert torch.equal(layer(x, None, [5, 2])[0], layer(x, lengths=[5, 2])[0])
