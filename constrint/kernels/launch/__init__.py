"""One way to launch any kernel: its arguments, its plan, the device, and the next decision where it does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from constrint.lazy import lazily

if TYPE_CHECKING:
    from constrint.kernels.launch.fill import FillLaunch
    from constrint.kernels.launch.plan.loaded import check_resident, resident_blocks
    from constrint.kernels.launch.triton import TritonKernelSpec, TritonLaunch

__all__ = ["FillLaunch", "TritonKernelSpec", "TritonLaunch", "check_resident", "resident_blocks"]

# Launches by plan load neither the specs nor Triton.
__getattr__ = lazily(
    __name__,
    {
        "fill": ("FillLaunch",),
        "plan.loaded": ("check_resident", "resident_blocks"),
        "triton": ("TritonKernelSpec", "TritonLaunch"),
    },
)
