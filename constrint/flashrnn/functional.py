"""A recurrence as a function of projected inputs: `rnn`, and `why` with the decision behind a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from constrint.choose import Decision
from constrint.choose.explain import explained
from constrint.flashrnn import checks
from constrint.flashrnn.recurrence import RnnOptions, recur
from constrint.kernels.rnn.dispatch import AUTO, request_for
from constrint.kernels.rnn.plans import FORWARD, Forward


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
    config: Mapping[str, Mapping[str, int]] | None = None,
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
        backend: `auto`, `cuda`, `triton`, `wgmma`, `alternating` or `reference`; `rnn.why` prints which one `auto`
            takes and why.
        config: Parameters to force by direction, `{"forward": {"tile_batch": 16}}`; the others are chosen. Values that
            no valid configuration has are refused with the rules that conflict.
        gradient_recurrent_clip: Limit of the gradient's elements that reach h_{t-1} through `r`; None for none.
        recompute: Recompute the pre-activations in the backward pass instead of storing them; None leaves that to the
            decision (and stores them under torch.compile).
        hidden_only: Return h (B, T, N, D) instead of all states: gradients of the others then cost nothing.

    Returns:
        All states (S, B, T, N, D), `states[0]` being h, and the last states (S, B, 1, N, D). Passing the detached last
        states to the next call is truncated backpropagation through time.

    Raises:
        UsageError: For a shape, dtype, device or value that does not fit.
        InfeasibleError: When no valid configuration has the values of `config`; carries the conflict.
    """
    clip = checks.check_clip(gradient_recurrent_clip)
    configs = () if config is None else checks.check_configs(config)
    options = RnnOptions(cell, backend, clip, recompute, hidden_only, configs)
    every, end_h, end_rest = recur(options, wx, r, b, states, lengths, reset)
    last = end_h[None] if end_rest is None else torch.cat((end_h[None], end_rest))
    return every, last.unsqueeze(2)


def why(
    wx: Tensor,  # (B, T, G, N, D)
    r: Tensor | None = None,  # (G, N, D, D)
    b: Tensor | None = None,  # (G, N, D)
    *_: Any,
    cell: str = "lstm",
    backend: str = AUTO,
    config: Mapping[str, Mapping[str, int]] | None = None,
    **__: Any,
) -> Decision:
    """The decision for a call of `rnn` with these arguments; it prints. Nothing is run.

    Batch sizes up to the next power of two, and all lengths, share a decision. On a GPU it names the plan that a call
    without initial states has recorded.

    Raises:
        UsageError: For a cell, back-end or wx that does not fit.
        InfeasibleError: When no valid configuration has the values of `config`; carries the conflict.
    """
    checks.check_backend(backend, cell)
    wx = checks.check_wx(wx, checks.check_cell(cell))
    configs = checks.check_configs(config)
    decision = explained(request_for(cell, wx, backend, configs))
    if not wx.is_cuda or r is None:
        return decision
    trains = torch.is_grad_enabled() and (wx.requires_grad or r.requires_grad)
    extra = Forward(cell, backend, trains, None, configs)
    return replace(decision, recorded=FORWARD.note(extra, wx, r, b, None, None))


rnn.why = why  # type: ignore[attr-defined]
