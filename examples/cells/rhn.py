"""Recurrent highway network of depth 2: two highway layers in a step, so two products one after the other.

Source: J. G. Zilly and others, "Recurrent Highway Networks", ICML 2017, with the carry gate 1 - t.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("h1", "t1", "h2", "t2"), states=("h",), apart=("h2", "t2"))
def rhn(g, s):
    middle = s.h + sigmoid(g.t1) * (tanh(g.h1) - s.h)
    return dict(h=middle + sigmoid(g.t2(middle)) * (tanh(g.h2(middle)) - middle))


def plain(w, r, s, p, x):
    t = torch.sigmoid(w["t1"] + r("t1", s.h))
    middle = torch.tanh(w["h1"] + r("h1", s.h)) * t + s.h * (1 - t)
    t = torch.sigmoid(r("t2", middle))
    return {"h": torch.tanh(r("h2", middle)) * t + middle * (1 - t)}


CELLS = {rhn: plain}
