"""Light GRU: no reset gate, a rectifier for tanh; the batch norm of the input's part goes into W x.

Source: M. Ravanelli and others, "Light Gated Recurrent Units for Speech Recognition", IEEE TETCI 2, 2018.
"""

import torch

from constrint.flashrnn.steps import cell, relu, sigmoid


@cell(gates=("z", "h"), states=("h",))
def ligru(g, s):
    candidate = relu(g.h)
    return dict(h=candidate + sigmoid(g.z) * (s.h - candidate))


def plain(w, r, s, p, x):
    z = torch.sigmoid(w["z"] + r("z", s.h))
    return {"h": z * s.h + (1 - z) * torch.relu(w["h"] + r("h", s.h))}


CELLS = {ligru: plain}
