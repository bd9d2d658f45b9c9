"""Candidates as compiled: what the compiler says takes the place of the estimates, and the order follows.

Nothing is compiled here: whoever asks gives a function that does, or looks up what was compiled before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from constrint.hwmodels import GpuModel, occupancy
from constrint.model import Var
from constrint.select.compiled import CompiledKernel, compile_known
from constrint.select.limits import UNFITTED, slowdown
from constrint.select.spec import Candidate, Config, CostEstimate, KernelSpec, ResourceUse, Workload


class Asked(NamedTuple):
    """A configuration to compile."""

    spec: KernelSpec
    gpu: GpuModel
    workload: Workload
    config: Config


REGISTER_BYTES = 4
#: Compiles configurations: what each takes, in their order, or why it does not compile.
Compile = Callable[[Sequence[Asked]], Sequence[CompiledKernel | str]]


def one_by_one(asked: Sequence[Asked]) -> list[CompiledKernel | str]:
    """Compile in this process, what was not compiled before."""
    return [compile_known(one.spec, one.gpu, one.workload, one.config) for one in asked]


def as_compiled(candidates: Sequence[Candidate], asked: Sequence[Asked], compile_all: Compile) -> list[Candidate]:
    """The candidates with facts for estimates, by the time that follows; those that cannot run come last.

    Args:
        candidates: Single kernels.
        asked: The same, to be compiled.
        compile_all: Compiles them.
    """
    told = compile_all(asked)
    judged = [judge(candidate, one, found) for candidate, one, found in zip(candidates, asked, told, strict=True)]
    return sorted(judged, key=lambda candidate: (not runs(candidate), candidate.cost.seconds))


def runs(candidate: Candidate) -> bool:
    """Whether a candidate can be launched, as far as is known."""
    return candidate.resources is None or candidate.resources.blocks_per_sm > 0


def judge(candidate: Candidate, asked: Asked, found: CompiledKernel | str) -> Candidate:
    """One candidate as compiled."""
    predicted = candidate.resources
    assert predicted is not None
    if isinstance(found, str):
        return replace(
            candidate, resources=replace(predicted, blocks_per_sm=0, limited_by="the compiler"), problem=found
        )
    gpu, limit = asked.gpu, asked.gpu.sm.max_smem_bytes_per_block
    is_wgp = (gpu.register_file.partitions_per_block or 0) > gpu.sm.num_partitions
    fits = occupancy(
        gpu,
        threads_per_block=predicted.threads,
        registers_per_thread=found.registers_per_thread,
        smem_bytes_per_block=found.smem_bytes,
        # A workgroup that one CU of RDNA cannot hold runs on both of a WGP, and is all that runs there.
        **({"wgp_mode": True} if is_wgp else {}),
    )
    blocks = int(fits.blocks_per_sm)
    taken = ResourceUse(
        threads=predicted.threads,
        registers_per_thread=found.registers_per_thread,
        smem_bytes=found.smem_bytes,
        blocks_per_sm=-(-blocks // 2) if is_wgp else blocks,
        limited_by=fits.limited_by,
        spill_chance=float(found.spill_bytes > 0),
        compiled=found,
    )
    problem = ""
    if found.smem_bytes > limit:
        problem = f"takes {found.smem_bytes:,} bytes of {gpu.terms.smem}, a block has {limit:,}"
    elif not blocks:
        problem = f"cannot be launched: {found.registers_per_thread} registers for {predicted.threads} threads"
    elif found.spill_bytes:
        problem = f"spills {found.spill_bytes} bytes a thread"
    elif not found.instruction and candidate.cost.parts_s.get("matrix units", 0.0) > 0:
        # A kernel whose cost model keeps the matrix units busy is meant to use them.
        problem = "uses no matrix instruction"
    return replace(candidate, resources=taken, cost=_cost(candidate, asked, taken), problem=problem)


def _cost(candidate: Candidate, asked: Asked, taken: ResourceUse) -> CostEstimate:
    """The predicted time with as many blocks as really fit, and a spill that is certain or none."""
    columns: Mapping[str, Any] = {name: np.array([value]) for name, value in candidate.config.items()}
    resident = np.array([max(taken.blocks_per_sm, 1)])
    cost = asked.spec.cost(asked.gpu, asked.workload, columns, resident)
    spilled = 0 if taken.compiled is None else -(-taken.compiled.spill_bytes // REGISTER_BYTES)
    share = 1.0 + spilled / max(taken.registers_per_thread, 1)
    use = asked.spec.use(asked.gpu, asked.workload, {name: Var(name) for name in candidate.config})
    figure = use.spilling.figure if use is not None and use.spilling is not None else UNFITTED.figure
    cost = cost.slowed(np.asarray(slowdown(asked.gpu, np.array([taken.spill_chance]), share, figure)))
    seconds = float(cost.seconds[0])
    before = candidate.cost
    roofline_s = before.roofline_share * before.seconds
    return CostEstimate(seconds, cost.bound_by(0), roofline_s / seconds, cost.parts_of(0))
