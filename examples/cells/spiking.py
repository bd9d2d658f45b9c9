"""A spiking layer: leaky integrate-and-fire neurons with a surrogate gradient. R multiplies the spikes.

Source: E. O. Neftci, H. Mostafa, F. Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", IEEE Signal
Processing Magazine 36, 2019. The slope of a spike is 1 / (1 + 10 |v|)^2, that of v / (1 + 10 |v|).
"""

import torch

from constrint.flashrnn.steps import cell, surrogate, where

STEEP = 10.0


@cell(gates=("g",), states=("h", "i", "v"), parameters={"alpha": 0.8, "beta": 0.9})
def spiking(g, s, p):
    i = p.alpha * s.i + g.g
    v = (p.beta * s.v + i) * (1 - s.h)
    over = v - 1
    return dict(h=surrogate(where(over > 0, 1, 0), over / (1 + STEEP * abs(over))), i=i, v=v)


class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, over):
        ctx.save_for_backward(over)
        return (over > 0).to(over.dtype)

    @staticmethod
    def backward(ctx, d):
        (over,) = ctx.saved_tensors
        return d / (1 + STEEP * over.abs()) ** 2


def plain(w, r, s, p, x):
    i = p.alpha * s.i + w["g"] + r("g", s.h)
    v = (p.beta * s.v + i) * (1 - s.h)
    return {"h": Spike.apply(v - 1), "i": i, "v": v}


CELLS = {spiking: plain}
