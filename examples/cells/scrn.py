"""Structurally constrained network: a slow context c beside the state, which the state reads through a matrix.

Gate c has no R of the state, gate p no W of the input: R of gate p multiplies the new context, a second product.
Source: T. Mikolov and others, "Learning Longer Memory in Recurrent Neural Networks", 2014, arXiv 1412.7753.
"""

import torch

from constrint.flashrnn.steps import cell, sigmoid

KEPT = 0.95


@cell(gates=("h", "c", "p"), states=("h", "c"), apart=("c", "p"))
def scrn(g, s):
    c = (1 - KEPT) * g.c.input + KEPT * s.c
    return dict(h=sigmoid(g.h + g.p(c)), c=c)


def plain(w, r, s, p, x):
    c = (1 - KEPT) * w["c"] + KEPT * s.c
    return {"h": torch.sigmoid(r("p", c) + w["h"] + r("h", s.h)), "c": c}


CELLS = {scrn: plain}
