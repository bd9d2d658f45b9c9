"""The recurrent reference against torch's own cells and the plain formulas, in double precision, with its gradients."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cells import BUILT_IN, CELLS
from constrint.kernels.rnn.reference import rnn_reference, slstm_step
from constrint.kernels.rnn.spec import workload_of
from constrint.tune.check import Case

SIZES = {"B": 3, "T": 6, "N": 2, "D": 4}


def operands(cell: str, *, requires_grad: bool = False, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """wx, r, b and initial states of `SIZES`, in fp64; the normaliser of an sLSTM above 1."""
    generator = torch.Generator().manual_seed(seed)
    kind, (batch, time, heads, dim) = CELLS[cell], SIZES.values()

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    initial = draw(kind.num_states, batch, heads, dim)
    if cell == "slstm":
        initial[2] = initial[2].abs() + 1.1
    wx, r = draw(batch, time, kind.num_gates, heads, dim), draw(kind.num_gates, heads, dim, dim) / 2
    b = draw(kind.num_gates, heads, dim)
    for x in (wx, r, b, initial):
        x.requires_grad_(requires_grad)
    return wx, r, b, initial


@pytest.mark.parametrize(
    ("cell", "module"),
    [
        ("lstm", nn.LSTMCell),
        ("gru", nn.GRUCell),
        ("elman", nn.RNNCell),
        ("elman_relu", partial(nn.RNNCell, nonlinearity="relu")),
    ],
    ids=["lstm", "gru", "elman", "elman_relu"],
)
def test_equals_torch_cells_step_by_step(cell: str, module: Any) -> None:
    wx, r, b, initial = operands(cell)
    states, last = rnn_reference(cell, wx, r, b, initial)
    dim, gates = SIZES["D"], CELLS[cell].num_gates
    for head in range(SIZES["N"]):
        # The input weight is the identity, so the cell's input is wx itself.
        step = module(gates * dim, dim, dtype=torch.float64)
        with torch.no_grad():
            step.weight_ih.copy_(torch.eye(gates * dim))
            step.weight_hh.copy_(r[:, head].flatten(0, 1))
            step.bias_ih.zero_()
            step.bias_hh.copy_(b[:, head].flatten())
        hidden = tuple(initial[:, :, head])
        for t in range(SIZES["T"]):
            found = step(wx[:, t, :, head].flatten(1), hidden if len(hidden) == 2 else hidden[0])
            hidden = found if isinstance(found, tuple) else (found,)
            torch.testing.assert_close(states[:, :, t, head], torch.stack(hidden), rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(last[:, :, head], torch.stack(hidden), rtol=1e-12, atol=1e-12)


def test_slstm_equals_its_formula_without_the_stabiliser() -> None:
    wx, r, b, _ = operands("slstm")
    states, _ = rnn_reference("slstm", wx, r, b)
    h = torch.zeros(SIZES["B"], SIZES["N"], SIZES["D"], dtype=torch.float64)
    c, n = h.clone(), h.clone()
    for t in range(SIZES["T"]):
        i, f, z, o = (wx[:, t] + torch.einsum("gnoi,bni->bgno", r, h) + b).unbind(1)
        c = torch.sigmoid(f) * c + torch.exp(i) * torch.tanh(z)
        n = torch.sigmoid(f) * n + torch.exp(i)
        h = torch.sigmoid(o) * c / n
        torch.testing.assert_close(states[0, :, t], h, rtol=1e-12, atol=1e-12)
        # What is stored is c and n in units of exp(m).
        torch.testing.assert_close(states[1, :, t] * states[3, :, t].exp(), c, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(states[2, :, t] * states[3, :, t].exp(), n, rtol=1e-12, atol=1e-12)


def test_slstm_stays_finite_where_the_plain_formula_overflows() -> None:
    wx, r, b, _ = operands("slstm", requires_grad=True)
    states, _ = rnn_reference("slstm", 1000 * wx, r, b)
    states.sum().backward()  # type: ignore[no-untyped-call]
    assert states.isfinite().all()
    assert wx.grad is not None
    assert wx.grad.isfinite().all()


@pytest.mark.parametrize("masks", ["none", "both"])
@pytest.mark.parametrize("cell", BUILT_IN)
def test_gradients_are_right_twice(cell: str, masks: str) -> None:
    inputs = [x[:, :4] if i == 0 else x for i, x in enumerate(operands(cell))]
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    lengths = torch.tensor([4, 0, 3]) if masks == "both" else None
    reset = torch.zeros(3, 4, dtype=torch.bool)
    reset[0, 2] = reset[2, 3] = True

    def run(*x: Tensor) -> tuple[Tensor, Tensor]:
        return rnn_reference(cell, *x, lengths=lengths, reset=reset if masks == "both" else None)

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    if cell != "elman_relu":  # its second derivative is zero or undefined
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


def test_clip_limits_what_comes_back_through_r() -> None:
    """Two Elman steps, where the chain rule can be written down."""
    wx, r, b, _ = operands("elman", requires_grad=True)
    limit = 0.01
    states, _ = rnn_reference("elman", wx[:, :2], r, b, clip=limit)
    upstream = torch.randn(states.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad(states, wx, upstream)
    second = upstream[0, :, 1] * (1 - states[0, :, 1] ** 2)
    through = torch.einsum("noi,bno->bni", r[0], second)
    assert (through.abs() > limit).any()
    first = (upstream[0, :, 0] + through.clamp(-limit, limit)) * (1 - states[0, :, 0] ** 2)
    torch.testing.assert_close(found[:, 1, 0], second)
    torch.testing.assert_close(found[:, 0, 0], first)


def test_reset_is_an_empty_state_and_not_the_initial_one() -> None:
    wx, r, b, initial = operands("lstm")
    reset = torch.zeros(SIZES["B"], SIZES["T"], dtype=torch.bool)
    reset[:, 0] = reset[1, 3] = True
    found, _ = rnn_reference("lstm", wx, r, b, initial, reset=reset)
    fresh, _ = rnn_reference("lstm", wx, r, b)
    late, _ = rnn_reference("lstm", wx[:, 3:], r, b)
    assert torch.equal(found[:, [0, 2]], fresh[:, [0, 2]])
    assert torch.equal(found[:, 1, 3:], late[:, 1])


def test_states_of_half_precision_are_kept_in_single() -> None:
    wx, r, b, initial = operands("lstm")
    wx, r, b = (x.to(torch.bfloat16) for x in (wx, r, b))
    found, _ = rnn_reference("lstm", wx, r, b, initial.float())
    exact, _ = rnn_reference("lstm", wx.double(), r.double(), b.double(), initial)
    assert found.dtype == torch.bfloat16
    # Only the outputs are rounded to 8 bits; the initial states and the sums to 24.
    torch.testing.assert_close(found.double(), exact, rtol=2**-8, atol=1e-5)


def test_a_stabiliser_that_is_rounded_down_in_every_step_is_checked_against_the_same() -> None:
    batch, time, heads, dim = sizes = (16, 32, 4, 64)
    case = Case(load_spec("slstm.cuda"), load_gpu("h200"), workload_of("slstm", sizes, "bf16"), device="cpu")
    wx, r, bias = (case.inputs[name].float() for name in ("wx", "r", "bias"))
    # A step as kernels compute it: sums and states in fp32, h and the stabiliser in bf16.
    states = tuple(torch.zeros(batch, heads, dim) for _ in range(4))
    for t in range(time):
        hidden = states[0].bfloat16().float()
        sums = wx[:, t] + torch.einsum("gnoi,bni->bgno", r, hidden) + bias
        states = slstm_step(sums.unbind(1), (hidden, *states[1:]), torch.bfloat16)
        case.outputs["states"][:, :, t] = torch.stack(states).bfloat16()
    assert case.error() < 0.5
    # Without the rounding its drift alone takes more than half of the bound.
    exact = {name: value.double() for name, value in case.inputs.items()}
    smooth, _ = rnn_reference("slstm", exact["wx"], exact["r"], exact["bias"])
    case.outputs["states"].copy_(smooth)
    assert case.error() > 0.3
