"""Modules on the CPU by torch's own kernels, against `torch.nn` and against the loop; and who does not run by them."""

from __future__ import annotations

import copy
import pickle
import random
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.utils import parametrizations, parametrize
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.flop_counter import FlopCounterMode

from constrint.flashrnn import GRU, LSTM, RNN, SLSTM
from constrint.flashrnn.libraries import cpu

#: torch says which of its own implementations runs projections.
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

INPUT, HIDDEN = 5, 8
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTM, nn.LSTM, {}),
    "lstm-proj": (LSTM, nn.LSTM, {"proj_size": 3}),
    "gru": (GRU, nn.GRU, {}),
    "rnn": (RNN, nn.RNN, {}),
    "rnn-relu": (RNN, nn.RNN, {"nonlinearity": "relu"}),
}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cells that torch's kernels ran, call after call."""
    seen: list[str] = []

    def spy(cell: str) -> Any:
        kernel = cpu._KERNELS[cell]

        def run(*args: Any) -> Any:
            seen.append(cell)
            return kernel(*args)

        return run

    monkeypatch.setattr(cpu, "_KERNELS", {cell: spy(cell) for cell in cpu._KERNELS})
    return seen


def make(kind: str, **options: Any) -> tuple[Any, Any, Any]:
    """Ours, torch's, and ours by the loop, with the same weights."""
    ours, theirs, extra = KINDS[kind]
    module = ours(INPUT, HIDDEN, **extra, **options)
    looped = ours(INPUT, HIDDEN, **extra, **options, backend="alternating")
    torchs = theirs(INPUT, HIDDEN, **extra, **options)
    looped.load_state_dict(module.state_dict())
    torchs.load_state_dict(module.state_dict())
    return module, torchs, looped


def initial(module: Any, batch: tuple[int, ...]) -> Any:
    """Random initial states."""
    rows, options = module.num_layers * module.num_directions, {"dtype": module.weight_ih_l0.dtype}
    h = torch.randn(rows, *batch, module.output_size, **options).requires_grad_()
    return (h, torch.randn(rows, *batch, HIDDEN, **options).requires_grad_()) if module.cell == "lstm" else h


def flat(value: Any) -> list[Tensor]:
    """All tensors of an argument or a result."""
    if value is None:
        return []
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, PackedSequence):
        return [value.data]
    return [tensor for part in value for tensor in flat(part)]


def everything(module: nn.Module, *call: Any, **options: Any) -> list[Tensor]:
    """Outputs, last states, and the gradients of a weighted sum of them by all inputs and parameters."""
    results = flat(module(*call, **options))
    generator = torch.Generator().manual_seed(5)
    # Eighths, which every dtype holds.
    weights = [torch.randint(-8, 9, t.shape, generator=generator).to(t.dtype) / 8 for t in results]
    total = torch.stack([(w * t).sum() for w, t in zip(weights, results, strict=True)]).sum()
    wanted = [t for t in flat(call) if t.requires_grad] + list(module.parameters())
    gradients = torch.autograd.grad(total, wanted, allow_unused=True)
    return [t.detach() for t in results] + [
        torch.zeros_like(t) if g is None else g for g, t in zip(gradients, wanted, strict=True)
    ]


def assert_same(found: list[Tensor], expected: list[Tensor], dtype: torch.dtype = torch.float32) -> None:
    """Every tensor agrees but for sums in another order, relative to its largest element."""
    bound = {torch.float32: 2e-5, torch.float64: 1e-12}[dtype]
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        scale = float(theirs.detach().abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound * max(1.0, scale))


def draw(seed: int) -> tuple[str, dict[str, Any], random.Random]:
    """A random configuration."""
    torch.manual_seed(seed)
    choose = random.Random(seed)
    options = {
        "num_layers": choose.randint(1, 3),
        "bias": choose.random() < 0.7,
        "batch_first": choose.random() < 0.5,
        "bidirectional": choose.random() < 0.5,
        "dtype": choose.choice((torch.float32, torch.float64)),
    }
    return list(KINDS)[seed % len(KINDS)], options, choose


@pytest.mark.parametrize("seed", range(20))
def test_dense_batches_equal_torch_nn_and_the_loop(seed: int, runs: list[str]) -> None:
    kind, options, choose = draw(seed)
    module, torchs, looped = make(kind, **options)
    dtype, shape = options["dtype"], [choose.randint(1, 7), choose.randint(1, 4)]
    is_batched = choose.random() < 0.8
    if not is_batched:
        shape = shape[:1]
    x = torch.randn(*shape, INPUT, dtype=dtype, requires_grad=choose.random() < 0.8)
    hx = None
    if choose.random() < 0.6:
        hx = initial(module, (shape[0 if options["batch_first"] else 1],) if is_batched else ())
    found = everything(module, x, hx)
    assert runs == [module.cell]
    assert found[0].is_contiguous()
    assert_same(found, everything(torchs, x, hx), dtype)
    assert_same(found, everything(looped, x, hx), dtype)
    assert runs == [module.cell]
    module.eval()
    assert_same(everything(module, x, hx), found, dtype)
    with torch.no_grad():
        assert_same(flat(module(x, hx)), found[: len(flat(module(x, hx)))], dtype)


@pytest.mark.parametrize("seed", range(10))
def test_packed_sequences_equal_torch_nn_and_the_loop(seed: int, runs: list[str]) -> None:
    kind, options, choose = draw(seed)
    module, torchs, looped = make(kind, **options)
    lengths = [choose.randint(1, 6) for _ in range(choose.randint(1, 5))]
    in_order = choose.random() < 0.5
    lengths = sorted(lengths, reverse=True) if in_order else lengths
    packed = pack_sequence([torch.randn(n, INPUT, dtype=options["dtype"]) for n in lengths], enforce_sorted=in_order)
    packed.data.requires_grad_()
    hx = initial(module, (len(lengths),)) if choose.random() < 0.6 else None
    found = everything(module, packed, hx)
    assert runs == [module.cell]
    assert_same(found, everything(torchs, packed, hx), options["dtype"])
    assert_same(found, everything(looped, packed, hx), options["dtype"])
    ours, theirs = module(packed, hx)[0], torchs(packed, hx)[0]
    assert torch.equal(ours.batch_sizes, theirs.batch_sizes)
    assert (ours.unsorted_indices is None) == (theirs.unsorted_indices is None)


@pytest.mark.parametrize("seed", range(15))
def test_lengths_give_what_the_loop_gives(seed: int, runs: list[str]) -> None:
    """With a sequence of length 0 both are the loop. Otherwise what stands in the padding, NaN even, does not count."""
    kind, options, choose = draw(seed)
    module, _, looped = make(kind, **options)
    time, batch, first = choose.randint(1, 6), choose.randint(1, 5), options["batch_first"]
    lengths = [choose.randint(int(seed % 3 > 0), time) for _ in range(batch)]
    x = torch.randn(time, batch, INPUT, dtype=options["dtype"])
    exact = x.clone()
    if min(lengths):
        for row, length in enumerate(lengths):
            x[length:, row] = float("nan")
    x, exact = (t.transpose(0, 1) if first else t for t in (x, exact))
    x, exact = (t.contiguous().requires_grad_() for t in (x, exact))
    hx = initial(module, (batch,)) if choose.random() < 0.6 else None
    given = torch.tensor(lengths, dtype=torch.int32) if choose.random() < 0.5 else lengths
    found = everything(module, x, hx, lengths=given)
    assert runs == ([module.cell] if min(lengths) else [])
    assert all(bool(t.isfinite().all()) for t in found)
    assert found[0].is_contiguous()
    assert_same(found, everything(looped, exact, hx, lengths=given), options["dtype"])
    for row, length in enumerate(lengths):
        assert not (found[0][row, length:] if first else found[0][length:, row]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_full_lengths_take_the_dense_kernel(kind: str, runs: list[str]) -> None:
    module, _, _ = make(kind)
    x = torch.randn(4, 3, INPUT)
    assert all(torch.equal(a, b) for a, b in zip(flat(module(x, lengths=[4] * 3)), flat(module(x)), strict=True))
    assert len(runs) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_is_torchs(kind: str) -> None:
    module, torchs, _ = make(kind, num_layers=3, dropout=0.4, bidirectional=True)
    packed = pack_sequence([torch.randn(n, INPUT) for n in (5, 3, 3)])
    for x in (torch.randn(6, 3, INPUT), packed):
        torch.manual_seed(11)
        found = everything(module, x)
        torch.manual_seed(11)
        assert_same(found, everything(torchs, x))
        torch.manual_seed(12)
        assert not torch.allclose(flat(module(x))[0], found[0])
        module.eval(), torchs.eval()
        assert_same(flat(module(x)), flat(torchs(x)))
        module.train(), torchs.train()


@pytest.mark.parametrize("kind", KINDS)
def test_without_elements_the_loop_runs(kind: str, runs: list[str]) -> None:
    module, _, looped = make(kind, num_layers=2)
    x, hx = torch.randn(4, 0, INPUT, requires_grad=True), initial(module, (0,))
    assert_same(everything(module, x, hx), everything(looped, x, hx))
    assert runs == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["lstm", "lstm-proj"])
def test_an_lstm_in_16_bits_rounds_its_results_once(kind: str, dtype: torch.dtype, runs: list[str]) -> None:
    """Torch's own kernel in 16 bits is beyond this bound."""
    torch.manual_seed(3)
    module, _, _ = make(kind, num_layers=2, dtype=dtype)
    x, hx = torch.randn(6, 3, INPUT, dtype=dtype, requires_grad=True), initial(module, (3,))
    found = everything(module, x, hx)
    assert runs == ["lstm"]
    exact_x, *exact_hx = (t.detach().double().requires_grad_() for t in (x, *hx))
    for ours, exact in zip(found, everything(copy.deepcopy(module).double(), exact_x, exact_hx), strict=True):
        assert ours.dtype == dtype
        error = float((ours - exact).abs().max()) / max(1.0, float(exact.abs().max()))
        assert error <= 0.75 * torch.finfo(dtype).eps


def test_initial_states_of_another_dtype_are_converted(runs: list[str]) -> None:
    module, _, looped = make("gru")
    x, hx = torch.randn(3, 2, INPUT), initial(module, (2,)).detach().double().requires_grad_()
    assert_same(everything(module, x, hx)[:2], everything(looped, x, hx)[:2])
    assert runs == ["gru"]


@pytest.mark.parametrize(
    ("kind", "operator"),
    [("lstm", "aten::lstm"), ("gru", "aten::gru"), ("rnn", "aten::rnn_tanh"), ("rnn-relu", "aten::rnn_relu")],
)
def test_the_operator_is_torchs(kind: str, operator: str) -> None:
    module, _, looped = make(kind)
    found = []
    for one in (module, looped):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            one(torch.randn(3, 2, INPUT))
        found.append({event.key for event in profile.key_averages()})
    assert operator in found[0]
    assert "constrint::rnn_forward" not in found[0]
    assert operator not in found[1]
    assert "constrint::rnn_forward" in found[1]


X = torch.randn(4, 2, INPUT, generator=torch.Generator().manual_seed(0))
RESET = torch.zeros(2, 4, dtype=torch.bool)


def on_fakes(module: nn.Module) -> None:
    """Run a module on tensors without elements."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        assert isinstance(module(mode.from_tensor(X))[0], FakeTensor)


class Marked(Tensor):
    """A subclass that changes nothing."""


@pytest.mark.parametrize(
    "call",
    [
        lambda: LSTM(INPUT, HIDDEN, num_heads=2)(X),
        lambda: SLSTM(INPUT, HIDDEN)(X),
        lambda: GRU(INPUT, HIDDEN)(X, reset=RESET),
        lambda: GRU(INPUT, HIDDEN, gradient_recurrent_clip=1.0)(X),
        lambda: GRU(INPUT, HIDDEN, backend="reference")(X),
        lambda: LSTM(INPUT, HIDDEN)(X, lengths=[0, 4]),
        lambda: GRU(INPUT, HIDDEN, dtype=torch.bfloat16)(X.bfloat16()),
        lambda: LSTM(INPUT, HIDDEN)(X.as_subclass(Marked)),
        lambda: on_fakes(LSTM(INPUT, HIDDEN)),
        lambda: torch.autocast("cpu", torch.bfloat16)(LSTM(INPUT, HIDDEN))(X),
    ],
    ids=["heads", "slstm", "reset", "clip", "named", "empty", "16 bits", "subclass", "fake", "autocast"],
)
def test_everything_else_goes_on_by_itself(call: Any, runs: list[str]) -> None:
    call()
    assert runs == []


def test_modes_transforms_and_compilation_see_our_operators(runs: list[str]) -> None:
    module = GRU(INPUT, HIDDEN)
    expected = module(X)[0]
    assert runs.pop() == "gru"
    with FlopCounterMode(display=False):
        torch.testing.assert_close(module(X)[0], expected)
    parameters: dict[str, Tensor] = dict(module.named_parameters())

    def loss(given: dict[str, Tensor]) -> Tensor:
        output: Tensor = torch.func.functional_call(module, given, (X,))[0]
        return output.sum()

    gradients = torch.func.grad(loss)(parameters)
    for name, gradient in zip(
        parameters, torch.autograd.grad(loss(parameters), list(parameters.values())), strict=True
    ):
        torch.testing.assert_close(gradients[name], gradient)
    assert runs.pop() == "gru"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(X)[0], expected)
    assert runs == []
    assert torch.equal(module(X)[0], expected)
    assert runs == ["gru"]


def test_no_weight_is_remembered(runs: list[str]) -> None:
    module, torchs, _ = make("lstm", num_layers=2)
    before = module(X)[0]
    with torch.no_grad():
        module.weight_hh_l0.mul_(2)
        torchs.weight_hh_l0.mul_(2)
    assert not torch.allclose(module(X)[0], before)
    for one in (module, torchs):
        one.weight_ih_l1 = nn.Parameter(torchs.weight_ih_l1.detach() + 1)
    assert_same(flat(module(X)), flat(torchs(X)))
    assert module.double()(X.double())[0].dtype == torch.float64
    module.float()
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_same(flat(other(X)), flat(torchs(X)))
    doubled = {name: 2 * weight for name, weight in module.named_parameters()}
    expected = flat(torch.func.functional_call(torchs, doubled, (X,)))
    assert_same(flat(torch.func.functional_call(module, doubled, (X,))), expected)
    assert len(runs) == 7


def test_computed_weights_count_and_keep_their_place(runs: list[str]) -> None:
    module, torchs, _ = make("gru")
    for one in (module, torchs):
        parametrizations.weight_norm(one, "weight_hh_l0")
    module.load_state_dict(torchs.state_dict())
    assert_same(everything(module, X), everything(torchs, X))
    for one in (module, torchs):
        parametrize.remove_parametrizations(one, "weight_hh_l0")  # the weight is now the last one registered
    assert_same(flat(module(X)), flat(torchs(X)))
    assert len(runs) == 2


def test_a_weight_that_does_not_fit_is_left_to_the_checks(runs: list[str]) -> None:
    module = LSTM(INPUT, HIDDEN)
    module.weight_hh_l0 = nn.Parameter(torch.zeros(4 * HIDDEN, HIDDEN - 1))
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        module(X)
    module = LSTM(INPUT, HIDDEN)
    module.weight_hh_l0 = nn.Parameter(torch.zeros(4 * HIDDEN, HIDDEN, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"r must have the dtype of wx, torch.float32, got torch.float64"):
        module(X)
    assert runs == []


def test_non_contiguous_operands(runs: list[str]) -> None:
    module, torchs, _ = make("lstm", num_layers=2)
    expected = everything(torchs, X)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() == 2:
                weight.set_(weight.t().contiguous().t())
    x = X.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not x.is_contiguous()
    assert not module.weight_hh_l0.is_contiguous()
    assert_same(everything(module, x), expected)
    assert runs == ["lstm"]


def test_differentiable_twice_as_torch_nn() -> None:
    for kind in ("lstm", "gru", "rnn"):
        module, torchs, _ = make(kind)
        seconds = []
        for one in (module, torchs):
            x = X.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(one(x)[0].square().sum(), x, create_graph=True)
            seconds.append(list(torch.autograd.grad(gradient.square().sum(), [x, one.weight_hh_l0])))
        assert_same(seconds[0], seconds[1])


def test_hooks_run_and_frozen_weights_get_no_gradient() -> None:
    module = LSTM(INPUT, HIDDEN)
    seen = []
    module.register_forward_hook(lambda *_: seen.append("forward"))
    weight: Any = module.weight_hh_l0
    weight.register_hook(lambda _: seen.append("weight"))
    module.bias_hh_l0.requires_grad_(False)
    module(X)[0].sum().backward()
    assert seen == ["forward", "weight"]
    assert module.bias_hh_l0.grad is None
    assert module.weight_ih_l0.grad is not None


def test_a_projection_says_nothing_and_draws_nothing() -> None:
    cpu._silence_remark.cache_clear()
    module = LSTM(INPUT, HIDDEN, proj_size=3)
    state = torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module(X)
    assert torch.equal(torch.get_rng_state(), state)
