"""`constrint.patch`: what is replaced and what is left, that nothing else changes, and that it can be taken back."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import constrint
from constrint import flashrnn
from constrint.errors import UsageError
from constrint.patch import PatchReport
from tests.support.blocks import BLOCKS, Conv1D, Gated, Mlp


class Many(nn.Module):
    """One module of every kind that a rule looks at."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.Linear(8, 8), nn.SiLU())
        self.lstm = nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True)
        self.projected = nn.LSTM(16, 8, proj_size=4)
        self.gru, self.rnn = nn.GRU(4, 8), nn.RNN(8, 8, nonlinearity="relu")
        self.attention = nn.MultiheadAttention(8, 2)
        self.wide = nn.Linear(8, 8).double()
        self.normed = parametrizations.weight_norm(nn.Linear(8, 8))
        self.mine = Doubled(8, 8)
        self.replaced = nn.Linear(8, 8)
        vars(self.replaced)["forward"] = lambda x: x
        self.tied = self.mlp[3]
        self.head = nn.Linear(8, 8)
        self.head.weight = self.mlp[3].weight  # type: ignore[assignment]

    def forward(self, x: Tensor) -> Tensor:
        x = self.projected(self.lstm(self.mlp(x))[0])[0]
        x = self.rnn(self.gru(x)[0])[0]
        x = self.mine(self.normed(self.tied(x)))
        return self.head(self.wide(self.replaced(x).double()).float())  # type: ignore[no-any-return]


class Doubled(nn.Linear):
    """A subclass with a forward of its own."""

    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


@pytest.fixture
def model() -> Many:
    torch.manual_seed(0)
    return Many()


def test_the_report_says_what_was_replaced_and_why_the_rest_was_left(model: Many) -> None:
    report = constrint.patch(model)
    assert isinstance(report, PatchReport)
    assert {(each.name, each.after) for each in report.replaced} == {
        ("mlp", "constrint.nn.Sequential"),
        *((f"mlp.{i}", "constrint.nn.Linear") for i in (0, 2, 3)),
        ("head", "constrint.nn.Linear"),
        ("lstm", "constrint.flashrnn.LSTM"),
        ("projected", "constrint.flashrnn.LSTM"),
        ("gru", "constrint.flashrnn.GRU"),
        ("rnn", "constrint.flashrnn.RNN"),
    }
    reasons = {each.name: each.reason for each in report.left}
    assert set(reasons) == {"attention.out_proj", "wide", "normed", "mine", "replaced"}
    assert "reads its weights" in reasons["attention.out_proj"]
    assert "float64" in reasons["wide"]
    assert "parametrizations" in reasons["normed"]
    assert "subclass" in reasons["mine"]
    assert "forward was replaced" in reasons["replaced"]
    text = str(report)
    assert text.startswith("constrint.patch: 9 modules replaced, 5 left\n")
    assert re.search(r"replaced +Linear -> constrint.nn.Linear +4 +mlp.0, mlp.2, mlp.3 and 1 more ", text)
    assert re.search(r"left +Linear +1 +wide +its weight is float64", text)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_results_parameters_and_names_stay(model: Many) -> None:
    x = torch.randn(2, 3, 8)
    expected, names, parameters = model(x), list(model.state_dict()), list(model.parameters())
    constrint.patch(model)
    torch.testing.assert_close(model(x), expected)
    assert list(model.state_dict()) == names
    assert all(one is other for one, other in zip(model.parameters(), parameters, strict=True))
    assert model.head.weight is model.mlp[3].weight
    assert model.tied is model.mlp[3]
    model(x).sum().backward()
    assert all(p.grad is not None for name, p in model.named_parameters() if not name.startswith(("att", "replaced")))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_undo_gives_the_classes_back_and_keeps_trained_values(model: Many) -> None:
    kinds, x = [type(module) for module in model.modules()], torch.randn(2, 3, 8)
    with constrint.patch(model):
        assert type(model.lstm).__module__ == flashrnn.LSTM.__module__
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.5)
        expected = model(x)
    assert [type(module) for module in model.modules()] == kinds
    torch.testing.assert_close(model(x), expected)
    attributes = {"cell", "num_heads", "backend", "gradient_recurrent_clip"}
    assert not attributes.intersection(model.lstm.__dict__)
    assert len(model.lstm._flat_weights) == 16
    report = constrint.patch(model)
    report.undo()
    report.undo()
    assert [type(module) for module in model.modules()] == kinds


def test_a_second_patch_replaces_nothing(model: Many) -> None:
    first = constrint.patch(model)
    second = constrint.patch(model)
    assert not second.replaced
    assert {each.reason for each in second.left if each.name == "head"} == {"runs by this package already"}
    second.undo()
    assert type(model.head) is constrint.nn.Linear
    first.undo()
    assert type(model.head) is nn.Linear


@pytest.mark.parametrize("option", ["linear", "activations", "recurrent"])
def test_each_kind_is_switched_off_alone(model: Many, option: str) -> None:
    report = constrint.patch(model, **{option: False})
    after = {each.after.rpartition(".")[2] for each in report.replaced}
    kinds = {"linear": {"Linear"}, "activations": {"Sequential"}, "recurrent": {"LSTM", "GRU", "RNN"}}
    assert after == set().union(*(kinds[name] for name in kinds if name != option))


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_hooks_go_on(model: Many) -> None:
    seen: list[str] = []
    model.head.register_forward_hook(lambda *_: seen.append("head"))
    model.gru.register_forward_pre_hook(lambda *_: seen.append("gru"))
    constrint.patch(model)
    model(torch.randn(2, 3, 8))
    assert seen == ["gru", "head"]


def test_the_model_itself_may_be_what_is_replaced() -> None:
    layer, lstm = nn.Linear(3, 4), nn.LSTM(3, 4)
    assert str(constrint.patch(layer)).count("(the model)") == 1
    constrint.patch(lstm)
    assert isinstance(layer, constrint.nn.Linear)
    assert type(lstm).__module__ == flashrnn.LSTM.__module__
    assert "no module of a kind" in str(constrint.patch(nn.Conv1d(3, 4, 1)))


def test_something_else_than_a_module_is_refused() -> None:
    with pytest.raises(UsageError, match=r"takes a torch.nn.Module, got dict"):
        constrint.patch({})  # type: ignore[arg-type]


def test_weights_of_other_kinds_are_left() -> None:
    class Marked(nn.Parameter):
        pass

    model = nn.ModuleDict({"marked": nn.Linear(3, 3), "old": nn.Linear(3, 3)})
    model["marked"].weight = Marked(torch.randn(3, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(model["old"])
    reasons = {each.name: each.reason for each in constrint.patch(model).left}
    assert "is a Marked" in reasons["marked"]
    assert "is no parameter" in reasons["old"]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_scripted_modules_are_left_alone() -> None:
    model = nn.ModuleDict({"scripted": torch.jit.script(nn.Linear(3, 3)), "plain": nn.Linear(3, 3)})
    report = constrint.patch(model)
    assert [each.name for each in report.replaced] == ["plain"]


def test_copies_and_pickles_of_a_patched_model_run(model: Many) -> None:
    plain = nn.ModuleDict({"conv": Conv1D(5, 4), "lstm": nn.LSTM(4, 4), "linear": nn.Linear(4, 4)})
    x = torch.randn(2, 3, 4)
    expected = [plain["conv"](x), plain["lstm"](x)[0], plain["linear"](x)]
    constrint.patch(plain)
    for other in (copy.deepcopy(plain), pickle.loads(pickle.dumps(plain))):
        found = [other["conv"](x), other["lstm"](x)[0], other["linear"](x)]
        for one, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(one, wanted)
        assert [type(m) for m in other.values()] == [type(m) for m in plain.values()]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_a_patched_perceptron_can_be_scripted() -> None:
    mlp, x = Mlp(nn.GELU()), torch.randn(3, 32)
    expected = mlp(x)
    constrint.patch(mlp)
    torch.testing.assert_close(torch.jit.script(mlp)(x), expected)


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_language_and_vision_models_compute_the_same(name: str) -> None:
    """Small copies of the structures of transformers, random weights."""
    torch.manual_seed(0)
    block, x = BLOCKS[name](), torch.randn(2, 6, 32)
    expected = block(x)
    gradients = torch.autograd.grad(expected.square().sum(), list(block.parameters()))
    names = list(block.state_dict())
    report = constrint.patch(block)
    assert not report.left
    linears = [m for m in block.modules() if isinstance(m, nn.Linear | Conv1D)]
    assert len(report.replaced) >= len(linears) > 1
    found = block(x)
    torch.testing.assert_close(found, expected)
    again = torch.autograd.grad(found.square().sum(), list(block.parameters()))
    for one, other in zip(again, gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert list(block.state_dict()) == names
    compiled: Any = torch.compile(block, backend="eager")
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "gpt2"])
def test_perceptrons_are_replaced_whole_and_given_back(name: str) -> None:
    torch.manual_seed(0)
    block, x = BLOCKS[name](), torch.randn(2, 6, 32)
    expected, before = block(x), type(block.rest)
    report = constrint.patch(block)
    (gain,) = (each.gain for each in report.replaced if each.name == "rest")
    assert ("gated" in gain) == (name in ("llama", "t5"))
    assert isinstance(block.rest, before)
    assert type(block.rest) is not before
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert type(other.rest) is type(block.rest)
        torch.testing.assert_close(other(x), expected)
    report.undo()
    assert type(block.rest) is before
    torch.testing.assert_close(block(x), expected)


def test_hooks_inside_a_perceptron_see_what_they_saw() -> None:
    seen: list[Tensor] = []
    mlp = Mlp(nn.GELU())
    x = torch.randn(3, 32)
    constrint.patch(mlp)
    mlp(x)
    handle = mlp.fc1.register_forward_hook(lambda _, __, out: seen.append(out))
    mlp(x)
    handle.remove()
    mlp(x)
    (found,) = seen
    torch.testing.assert_close(found, mlp.fc1(x))


class Odd(Mlp):
    """Forward passes that are more than children one after the other."""

    def __init__(self, kind: str) -> None:
        super().__init__(nn.GELU())
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        inner = self.fc1(x)
        if self.kind == "residual":
            inner = self.act(inner) + inner
        elif self.kind == "dropout":
            inner = functional.dropout(self.act(inner), 0.5, self.training)
        elif self.kind == "mode":
            inner = self.act(inner) if self.training else inner
        elif self.kind == "values":
            inner = self.act(inner) if bool(x.sum() > 0) else inner
        elif self.kind == "factor":
            inner = self.act(inner) * 2.0
        elif self.kind == "own factor":
            inner = self.act(inner) * inner
        return self.fc2(inner)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["residual", "dropout", "mode", "values", "factor", "own factor"])
def test_other_forward_passes_are_left(kind: str) -> None:
    torch.manual_seed(0)
    odd, x = Odd(kind).eval(), torch.randn(3, 32)
    expected = odd(x)
    report = constrint.patch(odd)
    assert type(odd) is Odd
    assert [each.name for each in report.replaced] == ["fc1", "fc2"]
    torch.testing.assert_close(odd(x), expected)


def test_a_perceptron_without_layers_of_this_package_computes_the_same() -> None:
    gated, x = Gated(nn.SiLU()), torch.randn(3, 32)
    expected = gated(x)
    constrint.patch(gated, linear=False)
    assert type(gated) is not Gated
    torch.testing.assert_close(gated(x), expected)
    torch.testing.assert_close(gated(x=x), expected)


def test_models_of_transformers_compute_the_same() -> None:
    if missing_packages("transformers"):
        pytest.skip("transformers is not installed")
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        GPT2Config,
        GPT2Model,
        LlamaConfig,
        LlamaModel,
        MixtralConfig,
        MixtralModel,
        T5Config,
        T5EncoderModel,
    )

    small = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4}
    llama = LlamaModel(LlamaConfig(**small, num_key_value_heads=2, vocab_size=50))
    gpt2 = GPT2Model(GPT2Config(n_embd=64, n_layer=1, n_head=4, vocab_size=50, bos_token_id=0, eos_token_id=0))
    ids = torch.randint(0, 50, (2, 9))
    sizes = {"num_key_value_heads": 2, "vocab_size": 50, "num_local_experts": 4}
    mixtral = MixtralModel(MixtralConfig(**small, **sizes))
    t5 = T5EncoderModel(
        T5Config(d_model=64, d_ff=96, num_layers=1, num_heads=4, d_kv=16, feed_forward_proj="gated-gelu", vocab_size=50)
    )
    for model, number in ((llama, 8), (gpt2, 5), (mixtral, 5), (t5, 8)):
        model.eval()
        with torch.no_grad():
            expected = model(input_ids=ids).last_hidden_state
            report = constrint.patch(model)
            torch.testing.assert_close(model(input_ids=ids).last_hidden_state, expected)
        assert len(report.replaced) == number
