"""GPU models: facts with their sources, occupancy, roofline, and detection of the devices of this machine.

`load_gpu("h200")` gives a `GpuModel`; `occupancy(gpu, ...)` says how many blocks one SM holds, and why
no more. Nothing here needs a GPU.
"""

from typing import TYPE_CHECKING

from constrint.hwmodels.banks import BankAccess, BankConflicts, bank_access, bank_conflicts
from constrint.hwmodels.load import list_gpus, load_all, load_gpu
from constrint.hwmodels.numbers import gpu_names
from constrint.hwmodels.occupancy import LIMIT_NAMES, UNLIMITED, Occupancy, occupancy
from constrint.hwmodels.roofline import Roofline, roofline, special_functions_per_s, wave_quantisation
from constrint.hwmodels.schema import (
    DTYPES,
    Arch,
    CacheLevel,
    Compute,
    Device,
    Dram,
    GpuModel,
    MatrixInstruction,
    Memory,
    Sm,
)
from constrint.hwmodels.vendors import Vendor, get_vendor, list_vendors, register_vendor
from constrint.hwmodels.vendors.amd import AmdCu
from constrint.hwmodels.vendors.interface import DotUnit, RegisterFile, Terms, Traits
from constrint.hwmodels.vendors.nvidia import NvidiaSm
from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.hwmodels.detection import DetectedDevice, detect

__getattr__ = lazily(__name__, {"detection": ("DetectedDevice", "detect")})

__all__ = [
    "DTYPES",
    "LIMIT_NAMES",
    "UNLIMITED",
    "AmdCu",
    "Arch",
    "BankAccess",
    "BankConflicts",
    "CacheLevel",
    "Compute",
    "DetectedDevice",
    "Device",
    "DotUnit",
    "Dram",
    "GpuModel",
    "MatrixInstruction",
    "Memory",
    "NvidiaSm",
    "Occupancy",
    "RegisterFile",
    "Roofline",
    "Sm",
    "Terms",
    "Traits",
    "Vendor",
    "bank_access",
    "bank_conflicts",
    "detect",
    "get_vendor",
    "gpu_names",
    "list_gpus",
    "list_vendors",
    "load_all",
    "load_gpu",
    "occupancy",
    "register_vendor",
    "roofline",
    "special_functions_per_s",
    "wave_quantisation",
]
