"""Calls of modules that were seen before, on tensors of the CPU that say that they are on a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import Tensor
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_sequence

from constrint.flashrnn import GRU, LSTM, RNN, SLSTM, calls
from constrint.kernels.launch.plan.table import IS_NEW, NO_PLAN, WANTS_GRAD

MODULES: dict[str, Any] = {"lstm": LSTM, "gru": GRU, "rnn": RNN, "slstm": SLSTM}


class OnGpu(Tensor):
    """A tensor that says that it is on a GPU; results of operations do not."""

    __torch_function__: Any = torch._C._disabled_torch_function_impl
    is_cuda = property(lambda self: True)


class Table:
    """The table's rules, in Python: options and shapes are a signature."""

    def __init__(self) -> None:
        self.functions: dict[Any, Any] = {}
        self.ran = 0

    def call(self, is_inner: bool, options: Any, *tensors: Tensor | None) -> Any:
        if not is_inner and torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
            return WANTS_GRAD
        key = self.key(options, tensors)
        if key not in self.functions:
            return IS_NEW
        function = self.functions[key]
        self.ran += function is not None
        return NO_PLAN if function is None else function(*tensors)

    def insert(self, options: Any, function: Any, *tensors: Tensor | None) -> None:
        self.functions[self.key(options, tensors)] = function

    @staticmethod
    def key(options: Any, tensors: Any) -> Any:
        return options, tuple(None if t is None else t.shape for t in tensors)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    made = Table()
    monkeypatch.setattr(calls, "CALLS", made)
    monkeypatch.setattr(calls, "library_of", lambda *_: None)
    return made


def seen(module: Any, x: Tensor) -> Any:
    return calls.seen_before(module, x.as_subclass(OnGpu))


@pytest.mark.parametrize("kind", MODULES)
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "batch_first": True}, {"num_layers": 3, "bias": False}, {"num_heads": 2}]
)
def test_a_known_call_gives_what_a_first_one_gives(kind: str, options: dict[str, Any], table: Table) -> None:
    module = MODULES[kind](6, 8, **options)
    x = torch.randn(4, 3, 6)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(seen(module, x), module(x))
        assert table.ran == 1
        module.weight_hh_l0.data.mul_(0.5)
        torch.testing.assert_close(seen(module, x), module(x))
    output, _ = seen(module, x)
    expected, _ = module(x)
    grads = [torch.autograd.grad(t.square().sum(), list(module.parameters())) for t in (output, expected)]
    torch.testing.assert_close(*grads)
    assert len(table.functions) == 2, "with gradients it is another call"


def test_options_that_change_make_another_call(table: Table) -> None:
    module, x = LSTM(6, 8, num_layers=2, dropout=0.5).eval(), torch.randn(4, 3, 6)
    with torch.no_grad():
        assert seen(module, x) is not None
        module.batch_first = True
        torch.testing.assert_close(seen(module, x), module(x))
        module.train()
        assert seen(module, x) is None, "elements are dropped between the layers"
        module.gradient_recurrent_clip = 1.0
        seen(module.eval(), x)
        assert len(table.functions) == 4


def test_other_calls_go_the_way_of_a_first_one(table: Table) -> None:
    x = torch.randn(4, 3, 6)
    with torch.no_grad():
        assert seen(LSTM(6, 8, bidirectional=True), x) is None
        assert seen(LSTM(6, 8, proj_size=3), x) is None
        assert seen(GRU(6, 8, backend="reference"), x) is None
        assert seen(GRU(6, 8), x[:1]) is None, "one step"
        assert seen(GRU(6, 8), x[0]) is None, "no batch"
        assert calls.seen_before(GRU(6, 8), x) is None, "on the CPU"
        assert calls.seen_before(GRU(6, 8), pack_sequence([x[0]])) is None
        computed = parametrizations.weight_norm(LSTM(6, 8), "weight_hh_l0")
        assert seen(computed, x) is None
        assert seen(computed, x) is None
    assert not table.ran


def test_a_wrong_input_is_refused_as_ever(table: Table) -> None:
    with pytest.raises(RuntimeError, match="input_size"):
        seen(LSTM(6, 8), torch.randn(4, 3, 5))
    with pytest.raises(ValueError, match="dtype"):
        seen(LSTM(6, 8), torch.randn(4, 3, 6).double())
    assert not table.functions
