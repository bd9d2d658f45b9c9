"""Independent RNN: a unit sees its own state only, so there is no R.

Source: S. Li and others, "Independently Recurrent Neural Network (IndRNN)", CVPR 2018.
"""

import torch

from constrint.flashrnn.steps import cell, relu


@cell(gates=("g",), states=("h",), apart=("g",), parameters={"u": 1.0})
def indrnn(g, s, p):
    return dict(h=relu(g.g.input + p.u * s.h))


def plain(w, r, s, p, x):
    return {"h": torch.relu(w["g"] + p.u * s.h)}


CELLS = {indrnn: plain}
