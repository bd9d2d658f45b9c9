"""Observers of a call (transforms, forward-mode AD, exports) that need torch's own operators, and autocast's dtype."""

from __future__ import annotations

import sys

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling


def needs_plain_torch() -> bool:
    """Whether a transform of torch.func, forward-mode AD or an ONNX export takes the computation apart.

    These know torch's own operators, so plain PyTorch runs then, whatever the back-end.
    """
    if is_exporting_onnx():
        return True
    return not is_compiling() and (torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0)


def is_exporting_onnx() -> bool:
    """Whether torch.onnx.export traces the call, in either of its ways; Dynamo, its last resort, cannot tell."""
    if torch.compiler.is_dynamo_compiling() or "torch.onnx" not in sys.modules:
        return False
    return torch.onnx.is_in_onnx_export()


def is_symbolic(size: object) -> bool:
    """Whether a size is symbolic: a graph is made for any value."""
    return isinstance(size, torch.SymInt)


def may_train(*tensors: Tensor | None) -> bool:
    """Whether a result of these tensors may need a gradient. A graph that torch.jit traces may be trained later."""
    if torch._C._get_tracing_state() is not None:
        return True
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


#: Kinds of devices that autocast knows; before 2.13 `torch.compile` cannot ask itself.
_HAVE_AUTOCAST = frozenset(kind for kind in ("cpu", "cuda", "xpu", "mps") if torch.amp.is_autocast_available(kind))


def autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype in which autocast has products run on a device; None where it is off, or the device has none."""
    kind = device.type
    if kind not in _HAVE_AUTOCAST or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind)
