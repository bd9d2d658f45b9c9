"""The built-in cells, in the language of users' cells: one definition each, from which every body is written. No torch.

Gate orders are those of `torch.nn`: LSTM and sLSTM i, f, z, o (z is torch's g), GRU r, z, n.
"""

from __future__ import annotations

from typing import Any

from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.kernels.rnn.language.trace import (
    cell,
    exp,
    logsigmoid,
    maximum,
    relu,
    rounded_down,
    sigmoid,
    state_derivative,
    tanh,
    where,
)

Values = dict[str, Any]


@cell(gates=("i", "f", "z", "o"), states=("h", "c"))
def lstm(g: Any, s: Any) -> Values:
    """c' = f c + i z, h' = o tanh(c')."""
    i, f, z, o = sigmoid(g.i), sigmoid(g.f), tanh(g.z), sigmoid(g.o)
    c = f * s.c + i * z
    return {"h": o * tanh(c), "c": c}


@cell(gates=("r", "z", "n"), states=("h",), apart=("n",))
def gru(g: Any, s: Any) -> Values:
    """h' = z h + (1 - z) tanh(x_n + r (R_n h + b_n))."""
    r, z = sigmoid(g.r), sigmoid(g.z)
    n = tanh(g.n.input + r * g.n.recurrent)
    return {"h": n + z * (s.h - n)}


@cell(gates=("i", "f", "z", "o"), states=("h", "c", "n", "m"), name="slstm")
def slstm_step(g: Any, s: Any) -> Values:
    """Exponential input gate with stabiliser m and normaliser n; a state with n = 0 is empty.

    m is rounded to the stored type before it is used: it is only a common scale of c and n, and the backward pass has
    to see the one that they were computed with. It is rounded down, so that n stays at least 1 where it is in exact
    arithmetic.
    """
    kept, is_empty = logsigmoid(g.f) + s.m, s.n == 0
    m = rounded_down(where(is_empty, g.i, maximum(g.i, kept)))
    i, f = exp(g.i - m), where(is_empty, 0, exp(kept - m))
    c, n = f * s.c + i * tanh(g.z), maximum(f * s.n + i, 1)
    return {"h": sigmoid(g.o) * c / n, "c": c, "n": n, "m": m}


@state_derivative(slstm_step)
def slstm(g: Any, s: Any, new: Any, d: Any, only_h: Any) -> Values:
    """Through the stabiliser too, which matters where m, c or n get gradients of their own.

    c, n and m can be rescaled together without a change of h, so that two terms of dm cancel. They do so in every step
    only if the stored c and n are used: recomputed ones are rounded differently. Where only h has gradients, all that
    reaches m cancels; `only_h` puts the zero in, and n below 1 by no more than a rounding to 16 bits counts as 1.
    """
    kept, is_empty = logsigmoid(g.f) + s.m, s.n == 0
    i, f, z, o = exp(g.i - new.m), where(is_empty, 0, exp(kept - new.m)), tanh(g.z), sigmoid(g.o)
    is_least = f * s.n + i < where(only_h, 1 - 2**-6, 1)
    share = 1 / maximum(new.n, 1)  # padding has zeros
    ratio = new.c * share
    dc = d.c + d.h * o * share
    dn = where(is_least, 0, d.n - d.h * o * ratio * share)
    dm = where(only_h & ~is_least, 0, d.m - dc * new.c - dn * new.n)
    from_input = is_empty | (g.i >= kept)
    di = (dc * z + dn) * i + where(from_input, dm, 0)
    df = (dc * s.c + dn * s.n) * f + where(from_input, 0, dm)
    gates = {"i": di, "f": df * sigmoid(-g.f), "z": dc * i * (1 - z * z), "o": d.h * ratio * o * (1 - o)}
    return gates | {"h": 0, "c": dc * f, "n": dn * f, "m": df}


@cell(gates=("g",), states=("h",))
def elman(g: Any, s: Any) -> Values:
    """h' = tanh(g)."""
    return {"h": tanh(g.g)}


@cell(gates=("g",), states=("h",))
def elman_relu(g: Any, s: Any) -> Values:
    """h' = max(g, 0)."""
    return {"h": relu(g.g)}


EQUATIONS: dict[str, CellDefinition] = {each.name: each for each in (lstm, gru, slstm, elman, elman_relu)}
