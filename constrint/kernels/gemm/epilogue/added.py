"""Types of results, of the bias and of the source matrix for the kernels in CUDA C++. Needs torch."""

from __future__ import annotations

import torch
from torch import Tensor

#: Names of the types of C, and of the bias and the source matrix.
OUTPUTS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.int32: "int32"}
ADDED = OUTPUTS | {torch.float64: "fp64"}


def as_added(t: Tensor | None) -> Tensor | None:
    """Convert a bias or a source matrix to a type that the kernels read; a bias also becomes contiguous."""
    if t is None:
        return None
    if t.dtype not in ADDED:
        t = t.float()
    return t.contiguous() if t.dim() == 1 else t


def name_of(t: Tensor | None) -> str:
    """Return the name of the type of a bias or a source matrix; empty for None."""
    return "" if t is None else ADDED[t.dtype]
