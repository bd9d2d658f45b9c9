"""sLSTM as the `xlstm` package has it in its block: no lower limit of the normaliser, the first step by itself.

Source: M. Beck and others, "xLSTM: Extended Long Short-Term Memory", 2024, arXiv 2405.04517. A state with n = 0 is
empty; the package asks for all of them at once, so the two agree unless some units alone are empty.
"""

import torch
from torch.nn.functional import logsigmoid as log_sigmoid

from constrint.flashrnn.cells import run
from constrint.flashrnn.steps import cell, exp, logsigmoid, maximum, rounded_down, sigmoid, tanh, where


@cell(gates=("i", "f", "z", "o"), states=("h", "c", "n", "m"))
def xlstm_slstm(g, s):
    kept = logsigmoid(g.f) + s.m
    m = rounded_down(where(s.n == 0, g.i, maximum(g.i, kept)))
    i = exp(g.i - m)
    f = where(s.n == 0, 0, exp(kept - m))
    c, n = f * s.c + i * tanh(g.z), f * s.n + i
    return dict(h=sigmoid(g.o) * c / n, c=c, n=n, m=m)


def plain(w, r, s, p, x):
    raw = {gate: w[gate] + r(gate, s.h) for gate in "ifzo"}
    kept = s.m + log_sigmoid(raw["f"])
    m = raw["i"] if torch.all(s.n == 0) else torch.maximum(raw["i"], kept)
    i, f = torch.exp(raw["i"] - m), torch.exp(kept - m)
    c, n = f * s.c + i * torch.tanh(raw["z"]), f * s.n + i
    return {"h": torch.sigmoid(raw["o"]) * c / n, "c": c, "n": n, "m": m}


class InXlstm(torch.nn.Module):
    """The recurrence of the package's layer, on its parameters: `layer.slstm_cell = InXlstm(layer.slstm_cell)`."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, input, state=None, lengths=None):
        """Input (B, T, 4 * H); output (B, N, T, D) and states (4, B, H), as the package's cell has them."""
        own, config = self.cell, self.cell.config
        shape = config.num_heads, config.head_dim
        r = own._recurrent_kernel_int2ext(own._recurrent_kernel_).permute(2, 0, 3, 1)  # from (N, D in, 4, D out)
        b = own._bias_int2ext(own._bias_).transpose(0, 1)
        states = None if state is None else state.view(4, -1, *shape)
        hidden, last = run(xlstm_slstm, input.view(*input.shape[:2], 4, *shape), r, b, states, lengths=lengths)
        return hidden.transpose(1, 2), last.flatten(2)


CELLS = {xlstm_slstm: plain}
