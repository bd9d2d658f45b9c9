"""Pointwise steps of the cells in plain PyTorch, on buffers of many time steps.

A step is a handful of calls on views that were made before the loop. Forward it writes the states after it. Backward
every gradient is linear in those of the states, so their factors are computed for many steps at once, and a step
multiplies. The forward formulas stand in `kernels.rnn.reference`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

States = tuple[Tensor, ...]
Bases = tuple[Tensor | None, ...]


class ForwardStep(Protocol):
    """One cell over all steps; made from the pre-activations (T, N, B, G, D), which the loop completes step by step.

    Args of a call:
        t: The step.
        before: States before it, (N, B, D) each.
        may_be_empty: Whether some of these may have seen nothing yet.

    A call writes the states after the step, and returns views of them.
    """

    def __call__(self, t: int, before: States, *, may_be_empty: bool) -> States:
        """Run step `t`."""


def lstm_forward(x: Tensor, candidate: Tensor | None, states: Tensor, stored: torch.dtype) -> ForwardStep:
    """c' = f c + i z, h' = o tanh(c')."""
    gates = torch.empty_like(x[0])
    i, f, _, o = gates.unbind(2)
    p, z = x.unbind(0), x[:, :, :, 2].unbind(0)
    h, c = (state.unbind(0) for state in states)

    def step(t: int, before: States, *, may_be_empty: bool) -> States:
        torch.sigmoid(p[t], out=gates)
        torch.mul(f, before[1], out=c[t]).addcmul_(i, torch.tanh(z[t]))
        torch.mul(o, torch.tanh(c[t]), out=h[t])
        return h[t], c[t]

    return step


def gru_forward(x: Tensor, candidate: Tensor | None, states: Tensor, stored: torch.dtype) -> ForwardStep:
    """h' = n + z (h - n), n = tanh(candidate + r p2)."""
    assert candidate is not None
    gates = torch.empty_like(x[0, :, :, :2])
    r, z = gates.unbind(2)
    p, inner, outer, h = x[:, :, :, :2].unbind(0), x[:, :, :, 2].unbind(0), candidate.unbind(0), states[0].unbind(0)

    def step(t: int, before: States, *, may_be_empty: bool) -> States:
        torch.sigmoid(p[t], out=gates)
        n = torch.addcmul(outer[t], r, inner[t]).tanh_()
        torch.lerp(n, before[0], z, out=h[t])
        return (h[t],)

    return step


def slstm_forward(x: Tensor, candidate: Tensor | None, states: Tensor, stored: torch.dtype) -> ForwardStep:
    """One sLSTM step, like the reference's; m is rounded to the dtype of its storage before its use."""
    p_i, p_f, p_z, p_o = (gate.unbind(0) for gate in x.unbind(3))
    h, c, n, m = (state.unbind(0) for state in states)
    is_rounded = stored != states.dtype
    # Slightly more than half a unit in the last place: the nearest representable value is not above m.
    share = 0.505 * torch.finfo(stored).eps

    def step(t: int, before: States, *, may_be_empty: bool) -> States:
        kept = logsigmoid(p_f[t]).add_(before[3])
        torch.maximum(p_i[t], kept, out=m[t])
        empty = before[2] == 0 if may_be_empty else None
        if empty is not None:
            m[t].copy_(torch.where(empty, p_i[t], m[t]))
        if is_rounded:
            m[t].copy_(torch.sub(m[t], m[t].abs(), alpha=share).to(stored))
        i, f = torch.sub(p_i[t], m[t]).exp_(), kept.sub_(m[t]).exp_()
        if empty is not None:
            f.masked_fill_(empty, 0)
        torch.mul(f, before[1], out=c[t]).addcmul_(i, torch.tanh(p_z[t]))
        torch.addcmul(i, f, before[2], out=n[t]).clamp_(min=1)
        torch.sigmoid(p_o[t], out=h[t]).mul_(c[t]).div_(n[t])
        return h[t], c[t], n[t], m[t]

    return step


def elman_forward(x: Tensor, candidate: Tensor | None, states: Tensor, stored: torch.dtype) -> ForwardStep:
    """h' = tanh(g)."""
    p, h = x[:, :, :, 0].unbind(0), states[0].unbind(0)

    def step(t: int, before: States, *, may_be_empty: bool) -> States:
        return (torch.tanh(p[t], out=h[t]),)

    return step


def elman_relu_forward(x: Tensor, candidate: Tensor | None, states: Tensor, stored: torch.dtype) -> ForwardStep:
    """h' = max(g, 0)."""
    p, h = x[:, :, :, 0].unbind(0), states[0].unbind(0)

    def step(t: int, before: States, *, may_be_empty: bool) -> States:
        return (torch.clamp(p[t], min=0, out=h[t]),)

    return step


#: By cell: from the pre-activations (T, N, B, G, D), the input's part of a candidate that is kept apart (T, N, B, D),
#: the states to write (S, T, N, B, D), and the dtype in which states are stored.
FORWARD: dict[str, Callable[[Tensor, Tensor | None, Tensor, torch.dtype], ForwardStep]] = {
    "lstm": lstm_forward,
    "gru": gru_forward,
    "slstm": slstm_forward,
    "elman": elman_forward,
    "elman_relu": elman_relu_forward,
}

#: One step backwards, from its index, the gradients of the states after it, and what else the gradients of the states
#: before it are to hold (None: nothing). It turns the factors of the step into gradients in place. It returns the
#: gradients of h (None: nothing) and of the other states before it, without what flows through the recurrent weights.
BackwardStep = Callable[[int, States, Bases], tuple[Tensor | None, States]]
#: The states of one number, K steps of them: (K, N, B, D).
Read = Callable[[int], Tensor]


def _plus(base: Tensor | None, a: Tensor, b: Tensor) -> Tensor:
    """The sum of `base` and a * b."""
    return a * b if base is None else torch.addcmul(base, a, b)


def _slope(sigmoid: Tensor) -> Tensor:
    """The derivative of the logistic function from its value."""
    return torch.addcmul(sigmoid, sigmoid, sigmoid, value=-1)


def lstm_backward(p: Tensor, candidate: Tensor | None, before: Read, after: Read, least: float) -> BackwardStep:
    """c' = f c + i z, h' = o tanh(c')."""
    i, f, _, o = torch.sigmoid(p).unbind(3)
    z, u = torch.tanh(p[:, :, :, 2]), torch.tanh(after(1))
    torch.mul(_slope(i), z, out=p[:, :, :, 0])
    torch.mul(_slope(f), before(1), out=p[:, :, :, 1])
    torch.addcmul(i, i * z, z, value=-1, out=p[:, :, :, 2])
    torch.mul(_slope(o), u, out=p[:, :, :, 3])
    share, forget = torch.addcmul(o, o * u, u, value=-1).unbind(0), f.unbind(0)
    of_c, of_h = p[:, :, :, :3].unbind(0), p[:, :, :, 3].unbind(0)

    def step(t: int, d: States, base: Bases) -> tuple[Tensor | None, States]:
        dc = torch.addcmul(d[1], d[0], share[t])
        of_c[t].mul_(dc.unsqueeze(2))
        of_h[t].mul_(d[0])
        return base[0], (_plus(base[1], dc, forget[t]),)

    return step


def gru_backward(p: Tensor, candidate: Tensor | None, before: Read, after: Read, least: float) -> BackwardStep:
    """h' = z h + (1 - z) n, n = tanh(candidate + r p2)."""
    assert candidate is not None
    r, z = torch.sigmoid(p[:, :, :, :2]).unbind(3)
    inner = p[:, :, :, 2]
    n = torch.addcmul(candidate, r, inner).tanh_()
    torch.mul(_slope(z), before(0) - n, out=p[:, :, :, 1])
    rest = 1 - z
    torch.addcmul(rest, rest * n, n, value=-1, out=candidate)
    torch.mul(_slope(r), inner, out=p[:, :, :, 0]).mul_(candidate)
    torch.mul(candidate, r, out=inner)
    recurrent, own, keep = p.unbind(0), candidate.unbind(0), z.unbind(0)

    def step(t: int, d: States, base: Bases) -> tuple[Tensor | None, States]:
        recurrent[t].mul_(d[0].unsqueeze(2))
        own[t].mul_(d[0])
        return _plus(base[0], d[0], keep[t]), ()

    return step


def slstm_backward(p: Tensor, candidate: Tensor | None, before: Read, after: Read, least: float) -> BackwardStep:
    """Through the stabiliser m too: it matters where c, n or m get gradients of their own.

    n below `least` was clamped to 1; `least` is less than 1 by what rounding the stored values can do.
    """
    p_i, p_f, p_z, p_o = p.unbind(3)
    s_c, s_n, s_m, q_c, q_n = after(1), after(2).clamp(min=1), after(3), before(1), before(2)
    kept = logsigmoid(p_f).add_(before(3))
    empty = q_n == 0
    i, f = torch.exp(p_i - s_m), torch.exp(kept - s_m).masked_fill_(empty, 0)
    z, o = torch.tanh(p_z), torch.sigmoid(p_o)
    ratio = s_c / s_n
    is_free = torch.addcmul(i, f, q_n) >= least  # n was not clamped
    # c, n and m can be rescaled together without a change of h, so two terms of dm cancel. They do so in every step
    # only if the stored c and n are used: recomputed ones are rounded differently.
    is_input = (empty | (p_i >= kept)).to(p.dtype)
    torch.sigmoid(-p_f, out=p_f)
    torch.addcmul(i, i * z, z, value=-1, out=p_z)
    torch.mul(_slope(o), ratio, out=p_o)
    share = o / s_n
    per_step = (
        share, -share * ratio * is_free, is_free.to(p.dtype), s_c, s_n, i * z, i, is_input, f * q_c, f * q_n, f, p_i,
        p_f, p_z, p_o,
    )  # fmt: skip
    rows = list(zip(*(factor.unbind(0) for factor in per_step), strict=True))

    def step(t: int, d: States, base: Bases) -> tuple[Tensor | None, States]:
        to_c, h_to_n, free, c, n, c_to_i, n_to_i, from_input, c_to_f, n_to_f, forget, g_i, g_f, g_z, g_o = rows[t]
        dc = torch.addcmul(d[1], d[0], to_c)
        dn = (d[2] * free).addcmul_(d[0], h_to_n)
        dm = torch.addcmul(d[3], dc, c, value=-1).addcmul_(dn, n, value=-1)
        of_input = dm * from_input
        kept = dm.sub_(of_input).addcmul_(dc, c_to_f).addcmul_(dn, n_to_f)
        torch.addcmul(of_input, dc, c_to_i, out=g_i).addcmul_(dn, n_to_i)
        g_f.mul_(kept)
        g_z.mul_(dc)
        g_o.mul_(d[0])
        of_n = _plus(base[2], dn, forget)
        return base[0], (_plus(base[1], dc, forget), of_n, kept if base[3] is None else kept.add_(base[3]))

    return step


def elman_backward(p: Tensor, candidate: Tensor | None, before: Read, after: Read, least: float) -> BackwardStep:
    """h' = tanh(g)."""
    h = torch.tanh(p)
    torch.mul(h, h, out=p).neg_().add_(1)
    return _elman_step(p)


def elman_relu_backward(p: Tensor, candidate: Tensor | None, before: Read, after: Read, least: float) -> BackwardStep:
    """h' = max(g, 0)."""
    p.copy_(p > 0)
    return _elman_step(p)


def _elman_step(p: Tensor) -> BackwardStep:
    factors = p[:, :, :, 0].unbind(0)

    def step(t: int, d: States, base: Bases) -> tuple[Tensor | None, States]:
        factors[t].mul_(d[0])
        return base[0], ()

    return step


#: By cell: from K steps' pre-activations (K, N, B, G, D) and the input's part of a candidate that is kept apart
#: (K, N, B, D), both of which become factors and then gradients; the states before and after these steps; and `least`.
BACKWARD: dict[str, Callable[[Tensor, Tensor | None, Read, Read, float], BackwardStep]] = {
    "lstm": lstm_backward,
    "gru": gru_backward,
    "slstm": slstm_backward,
    "elman": elman_backward,
    "elman_relu": elman_relu_backward,
}
