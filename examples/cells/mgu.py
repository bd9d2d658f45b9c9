"""Minimal gated unit: one gate, which acts on the state that R multiplies, too: two products a step.

Source: G.-B. Zhou and others, "Minimal Gated Unit for Recurrent Neural Networks", IJAC 13, 2016.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid, tanh


@cell(gates=("f", "h"), states=("h",), apart=("h",))
def mgu(g, s):
    f = sigmoid(g.f)
    candidate = tanh(g.h.input + g.h(f * s.h))
    return dict(h=s.h + f * (candidate - s.h))


def plain(w, r, s, p, x):
    f = torch.sigmoid(w["f"] + r("f", s.h))
    candidate = torch.tanh(w["h"] + r("h", f * s.h))
    return {"h": (1 - f) * s.h + f * candidate}


CELLS = {mgu: plain}
