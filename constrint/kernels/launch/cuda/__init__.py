"""Kernels in CUDA C++: compiled by NVRTC for a named GPU, launched through the driver, ranked and tuned like any."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.kernels.launch.cuda.loaded import obstacle
    from constrint.kernels.launch.cuda.nvrtc import CudaSource, compile_cuda
    from constrint.kernels.launch.cuda.source_spec import CudaKernelSpec, CudaLaunch
    from constrint.kernels.launch.cuda.tensor_map import TensorMap
    from constrint.kernels.launch.cuda.tune_params import spec_from_tune_params

__all__ = [
    "CudaKernelSpec",
    "CudaLaunch",
    "CudaSource",
    "TensorMap",
    "compile_cuda",
    "obstacle",
    "spec_from_tune_params",
]

__getattr__ = lazily(
    __name__,
    {
        "loaded": ("obstacle",),
        "nvrtc": ("CudaSource", "compile_cuda"),
        "source_spec": ("CudaKernelSpec", "CudaLaunch"),
        "tensor_map": ("TensorMap",),
        "tune_params": ("spec_from_tune_params",),
    },
)
