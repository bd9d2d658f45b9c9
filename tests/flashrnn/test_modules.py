"""The modules against `torch.nn`: same state dict, same call, same numbers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

from constrint.flashrnn import GRU, LSTM, RNN, SLSTM, Elman

pytestmark = [
    # torch says which of its own implementations runs.
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]

#: fp32 on the same weights: sums in another order only.
TOLERANCE = 1e-5

PAIRS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (LSTM, nn.LSTM, {}),
    "gru": (GRU, nn.GRU, {}),
    "rnn": (RNN, nn.RNN, {}),
    "rnn-relu": (RNN, nn.RNN, {"nonlinearity": "relu"}),
    "lstm-proj": (LSTM, nn.LSTM, {"proj_size": 5}),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "no-bias": {"bias": False},
    "batch-first": {"batch_first": True},
    "two-layers": {"num_layers": 2},
    "bidirectional": {"bidirectional": True},
    "all": {"num_layers": 3, "bidirectional": True, "batch_first": True},
}


def pair(name: str, **options: Any) -> tuple[LSTM | GRU | RNN, nn.Module]:
    """Ours and torch's, with torch's weights loaded into ours."""
    torch.manual_seed(7)
    ours, theirs, extra = PAIRS[name]
    theirs = theirs(10, 16, **extra, **options)
    ours = ours(10, 16, **extra, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def flat(result: Any) -> list[Tensor]:
    """All tensors of a module's result."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, PackedSequence):
        return [result.data]
    return [tensor for part in result for tensor in flat(part)]


def assert_same(ours: nn.Module, theirs: nn.Module, *call: Any) -> None:
    """Outputs, states, and all gradients of a weighted sum of both agree."""
    found, expected = flat(ours(*call)), flat(theirs(*call))
    inputs = [t for t in flat(list(call)) if t.requires_grad]
    weights = [torch.randn(t.shape, generator=torch.Generator().manual_seed(1)) for t in expected]
    gradients = []
    for module, tensors in ((ours, found), (theirs, expected)):
        loss = torch.stack([(w * t).sum() for w, t in zip(weights, tensors, strict=True)]).sum()
        gradients.append(torch.autograd.grad(loss, [*inputs, *module.parameters()]))
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    scale = max(float(g.abs().max()) for g in gradients[1])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=TOLERANCE, atol=TOLERANCE * max(1.0, scale))


def initial(module: Any, batch: int) -> Any:
    """Random initial states as torch takes them."""
    rows = module.num_layers * (2 if module.bidirectional else 1)
    h = torch.randn(rows, batch, getattr(module, "proj_size", 0) or 16, requires_grad=True)
    return (h, torch.randn(rows, batch, 16, requires_grad=True)) if isinstance(module, LSTM) else h


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", PAIRS, ids=str)
def test_equals_torch_nn(name: str, options: str) -> None:
    ours, theirs = pair(name, **OPTIONS[options])
    x = torch.randn(3, 6, 10, requires_grad=True)
    assert_same(ours, theirs, x)
    batch = 3 if ours.batch_first else 6
    assert_same(ours, theirs, x, initial(ours, batch))


@pytest.mark.parametrize("bidirectional", [False, True], ids=["forwards", "both"])
@pytest.mark.parametrize("name", PAIRS, ids=str)
def test_packed_sequences_equal_torch_nn(name: str, bidirectional: bool) -> None:
    ours, theirs = pair(name, num_layers=2, bidirectional=bidirectional)
    sequences = [torch.randn(length, 10, requires_grad=True) for length in (2, 7, 1, 7, 4)]
    packed = pack_sequence(sequences, enforce_sorted=False)
    found, expected = ours(packed), theirs(packed)
    assert torch.equal(found[0].batch_sizes, expected[0].batch_sizes)
    assert_same(ours, theirs, packed)
    assert_same(ours, theirs, packed, initial(ours, 5))
    ordered = pack_sequence(sorted((s.detach() for s in sequences), key=len, reverse=True))
    assert_same(ours, theirs, ordered)


@pytest.mark.parametrize("name", PAIRS, ids=str)
@pytest.mark.parametrize("shape", [(1, 4), (5, 0), (5, 1), (1, 1)], ids=["T=1", "B=0", "B=1", "T=B=1"])
def test_small_batches(name: str, shape: tuple[int, int]) -> None:
    ours, theirs = pair(name, num_layers=2)
    x = torch.randn(*shape, 10, requires_grad=True)
    torch.testing.assert_close(flat(ours(x)), flat(theirs(x)), rtol=TOLERANCE, atol=TOLERANCE)
    assert torch.autograd.grad(ours(x)[0].sum(), x)[0].shape == x.shape


@pytest.mark.parametrize("name", PAIRS, ids=str)
def test_unbatched_input(name: str) -> None:
    for batch_first in (False, True):
        ours, theirs = pair(name, batch_first=batch_first, bidirectional=True)
        assert_same(ours, theirs, torch.randn(4, 10, requires_grad=True))
        states = initial(ours, 1)
        states = tuple(s.squeeze(1) for s in states) if isinstance(states, tuple) else states.squeeze(1)
        assert_same(ours, theirs, torch.randn(4, 10), states)


def test_state_dicts_have_the_same_keys_and_shapes() -> None:
    for name in PAIRS:
        ours, theirs = pair(name, num_layers=2, bidirectional=True)
        mine, torchs = ours.state_dict(), theirs.state_dict()
        assert list(mine) == list(torchs)
        assert [v.shape for v in mine.values()] == [v.shape for v in torchs.values()]
        theirs.load_state_dict(mine)


def test_positional_constructors_are_those_of_torch() -> None:
    assert LSTM(3, 4, 2, False, True, 0.5, True, 2).proj_size == 2
    assert str(nn.LSTM(3, 4, 2, False, True, 0.5, True, 2)) == str(LSTM(3, 4, 2, False, True, 0.5, True, 2))
    gru = GRU(3, 4, 2, True, False, 0.0, True, "cpu", torch.float64)
    assert gru.weight_hh_l1_reverse.dtype == torch.float64
    rnn = RNN(3, 4, 2, "relu", False, True)
    assert (rnn.nonlinearity, rnn.bias, rnn.batch_first) == ("relu", False, True)
    assert Elman is RNN


def test_parameters_start_from_torchs_distribution() -> None:
    torch.manual_seed(3)
    ours = LSTM(10, 16, 2)
    torch.manual_seed(3)
    theirs = nn.LSTM(10, 16, 2)
    for mine, torchs in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(mine, torchs)
    assert [len(weights) for weights in ours.all_weights] == [4, 4]
    ours.flatten_parameters()


def test_dropout_acts_between_layers_in_training_only() -> None:
    ours, theirs = pair("lstm", num_layers=2, dropout=0.5)
    x = torch.randn(5, 3, 10)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=TOLERANCE, atol=TOLERANCE)
    still = ours(x)[0]
    ours.train()
    torch.manual_seed(1)
    first = ours(x)[0]
    assert not torch.allclose(first, still)
    torch.manual_seed(1)
    assert torch.equal(ours(x)[0], first)
    ours.dropout = 1.0
    only_biases = ours(x)[0]
    assert torch.equal(only_biases[:, 0], only_biases[:, 1])
    with pytest.warns(UserWarning, match="between layers"):
        LSTM(3, 4, dropout=0.5)


@pytest.mark.parametrize("module", [LSTM, GRU, RNN, SLSTM])
def test_heads_are_independent_modules_side_by_side(module: Any) -> None:
    torch.manual_seed(2)
    whole = module(6, 12, num_heads=3)
    x = torch.randn(5, 2, 6)
    output, _ = whole(x)
    gates = whole.weight_ih_l0.shape[0] // 12
    for head in range(3):
        part = module(6, 4)
        for name, value in part.named_parameters():
            rows = getattr(whole, name).unflatten(0, (gates, 3, 4))[:, head].flatten(0, 1)
            with torch.no_grad():
                value.copy_(rows)
        torch.testing.assert_close(part(x)[0], output[..., head * 4 : head * 4 + 4], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("module", [LSTM, GRU, RNN, SLSTM])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["forwards", "both"])
def test_lengths_equal_each_sequence_alone(module: Any, bidirectional: bool) -> None:
    torch.manual_seed(4)
    ours = module(10, 16, num_layers=2, bidirectional=bidirectional, batch_first=True)
    x, lengths = torch.randn(4, 9, 10), [9, 1, 4, 6]
    output, hidden = ours(x, lengths=lengths)
    for row, length in enumerate(lengths):
        alone, last = ours(x[row : row + 1, :length])
        torch.testing.assert_close(output[row, :length], alone[0], rtol=TOLERANCE, atol=TOLERANCE)
        assert not output[row, length:].any()
        for found, expected in zip(flat(hidden), flat(last), strict=True):
            torch.testing.assert_close(found[:, row], expected[:, 0], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("bidirectional", [False, True], ids=["forwards", "both"])
def test_reset_separates_documents_in_a_row(bidirectional: bool) -> None:
    torch.manual_seed(5)
    ours = LSTM(10, 16, num_layers=2, bidirectional=bidirectional, batch_first=True)
    x = torch.randn(2, 9, 10)
    reset = torch.zeros(2, 9, dtype=torch.bool)
    reset[0, 0] = reset[0, 4] = reset[1, 7] = True
    output, _ = ours(x, reset=reset)
    for row, parts in ((0, [(0, 4), (4, 9)]), (1, [(0, 7), (7, 9)])):
        for start, end in parts:
            alone, _ = ours(x[row : row + 1, start:end])
            torch.testing.assert_close(output[row, start:end], alone[0], rtol=TOLERANCE, atol=TOLERANCE)


def test_projection_with_lengths_keeps_the_initial_state_of_an_empty_sequence() -> None:
    ours, theirs = pair("lstm-proj")
    x, states = torch.randn(6, 2, 10), initial(ours, 2)
    _, (h, c) = ours(x, states, lengths=[0, 6])
    assert torch.equal(h[:, 0], states[0][:, 0])
    assert torch.equal(c[:, 0], states[1][:, 0])
    torch.testing.assert_close(h[:, 1], theirs(x, states)[1][0][:, 1], rtol=TOLERANCE, atol=TOLERANCE)


def test_pad_then_pack_gives_what_lengths_give() -> None:
    ours, _ = pair("gru", bidirectional=True, batch_first=True)
    x, lengths = torch.randn(3, 7, 10), torch.tensor([7, 2, 5])
    dense, _ = ours(x, lengths=lengths)
    packed, _ = ours(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    unpacked, _ = nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)
    torch.testing.assert_close(unpacked, dense, rtol=TOLERANCE, atol=TOLERANCE)


def test_slstm_takes_and_returns_four_states() -> None:
    torch.manual_seed(6)
    ours = SLSTM(10, 16, num_layers=2)
    x = torch.randn(8, 3, 10)
    whole, last = ours(x)
    first, middle = ours(x[:5])
    second, end = ours(x[5:], middle)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=TOLERANCE, atol=TOLERANCE)
    torch.testing.assert_close(end, last, rtol=TOLERANCE, atol=TOLERANCE)
    assert [tuple(state.shape) for state in last] == [(2, 3, 16)] * 4


def test_autocast_and_half_precision() -> None:
    ours, theirs = pair("lstm", bidirectional=True)
    x = torch.randn(5, 3, 10)
    exact, _ = theirs(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output, (h, _) = ours(x, initial(ours, 3))
        output, (h, _) = ours(x)
    assert output.dtype == h.dtype == torch.bfloat16
    # Inputs, weights and states carry 8 bits; h stays within 1, and so does its error's amplification over 5 steps.
    torch.testing.assert_close(output.float(), exact, rtol=0, atol=16 * 2**-8)
    output.float().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in ours.parameters())
    half, _ = ours.to(torch.bfloat16)(x.to(torch.bfloat16))
    assert half.dtype == torch.bfloat16


def test_compiles_without_graph_breaks_and_survives_functional_call() -> None:
    ours, _ = pair("gru", num_layers=2, bidirectional=True)
    x = torch.randn(5, 3, 10)
    expected, _ = ours(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about its inductor
        compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
        found, _ = compiled(x)
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)
    doubled = {name: 2 * value for name, value in ours.named_parameters()}
    assert not torch.allclose(torch.func.functional_call(ours, doubled, (x,))[0], expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LSTM(10, 0), "hidden_size must be greater than zero, got 0"),
        (lambda: LSTM(10, 16, num_heads=3), "num_heads=3 must divide hidden_size=16"),
        (lambda: LSTM(10, 16, proj_size=16), "proj_size must be within 0..hidden_size - 1, got 16"),
        (lambda: LSTM(10, 16, proj_size=4, num_heads=2), "proj_size is only there for LSTM with num_heads=1"),
        (lambda: GRU(10, 16, proj_size=4), "only supported for LSTM, not GRU"),
        (lambda: LSTM(10, 16, dropout=2), r"number in range \[0, 1\], got 2"),
        (lambda: RNN(10, 16, 1, "sigmoid"), "Unknown nonlinearity 'sigmoid'"),
        (lambda: LSTM(10, 16)(torch.zeros(2, 3, 10, 1)), "Expected input to be 2D or 3D, got 4D"),
        (lambda: LSTM(10, 16)(torch.zeros(2, 3, 9)), "Expected 10, got 9"),
        (lambda: LSTM(10, 16)(torch.zeros(2, 3, 10).double()), "does not match weight dtype"),
        (lambda: LSTM(10, 16)(torch.zeros(2, 3, 10), torch.zeros(1, 3, 16)), "one tensor for each of h, c, got 1"),
        (lambda: GRU(10, 16)(torch.zeros(2, 3, 10), torch.zeros(1, 2, 16)), r"Expected hidden h size \(1, 3, 16\)"),
        (lambda: GRU(10, 16)(torch.zeros(2, 3, 10), torch.zeros(3, 16)), "hx must be 3-D for batched"),
        (lambda: GRU(10, 16)(torch.zeros(2, 3, 10), lengths=[2, 3, 1]), "within 0..T = 0..2, got 3"),
        (lambda: GRU(10, 16)(pack_sequence([torch.zeros(2, 10)]), lengths=[2]), "carries its own lengths"),
    ],
)
def test_bad_input_is_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, RuntimeError), match=message):
        make()
