"""LSTM with coupled input and forget gates (CIFG): what is forgotten makes room for what comes in.

Source: K. Greff and others, "LSTM: A Search Space Odyssey", IEEE Transactions on Neural Networks 28, 2017.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("f", "z", "o"), states=("h", "c"))
def cifg(g, s):
    z = tanh(g.z)
    c = z + sigmoid(g.f) * (s.c - z)
    return dict(c=c, h=sigmoid(g.o) * tanh(c))


def plain(w, r, s, p, x):
    f = torch.sigmoid(w["f"] + r("f", s.h))
    c = f * s.c + (1 - f) * torch.tanh(w["z"] + r("z", s.h))
    return {"h": torch.sigmoid(w["o"] + r("o", s.h)) * torch.tanh(c), "c": c}


CELLS = {cifg: plain}
