"""The plain loop that the cells here are compared with: PyTorch's own operations and autograd, one step after another.

Beside its cell every file has `plain`, the step as it is published, on tensors (B, D):

    plain(w, r, s, p, x)    w["i"]: W x of gate i; r("i", h): R h + b; s.h: a state before; p.wf: a parameter;
                            x.mask: an input of the step. It returns the new states by name.
"""

from types import SimpleNamespace


def loop(cell, plain, wx, r, b, states, parameters, inputs):
    """All states after every step.

    Args:
        cell: The definition.
        plain: The published step.
        wx: By gate W x, (B, T, D).
        r, b: By gate R (D, D) and its bias (D,).
        states: By state the first value (B, D).
        parameters: By name (D,) or (1,).
        inputs: By name (B, T, D) or (B, T, 1).
    """
    shown = []
    for t in range(next(iter(wx.values())).shape[1]):
        states = plain(
            {gate: value[:, t] for gate, value in wx.items()},
            lambda gate, value: value @ r[gate].t() + b[gate],
            SimpleNamespace(**states),
            SimpleNamespace(**parameters),
            SimpleNamespace(**{name: value[:, t] for name, value in inputs.items()}),
        )
        shown.append(states)
    return {name: [each[name] for each in shown] for name in cell.states}
