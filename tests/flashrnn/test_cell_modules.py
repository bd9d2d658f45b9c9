"""Layers of cells: `torch.nn`'s own LSTM and GRU written as cells, and what a layer does with parameters and inputs."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.flashrnn import module
from constrint.flashrnn.cells import CellLayer, run
from constrint.flashrnn.steps import cell, sigmoid, tanh
from constrint.kernels.rnn.language.backends import CellCall
from constrint.kernels.rnn.language.op import run_cell

LENGTHS = [6, 2, 5]


@cell(gates=("i", "f", "z", "o"), states=("h", "c"))
def lstm(g: Any, s: Any) -> Any:
    c = sigmoid(g.f) * s.c + sigmoid(g.i) * tanh(g.z)
    return {"c": c, "h": sigmoid(g.o) * tanh(c)}


@cell(gates=("r", "z", "n"), states=("h",), apart=("n",))
def gru(g: Any, s: Any) -> Any:
    n = tanh(g.n.input + sigmoid(g.r) * g.n.recurrent)
    return {"h": n + sigmoid(g.z) * (s.h - n)}


@cell(
    gates=("f", "n"),
    states={"h": 0.25, "m": -0.5},
    apart=("n",),
    parameters={"w": 0.3, "k": ("head", 1.0), "q": ("layer", 2.0)},
    inputs={"keep": "unit", "scale": "sequence"},
)
def with_all(g: Any, s: Any, p: Any, x: Any) -> Any:
    """Late product, parameters and inputs of all kinds."""
    f = sigmoid(g.f * p.k)
    n = tanh(g.n.input * x.scale + g.n(f * s.h * p.w + s.m))
    return {"h": x.keep * s.h + (1 - x.keep) * n, "m": p.q * 0.1 * s.m + f * n}


def drawn(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def layer(**options: Any) -> CellLayer:
    torch.manual_seed(0)
    made = module(with_all)(3, 4, dtype=torch.float64, **options)
    for name, value in made.named_parameters():
        if name.startswith(("w_", "k_", "q_")):
            value.data.add_(0.2 * torch.randn_like(value))
    return made


def step_inputs(layers: int = 1) -> dict[str, Tensor]:
    keep = torch.rand(3, 6, 4, dtype=torch.float64) if layers == 1 else torch.rand(layers, 3, 6, 4, dtype=torch.float64)
    return {"keep": keep.requires_grad_(), "scale": drawn(3, 6).requires_grad_()}


def gradients(made: torch.nn.Module, results: Any, *others: Tensor) -> list[Tensor]:
    output, hidden = results
    output = output.data if not isinstance(output, Tensor) else output
    total = output.square().sum()
    for state in (hidden,) if isinstance(hidden, Tensor) else hidden:
        total = total + (state * torch.linspace(-1, 1, state.numel(), dtype=state.dtype).view_as(state)).sum()
    return list(torch.autograd.grad(total, [*made.parameters(), *others]))


@pytest.mark.parametrize(("definition", "torch_class"), [(lstm, torch.nn.LSTM), (gru, torch.nn.GRU)])
def test_an_lstm_and_a_gru_are_those_of_torch(definition: Any, torch_class: Any) -> None:
    """Same names and shapes of parameters, same results and gradients, for packed sequences in two directions."""
    torch.manual_seed(0)
    theirs = torch_class(3, 4, num_layers=2, bidirectional=True, dtype=torch.float64)
    mine = module(definition)(3, 4, num_layers=2, bidirectional=True, dtype=torch.float64)
    mine.load_state_dict(theirs.state_dict())
    packed = pack_padded_sequence(drawn(6, 3, 3), torch.tensor(LENGTHS), enforce_sorted=False)
    first = drawn(4, 3, 4), drawn(4, 3, 4)
    hx = first if definition is lstm else first[0]
    wanted, got = theirs(packed, hx), mine(packed, hx)
    torch.testing.assert_close(got[0].data, wanted[0].data)
    torch.testing.assert_close(got[1], wanted[1])
    torch.testing.assert_close(gradients(mine, got), gradients(theirs, wanted))
    assert isinstance(mine(packed)[0], type(packed))


def run_alone(made: CellLayer, x: Tensor, keep: Tensor, scale: Tensor, **options: Any) -> Tensor:
    """The output of one sequence of a batch, by itself."""
    output: Tensor = made(x[:, None], keep=keep[None], scale=scale[None], **options)[0]
    return output[:, 0]


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("heads", [1, 2])
def test_padding_packing_and_resets_split_sequences(backend: str, heads: int) -> None:
    """Each piece of a batch gives what it gives alone; what is in the padding reaches nothing."""
    made = layer(bidirectional=True, num_heads=heads, backend=backend)
    x, given = drawn(6, 3, 3), step_inputs()
    pieces = [
        run_alone(made, x[:steps, b], given["keep"][b, :steps], given["scale"][b, :steps])
        for b, steps in enumerate(LENGTHS)
    ]
    poisoned, masks = x.clone(), {name: value.detach().clone() for name, value in given.items()}
    for b, steps in enumerate(LENGTHS):
        poisoned[steps:, b] = 1e6
        for value in masks.values():
            value[b, steps:] = float("nan")
    leaves = [poisoned, *masks.values()]
    for leaf in leaves:
        leaf.requires_grad_()
    output, hidden = made(poisoned, lengths=LENGTHS, **masks)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False)
    by_rows, hidden_by_rows = made(packed, **given)
    torch.testing.assert_close(pad_packed_sequence(by_rows)[0], output)
    torch.testing.assert_close(hidden_by_rows, hidden)
    for b, steps in enumerate(LENGTHS):
        torch.testing.assert_close(output[:steps, b], pieces[b])
        assert not output[steps:, b].any()
    found = gradients(made, (output, hidden), *leaves)
    wanted = gradients(made, (by_rows, hidden_by_rows), *given.values())
    torch.testing.assert_close(found[: len(wanted) - 2], wanted[:-2])
    for b, steps in enumerate(LENGTHS):
        assert not found[-3][steps:, b].any()
        assert not found[-1][b, steps:].any()
        torch.testing.assert_close(found[-2][b, :steps], wanted[-2][b, :steps])
    reset = torch.zeros(3, 6, dtype=torch.bool)
    reset[0, 2] = reset[1, 4] = True
    output, _ = made(x, reset=reset, **given)
    for b, (low, high) in ((0, (0, 2)), (0, (2, 6)), (1, (0, 4)), (1, (4, 6)), (2, (0, 6))):
        alone = run_alone(made, x[low:high, b], given["keep"][b, low:high], given["scale"][b, low:high])
        torch.testing.assert_close(output[low:high, b], alone)


@pytest.mark.parametrize("options", [{}, {"lengths": LENGTHS}, {"reset": True, "clip": 0.01}], ids=str)
def test_gradients_are_those_of_the_reference(options: dict[str, Any]) -> None:
    """Two layers in two directions, each with its own mask."""
    clip = options.pop("clip", None)
    if options.pop("reset", False):
        options["reset"] = torch.rand(3, 6) > 0.6
    made = layer(num_layers=2, bidirectional=True, num_heads=2, batch_first=True, gradient_recurrent_clip=clip)
    x, given = drawn(3, 6, 3).requires_grad_(), step_inputs(4)
    hx = tuple(drawn(4, 3, 4).requires_grad_() for _ in range(2))
    found = []
    for backend in ("torch", "reference"):
        made.backend = backend
        found.append(gradients(made, made(x, hx, **given, **options), x, *hx, *given.values()))
    torch.testing.assert_close(found[0], found[1])


def test_a_gradient_can_be_differentiated_again() -> None:
    torch.manual_seed(0)
    tensors = [t.requires_grad_() for t in (drawn(2, 2, 2, 1, 2), drawn(2, 1, 2, 2), drawn(2, 1, 2), drawn(2, 2, 1, 2))]
    others = [drawn(1, 2), drawn(1, 1), drawn(1, 1), drawn(2, 2, 1, 2), drawn(2, 2, 1, 1)]

    def run(*operands: Tensor) -> Tensor:
        wx, r, b, initial, *rest = operands
        call = CellCall(with_all, wx, r, b, initial, tuple(rest[:3]), tuple(rest[3:]), None, None)
        return run_cell(call, "auto", trains=True).hidden

    assert torch.autograd.gradgradcheck(run, [*tensors, *(t.requires_grad_() for t in others)])


@pytest.mark.slow
def test_a_compiled_layer_and_a_stored_one_give_the_same() -> None:
    made, x, given = layer(), drawn(6, 3, 3), step_inputs()
    wanted = made(x, **given)
    compiled: Any = torch.compile(made, backend="aot_eager", fullgraph=True)
    got = compiled(x, **given)
    torch.testing.assert_close(got, wanted)
    torch.testing.assert_close(gradients(made, got), gradients(made, wanted))
    again = pickle.loads(pickle.dumps(made))
    assert again.definition == with_all
    torch.testing.assert_close(again(x, **given), wanted)
    per_sample = torch.func.grad(lambda one: made(one, **given)[0].sum())(x)
    assert per_sample.shape == x.shape


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bits_round_results_and_not_the_steps(dtype: torch.dtype) -> None:
    """Sums and states are fp32; pre-activations are rounded twice, weights once: some roundings of values near 1."""
    made, x, given = layer(), drawn(6, 3, 3), step_inputs()
    wanted, _ = made(x, **given)
    narrow = layer().to(dtype)
    got, _ = narrow(x.to(dtype), **{name: value.to(dtype) for name, value in given.items()})
    assert got.dtype == dtype
    assert float((got - wanted).detach().abs().max()) < 16 * torch.finfo(dtype).eps


def test_what_a_layer_refuses() -> None:
    made, x, given = layer(), drawn(6, 3, 3), step_inputs()
    with pytest.raises(UsageError, match="'scale' is missing"):
        made(x, keep=given["keep"])
    with pytest.raises(UsageError, match="'more' is missing or not among them"):
        made(x, more=x, **given)
    with pytest.raises(UsageError, match=r"keep must be \(3, 6, 4\) or \(1, 3, 6, 4\), got \(6, 3, 4\)"):
        made(x, keep=given["keep"].transpose(0, 1), scale=given["scale"])
    with pytest.raises(TypeError, match=r"scale must be a torch\.Tensor"):
        made(x, keep=given["keep"], scale=1.0)
    with pytest.raises(UnknownNameError, match="backend"):
        layer(backend="nothing")
    with pytest.raises(RuntimeError, match="one tensor for each of h, m"):
        made(x, drawn(1, 3, 4), **given)
    with pytest.raises(UsageError, match="module takes a cell"):
        module(lambda g, s: {})  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match=r"torch\.export"):
        made.__prepare_scriptable__()


def test_projected_inputs_give_what_a_layer_gives() -> None:
    """And names, shapes and devices that do not fit are refused."""
    made, x, given = layer(), drawn(6, 3, 3), step_inputs()
    wanted, (h, m) = made(x, **given)
    weights = dict(made.named_parameters())
    wx = (x.transpose(0, 1) @ weights["weight_ih_l0"].t() + weights["bias_ih_l0"]).view(3, 6, 2, 1, 4)
    r, b = weights["weight_hh_l0"].view(2, 1, 4, 4), weights["bias_hh_l0"].view(2, 1, 4)
    sizes = {"w": (1, 4), "k": (1, 1), "q": (1, 1)}
    parameters = {name: weights[f"{name}_l0"].view(size) for name, size in sizes.items()}
    inputs = {"keep": given["keep"][:, :, None], "scale": given["scale"][:, :, None, None]}
    for backend in ("auto", "reference"):
        hidden, last = run(with_all, wx, r, b, parameters=parameters, inputs=inputs, backend=backend)
        torch.testing.assert_close(hidden[:, :, 0].transpose(0, 1), wanted)
        torch.testing.assert_close(last[:, :, 0], torch.cat([h, m]))
    with pytest.raises(UsageError, match=r"wx must be \(B, T, 2, N, D\)"):
        run(with_all, wx[:, :, :1], r, b)
    with pytest.raises(UsageError, match=r"r must be r = \(2, 1, 4, 4\)"):
        run(with_all, wx, r[:1], b)
    with pytest.raises(UsageError, match="parameters must be w, k, q; got w"):
        run(with_all, wx, r, b, parameters={"w": parameters["w"]})


def test_why_says_what_fused_kernels_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    decision = module(lstm)(64, 128, bidirectional=True).why(torch.zeros(9, 4, 64), gpu="h200")
    assert decision.program.name in ("cuda", "triton", "alternating")
    print(decision)
    assert lstm.operation in capsys.readouterr().out
    with pytest.raises(UnsupportedError, match="one product a step"):
        layer().why(drawn(6, 3, 3))


def test_a_layer_has_no_rows_that_nothing_reads() -> None:
    @cell(("g", "q"), apart=("g", "q"))
    def parts(g: Any, s: Any) -> Any:
        return {"h": tanh(g.g.input + g.q.recurrent)}

    shapes = {name: tuple(value.shape) for name, value in module(parts)(3, 4).named_parameters()}
    assert shapes == {
        "weight_ih_l0": (4, 3), "weight_hh_l0": (4, 4), "bias_ih_l0": (4,), "bias_hh_l0": (4,)
    }  # fmt: skip
