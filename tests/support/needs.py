"""What a test needs of the machine, as marks that skip it with the reason."""

from __future__ import annotations

import importlib.util
from functools import cache

import pytest


def missing_packages(*names: str) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


@cache
def gpu_capability() -> tuple[int, int] | None:
    """Compute capability of this machine's GPU; None where there is none."""
    if missing_packages("torch"):
        return None
    import torch

    return torch.cuda.get_device_capability() if torch.cuda.is_available() else None


@cache
def has_nvrtc() -> bool:
    """Whether kernels in CUDA C++ can be compiled here."""
    if missing_packages("cuda"):
        return False
    from constrint.errors import UsageError
    from constrint.kernels.launch.cuda.nvrtc import nvrtc_version

    try:
        return bool(nvrtc_version())
    except UsageError:
        return False


needs_torch = pytest.mark.skipif(bool(missing_packages("torch")), reason="needs the extra [torch]")
needs_openai = pytest.mark.skipif(
    bool(missing_packages("openai")), reason="the client goes through the openai package, which is not installed"
)
needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="needs the extra [cuda]: NVRTC is not installed")
needs_triton = pytest.mark.skipif(
    bool(missing_packages("torch", "triton")), reason="needs the extra [torch]: torch or triton is not installed"
)
needs_gpu = pytest.mark.skipif(gpu_capability() is None, reason="needs a GPU")
needs_hopper = pytest.mark.skipif(gpu_capability() != (9, 0), reason="needs a Hopper GPU")
