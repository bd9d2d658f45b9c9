"""AMD: its words, the keys of its CUs, occupancy, register files and what Triton reaches on its GPUs."""

from constrint.hwmodels.vendors.amd.vendor import Amd, AmdCu, VgprFile

__all__ = ["VENDOR", "Amd", "AmdCu", "VgprFile"]

VENDOR = Amd()
