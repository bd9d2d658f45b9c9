"""Update gate RNN: an Elman step behind one gate.

Source: J. Collins, J. Sohl-Dickstein, D. Sussillo, "Capacity and Trainability in Recurrent Neural Networks", ICLR 2017.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("c", "u"), states=("h",))
def ugrnn(g, s):
    c = tanh(g.c)
    return dict(h=c + sigmoid(g.u) * (s.h - c))


def plain(w, r, s, p, x):
    u = torch.sigmoid(w["u"] + r("u", s.h))
    return {"h": u * s.h + (1 - u) * torch.tanh(w["c"] + r("c", s.h))}


CELLS = {ugrnn: plain}
