"""Our recurrent modules beside torch's: their states, results and gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from constrint.flashrnn import GRU, LSTM, RNN

#: Ours and torch's.
MODULES: dict[str, tuple[Any, Any]] = {"lstm": (LSTM, nn.LSTM), "gru": (GRU, nn.GRU), "rnn": (RNN, nn.RNN)}
#: Ours run by torch's kernels, by the loop, and by plain PyTorch.
BACKENDS = ("auto", "alternating", "reference")


def flat(value: Any) -> list[Tensor]:
    """All tensors of an argument or a result."""
    if value is None:
        return []
    if isinstance(value, Tensor):
        return [value]
    return [value.data] if isinstance(value, PackedSequence) else [tensor for part in value for tensor in flat(part)]


def hidden(module: Any, *batch: int) -> Any:
    """Random initial states; `batch` is empty for unbatched input."""
    rows, options = module.num_layers * (2 if module.bidirectional else 1), {"dtype": module.weight_ih_l0.dtype}
    h = torch.randn(rows, *batch, module.proj_size or module.hidden_size, **options).requires_grad_()
    if not module.mode.startswith("LSTM"):
        return h
    return h, torch.randn(rows, *batch, module.hidden_size, **options).requires_grad_()


def same(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    """Both agree, but for sums in another order."""
    torch.testing.assert_close(flat(ours), flat(theirs), rtol=tolerance, atol=tolerance)


def trained(module: Any, *call: Any) -> list[Tensor]:
    """Results, and gradients of all of them by what the call and the module hold."""
    results = flat(module(*call))
    leaves = [t for t in flat(call) if t.requires_grad] + list(module.parameters())
    weights = [torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape) for t in results]
    gradients = torch.autograd.grad(results, leaves, weights, allow_unused=True)
    return [*(t.detach() for t in results), *(g for g in gradients if g is not None)]
