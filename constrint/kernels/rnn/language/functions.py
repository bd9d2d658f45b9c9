"""The operations of a step as functions of tensors, for every evaluation of a tape in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from constrint.kernels.gemm.traced.reference import FUNCTIONS as SHARED


def rounded_down(x: Tensor, stored: torch.dtype | None) -> Tensor:
    """A value that `stored` represents and that is not above x; its derivative is that of x. None: x itself."""
    if stored is None or stored == x.dtype:
        return x
    detached = x.detach()
    # Slightly more than half a unit in the last place: the nearest representable value is not above x.
    rounded = (detached - 0.505 * torch.finfo(stored).eps * detached.abs()).to(stored).to(x.dtype)
    return x + (rounded - detached)


def straight_through(forward: Tensor, backward: Tensor) -> Tensor:
    """The value of `forward` with the gradient of `backward`, under autograd."""
    return forward.detach() + (backward - backward.detach())


#: Functions by operation. `rounded_down` needs the dtype of stored states, too; stages are no functions of one unit.
FUNCTIONS: dict[str, Callable[..., Tensor]] = SHARED | {
    "log1p": torch.log1p,
    "softplus": lambda x: -logsigmoid(-x),
    "logsigmoid": logsigmoid,
    "surrogate": straight_through,
}
