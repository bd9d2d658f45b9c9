"""LSTM with layer norm on W x, on R h (each over all gates) and on the memory cell.

Source: J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", 2016, arXiv 1607.06450; parameters as in haste's
`LayerNormLSTM`. Take `bias=False` for the layer: the biases of the gates are parameters here, outside of the norms.
"""

import torch
from torch.nn.functional import layer_norm

from constrint.flashrnn.steps import cell, head_mean, rsqrt, sigmoid, tanh

GATES, EPSILON = ("i", "f", "z", "o"), 1e-5


def normed(values):
    """Values of all gates with mean 0 and variance 1 over gates and units."""
    mean = sum(head_mean(value) for value in values) / len(values)
    centred = [value - mean for value in values]
    scale = rsqrt(sum(head_mean(value * value) for value in centred) / len(values) + EPSILON)
    return [value * scale for value in centred]


@cell(
    gates=GATES,
    states=("h", "c"),
    apart=GATES,
    parameters={f"{sort}_{gate}": float(sort != "b") for sort in ("w", "r", "b") for gate in GATES}
    | {"w_c": 1.0, "b_c": 0.0},
)
def layer_norm_lstm(g, s, p):
    w = normed([g.i.input, g.f.input, g.z.input, g.o.input])
    r = normed([g.i.recurrent, g.f.recurrent, g.z.recurrent, g.o.recurrent])
    i = sigmoid(p.w_i * w[0] + p.r_i * r[0] + p.b_i)
    f = sigmoid(p.w_f * w[1] + p.r_f * r[1] + p.b_f)
    c = f * s.c + i * tanh(p.w_z * w[2] + p.r_z * r[2] + p.b_z)
    o = sigmoid(p.w_o * w[3] + p.r_o * r[3] + p.b_o)
    return dict(c=c, h=o * tanh(p.w_c * normed([c])[0] + p.b_c))


def plain(w, r, s, p, x):
    gains = [torch.cat([getattr(p, f"{sort}_{gate}") for gate in GATES]) for sort in ("w", "r", "b")]
    own, fed = torch.cat([w[gate] for gate in GATES], -1), torch.cat([r(gate, s.h) for gate in GATES], -1)
    sums = layer_norm(own, own.shape[-1:], gains[0], None, EPSILON) + gains[2]
    i, f, z, o = (sums + layer_norm(fed, fed.shape[-1:], gains[1], None, EPSILON)).chunk(4, -1)
    c = torch.sigmoid(f) * s.c + torch.sigmoid(i) * torch.tanh(z)
    return {"c": c, "h": torch.sigmoid(o) * torch.tanh(layer_norm(c, c.shape[-1:], p.w_c, p.b_c, EPSILON))}


CELLS = {layer_norm_lstm: plain}
