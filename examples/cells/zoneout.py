"""LSTM and GRU with zoneout: at random, units keep their state. The masks are inputs of the step: 1 keeps.

Source: D. Krueger and others, "Zoneout: Regularizing RNNs by Randomly Preserving Hidden Activations", ICLR 2017.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("i", "f", "z", "o"), states=("h", "c"), inputs={"keep_h": "unit", "keep_c": "unit"})
def zoneout_lstm(g, s, p, x):
    c = sigmoid(g.f) * s.c + sigmoid(g.i) * tanh(g.z)
    h = sigmoid(g.o) * tanh(c)
    return dict(c=x.keep_c * s.c + (1 - x.keep_c) * c, h=x.keep_h * s.h + (1 - x.keep_h) * h)


@cell(gates=("r", "z", "n"), states=("h",), apart=("n",), inputs={"keep": "unit"})
def zoneout_gru(g, s, p, x):
    n = tanh(g.n.input + sigmoid(g.r) * g.n.recurrent)
    h = n + sigmoid(g.z) * (s.h - n)
    return dict(h=x.keep * s.h + (1 - x.keep) * h)


def plain_lstm(w, r, s, p, x):
    i, f, o = (torch.sigmoid(w[gate] + r(gate, s.h)) for gate in "ifo")
    c = f * s.c + i * torch.tanh(w["z"] + r("z", s.h))
    return {"c": torch.lerp(c, s.c, x.keep_c), "h": torch.lerp(o * torch.tanh(c), s.h, x.keep_h)}


def plain_gru(w, r, s, p, x):
    reset, z = (torch.sigmoid(w[gate] + r(gate, s.h)) for gate in "rz")
    n = torch.tanh(w["n"] + reset * r("n", s.h))
    return {"h": torch.lerp((1 - z) * n + z * s.h, s.h, x.keep)}


CELLS = {zoneout_lstm: plain_lstm, zoneout_gru: plain_gru}
