"""A recurrence as a function of projected inputs: `rnn`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from constrint.flashrnn import checks
from constrint.flashrnn.observers import autocast_dtype, needs_plain_torch
from constrint.flashrnn.recurrence import Results, Way, by_plan, through_operator
from constrint.kernels.rnn.first_choice import AUTO
from constrint.kernels.rnn.reference import accumulation_dtype, rnn_reference


def rnn(
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor,  # (G, N, D out, D in)
    b: Tensor | None = None,  # (G, N, D)
    states: Tensor | None = None,  # (S, B, N, D) or (S, B, 1, N, D)
    *,
    cell: str = "lstm",
    lengths: Tensor | Sequence[int] | None = None,  # (B,)
    reset: Tensor | None = None,  # (B, T)
    backend: str = AUTO,
    gradient_recurrent_clip: float | None = None,
    recompute: bool | None = None,
    hidden_only: bool = False,
) -> tuple[Tensor, Tensor]:
    """Run a recurrent cell over time.

    Every gate's pre-activation is wx_t[g, n] + r[g, n] @ h_{t-1}[n] + b[g, n]; then comes the cell's pointwise step.
    States and sums are fp32 whatever the inputs' dtype (fp64 for fp64).

    Args:
        wx: Projected inputs, with the input's bias if there is one. B batch, T time, G gates, N heads, D head dim.
        r: Recurrent weights; heads do not see each other.
        b: Bias on the recurrent side; for the GRU's candidate it stands inside the product with the reset gate.
        states: States before the first step; zeros if None.
        cell: `lstm` (gates i, f, z, o; states h, c), `gru` (r, z, n; h), `slstm` (i, f, z, o; h, c, n, m),
            `elman` (one gate; h = tanh) or `elman_relu`.
        lengths: Steps of each sequence, 0..T. The result is that of each sequence alone: states past the end are
            zero, the last states are those at the end.
        reset: Where true, the state that enters the step is zero, so that documents can stand one after another.
        backend: `auto`, `cuda`, `triton`, `alternating` or `reference`; `plan(..., projected=True)` says which one
            `auto` is and why.
        gradient_recurrent_clip: Limit of the gradient's elements that reach h_{t-1} through `r`; None for none.
        recompute: Recompute the pre-activations in the backward pass instead of storing them; None lets the plan say
            (and stores them under torch.compile).

        hidden_only: Return h (B, T, N, D) instead of all states: gradients of the others then cost nothing.

    Returns:
        All states (S, B, T, N, D), `states[0]` being h, and the last states (S, B, 1, N, D). Passing the detached last
        states to the next call is truncated backpropagation through time.

    Raises:
        UsageError: For a shape, dtype, device or value that does not fit.
    """
    is_apart = needs_plain_torch()
    if not is_apart and backend != checks.REFERENCE and states is None and lengths is None and reset is None:
        # A signature that was seen before has been checked.
        clip = 0.0 if gradient_recurrent_clip is None else checks.check_clip(gradient_recurrent_clip)
        if not torch._C._is_any_autocast_enabled():
            way = Way(cell, backend, clip, recompute, hidden_only)
            known = by_plan(way, wx, r, b, is_checked=False)
            if known is not None:
                return known[0], _joined(known)
    kind = checks.check_cell(cell)
    checks.check_backend(backend, cell)
    backend = checks.REFERENCE if is_apart else backend
    wx = checks.check_wx(wx, kind)
    r = checks.check_tensor("r", r)
    wx, r = _autocast(wx, r)
    checks.check_fused(backend, wx)
    batch, time, gates, heads, dim = wx.shape
    checks.check_shape("r", r, (gates, heads, dim, dim), "(G, N, D, D)")
    checks.check_like("r", r, wx, dtype=True)
    if b is not None:
        checks.check_like("b", checks.check_dtype("b", checks.check_tensor("b", b)), wx)
        checks.check_shape("b", b, (gates, heads, dim), "(G, N, D)")
    start = None
    if states is not None:
        states = checks.check_states(states, (kind.num_states, batch, heads, dim), kind, wx)
        start = states[0] if states.dtype == wx.dtype else None
        states = states.to(accumulation_dtype(wx.dtype))
    steps = None if lengths is None else checks.check_lengths(lengths, batch, time, wx.device)
    reset = None if reset is None else checks.check_reset(reset, batch, time, wx)
    clip = checks.check_clip(gradient_recurrent_clip)
    if backend == checks.REFERENCE:
        checks.check_exported(time)
        every, last = rnn_reference(cell, wx, r, b, states, lengths=steps, reset=reset, clip=clip)
        return every[0] if hidden_only else every, last.unsqueeze(2)
    way = Way(cell, backend, clip, recompute, hidden_only)
    results = None
    if steps is None and reset is None:
        results = by_plan(way, wx, r, b, states, start, is_checked=True)
    if results is None:
        results = through_operator(way, wx, r, b, states, steps, reset)
    return results[0], _joined(results)


def _joined(results: Results) -> Tensor:
    """The last states as one tensor, (S, B, 1, N, D)."""
    _, end_h, end_rest = results
    last = end_h[None] if end_rest is None else torch.cat((end_h[None], end_rest))
    return last.unsqueeze(2)


def _autocast(wx: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    """Both in autocast's dtype where it is on (fp64 stays), as for a matrix product."""
    dtype = autocast_dtype(wx.device)
    if dtype is None or torch.float64 in (wx.dtype, r.dtype):
        return wx, r
    return wx.to(dtype), r.to(dtype)
