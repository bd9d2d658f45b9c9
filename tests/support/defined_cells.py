"""Cells that are written in Python, and calls of them: every number of gates, slots and states that kernels take."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from constrint.kernels.rnn.cells import CELLS
from constrint.kernels.rnn.generated.register import register_cell
from constrint.kernels.rnn.language.backends import CellCall, CellGradients, CellResults
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.trace import (
    cell,
    erf,
    exp,
    log,
    log1p,
    logsigmoid,
    maximum,
    minimum,
    relu,
    rounded_down,
    rsqrt,
    sigmoid,
    softplus,
    sqrt,
    tanh,
    where,
)
from constrint.kernels.rnn.reference import accumulation_dtype, rnn_reference


@cell(gates=("i", "f", "z", "o"), states=("h", "c"))
def my_lstm(g: Any, s: Any) -> dict[str, Any]:
    """The LSTM under another name."""
    c = sigmoid(g.f) * s.c + sigmoid(g.i) * tanh(g.z)
    return {"c": c, "h": sigmoid(g.o) * tanh(c)}


@cell(gates=("r", "z", "n"), states=("h",), apart=("n",))
def my_gru(g: Any, s: Any) -> dict[str, Any]:
    """The GRU under another name: three gates, one of two parts."""
    n = tanh(g.n.input + sigmoid(g.r) * g.n.recurrent)
    return {"h": n + sigmoid(g.z) * (s.h - n)}


@cell(gates=("i", "f", "z", "o"), states=("h", "c", "n", "m"))
def my_slstm(g: Any, s: Any) -> dict[str, Any]:
    """The sLSTM under another name: four states."""
    kept, empty = logsigmoid(g.f) + s.m, s.n == 0
    m = rounded_down(where(empty, g.i, maximum(g.i, kept)))
    i, f = exp(g.i - m), where(empty, 0.0, exp(kept - m))
    c, n = f * s.c + i * tanh(g.z), maximum(f * s.n + i, 1.0)
    return {"c": c, "n": n, "m": m, "h": sigmoid(g.o) * c / n}


@cell(gates=("g",), states=("h",))
def my_elman(g: Any, s: Any) -> dict[str, Any]:
    """The Elman cell under another name: one gate."""
    return {"h": tanh(g.g)}


@cell(gates=("g",), states=("h",))
def my_elman_relu(g: Any, s: Any) -> dict[str, Any]:
    """The same with a rectifier."""
    return {"h": relu(g.g)}


@cell(gates=("i", "f", "z", "o"), states=("h", "c"))
def peephole(g: Any, s: Any, p: Any) -> dict[str, Any]:
    """An LSTM with peepholes: three elementwise parameters."""
    c = sigmoid(g.f + p.wf * s.c) * s.c + sigmoid(g.i + p.wi * s.c) * tanh(g.z)
    return {"c": c, "h": sigmoid(g.o + p.wo * c) * tanh(c)}


@cell(gates=("f", "z", "o"), states=("h", "c"))
def cifg(g: Any, s: Any) -> dict[str, Any]:
    """An LSTM whose input gate is the rest of the forget gate: three gates."""
    f = sigmoid(g.f)
    c = f * s.c + (1 - f) * tanh(g.z)
    return {"c": c, "h": sigmoid(g.o) * tanh(c)}


@cell(gates=("u", "c"), states=("h",))
def ugrnn(g: Any, s: Any) -> dict[str, Any]:
    """Two gates."""
    u = sigmoid(g.u)
    return {"h": u * s.h + (1 - u) * tanh(g.c)}


@cell(gates=("a",), states=("h",), apart=("a",))
def atr(g: Any, s: Any) -> dict[str, Any]:
    """One gate of two parts."""
    p, q = g.a.input, g.a.recurrent
    return {"h": sigmoid(p + q) * p + sigmoid(p - q) * s.h}


@cell(gates=("z", "a"), states=("h",), apart=("a",))
def two_apart(g: Any, s: Any) -> dict[str, Any]:
    """Two gates, one of two parts: three slots."""
    z = sigmoid(g.z)
    return {"h": z * s.h + (1 - z) * tanh(g.a.input + 0.5 * g.a.recurrent)}


@cell(gates=("a",), states=("h", "v", "w"), parameters={"k": ("unit", 0.3), "m": ("layer", 0.2)})
def three_states(g: Any, s: Any, p: Any) -> dict[str, Any]:
    """Three states, parameters of a unit and of a layer."""
    v = 0.9 * s.v + tanh(g.a) * p.k
    w = sigmoid(p.m) * s.w + 0.1 * softplus(v) * s.h
    return {"h": tanh(v + 0.5 * w), "v": v, "w": w}


@cell(gates=("a", "b"), states=("h", "c"))
def every_operation(g: Any, s: Any) -> dict[str, Any]:
    """All pointwise operations but `rounded_down`, which `my_slstm` has."""
    a = log1p(abs(g.a)) + sqrt(1 + g.b * g.b) + rsqrt(2 + abs(s.c)) + erf(g.a) + softplus(g.b) + logsigmoid(g.a)
    b = where(((g.a < 0) & ~(g.b <= 1)) | (g.a != g.a), minimum(a, s.h), maximum(a, relu(s.c)))
    c = log(1.5 + abs(b)) / (1 + exp(-abs(a))) - 0.1 * b
    return {"c": c, "h": tanh(b) * sigmoid(c)}


#: Defined cells by the name of the built-in cell that they are.
SAME = {"lstm": my_lstm, "gru": my_gru, "slstm": my_slstm, "elman": my_elman, "elman_relu": my_elman_relu}
#: Cells that no built-in one is.
OWN = {each.name: each for each in (peephole, cifg, ugrnn, atr, two_apart, three_states, every_operation)}
#: Rounded operands that one step's gradient is a product of, as in `rnn_cases`.
FACTORS = 8
ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def draw_call(
    definition: CellDefinition,
    sizes: tuple[int, int, int, int],
    dtype: torch.dtype,
    seed: int,
    *,
    optional: bool,
    device: str = "cpu",
) -> tuple[CellCall, tuple[Tensor, Tensor | None, Tensor]]:
    """A call of (B, T, N, D), and gradients of its results; `optional`: initial states, lengths, resets."""
    batch, time, heads, dim = sizes
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, of: torch.dtype = dtype) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device=device, dtype=of)

    gates, states, wide = len(definition.gates), len(definition.states), accumulation_dtype(dtype)
    shapes = {"unit": (heads, dim), "head": (heads, 1), "layer": (1, 1)}
    call = CellCall(
        definition,
        draw(batch, time, gates, heads, dim),
        draw(gates, heads, dim, dim) / (2 * dim**0.5),
        0.3 * draw(gates, heads, dim),
        0.5 * draw(states, batch, heads, dim, of=wide) if optional else None,
        tuple(0.5 * draw(*shapes[each.kind], of=wide) for each in definition.parameters),
        (),
        torch.randint(0, time + 1, (batch,), generator=generator).int().to(device) if optional else None,
        (torch.rand((batch, time), generator=generator) < 0.1).to(device) if optional else None,
    )
    rest = draw(states - 1, batch, time, heads, dim) if states > 1 else None
    return call, (draw(batch, time, heads, dim), rest, draw(states, batch, heads, dim))


def worst(
    call: CellCall, upstream: tuple[Any, Any, Any], made: CellResults, found: CellGradients
) -> tuple[float, float]:
    """The largest errors of values and of gradients over their bounds, against autograd over the reference in fp64.

    The bounds are those of `rnn_cases.check` for operands that are rounded before every product.
    """
    given = {"wx": call.wx, "r": call.r, "b": call.b, "initial": call.initial}
    exact: dict[str, Any] = {name: x.double().requires_grad_() for name, x in given.items() if x is not None}
    _, time, _, heads, dim = call.wx.shape
    packed = None
    if call.parameters:
        packed = torch.stack([each.double().expand(heads, dim) for each in call.parameters]).requires_grad_()
    name = register_cell(call.cell).name
    assert CELLS[name].definition is not None
    every, last = rnn_reference(name, **exact, lengths=call.lengths, reset=call.reset, params=packed)
    total = (every[0] * upstream[0].double()).sum()
    total = total if upstream[1] is None else total + (every[1:] * upstream[1].double()).sum()
    total = total if upstream[2] is None else total + (last * upstream[2].double()).sum()
    wanted = torch.autograd.grad(total, [*exact.values(), *([] if packed is None else [packed])])
    fine = ROUNDOFF[accumulation_dtype(call.wx.dtype)] * dim * time**0.5
    rounding = FACTORS * ROUNDOFF[call.wx.dtype]
    values = [(made.hidden, every[0]), (made.last, last), *(((made.rest, every[1:]),) if len(made.rest) else ())]
    of_values = max(_error(a, b.detach()) for a, b in values) / (rounding + fine)
    errors = [_error(getattr(found, name), wanted[i]) for i, name in enumerate(exact)]
    if packed is not None:
        for ours, theirs in zip(found.parameters, wanted[-1].unbind(0), strict=True):
            # What units share is a sum over them, which may cancel: its error is that of its terms.
            summed = theirs.numel() / ours.numel()
            difference = _largest(ours.double() - theirs.sum_to_size(ours.shape))
            errors.append(difference / (summed**0.5 * _largest(theirs)))
    return of_values, max(errors) / (rounding * time**0.5 + fine)


def _error(found: Tensor, exact: Tensor) -> float:
    """The largest difference over the largest value; infinite for a NaN."""
    return _largest(found.double() - exact) / max(_largest(exact), 1e-30)


def _largest(x: Tensor) -> float:
    return float(x.abs().nan_to_num(nan=torch.inf).max())
