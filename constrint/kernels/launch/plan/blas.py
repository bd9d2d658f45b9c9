"""The BLAS library that torch has loaded, called by plans: torch's own kernels, without what torch's dispatch takes.

Products go through the handle that torch keeps for this thread and the current stream, so that they have torch's
workspace, and are captured into graphs as torch's own are.
"""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

import torch

from constrint.core import compiled
from constrint.kernels.launch.plan.driver import driver, reads_tensors

#: What the core calls.
FUNCTIONS = ("cublasGemmEx", "cublasSetMathMode")
#: Libraries that torch may be told to call instead, by torch's names for them.
OTHERS = ("Cublaslt", "Ck")


def has_blas() -> bool:
    """Whether plans may call cuBLAS: the core has found it, and torch would call it, too."""
    if not _has_found() or torch.cuda.tunable.is_enabled():
        return False
    backend = getattr(torch._C, "_get_blas_preferred_backend", None)
    return backend is None or backend().name not in OTHERS


@lru_cache(maxsize=1)
def _has_found() -> bool:
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
