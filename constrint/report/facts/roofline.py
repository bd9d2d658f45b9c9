"""The roofline of a workload's dtype, with the share of the peak that is kept up and where that is from."""

from __future__ import annotations

from constrint.errors import UnsupportedError
from constrint.hwmodels.assumed import SUSTAINED, assumption
from constrint.hwmodels.roofline import roofline
from constrint.report.facts.records import RooflineFacts
from constrint.select import KernelSpec
from constrint.select.rank import KernelProblem

#: Memory levels as figures name them.
LEVELS = {"smem": "shared memory", "l1": "L1", "l2": "L2", "last_level": "last-level cache", "dram": "DRAM"}


def roofline_facts(request: KernelProblem) -> RooflineFacts | None:
    """The roofline; None where no peak of the dtype is known or the kernel counts no operations."""
    gpu, workload, spec = request.gpu, request.workload, request.spec
    operations = spec.num_operations(workload)
    if not operations:
        return None
    try:
        found = roofline(gpu, workload.dtype)
    except UnsupportedError:
        return None
    share, is_assumed = gpu.compute.sustained_matrix_fraction, False
    if share is None and found.unit == "matrix":
        assumed = assumption(gpu, SUSTAINED)
        share, is_assumed = (None, False) if assumed is None else (assumed.value, True)
    return RooflineFacts(
        unit=found.unit,
        peak_op_per_s=found.peak_flop_per_s,
        sustained_op_per_s=None if share is None or found.unit != "matrix" else share * found.peak_flop_per_s,
        is_sustained_assumed=is_assumed,
        bandwidths_bytes_per_s={name: rate for name, rate in found.bandwidth_bytes_per_s.items() if rate is not None},
        least_op_per_byte=_intensity(spec, request),
    )


def _intensity(spec: KernelSpec, request: KernelProblem) -> float | None:
    moved = spec.moved_bytes(request.workload)
    return spec.num_operations(request.workload) / moved if moved else None
