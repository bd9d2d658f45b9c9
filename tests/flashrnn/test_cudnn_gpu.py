"""Modules on cuDNN, on the GPU of this machine: against torch's own on the CPU in fp64, and as torch uses layers."""

from __future__ import annotations

import copy
import pickle
import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from constrint.errors import UnsupportedError
from constrint.flashrnn import GRU, LSTM, RNN, decisions

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU on this machine"),
    pytest.mark.skipif(torch.version.cuda is None, reason="needs cuDNN, which AMD GPUs have not"),
]

KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTM, nn.LSTM, {}),
    "gru": (GRU, nn.GRU, {}),
    "rnn": (RNN, nn.RNN, {}),
    "rnn-relu": (RNN, nn.RNN, {"nonlinearity": "relu"}),
}
#: Largest error relative to the largest value; 16-bit states are rounded in every step.
BOUNDS = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1.5e-1}
#: Of relu the 16-bit gradients are left out: where a sum is near zero, its sign decides.
CASES = [
    pytest.param(kind, dtype, id=f"{kind}-{str(dtype).removeprefix('torch.')}")
    for kind in KINDS
    for dtype in BOUNDS
    if kind != "rnn-relu" or dtype == torch.float32
]


def make(kind: str, inputs: int, hidden: int, dtype: torch.dtype, **options: Any) -> tuple[Any, Any]:
    """Ours on cuDNN, and torch's in fp64 on the CPU, with the same weights."""
    ours, theirs, extra = KINDS[kind]
    torch.manual_seed(7)
    module = ours(inputs, hidden, **extra, **options, backend="cudnn", device="cuda", dtype=dtype)
    exact = theirs(inputs, hidden, **extra, **options, dtype=torch.float64)
    exact.load_state_dict(module.state_dict())
    return module, exact


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in flat(part)]


def everything(module: nn.Module, x: Tensor, hx: Any = None) -> list[Tensor]:
    """Outputs, last states, and gradients of a weighted sum of all of them by inputs and parameters."""
    x = x.detach().requires_grad_()
    results = flat(module(x, hx))
    loss = torch.stack([(r.double() * (place + 1)).sin().sum() for place, r in enumerate(results)]).sum()
    return [*(result.detach() for result in results), *torch.autograd.grad(loss, [x, *module.parameters()])]


def assert_near(found: list[Tensor], exact: list[Tensor], bound: float) -> None:
    assert len(found) == len(exact)
    for place, (ours, right) in enumerate(zip(found, exact, strict=True)):
        error = float((ours.double().cpu() - right).abs().max() / right.abs().max().clamp(min=1e-30))
        assert error <= bound, (place, error)


@pytest.mark.parametrize(("kind", "dtype"), CASES)
@pytest.mark.parametrize(
    ("inputs", "hidden", "options"),
    [
        (24, 40, {"num_layers": 2, "bidirectional": True}),
        (128, 128, {"num_layers": 2, "batch_first": True}),
        (64, 64, {"bias": False}),
        (256, 256, {}),
    ],
    ids=["two layers, both ways", "layers one at a time", "no bias", "wide"],
)
def test_right_for_every_cell_and_dtype(
    kind: str, dtype: torch.dtype, inputs: int, hidden: int, options: dict[str, Any]
) -> None:
    module, exact = make(kind, inputs, hidden, dtype, **options)
    x = torch.randn(16, 16, inputs, device="cuda").to(dtype)
    if dtype == torch.float16 and "bidirectional" in options:
        with pytest.raises(UnsupportedError, match="several layers in both directions"):
            module(x)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of weights that are not in one chunk
        found = everything(module, x)
    assert found[0].is_contiguous()
    assert_near(found, everything(exact, x.double().cpu()), BOUNDS[dtype])
    rows = module.num_layers * module.num_directions
    state = torch.randn(rows, 16, hidden, device="cuda").to(dtype)
    hx = (state, state) if kind == "lstm" else state
    wide = tuple(s.double().cpu() for s in hx) if kind == "lstm" else state.double().cpu()
    assert_near(everything(module, x, hx), everything(exact, x.double().cpu(), wide), BOUNDS[dtype])


def test_fp32_is_true_fp32_by_default_and_the_switch_stays() -> None:
    module, exact = make("lstm", 512, 512, torch.float32)
    x = torch.randn(20, 16, 512, device="cuda")
    before = torch.backends.cudnn.allow_tf32
    assert_near(everything(module, x), everything(exact, x.double().cpu()), 3e-5)
    assert torch.backends.cudnn.allow_tf32 is before


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_fused_kernels(kind: str) -> None:
    module, _ = make(kind, 96, 96, torch.float32, num_layers=2)
    x = torch.randn(50, 8, 96, device="cuda")
    found = everything(module, x)
    module.backend = "triton"
    assert_near(found, [t.double().cpu() for t in everything(module, x)], 1e-4)


def test_packed_sequences_and_strided_input() -> None:
    module, exact = make("gru", 24, 40, torch.float32, num_layers=2, bidirectional=True)
    parts = [torch.randn(n, 24, device="cuda") for n in (5, 9, 2)]
    found = module(pack_sequence(parts, enforce_sorted=False))
    right = exact(pack_sequence([part.double().cpu() for part in parts], enforce_sorted=False))
    assert_near([found[0].data.detach(), found[1].detach()], [right[0].data.detach(), right[1].detach()], 1e-5)
    strided = torch.randn(24, 3, 9, device="cuda").permute(2, 1, 0)
    assert_near([module(strided)[0].detach()], [exact(strided.double().cpu())[0].detach()], 1e-5)


def test_autocast_gradients_in_eval_mode_and_repeated_backward() -> None:
    module, exact = make("lstm", 128, 128, torch.float32)
    x = torch.randn(20, 8, 128, device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        output, (h, _) = module(x)
    assert (output.dtype, h.dtype) == (torch.float16, torch.float16)
    loss = output.float().square().sum()
    loss.backward()
    assert module.weight_hh_l0.grad.dtype == torch.float32
    module.eval()
    assert_near(everything(module, x), everything(exact, x.double().cpu()), 1e-4)
    x.requires_grad_()
    loss = module(x)[0].square().sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(loss, x, retain_graph=True)[0], first)
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(gradient.sum(), x)


def test_can_be_captured_in_a_cuda_graph_and_reads_new_weights() -> None:
    module, _ = make("lstm", 256, 256, torch.float16, batch_first=True)
    x = torch.randn(16, 30, 256, device="cuda").half()
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        module(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        captured = module(x)[0]
    with torch.no_grad():
        module.weight_hh_l0.mul_(0.5)
    graph.replay()
    torch.testing.assert_close(captured, module(x)[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's compiler imports what torch deprecates
def test_auto_takes_it_where_it_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = make("lstm", 256, 256, torch.float16)
    x = torch.randn(30, 16, 256, device="cuda").half()
    expected = module(x)[0]
    module.backend = "auto"
    monkeypatch.setattr(decisions, "MODULES", {})
    for prefers in (True, False):
        taken = SimpleNamespace(program=SimpleNamespace(name="cudnn" if prefers else "cuda"))
        monkeypatch.setattr(decisions, "decide_module", lambda *_, taken=taken: taken)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
            found = module(x)[0]
        assert ("aten::_cudnn_rnn" in {event.key for event in profile.key_averages()}) is prefers
        torch.testing.assert_close(found, expected, rtol=0, atol=5e-3)
    with monkeypatch.context() as patch:
        taken = SimpleNamespace(program=SimpleNamespace(name="cudnn"))
        patch.setattr(decisions, "decide_module", lambda *_: taken)
        compiled: Any = torch.compile(module, backend="aot_eager")
        torch.testing.assert_close(compiled(x)[0], expected, rtol=0, atol=5e-3)


def test_cudnn_can_be_switched_off() -> None:
    module, _ = make("lstm", 64, 64, torch.float16)
    x = torch.randn(5, 8, 64, device="cuda").half()
    flags: Any = torch.backends.cudnn.flags
    with flags(enabled=False):
        with pytest.raises(UnsupportedError, match="with cuDNN enabled"):
            module(x)
        module.backend = "auto"
        module(x)


def test_weights_lie_in_one_buffer_and_what_changes_them_is_seen() -> None:
    module: Any = LSTM(64, 64, device="cuda", backend="cudnn")
    weights = list(module.parameters())
    assert len({weight.untyped_storage().data_ptr() for weight in weights}) == 1
    x = torch.randn(5, 3, 64, device="cuda")
    copies: list[Any] = [copy.deepcopy(module)]
    moved = LSTM(64, 64, backend="cudnn")
    moved.load_state_dict(module.state_dict())
    copies.append(moved.cuda())
    for each in copies:
        assert len({weight.untyped_storage().data_ptr() for weight in each.parameters()}) == 1
        torch.testing.assert_close(each(x), module(x))
    # Of pickle's copies each weight has a buffer of its own; they stay where they are.
    torch.testing.assert_close(pickle.loads(pickle.dumps(module))(x), module(x))
    before = module(x)[0]
    module.bias_hh_l0.data.add_(1.0)
    after = module(x)[0]
    assert not torch.allclose(before, after)
    copies[0].bias_hh_l0.data.add_(1.0)
    torch.testing.assert_close(copies[0](x)[0], after)
    module.weight_hh_l0.data = module.weight_hh_l0.data.clone()
    torch.testing.assert_close(module(x)[0], after)  # weights elsewhere are concatenated
    module.load_state_dict(moved.state_dict())
    torch.testing.assert_close(module(x)[0], before)


@pytest.mark.parametrize("allows", [False, True])
def test_gradients_of_known_calls_are_those_of_torch(allows: bool) -> None:
    module, theirs = LSTM(64, 64, device="cuda", backend="cudnn"), nn.LSTM(64, 64, device="cuda")
    theirs.load_state_dict(module.state_dict())
    x = torch.randn(7, 3, 64, device="cuda")
    switch = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = allows
    try:
        for _ in range(3):
            loss = module(x)[0].square().sum()
            first = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
            again = torch.autograd.grad(loss, list(module.parameters()))
            torch.testing.assert_close(first, again)
        torch.backends.cudnn.allow_tf32 = False
        right = torch.autograd.grad(theirs(x)[0].square().sum(), list(theirs.parameters()))
        torch.testing.assert_close(first, right, rtol=1e-4, atol=1e-4)
    finally:
        torch.backends.cudnn.allow_tf32 = switch
