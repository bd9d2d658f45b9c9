"""Modules on cuDNN, on an imitation of torch's operator for it: weights, states, layers, dropout, and who is refused.

The imitation keeps the weights at places of its own in one buffer, and computes by torch's CPU kernels from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import _VF, Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_sequence

from constrint.choose import decide
from constrint.errors import UnsupportedError
from constrint.flashrnn import GRU, LSTM, RNN, SLSTM, decisions
from constrint.flashrnn.libraries import cudnn
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn import dispatch
from constrint.kernels.rnn.candidates import LayerDetail
from constrint.kernels.rnn.cudnn import launch

KERNELS: dict[int, Any] = {0: _VF.rnn_relu, 1: _VF.rnn_tanh, 2: _VF.lstm, 3: _VF.gru}
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTM, nn.LSTM, {}),
    "gru": (GRU, nn.GRU, {}),
    "rnn": (RNN, nn.RNN, {}),
    "rnn-relu": (RNN, nn.RNN, {"nonlinearity": "relu"}),
}
INPUT, HIDDEN, GAP = 5, 8, 3


def flatten(weights: list[Tensor], *options: Any) -> Tensor:
    """Move weights into a buffer, in the order of their sizes and with gaps, as the operator does in its own."""
    order = sorted(range(len(weights)), key=lambda place: (weights[place].numel(), place))
    buffer = weights[0].new_full((sum(w.numel() + GAP for w in weights),), 0.0)
    end = GAP
    for place in order:
        size = weights[place].numel()
        weights[place].set_(buffer[end : end + size].view(weights[place].shape))  # type: ignore[call-overload]
        end += size + GAP
    return buffer


def unpacked(weights: list[Tensor], buffer: Tensor) -> list[Tensor]:
    """The weights as they lie in the buffer, with the gradients of those that were given."""
    views = [torch.empty_like(w) for w in weights]
    twin = flatten(views)
    assert twin.numel() == buffer.numel()
    found = [buffer.as_strided(v.shape, v.stride(), v.storage_offset()) for v in views]
    assert float(buffer.abs().sum()) == pytest.approx(sum(float(f.abs().sum()) for f in found)), "gaps are zeros"
    return [w + (f - w).detach() for w, f in zip(weights, found, strict=True)]


def operator(
    x: Tensor, weights: list[Tensor], stride: int, buffer: Tensor, h: Tensor, c: Tensor | None, *options: Any
) -> tuple[Tensor, ...]:
    """`torch._cudnn_rnn`."""
    mode, dim, _, layers, batch_first, _, train, both, sizes, _ = options
    assert h.is_contiguous()
    assert h.shape[-1] == dim
    hidden = h if c is None else (h, c)
    rest = (stride == 4, layers, 0.0, train, both)
    packed = (x, torch.tensor(sizes), hidden) if sizes else (x, hidden)
    order = () if sizes else (batch_first,)
    output, *last = KERNELS[mode](*packed, unpacked(weights, buffer), *rest, *order)
    return output, last[0], last[1] if c is not None else x.new_empty(0), x.new_empty(1), buffer


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of layers of every call of the imitation."""
    seen: list[int] = []

    def run(*args: Any) -> tuple[Tensor, ...]:
        seen.append(args[9])
        return operator(*args)

    monkeypatch.setattr(cudnn, "_has_cudnn", lambda x: True)
    monkeypatch.setattr(torch, "_cudnn_rnn", run)
    monkeypatch.setattr(torch, "_cudnn_rnn_flatten_weight", flatten)
    monkeypatch.setattr(torch._C, "_get_cudnn_allow_tf32", lambda: False)
    launch._layout.cache_clear()
    launch._layout_of.cache_clear()
    yield seen
    launch._layout.cache_clear()
    launch._layout_of.cache_clear()


def make(kind: str, **options: Any) -> tuple[Any, Any]:
    """Ours on cuDNN, and torch's, with the same weights."""
    ours, theirs, extra = KINDS[kind]
    module, torchs = ours(INPUT, HIDDEN, **extra, **options, backend="cudnn"), theirs(INPUT, HIDDEN, **extra, **options)
    torchs.load_state_dict(module.state_dict())
    return module, torchs


def everything(module: nn.Module, x: Any, hx: Any = None) -> list[Tensor]:
    """Outputs, last states, and the gradients of all of them by the inputs and the parameters."""
    output, last = module(x, hx)
    results = [output if isinstance(output, Tensor) else output.data, *([last] if isinstance(last, Tensor) else last)]
    states = [] if hx is None else [hx] if isinstance(hx, Tensor) else list(hx)
    wanted = [x if isinstance(x, Tensor) else x.data, *states, *module.parameters()]
    loss = torch.stack([(result * (place + 1)).square().sum() for place, result in enumerate(results)]).sum()
    return [*results, *torch.autograd.grad(loss, wanted)]


def states_of(module: Any, batch: int) -> Any:
    rows = module.num_layers * module.num_directions
    h, c = (torch.randn(rows, batch, HIDDEN).requires_grad_() for _ in range(2))
    return (h, c) if module.cell == "lstm" else h


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize(
    ("layers", "both", "first", "given"), [(1, False, True, False), (2, True, False, True), (3, False, True, True)]
)
def test_named_it_equals_torch_nn(
    kind: str, bias: bool, layers: int, both: bool, first: bool, given: bool, calls: list[int]
) -> None:
    torch.manual_seed(layers)
    module, torchs = make(kind, num_layers=layers, bias=bias, bidirectional=both, batch_first=first)
    x = torch.randn(3, 4, INPUT).requires_grad_()
    hx = states_of(module, 3 if first else 4) if given else None
    found = everything(module, x, hx)
    assert calls == [layers]
    assert found[0].is_contiguous()
    for ours, theirs in zip(found, everything(torchs, x, hx), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    strided = torch.randn(INPUT, 4, 3).permute(2, 1, 0)
    torch.testing.assert_close(module(strided)[0], torchs(strided)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_sequences_and_unbatched_input(kind: str, calls: list[int]) -> None:
    torch.manual_seed(0)
    module, torchs = make(kind, num_layers=2, bidirectional=True)
    packed = pack_sequence([torch.randn(n, INPUT) for n in (2, 4, 3)], enforce_sorted=False)
    packed.data.requires_grad_()
    hx = states_of(module, 3)
    for ours, theirs in zip(everything(module, packed, hx), everything(torchs, packed, hx), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    alone = torch.randn(4, INPUT)
    torch.testing.assert_close(module(alone), torchs(alone), rtol=1e-5, atol=1e-5)
    assert calls == [2, 2]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("layers", "both", "first"), [(1, False, False), (2, True, True)])
def test_later_calls_run_a_function_of_the_input_and_the_weights(
    kind: str, layers: int, both: bool, first: bool, calls: list[int]
) -> None:
    module, torchs = make(kind, num_layers=layers, bidirectional=both, batch_first=first)
    x = torch.randn(4, 3, INPUT)
    run = cudnn.run_of(module, x, trains=True)
    assert run is not None
    for _ in range(2):
        torch.testing.assert_close(run(x, *module.parameters()), torchs(x), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for one in (module, torchs):
            next(iter(one.parameters())).data.mul_(2.0)
    output, _ = run(x, *module.parameters())
    expected, _ = torchs(x)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-5)
    every = list(module.parameters()), list(torchs.parameters())
    ours, theirs = (torch.autograd.grad(t.square().sum(), w) for t, w in zip((output, expected), every, strict=True))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert calls == [layers] * 3


def test_dropout_between_layers_and_operands_that_it_refuses_have_no_such_function(calls: list[int]) -> None:
    x = torch.randn(4, 3, INPUT)
    assert cudnn.run_of(make("lstm", num_layers=2, dropout=0.5)[0], x, trains=True) is None
    assert cudnn.run_of(make("lstm", num_layers=2, dropout=0.5)[0].eval(), x, trains=False) is not None
    assert cudnn.run_of(make("lstm")[0].double(), x.double(), trains=False) is None


def test_dropout_acts_between_calls_of_one_layer_each(calls: list[int]) -> None:
    module, _ = make("gru", num_layers=3, dropout=0.5)
    x = torch.randn(4, 2, INPUT)
    torch.manual_seed(1)
    first = module(x)[0]
    assert calls == [1, 1, 1]
    torch.manual_seed(1)
    assert torch.equal(module(x)[0], first)
    assert not torch.equal(module(x)[0], first)
    module.eval()
    torch.testing.assert_close(module(x)[0], module(x)[0])
    assert calls[-1] == 3


def test_computed_weights_count_and_none_is_remembered(calls: list[int]) -> None:
    module, torchs = make("lstm")
    for one in (module, torchs):
        parametrizations.weight_norm(one, "weight_hh_l0")
    module.load_state_dict(torchs.state_dict())
    x = torch.randn(4, 2, INPUT)
    torch.testing.assert_close(module(x), torchs(x), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for one in (module, torchs):
            one.bias_hh_l0.data.add_(1.0)
    torch.testing.assert_close(module(x), torchs(x), rtol=1e-5, atol=1e-5)
    assert len(calls) == 2


def test_fp32_is_not_multiplied_in_tf32_and_the_switch_is_set_back(
    calls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where torch lets cuDNN use tf32, as it does by default, the other back-ends do not."""
    switch = [True]
    during: list[bool] = []

    def backward(x: Tensor, weights: list[Tensor], stride: int, buffer: Tensor, *rest: Any) -> tuple[Any, ...]:
        during.append(switch[0])
        h, c, _, *grads = rest[:6]
        given = [t.detach().requires_grad_() for t in (x, h, c, *weights)]
        with torch.enable_grad():
            results = operator(given[0], given[3:], stride, buffer, given[1], given[2], *rest[6:-2])[:3]
        kept = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
        found = torch.autograd.grad([r for r, _ in kept], given, [g for _, g in kept])
        return *found[:3], list(found[3:])

    def forward(*args: Any) -> tuple[Tensor, ...]:
        during.append(switch[0])
        return operator(*args)

    monkeypatch.setattr(torch, "_cudnn_rnn", forward)
    monkeypatch.setattr(torch._C, "_get_cudnn_allow_tf32", lambda: switch[0])
    monkeypatch.setattr(torch._C, "_set_cudnn_allow_tf32", lambda value: switch.__setitem__(0, value))
    monkeypatch.setattr(launch, "_backward_operator", backward)
    module, torchs = make("lstm")
    x = torch.randn(4, 2, INPUT).requires_grad_()
    for ours, theirs in zip(everything(module, x), everything(torchs, x), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert during == [False, False]
    assert switch == [True]
    loss = module(x)[0].square().sum()
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(gradient.sum(), x)
    before = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = True
        module(x)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
    assert during[-1] is True


X = torch.randn(4, 2, INPUT, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda: LSTM(INPUT, HIDDEN, num_heads=2, backend="cudnn")(X), "takes one head"),
        (lambda: LSTM(INPUT, HIDDEN, proj_size=3, backend="cudnn")(X), "no projection of h"),
        (lambda: GRU(INPUT, HIDDEN, gradient_recurrent_clip=1.0, backend="cudnn")(X), "no gradient_recurrent_clip"),
        (lambda: SLSTM(INPUT, HIDDEN, backend="cudnn")(X), "it has no slstm"),
        (lambda: GRU(INPUT, HIDDEN, backend="cudnn")(X, lengths=[4, 2]), "neither lengths nor reset; pass a Packed"),
        (lambda: GRU(INPUT, HIDDEN, backend="cudnn")(X, reset=torch.zeros(2, 4, dtype=torch.bool)), "nor reset"),
        (lambda: GRU(INPUT, HIDDEN, backend="cudnn").double()(X.double()), "takes float32, bfloat16 or float16"),
        (lambda: GRU(INPUT, HIDDEN, backend="cudnn")(X[:, :0]), "no step to run"),
    ],
    ids=["heads", "proj", "clip", "slstm", "lengths", "reset", "fp64", "empty"],
)
def test_a_module_that_names_it_is_told_why_it_cannot(call: Any, reason: str, calls: list[int]) -> None:
    with pytest.raises(UnsupportedError, match=rf"backend 'cudnn' cannot run this layer: .*{reason}.*Use 'auto'"):
        call()
    assert calls == []


def test_the_cpu_has_no_cudnn() -> None:
    with pytest.raises(UnsupportedError, match="needs an NVIDIA GPU with cuDNN enabled, the input is on cpu"):
        LSTM(INPUT, HIDDEN, backend="cudnn")(X)


def test_what_others_choose_never_reaches_it(calls: list[int]) -> None:
    module = LSTM(INPUT, HIDDEN)
    expected = module(X)[0]
    assert calls == []
    for backend in ("alternating", "reference"):
        torch.testing.assert_close(LSTM.forward(_with(module, backend), X)[0], expected)
    assert calls == []


def test_operands_that_it_does_not_take_go_to_the_kernels(calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The decision goes by the kind of a call, and each call's operands are looked at."""
    taken = SimpleNamespace(program=SimpleNamespace(name="cudnn"))
    monkeypatch.setattr(decisions, "decide_module", lambda *_: taken)
    monkeypatch.setattr(decisions, "MODULES", {})
    module = LSTM(INPUT, HIDDEN)
    module(X)
    assert calls
    number = len(calls)
    torch.nn.utils.parametrize.register_parametrization(module, "weight_hh_l0", Subclassed(), unsafe=True)
    module(X)
    assert len(calls) == number


class Subclass(torch.Tensor):
    """A tensor with operators of its own."""


class Subclassed(torch.nn.Module):
    """A weight that is a subclass of tensors."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.as_subclass(Subclass)


def _with(module: LSTM, backend: str) -> LSTM:
    other = LSTM(INPUT, HIDDEN, backend=backend)
    other.load_state_dict(module.state_dict())
    return other


class OnGpu:
    """Stands for a tensor on a GPU, as far as the choice looks at it."""

    is_cuda, is_cpu = True, False
    dtype = torch.float16
    shape = (16, 100, 256)
    device = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("options", "is_asked"),
    [
        ({}, True),
        ({"num_heads": 2}, False),
        ({"proj_size": 3}, False),
        ({"gradient_recurrent_clip": 1.0}, False),
    ],
    ids=["plain", "heads", "proj", "clip"],
)
def test_auto_asks_for_a_prediction_of_what_cudnn_can_run(
    options: dict[str, Any], is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "gpu_of", lambda _: load_gpu("h200"))
    module = LSTM(256, 128, batch_first=True, num_layers=2, **options)
    given: Any = OnGpu()
    request = decisions.request_of(module, given, 16, 100, decisions.CallKind())
    assert isinstance(request.detail, LayerDetail)
    call = request.detail.module
    assert call is not None
    assert call[:6] == (16, 100, 256, 2, 1, True)
    assert ("cudnn" in dict(call.refusals)) is not is_asked
    assert ("cudnn" in [p.name for p in decide(request.without_device()).programs if not p.refusal]) is is_asked
    with_lengths = decisions.request_of(module, given, 16, 100, decisions.CallKind(has_lengths=True)).detail
    assert isinstance(with_lengths, LayerDetail)
    assert with_lengths.module is not None
    assert "cudnn" in dict(with_lengths.module.refusals)
