"""GPU models: facts with their sources, occupancy, roofline, and detection of the devices of this machine.

`load_gpu("h200")` gives a `GpuModel`; `occupancy(gpu, ...)` says how many blocks one SM holds and why no more.
Nothing here needs a GPU.
"""

from constrint.hwmodels.load import list_gpus, load_all, load_gpu
from constrint.hwmodels.model import (
    DTYPES,
    AmdCu,
    Arch,
    CacheLevel,
    Compute,
    Device,
    Dram,
    GpuModel,
    MatrixInstruction,
    Memory,
    NvidiaSm,
)
from constrint.hwmodels.occupancy import Occupancy, occupancy

__all__ = [
    "DTYPES",
    "AmdCu",
    "Arch",
    "CacheLevel",
    "Compute",
    "Device",
    "Dram",
    "GpuModel",
    "MatrixInstruction",
    "Memory",
    "NvidiaSm",
    "Occupancy",
    "list_gpus",
    "load_all",
    "load_gpu",
    "occupancy",
]
