"""FastGRNN: gate and candidate share W and R, and differ in their biases.

Source: A. Kusupati and others, "FastGRNN", NeurIPS 2018; first values as in Microsoft's EdgeML.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(
    gates=("u",),
    states=("h",),
    parameters={"bz": 1.0, "bh": 1.0, "zeta": ("layer", 1.0), "nu": ("layer", -4.0)},
)
def fastgrnn(g, s, p):
    z = sigmoid(g.u + p.bz)
    return dict(h=z * s.h + (sigmoid(p.zeta) * (1 - z) + sigmoid(p.nu)) * tanh(g.u + p.bh))


def plain(w, r, s, p, x):
    both = w["u"] + r("u", s.h)
    z, candidate = torch.sigmoid(both + p.bz), torch.tanh(both + p.bh)
    return {"h": (torch.sigmoid(p.zeta) * (1 - z) + torch.sigmoid(p.nu)) * candidate + z * s.h}


CELLS = {fastgrnn: plain}
