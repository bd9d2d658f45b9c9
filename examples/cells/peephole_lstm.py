"""LSTM with peepholes: gates see the memory cell.

Source: F. A. Gers, J. Schmidhuber, "Recurrent nets that time and count", IJCNN 2000.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("i", "f", "z", "o"), states=("h", "c"))
def peephole_lstm(g, s, p):
    c = sigmoid(g.f + p.wf * s.c) * s.c + sigmoid(g.i + p.wi * s.c) * tanh(g.z)
    return dict(c=c, h=sigmoid(g.o + p.wo * c) * tanh(c))


def plain(w, r, s, p, x):
    i, f = (torch.sigmoid(w[k] + r(k, s.h) + peep * s.c) for k, peep in (("i", p.wi), ("f", p.wf)))
    c = f * s.c + i * torch.tanh(w["z"] + r("z", s.h))
    o = torch.sigmoid(w["o"] + r("o", s.h) + p.wo * c)
    return {"h": o * torch.tanh(c), "c": c}


CELLS = {peephole_lstm: plain}
