"""Compiled candidates: the compiler's figures replace the estimates, and the order follows.

Results of compilers are stored on disk and looked up before a kernel is compiled again. An entry belongs to a GPU's
model, a kernel, a workload, a configuration, the compilers' versions, and the state of this package's files. Kernels
from outside of the package have no entries, since nothing tells that their code has changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from constrint import cache
from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel, occupancy
from constrint.model import Problem, Var
from constrint.select.candidate import Candidate, CompiledKernel, Config, CostEstimate, ResourceUse
from constrint.select.limits import UNFITTED, BlockColumns, slowdown
from constrint.select.ranking import runs
from constrint.select.spec import KernelSpec
from constrint.select.toolchain import compilers, key_of
from constrint.select.workload import Workload

#: Kind of the entries in the cache.
_KIND = "compiled"
REGISTER_BYTES = 4


class CompileJob(NamedTuple):
    """A configuration to compile."""

    spec: KernelSpec
    gpu: GpuModel
    workload: Workload
    config: Config


def modelled(spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Config, problem: Problem) -> Candidate:
    """One configuration, valid or not, with its estimates; `problem` is the kernel's for this workload."""
    use = spec.use(gpu, workload, {name: Var(name) for name in config})
    columns: dict[str, Any] = {name: np.array([value]) for name, value in config.items()}
    blocks = BlockColumns.of(gpu, use, columns, problem.estimates)
    cost = spec.cost(gpu, workload, columns, blocks.blocks_per_sm).slowed(blocks.slowdown(gpu))
    seconds = float(cost.seconds[0])
    estimate = CostEstimate(seconds, cost.bound_by(0), spec.roofline_s(gpu, workload) / seconds, cost.parts_of(0))
    return Candidate(spec.full_name, config, blocks.resources(0, config), estimate, 1)


#: Compiles configurations: per job, in order, the compiled kernel or the compiler's error.
Compile = Callable[[Sequence[CompileJob]], Sequence[CompiledKernel | str]]


def one_by_one(jobs: Sequence[CompileJob]) -> list[CompiledKernel | str]:
    """Compile in this process; earlier results are looked up."""
    return [compile_cached(one.spec, one.gpu, one.workload, one.config) for one in jobs]


def as_compiled(candidates: Sequence[Candidate], jobs: Sequence[CompileJob], compile_all: Compile) -> list[Candidate]:
    """Replace estimates by compiled figures and order by the resulting time; candidates that cannot run come last.

    Args:
        candidates: Single kernels.
        jobs: The jobs of these candidates, in the same order.
        compile_all: Compiles the jobs.
    """
    results = compile_all(jobs)
    judged = [judge(candidate, one, result) for candidate, one, result in zip(candidates, jobs, results, strict=True)]
    return sorted(judged, key=lambda candidate: (not runs(candidate), candidate.cost.seconds))


def judge(candidate: Candidate, job: CompileJob, result: CompiledKernel | str) -> Candidate:
    """Replace the estimates of one candidate by its compiled figures, or by the compiler's error."""
    predicted = candidate.resources
    assert predicted is not None
    if isinstance(result, str):
        return replace(
            candidate, resources=replace(predicted, blocks_per_sm=0, limited_by="the compiler"), problem=result
        )
    taken = taken_by(job.gpu, predicted.threads, result)
    problem = problem_of(job.gpu, taken)
    if not problem and _lacks_matrix_units(candidate, result):
        problem = "uses no matrix instruction"
    return replace(candidate, resources=taken, cost=_cost(candidate, job, taken), problem=problem)


def _lacks_matrix_units(candidate: Candidate, compiled: CompiledKernel) -> bool:
    """Whether a kernel whose cost model keeps the matrix units busy does not use them.

    Only Triton chooses instructions; other sources name them.
    """
    is_meant = candidate.cost.parts_s.get("matrix units", 0.0) > 0
    return is_meant and not compiled.instruction and not compiled.is_named


def taken_by(gpu: GpuModel, threads: int, compiled: CompiledKernel) -> ResourceUse:
    """Resources of a compiled kernel's block on a GPU, and the blocks that fit an SM."""
    is_wgp = (gpu.register_file.partitions_per_block or 0) > gpu.sm.num_partitions
    fits = occupancy(
        gpu,
        threads_per_block=threads,
        registers_per_thread=compiled.registers_per_thread,
        smem_bytes_per_block=compiled.smem_bytes,
        # A workgroup that exceeds one CU of RDNA runs on both CUs of a WGP, alone.
        **({"wgp_mode": True} if is_wgp else {}),
    )
    blocks = int(fits.blocks_per_sm)
    return ResourceUse(
        threads=threads,
        registers_per_thread=compiled.registers_per_thread,
        smem_bytes=compiled.smem_bytes,
        blocks_per_sm=-(-blocks // 2) if is_wgp else blocks,
        limited_by=fits.limited_by,
        spill_chance=float(compiled.spill_bytes > 0),
        compiled=compiled,
    )


def problem_of(gpu: GpuModel, taken: ResourceUse) -> str:
    """Problem of a compiled kernel on a GPU: it cannot be launched, or it spills; empty if there is none."""
    compiled, limit = taken.compiled, gpu.sm.max_smem_bytes_per_block
    if taken.smem_bytes > limit:
        return f"takes {taken.smem_bytes:,} bytes of {gpu.terms.smem}, a block has {limit:,}"
    if not taken.blocks_per_sm:
        return f"cannot be launched: {taken.registers_per_thread} registers for {taken.threads} threads"
    return f"spills {compiled.spill_bytes} bytes a thread" if compiled is not None and compiled.spill_bytes else ""


def _cost(candidate: Candidate, job: CompileJob, taken: ResourceUse) -> CostEstimate:
    """The predicted time with the blocks that fit as compiled, and with or without a spill."""
    columns: Mapping[str, Any] = {name: np.array([value]) for name, value in candidate.config.items()}
    resident = np.array([max(taken.blocks_per_sm, 1)])
    cost = job.spec.cost(job.gpu, job.workload, columns, resident)
    spilled = 0 if taken.compiled is None else -(-taken.compiled.spill_bytes // REGISTER_BYTES)
    share = 1.0 + spilled / max(taken.registers_per_thread, 1)
    use = job.spec.use(job.gpu, job.workload, {name: Var(name) for name in candidate.config})
    figure = use.spilling.figure if use is not None and use.spilling is not None else UNFITTED.figure
    cost = cost.slowed(np.asarray(slowdown(job.gpu, np.array([taken.spill_chance]), share, figure)))
    seconds = float(cost.seconds[0])
    before = candidate.cost
    roofline_s = before.roofline_share * before.seconds
    return CostEstimate(seconds, cost.bound_by(0), roofline_s / seconds, cost.parts_of(0))


def recall(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], optional: Sequence[str] = ()
) -> CompiledKernel | str | None:
    """The stored result for a configuration: the compiled kernel, or the compiler's refusal; None where none is stored.

    Args:
        gpu: The GPU compiled for.
        spec: The kernel.
        workload: The workload compiled for; sizes that do not change the compiled kernel may differ.
        config: The configuration.
        optional: Names of optional inputs that change the compiled kernel.
    """
    key = _key(gpu, spec, workload, config, optional)
    data = None if key is None else cache.load(_KIND, key)
    if data is not None:
        with suppress(TypeError, ValueError):
            compiled, refusal = json.loads(data)
            return str(refusal) if compiled is None else CompiledKernel(**compiled)
    return None


def keep(
    gpu: GpuModel,
    spec: KernelSpec,
    workload: Workload,
    config: Mapping[str, int],
    result: CompiledKernel | str,
    optional: Sequence[str] = (),
) -> None:
    """Store the compiled kernel of a configuration, or the compiler's refusal."""
    key = _key(gpu, spec, workload, config, optional)
    if key is not None:
        entry = (None, result) if isinstance(result, str) else (asdict(result), "")
        cache.store(_KIND, key, json.dumps(entry).encode())


def _key(
    gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Mapping[str, int], optional: Sequence[str]
) -> bytes | None:
    compiled_for = spec.compiled_as(workload)
    workload_key = compiled_for.dtype, tuple(compiled_for.sizes.items()), tuple(sorted(compiled_for.options.items()))
    return key_of(gpu, (spec,), *compilers(), *workload_key, tuple(sorted(config.items())), tuple(sorted(optional)))


def compile_cached(
    spec: KernelSpec, gpu: GpuModel, workload: Workload, config: Mapping[str, int]
) -> CompiledKernel | str:
    """The compiled kernel of a configuration, or the compiler's refusal; compiled once, then looked up.

    Raises:
        UsageError: When triton or torch is not installed.
    """
    result = recall(gpu, spec, workload, config)
    if result is None:
        try:
            result = spec.compile(gpu, workload, config)
        except UnsupportedError as error:
            result = str(error)
        keep(gpu, spec, workload, config, result)
    return result
