"""Facts of the GPU: occupancy over registers and over shared memory, and the roofline of the dtype."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from constrint.answers.facts import CandidateFacts, CurveFacts, RooflineFacts, StepFacts
from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, occupancy
from constrint.hwmodels.assumed import SUSTAINED, assumption
from constrint.hwmodels.roofline import roofline
from constrint.select import KernelSpec
from constrint.select.rank import KernelProblem

#: Most block sizes that are drawn.
MAX_SIZES = 5
#: Most amounts of shared memory that are evaluated.
MAX_POINTS = 4096
#: Registers per thread that limit no block, for the curve of shared memory.
FEW_REGISTERS = 1


def curves(gpu: GpuModel, candidates: Sequence[CandidateFacts]) -> tuple[CurveFacts, ...]:
    """Curves for the block sizes of the best candidates, the smallest size first."""
    sizes = list(dict.fromkeys(c.threads_per_block for c in candidates if c.threads_per_block))[:MAX_SIZES]
    facts = []
    for threads in sorted(size for size in sizes if size is not None):
        registers = np.arange(1, gpu.sm.max_registers_per_thread + 1)
        facts.append(_curve(gpu, "registers", threads, registers))
        step = gpu.sm.smem_alloc_granularity_bytes
        most = gpu.sm.max_smem_bytes_per_block
        step *= max(1, -(-most // step // MAX_POINTS))
        facts.append(_curve(gpu, "smem", threads, np.unique(np.append(np.arange(0, most + 1, step), most))))
    return tuple(facts)


def _curve(gpu: GpuModel, resource: str, threads: int, amounts: NDArray[np.int64]) -> CurveFacts:
    """The steps of the occupancy over one resource alone."""
    is_registers = resource == "registers"
    fits = occupancy(
        gpu,
        threads_per_block=threads,
        registers_per_thread=amounts if is_registers else FEW_REGISTERS,
        smem_bytes_per_block=0 if is_registers else amounts,
    )
    blocks, warps = fits.blocks_per_sm.tolist(), fits.warps_per_sm.tolist()
    ends = [*np.flatnonzero(np.diff(fits.blocks_per_sm)).tolist(), len(amounts) - 1]
    steps = (StepFacts(up_to=int(amounts[e]), blocks_per_sm=blocks[e], warps_per_sm=warps[e]) for e in ends)
    return CurveFacts(resource=resource, threads_per_block=threads, steps=tuple(steps))


#: Memory levels as figures name them.
LEVELS = {"smem": "shared memory", "l1": "L1", "l2": "L2", "last_level": "last-level cache", "dram": "DRAM"}


def roofline_facts(request: KernelProblem) -> RooflineFacts | None:
    """The roofline; None if the dtype's peak is unknown or the kernel counts no operations."""
    gpu, workload, spec = request.gpu, request.workload, request.spec
    operations = spec.num_operations(workload)
    if not operations:
        return None
    try:
        limits = roofline(gpu, workload.dtype)
    except UnsupportedError:
        return None
    share, is_assumed = gpu.compute.sustained_matrix_fraction, False
    if share is None and limits.unit == "matrix":
        assumed = assumption(gpu, SUSTAINED)
        share, is_assumed = (None, False) if assumed is None else (assumed.value, True)
    return RooflineFacts(
        unit=limits.unit,
        peak_op_per_s=limits.peak_flop_per_s,
        sustained_op_per_s=None if share is None or limits.unit != "matrix" else share * limits.peak_flop_per_s,
        is_sustained_assumed=is_assumed,
        bandwidths_bytes_per_s={name: rate for name, rate in limits.bandwidth_bytes_per_s.items() if rate is not None},
        least_op_per_byte=_intensity(spec, request),
    )


def _intensity(spec: KernelSpec, request: KernelProblem) -> float | None:
    moved = spec.moved_bytes(request.workload)
    return spec.num_operations(request.workload) / moved if moved else None
