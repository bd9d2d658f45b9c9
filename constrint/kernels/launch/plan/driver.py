"""The GPU's driver through the compiled core: opened once, where there are a GPU, a core, and a torch that fits."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from constrint.core import compiled

#: The driver's library by torch's build.
LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}


@lru_cache(maxsize=1)
def driver() -> Any:
    """The driver's handle in the core; None where launches have to go through Triton."""
    if compiled is None or not torch.cuda.is_available():
        return None
    kind = "hip" if torch.version.hip else "cuda"
    try:
        return compiled.driver(kind, LIBRARIES[kind])
    except OSError:
        return None


@lru_cache(maxsize=1)
def reads_tensors() -> bool:
    """Whether the core can read torch's tensors (torch 2.10 and later offer DLPack's exchange interface)."""
    exchange = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if compiled is None or exchange is None:
        return False
    return bool(compiled.use_tensors(exchange, torch.Tensor, torch.nn.Parameter))


def fast_allocator() -> Any:
    """What makes a CUDA tensor from (shape, strides, dtype) at the least cost to the host."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    found = getattr(guards, "_empty_strided_cuda", None)
    return _empty if found is None else found


def _empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")
