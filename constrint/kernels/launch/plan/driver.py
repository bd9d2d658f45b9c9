"""Libraries that the compiled core calls: the GPU's driver, and the BLAS library that torch has loaded.

Products go through the handle that torch keeps for this thread and the current stream, so that they use torch's
workspace and are captured into graphs as torch's own products are.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache
from typing import Any

import torch

from constrint.core import compiled

#: The driver's library by torch's build.
LIBRARIES = {"cuda": "libcuda.so.1", "hip": "libamdhip64.so"}
#: Functions of cuBLAS that the core calls.
FUNCTIONS = ("cublasGemmEx", "cublasSetMathMode")
#: Other BLAS back-ends that torch can be set to, by torch's names.
OTHERS = ("Cublaslt", "Ck")


@lru_cache(maxsize=1)
def driver() -> Any:
    """Open the driver once and return its handle in the core; None where launches have to go through Triton."""
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
    """The function that allocates a CUDA tensor of (shape, strides, dtype) at the least cost to the host."""
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    allocate = getattr(guards, "_empty_strided_cuda", None)
    return _empty if allocate is None else allocate


def _empty(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.empty_strided(shape, strides, dtype=dtype, device="cuda")


def has_blas() -> bool:
    """Whether plans may call cuBLAS: the core has found it, and torch would call it, too."""
    if not _finds_cublas() or torch.cuda.tunable.is_enabled():
        return False
    backend = getattr(torch._C, "_get_blas_preferred_backend", None)
    return backend is None or backend().name not in OTHERS


@lru_cache(maxsize=1)
def _finds_cublas() -> bool:
    handle = getattr(torch._C, "_cuda_getCurrentBlasHandle", None)
    no_load = getattr(os, "RTLD_NOLOAD", None)
    version = torch.version.cuda
    if compiled is None or handle is None or no_load is None or version is None:
        return False
    if driver() is None or not reads_tensors():
        return False
    try:
        library = ctypes.CDLL(f"libcublas.so.{version.split('.')[0]}", mode=no_load | os.RTLD_NOW)
        addresses = [ctypes.cast(library[name], ctypes.c_void_p).value for name in FUNCTIONS]
    except (OSError, AttributeError):  # part of torch itself, or of another version
        return False
    multiply, set_math_mode = addresses
    if not multiply or not set_math_mode:
        return False
    compiled.use_blas(multiply, set_math_mode, handle)
    return True
