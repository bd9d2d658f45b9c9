"""Twin-gated network (ATR): sum and difference of one pair W x and R h are both gates.

Source: B. Zhang and others, "Simplifying Neural Machine Translation with Addition-Subtraction Twin-Gated Recurrent
Networks", EMNLP 2018.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid


@cell(gates=("p",), states=("h",), apart=("p",))
def atr(g, s):
    w, u = g.p.input, g.p.recurrent
    return dict(h=sigmoid(w + u) * w + sigmoid(w - u) * s.h)


def plain(w, r, s, p, x):
    u = r("p", s.h)
    return {"h": torch.sigmoid(w["p"] + u) * w["p"] + torch.sigmoid(w["p"] - u) * s.h}


CELLS = {atr: plain}
