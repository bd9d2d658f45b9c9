"""What PyTorch's own test suite checks of `nn.LSTM`, `nn.GRU` and `nn.RNN`, checked of ours, in our words.

Read in `test/test_nn.py` (2026), `test/test_autograd.py` and `test/test_modules.py`, whose samples are in
`torch/testing/_internal/common_modules.py`:

| here | theirs, and what it checks |
|---|---|
| wrong_shapes | rnn_args_check, projections_lstm_args_check: a wrong batch, size or number of layers is refused |
| wrong_sizes_are_named | cudnn_forward_exception |
| other_devices | rnn_check_device, projections_lstm_check_device |
| zeros | rnn_initial_hidden_state, projections_lstm_initial_hidden_state: zeros are the default |
| projection_of_others | projections_errors_on_gru_and_rnn |
| kept_graph | rnn_retain_variables: a graph that is kept gives the same gradients again |
| packed_rows | variable_sequence: packed rows are the sequences one by one |
| two_implementations | RNN_cpu_vs_cudnn_no_dropout, rnn_fused: two implementations agree, in all options |
| dropout_between_layers | RNN_cpu_vs_cudnn_with_dropout, RNN_dropout |
| saved_module | RNN_dropout_state: a saved module draws and computes alike |
| changed_dropout | RNN_change_dropout: dropout may be changed between calls |
| no_step | error_RNN_seq_len_zero |
| no_sequence | RNN_input_size_zero: an empty batch runs, backward as well |
| weight_norm | rnn_weight_norm, RNN_cudnn_weight_norm: on, and off again |
| missing_weight | partial_flat_weights: a module is moved while a weight is missing |
| weight_in_other_memory | cudnn_weight_format: a weight may be set to other memory, and stays shared with it |
| tied_weights | cudnn_weight_tying: tied parameters train as one |
| grad_and_gradgrad | LSTM_grad_and_gradgrad, GRU_grad_and_gradgrad: in fp64 |
| frozen_weights | rnn_backward_to_input_but_not_parameters |
| samples | test_modules: forward, grad, gradgrad, cpu_gpu_parity of unbatched samples |
| life_of_a_module | test_modules: factory_kwargs, to_empty, repr, pickle, save_load, to |
| bad_constructors | test_modules: errors |

Those from `dropout_between_layers` on, but for derivatives and samples, stand in `test_like_torch_own_modules.py`.

Not here: what is of cells, of which there are none; of `PackedSequence` alone (`pack_*`); of `_flat_weights`, which are
torch's own; of memory formats, of which rows have one (`memory_format`); of the states of cuDNN's dropout on several
GPUs (`cudnn_rnn_dropout_states_device`); of torch's choice of oneDNN (`LSTM_differentiable_backward_using_oneDNN`).
Layers on a GPU are in `test_gpu.py`, `test_cuda_gpu.py` and `test_cudnn_gpu.py`.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from constrint.flashrnn import RNN
from tests.support.layers import BACKENDS, MODULES, flat, hidden, same, trained

every_module = pytest.mark.parametrize("name", MODULES)
every_backend = pytest.mark.parametrize("backend", BACKENDS)
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


WRONG = {
    "input batch": ((6, 7, 3), (2, 4, 5)),
    "hidden batch": ((6, 4, 3), (2, 7, 5)),
    "input size": ((6, 4, 7), (2, 4, 5)),
    "hidden size": ((6, 4, 3), (2, 4, 7)),
    "layers": ((6, 4, 3), (7, 4, 5)),
}


@every_module
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("proj", [0, 2])
def test_wrong_shapes(name: str, wrong: str, proj: int) -> None:
    module, _ = MODULES[name]
    if proj and name != "lstm":
        proj = 0
    layer = module(3, 5, 2, proj_size=proj)
    shape, of_hidden = WRONG[wrong]
    bad = torch.randn(of_hidden)
    good = torch.randn(2, 4, 5)
    given = [bad] if name != "lstm" else [(bad, good), (good, bad), (bad, bad)]
    for hx in given:
        with pytest.raises(RuntimeError):
            layer(torch.randn(shape), hx)


@every_module
def test_wrong_sizes_are_named(name: str) -> None:
    layer = MODULES[name][0](10, 20, batch_first=True)
    wrong = torch.zeros(1, 2, 19)
    with pytest.raises(RuntimeError, match=r"Expected hidden.*size.*got"):
        layer(torch.randn(2, 3, 10), (wrong, wrong) if name == "lstm" else wrong)
    with pytest.raises(RuntimeError, match=re.escape("input.size(-1) must be equal to input_size")):
        layer(torch.randn(2, 3, 3))


@every_module
def test_other_devices(name: str) -> None:
    layer, x = MODULES[name][0](3, 5, 2), torch.randn(6, 4, 3)
    with pytest.raises(RuntimeError, match="Input and parameter tensors are not at the same device"):
        layer(x.to("meta"))
    away = torch.zeros(2, 4, 5, device="meta")
    with pytest.raises(RuntimeError, match="Input and hidden tensors are not at the same device"):
        layer(x, (away, away) if name == "lstm" else away)


@every_module
@every_backend
def test_zeros(name: str, backend: str) -> None:
    for options in ({}, {"bidirectional": True}, {"proj_size": 4}):
        if "proj_size" in options and name != "lstm":
            continue
        layer = MODULES[name][0](6, 8, 2, backend=backend, **options)
        x, zeros = torch.randn(5, 3, 6), tuple(torch.zeros_like(t) for t in flat(hidden(layer, 3)))
        same(layer(x, zeros if name == "lstm" else zeros[0]), layer(x), 0)


@pytest.mark.parametrize("name", ["gru", "rnn"])
def test_projection_of_others(name: str) -> None:
    with pytest.raises(ValueError, match="proj_size argument is only supported for LSTM"):
        MODULES[name][0](30, 20, 2, proj_size=10)


@every_module
@every_backend
def test_kept_graph(name: str, backend: str) -> None:
    layer = MODULES[name][0](6, 8, 2, backend=backend)
    output = layer(torch.randn(5, 3, 6, requires_grad=True))[0].sum()
    first, again = (torch.autograd.grad(output, list(layer.parameters()), retain_graph=keep) for keep in (True, False))
    same(first, again, 0)
    with pytest.raises(RuntimeError, match="a second time"):
        output.backward()


@every_module
@every_backend
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_rows(name: str, backend: str, bidirectional: bool) -> None:
    """Also with sequences in any order, and with initial states."""
    torch.manual_seed(0)
    layer = MODULES[name][0](3, 4, num_layers=2, bidirectional=bidirectional, backend=backend)
    lengths, x, hx = [7, 5, 1, 1], torch.randn(7, 4, 3), hidden(layer, 4)
    packed = pack_padded_sequence(x, torch.tensor(lengths))
    rows, last = layer(packed, hx)
    padded, _ = pad_packed_sequence(rows)
    for row, length in enumerate(lengths):
        states = [t[:, row : row + 1].contiguous() for t in flat(hx)]
        alone, end = layer(x[:length, row : row + 1], tuple(states) if name == "lstm" else states[0])
        same(padded[:length, row : row + 1], alone)
        same([t[:, row : row + 1] for t in flat(last)], end)
    order = [2, 0, 3, 1]
    other = pack_padded_sequence(x[:, order], torch.tensor(lengths)[order], enforce_sorted=False)
    shuffled = [t[:, order] for t in flat(hx)]
    again, end = layer(other, tuple(shuffled) if name == "lstm" else shuffled[0])
    same(pad_packed_sequence(again)[0], padded[:, order])
    same(end, [t[:, order] for t in flat(last)])


@every_module
@pytest.mark.parametrize("backend", ["auto", "alternating"])
def test_two_implementations(name: str, backend: str) -> None:
    """Every combination of bias, direction, order, strides and lengths, with gradients of all results."""
    torch.manual_seed(1)
    ours, theirs = MODULES[name]
    options: list[dict[str, Any]] = [{}] if name != "lstm" else [{}, {"proj_size": 3}]
    for bias, both, first, is_strided, is_packed in itertools.product(*[(False, True)] * 5):
        for extra in options:
            given = {**extra, "bias": bias, "batch_first": first, "bidirectional": both, "dtype": torch.float64}
            reference, layer = theirs(5, 6, 2, **given), ours(5, 6, 2, **given, backend=backend)
            layer.load_state_dict(reference.state_dict())
            x: Any = torch.randn(*((4, 5) if first else (5, 4)), 5, dtype=torch.float64)
            hx = hidden(layer, 4)
            if is_strided:
                x = torch.stack([torch.zeros_like(x), x], 3).select(3, 1)
            x = pack_padded_sequence(x, [5, 3, 3, 1], batch_first=first) if is_packed else x.requires_grad_()
            same(trained(layer, x, hx), trained(reference, x, hx), 1e-11)


@pytest.mark.parametrize("nonlinearity", ["tanh", "relu"])
def test_two_implementations_of_the_nonlinearity(nonlinearity: str) -> None:
    theirs = nn.RNN(5, 6, 2, nonlinearity)
    ours = RNN(5, 6, 2, nonlinearity)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 4, 5, requires_grad=True)
    same(trained(ours, x), trained(theirs, x))


@every_module
@every_backend
@pytest.mark.parametrize("bias", [True, False])
def test_grad_and_gradgrad(name: str, backend: str, bias: bool) -> None:
    layer = MODULES[name][0](4, 4, bias=bias, dtype=torch.float64, backend=backend)
    x = torch.rand(2, 3, 4, dtype=torch.float64, requires_grad=True)
    hx = hidden(layer, 3)

    def results(x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        return tuple(flat(layer(x, states if name == "lstm" else states[0])))

    operands = (x, *flat(hx))
    assert torch.autograd.gradcheck(results, operands, fast_mode=True)
    assert torch.autograd.gradgradcheck(results, operands, fast_mode=True)


@every_module
@every_backend
def test_samples(name: str, backend: str) -> None:
    """Unbatched input, in every combination of bias, order and direction, is a batch of one; results are of torch."""
    ours, theirs = MODULES[name]
    for bias, first, both, proj in itertools.product(*[(False, True)] * 3, (0, 2)):
        if proj and name != "lstm":
            continue
        extra = {"proj_size": proj} if proj else {}
        layer = ours(2, 3, 2, bias=bias, batch_first=first, bidirectional=both, backend=backend, **extra)
        reference = theirs(2, 3, 2, bias=bias, batch_first=first, bidirectional=both, **extra)
        layer.load_state_dict(reference.state_dict())
        x = torch.randn(3, 2, requires_grad=True)
        for hx in (None, hidden(layer)):
            same(trained(layer, x, hx), trained(reference, x, hx))
