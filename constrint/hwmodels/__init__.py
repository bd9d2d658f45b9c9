"""GPU models: facts with their sources, occupancy, roofline, and detection of the devices of this machine.

`load_gpu("h200")` gives a `GpuModel`; `occupancy(gpu, ...)` says how many blocks one SM holds, and why
no more. Nothing here needs a GPU.
"""

from constrint.hwmodels.detect import detect
from constrint.hwmodels.device import DetectedDevice
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
from constrint.hwmodels.occupancy import LIMIT_NAMES, UNLIMITED, Occupancy, occupancy
from constrint.hwmodels.roofline import Roofline, roofline, special_functions_per_s, wave_quantisation

__all__ = [
    "DTYPES",
    "LIMIT_NAMES",
    "UNLIMITED",
    "AmdCu",
    "Arch",
    "CacheLevel",
    "Compute",
    "DetectedDevice",
    "Device",
    "Dram",
    "GpuModel",
    "MatrixInstruction",
    "Memory",
    "NvidiaSm",
    "Occupancy",
    "Roofline",
    "detect",
    "list_gpus",
    "load_all",
    "load_gpu",
    "occupancy",
    "roofline",
    "special_functions_per_s",
    "wave_quantisation",
]
