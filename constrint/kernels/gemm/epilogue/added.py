"""Types of results and of what is added, by torch's names, for the kernels in CUDA C++. Needs torch."""

from __future__ import annotations

import torch
from torch import Tensor

#: Names of types of what leaves, and of what is added.
OUTPUTS = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32", torch.int32: "int32"}
ADDED = OUTPUTS | {torch.float64: "fp64"}


def as_added(t: Tensor | None) -> Tensor | None:
    """What is added, in a type that the kernels read; a bias has its elements next to each other."""
    if t is None:
        return None
    if t.dtype not in ADDED:
        t = t.float()
    return t.contiguous() if t.dim() == 1 else t


def name_of(t: Tensor | None) -> str:
    """The name of its type; empty for nothing."""
    return "" if t is None else ADDED[t.dtype]
