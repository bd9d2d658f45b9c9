"""The device that a program measures on. Needs torch."""

from __future__ import annotations

import torch

from constrint.hwmodels import GpuModel
from constrint.kernels.launch.device import gpu_of


def gpu_here() -> GpuModel:
    """The hardware model of this machine's GPU.

    Raises:
        SystemExit: When there is none.
    """
    gpu = gpu_of(torch.device("cuda"))
    if gpu is None:
        raise SystemExit("there is no hardware model of this device")
    return gpu
