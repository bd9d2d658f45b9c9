"""Phased LSTM: a gate of time, an input of the step, lets states through while a unit is open.

Source: D. Neil, M. Pfeiffer, S.-C. Liu, "Phased LSTM", NeurIPS 2016.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("i", "f", "z", "o"), states=("h", "c"), inputs={"k": "unit"})
def phased_lstm(g, s, p, x):
    c = sigmoid(g.f + p.wf * s.c) * s.c + sigmoid(g.i + p.wi * s.c) * tanh(g.z)
    h = sigmoid(g.o + p.wo * c) * tanh(c)
    return dict(c=s.c + x.k * (c - s.c), h=s.h + x.k * (h - s.h))


def time_gate(times, period, shift, share, leak=0.001):
    """The gate k (B, T, D) at times (B, T), from the units' periods, shifts and open shares (D,) each."""
    phase = torch.remainder(times[..., None] - shift, period) / period
    rising, falling = 2 * phase / share, 2 - 2 * phase / share
    return torch.where(phase < share / 2, rising, torch.where(phase < share, falling, leak * phase))


def plain(w, r, s, p, x):
    i = torch.sigmoid(w["i"] + r("i", s.h) + p.wi * s.c)
    f = torch.sigmoid(w["f"] + r("f", s.h) + p.wf * s.c)
    new = f * s.c + i * torch.tanh(w["z"] + r("z", s.h))
    o = torch.sigmoid(w["o"] + r("o", s.h) + p.wo * new)
    return {"c": x.k * new + (1 - x.k) * s.c, "h": x.k * o * torch.tanh(new) + (1 - x.k) * s.h}


CELLS = {phased_lstm: plain}
