"""One way to launch any kernel: its arguments, the device it is for, and what is done when it does not fit."""

from constrint.kernels.launch.triton import TritonKernelSpec, TritonLaunch

__all__ = ["TritonKernelSpec", "TritonLaunch"]
