"""`rnn` against the fp64 reference: values, gradients, masks, operators, torch.compile, bad input."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.flashrnn import flashrnn, rnn
from constrint.kernels.rnn import op
from constrint.kernels.rnn.cells import BUILT_IN
from tests.support.rnn_cases import ROUNDOFF, check, make_case


@pytest.mark.parametrize("optional", ["", "bs", "bl", "bslr"])
@pytest.mark.parametrize("dtype", ROUNDOFF, ids=lambda d: str(d).removeprefix("torch."))
@pytest.mark.parametrize("cell", BUILT_IN)
def test_right_for_every_cell_and_dtype(cell: str, dtype: torch.dtype, optional: str) -> None:
    check(make_case(cell, (3, 9, 2, 16), dtype, 1, optional), dtype, backend="alternating")


RAGGED = random.Random(20)
SHAPES = [
    (RAGGED.randint(1, 33), RAGGED.randint(1, 130), RAGGED.randint(1, 12), RAGGED.choice((16, 24, 33, 48, 64, 128)))
    for _ in range(8)
] + [(33, 2, 1, 1024), (1, 130, 12, 16)]


@pytest.mark.parametrize("index", range(len(SHAPES)), ids=lambda i: "x".join(map(str, SHAPES[i])))
def test_right_on_ragged_shapes(index: int) -> None:
    draw = random.Random(index)
    cell = list(BUILT_IN)[index % len(BUILT_IN)]
    optional = "".join(letter for letter in "bslr" if draw.random() < 0.6)
    dtype = (torch.float32, torch.bfloat16)[index % 2]
    check(make_case(cell, SHAPES[index], dtype, index, optional), dtype)


@pytest.mark.parametrize("cell", BUILT_IN)
def test_recomputed_and_stored_pre_activations_give_the_same_gradients(cell: str) -> None:
    case = make_case(cell, (3, 9, 2, 16), torch.float64, 2, "bslr")
    stored, recomputed = case.run()[1], case.run(recompute=True)[1]
    torch.testing.assert_close(stored, recomputed, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("cell", BUILT_IN)
def test_clip_as_in_the_reference(cell: str) -> None:
    case = make_case(cell, (3, 9, 2, 16), torch.float64, 3, "bslr")
    clipped = case.run(gradient_recurrent_clip=0.05)[1]
    torch.testing.assert_close(clipped, case.run(backend="reference", gradient_recurrent_clip=0.05)[1])
    assert not torch.allclose(clipped[0], case.run()[1][0])


@pytest.mark.parametrize("backend", ["alternating", "reference"])
@pytest.mark.parametrize("cell", BUILT_IN)
def test_lengths_give_what_each_sequence_gives_alone(cell: str, backend: str) -> None:
    case = make_case(cell, (4, 7, 2, 16), torch.float64, 4, "bs")
    lengths = [7, 0, 3, 5]
    t = case.tensors
    states, last = rnn(**t, cell=cell, lengths=lengths, backend=backend)
    assert not states[:, 1].any()
    assert torch.equal(last[:, 1, 0], t["states"][:, 1])
    for row, length in enumerate(lengths):
        if length:
            alone = rnn(t["wx"][row, None, :length], t["r"], t["b"], t["states"][:, row, None], cell=cell)
            torch.testing.assert_close(states[:, row, :length], alone[0][:, 0])
            torch.testing.assert_close(last[:, row], alone[1][:, 0])
            assert not states[:, row, length:].any()


def test_gradients_of_padding_are_zero_and_nan_padding_is_harmless() -> None:
    case = make_case("lstm", (3, 6, 1, 16), torch.float64, 5, "bs")
    case.lengths = torch.tensor([6, 2, 0])
    case.tensors["wx"][1, 2:] = case.tensors["wx"][2] = float("nan")
    for backend in ("alternating", "reference"):
        results, gradients = case.run(backend=backend)
        assert all(x.isfinite().all() for x in (*results, *gradients)), backend
        assert not gradients[0][1, 2:].any()
        assert not gradients[0][2].any()


def test_truncated_backpropagation_by_detaching_states() -> None:
    case = make_case("slstm", (3, 8, 2, 16), torch.float64, 6, "b")
    t = {n: x.requires_grad_() for n, x in case.tensors.items()}
    whole, end = rnn(**t, cell="slstm")
    first, middle = rnn(t["wx"][:, :5], t["r"], t["b"], cell="slstm")
    second, last = rnn(t["wx"][:, 5:], t["r"], t["b"], middle.detach(), cell="slstm")
    torch.testing.assert_close(torch.cat([first, second], 2), whole)
    torch.testing.assert_close(last, end)
    (gradient,) = torch.autograd.grad(second[0].sum(), t["wx"])
    assert not gradient[:, :5].any()
    assert gradient[:, 5:].any()


def test_empty_batches_and_no_steps() -> None:
    for batch, time in ((0, 5), (3, 0)):
        case = make_case("lstm", (batch, time, 2, 16), torch.float32, 7, "bs")
        results, gradients = case.run()
        assert tuple(results[0].shape) == (2, batch, time, 2, 16)
        assert torch.equal(results[1].squeeze(2), case.tensors["states"])
        assert torch.equal(gradients[3].flatten(), case.upstream[1].float().flatten())
        assert not gradients[1].any()
        assert not rnn(case.tensors["wx"], case.tensors["r"])[1].any()


@pytest.mark.parametrize("kind", ["time-major", "expanded", "sliced"])
def test_non_contiguous_operands(kind: str) -> None:
    case = make_case("gru", (3, 8, 2, 16), torch.float64, 8, "bs")
    t = dict(case.tensors)
    expected, _ = rnn(**t, cell="gru")
    if kind == "time-major":
        t["wx"] = t["wx"].transpose(0, 1).contiguous().transpose(0, 1)
        t["r"] = t["r"].mT.contiguous().mT
    elif kind == "expanded":
        t["wx"] = t["wx"][:1, :1].expand(3, 8, -1, -1, -1)
        expected, _ = rnn(t["wx"].contiguous(), t["r"], t["b"], t["states"], cell="gru")
    else:
        t["wx"] = torch.stack([t["wx"], t["wx"]], -1)[..., 0]
        t["states"] = torch.stack([t["states"], t["states"]], 1)[:, 0]
    assert torch.equal(rnn(**t, cell="gru")[0], expected)


def test_states_may_carry_the_one_that_last_states_have() -> None:
    case = make_case("lstm", (3, 4, 2, 16), torch.float32, 9, "s")
    t = case.tensors
    flat, _ = rnn(t["wx"], t["r"], None, t["states"])
    assert torch.equal(rnn(t["wx"], t["r"], None, t["states"].unsqueeze(2))[0], flat)


def test_results_are_the_same_every_time() -> None:
    case = make_case("lstm", (5, 20, 2, 32), torch.float32, 10, "bslr")
    first, second = case.run(), case.run()
    assert all(torch.equal(a, b) for a, b in zip(first[0] + first[1], second[0] + second[1], strict=True))


# torch looks at the gradients of its own copies, and hides its warning where warnings are no errors.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("optional", ["", "bslr"])
def test_operators_pass_opcheck(optional: str) -> None:
    case = make_case("gru", (2, 3, 2, 4), torch.float32, 11, optional)
    t = {n: x.requires_grad_() for n, x in case.tensors.items()}
    call = (
        t["wx"],
        t["r"],
        t.get("b"),
        t.get("states"),
        case.lengths,
        case.reset,
        "gru",
        "alternating",
        True,
        False,
        0.0,
    )
    torch.library.opcheck(op.rnn_forward, call)
    states, _, last, rest, gates = (x.detach() for x in op.rnn_forward(*call))
    saved = (*(None if x is None else x.detach() for x in call[:4]), *call[4:6], states, gates)
    for gradients in ((states, None, last, rest), (None, states[0], None, None), (None, None, last, None)):
        torch.library.opcheck(
            op.rnn_backward,
            (*gradients, *saved, "gru", "alternating", 0.0),
            test_utils=("test_schema", "test_faketensor"),
        )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_compiles_as_one_graph(dynamic: bool) -> None:
    def loss(wx: Tensor, r: Tensor, lengths: Tensor | None) -> Tensor:
        states, last = rnn(wx, r, cell="gru", lengths=lengths)
        return states[0].square().sum() + last.sum()

    compiled = torch.compile(loss, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for batch in (3, 5):
        case = make_case("gru", (batch, 6, 2, 16), torch.float64, 12, "l")
        wx, r = case.tensors["wx"].requires_grad_(), case.tensors["r"].requires_grad_()
        expected = torch.autograd.grad(loss(wx, r, case.lengths), (wx, r))
        torch.testing.assert_close(torch.autograd.grad(compiled(wx, r, case.lengths), (wx, r)), expected)


def test_autocast_converts_inputs_and_weights() -> None:
    case = make_case("lstm", (3, 6, 2, 16), torch.float32, 13, "bs")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results, gradients = case.run()
    assert results[0].dtype == torch.bfloat16
    assert all(g.dtype == torch.float32 for g in gradients)


def test_only_wanted_gradients_are_given() -> None:
    case = make_case("lstm", (2, 3, 1, 16), torch.float32, 15, "bs")
    case.tensors["b"].requires_grad_()
    states, _ = rnn(**case.tensors)
    states.sum().backward()  # type: ignore[no-untyped-call]
    assert case.tensors["b"].grad is not None
    assert case.tensors["wx"].grad is None
    with torch.no_grad():
        assert not rnn(**case.tensors)[0].requires_grad


def test_signature_and_orders_of_flashrnn() -> None:
    """R of its GRU holds n, r, z and b a fourth row for the candidate's input."""
    case = make_case("gru", (2, 5, 2, 16), torch.float32, 16, "b")
    t = case.tensors
    candidate = torch.randn(1, 2, 16)
    expected = rnn(torch.cat([t["wx"][:, :, :2], t["wx"][:, :, 2:] + candidate], 2), t["r"], t["b"], cell="gru")
    theirs = t["wx"], t["r"][[2, 0, 1]], torch.cat([t["b"][[2, 0, 1]], candidate])
    for backend in ("cuda_fused", "cuda", "auto"):
        found = flashrnn(*theirs, function="gru", backend=backend, dtype="float32")
        torch.testing.assert_close(found, expected)
    assert flashrnn(*theirs, function="gru")[0].dtype == torch.bfloat16
    case = make_case("lstm", (2, 5, 2, 16), torch.float32, 17, "b")
    t = case.tensors
    torch.testing.assert_close(flashrnn(t["wx"], t["r"], t["b"], dtype=None), rnn(t["wx"], t["r"], t["b"]))
    with pytest.raises(UsageError, match=r"unknown dtype 'float3'. Nearest: float32"):
        flashrnn(t["wx"], t["r"], t["b"], dtype="float3")


WX, R = torch.zeros(2, 3, 4, 1, 16), torch.zeros(4, 1, 16, 16)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "cell": ({"cell": "lstn"}, "unknown cell 'lstn'. Nearest: lstm"),
    "backend": ({"backend": "cuds"}, "unknown backend 'cuds'"),
    "no gpu": ({"backend": "triton"}, "backend 'triton' needs a GPU, wx is on cpu. Use 'auto'"),
    "wx rank": ({"wx": WX[0]}, r"wx must have 5 dimensions \(B, T, G, N, D\), got 4: \(3, 4, 1, 16\)"),
    "wx gates": ({"wx": WX, "cell": "gru"}, r"G = 3 for gru \(gates r, z, n\), got G = 4"),
    "wx dtype": ({"wx": WX.long()}, "wx must be torch.float32, .* got torch.int64"),
    "wx heads": ({"wx": WX[:, :, :, :0]}, "at least one head"),
    "r shape": ({"r": R[:3]}, r"r must be \(G, N, D, D\) = \(4, 1, 16, 16\), got \(3, 1, 16, 16\)"),
    "r dtype": ({"r": R.double()}, "r must have the dtype of wx, torch.float32, got torch.float64"),
    "r device": ({"r": R.to("meta")}, "r must be on the device of wx, cpu, got meta"),
    "b shape": ({"b": torch.zeros(4, 16)}, r"b must be \(G, N, D\) = \(4, 1, 16\), got \(4, 16\)"),
    "states shape": (
        {"states": torch.zeros(1, 2, 1, 16)},
        r"states h, c of lstm\) = \(2, 2, 1, 16\), got \(1, 2, 1, 16\)",
    ),
    "lengths range": ({"lengths": [1, 4]}, "lengths must be within 0..T = 0..3, got 4"),
    "lengths negative": ({"lengths": torch.tensor([-1, 2])}, "lengths must be within 0..T = 0..3, got -1"),
    "lengths shape": ({"lengths": [1, 2, 3]}, r"lengths must be \(B,\) = \(2\), got \(3\)"),
    "lengths dtype": ({"lengths": torch.ones(2)}, "lengths must hold integers, got torch.float32"),
    "reset dtype": ({"reset": torch.zeros(2, 3)}, r"reset must hold booleans \(torch.bool\), got torch.float32"),
    "reset shape": ({"reset": torch.zeros(3, 2, dtype=torch.bool)}, r"reset must be \(B, T\) = \(2, 3\), got \(3, 2\)"),
    "clip": ({"gradient_recurrent_clip": -1.0}, "must be positive, or None for no limit, got -1.0"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_argument_expected_and_got(name: str) -> None:
    change, message = BAD[name]
    with pytest.raises(UsageError, match=message):
        rnn(**({"wx": WX, "r": R} | change))


@pytest.mark.parametrize(
    "change", [{"wx": [1.0]}, {"r": None}, {"lengths": 3}, {"states": (WX, WX)}, {"reset": [True]}]
)
def test_other_types_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=f"{next(iter(change))} must be a "):
        rnn(**({"wx": WX, "r": R} | change))


@pytest.mark.parametrize("cell", BUILT_IN)
def test_hidden_only_gives_the_same_h_and_gradients(cell: str) -> None:
    case = make_case(cell, (3, 5, 2, 16), torch.float64, 18, "bsl")
    found = []
    for hidden_only in (False, True):
        t = {n: x.detach().requires_grad_() for n, x in case.tensors.items()}
        result, last = rnn(**t, cell=cell, lengths=case.lengths, hidden_only=hidden_only)
        h = result if hidden_only else result[0]
        total = (case.upstream[0][0] * h).sum() + (case.upstream[1] * last).sum()
        found.append([h, last, *torch.autograd.grad(total, list(t.values()))])
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)
    with torch.no_grad():
        assert torch.equal(rnn(**case.tensors, cell=cell, lengths=case.lengths, hidden_only=True)[0], found[0][0])
