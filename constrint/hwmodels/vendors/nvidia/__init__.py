"""NVIDIA: its words, the keys of its SMs, occupancy, register files and what Triton reaches on its GPUs."""

from constrint.hwmodels.vendors.nvidia.vendor import Nvidia, NvidiaSm

__all__ = ["VENDOR", "Nvidia", "NvidiaSm"]

VENDOR = Nvidia()
