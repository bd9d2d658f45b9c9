"""NX-AI's positional `config`: what it says counts, what has no counterpart is noted."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from constrint.errors import UnknownNameError
from constrint.flashrnn import flashrnn, nxai, rnn
from tests.support.rnn_cases import make_case


@dataclass
class Config:
    """As far as it matters, what users of NX-AI's package hand in; its fields have these names there."""

    backend: str = "cuda_fused"
    function: str = "lstm"
    dtype: str = "float64"
    num_heads: int = 2
    batch_size: int = 8
    enable_automatic_mixed_precision: bool = True
    _internal_input_shape: str = "TBGHD"


CASE = make_case("lstm", (2, 5, 2, 16), torch.float64, 17, "bs")
WX, R, B, STATES = (CASE.tensors[name] for name in ("wx", "r", "b", "states"))


def test_a_config_goes_before_the_arguments_and_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = flashrnn(WX, R, B, STATES.unsqueeze(2), "gru", Config(), "cuds", "bfloat16")
        torch.testing.assert_close(found, rnn(WX, R, B, STATES))
        assert flashrnn(WX, R, B, None, "lstm", Config(dtype="float32"))[0].dtype == torch.float32
        assert flashrnn(WX, R, B, None, "lstm", None, "vanilla", "float64")[0].dtype == torch.float64


def test_layouts_are_those_of_the_config() -> None:
    expected = rnn(WX, R, B, STATES)
    layouts = {"input_shape": "TBGHD", "recurrent_shape": "HPGD", "bias_shape": "HDG", "output_shape": "SBHTD"}
    given = WX.transpose(0, 1), R.permute(1, 3, 0, 2), B.permute(1, 2, 0), STATES.unsqueeze(3)
    found = flashrnn(*given, "lstm", {**vars(Config()), **layouts})
    torch.testing.assert_close(found, tuple(t.permute(0, 1, 3, 2, 4) for t in expected))
    with pytest.raises(UnknownNameError, match="unknown bias_shape 'GHP'"):
        flashrnn(WX, R, B, None, "lstm", {"bias_shape": "GHP"})


def gradients(**fields: Any) -> list[torch.Tensor | None]:
    given = [t.detach().requires_grad_() for t in (WX, R, B)]
    states, _ = flashrnn(given[0], given[1], given[2], None, "lstm", {**vars(Config()), **fields})
    states[0].square().sum().backward()  # type: ignore[no-untyped-call]
    return [t.grad for t in given]


def test_gradients_are_clipped_cut_and_kept_back() -> None:
    clipped, given = gradients(gradient_recurrent_clipval=1e-3), [t.detach().requires_grad_() for t in (WX, R, B)]
    rnn(*given, gradient_recurrent_clip=1e-3)[0][0].square().sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(clipped, [t.grad for t in given])
    cut = gradients(gradient_recurrent_cut=True)
    # The h of a step reaches later ones through r alone: c still does.
    assert not torch.allclose(cut[0], gradients()[0])  # type: ignore[arg-type]
    torch.testing.assert_close(cut, gradients(gradient_recurrent_clipval=1e-30))
    assert [g is None for g in gradients(trainable_r=False, trainable_b=[False] * 4)] == [False, True, True]
    nxai._note.cache_clear()
    with pytest.warns(UserWarning, match=r"trainable_r=\[True, False, True, True\] of config has no effect"):
        gradients(trainable_r=[True, False, True, True])


def test_initial_values_fill_the_states() -> None:
    states = torch.stack([torch.zeros(2, 2, 16), torch.ones(2, 2, 16)]).double()
    found = flashrnn(WX, R, B, None, "lstm", {"dtype": "float64", "initial_val": [0.0, 1.0]})
    torch.testing.assert_close(found, rnn(WX, R, B, states))


def test_what_has_no_counterpart_is_noted_once() -> None:
    nxai._note.cache_clear()
    config = {"dtype": "float64", "forward_clipval": 2.0, "constants": {"a": 1.0}, "dtype_acc": "float32"}
    with pytest.warns(UserWarning, match=r"forward_clipval=2.0, constants={'a': 1.0} of config has no effect") as seen:
        flashrnn(WX, R, B, None, "lstm", config)
    assert [warning.filename for warning in seen] == [__file__]
    flashrnn(WX, R, B, None, "lstm", config)  # a second warning would fail the test
    with pytest.raises(TypeError, match="config must be a FlashRNNConfig or a mapping of its fields, got str"):
        flashrnn(WX, R, B, None, "lstm", "cuda_fused")
