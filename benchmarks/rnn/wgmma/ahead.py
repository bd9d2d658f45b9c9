"""Compiles what jobs launch ahead of them, in processes of their own: NVRTC compiles one kernel at a time in each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from benchmarks.rnn.wgmma.jobs import BY_OPERATION, Job
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.rnn.tensors import make_optional_inputs
from constrint.kernels.rnn.wgmma.launch import launches_of
from constrint.select.spec import Launch

#: A wait that ends the kernel after so many turns of its loop, a second or two, where results are checked.
WATCH = 1 << 21
#: Kinds of jobs whose waits end, and the most processes that compile.
WATCHED, PROCESSES = ("check", "repeat"), 14


def watched(launch: Launch) -> Launch:
    """A launch whose waits end."""
    if not isinstance(launch, CudaLaunch):
        return launch
    return replace(launch, source=replace(launch.source, macros={**launch.source.macros, "WATCH": WATCH}))


def launches_on_meta(gpu: GpuModel, job: Job) -> list[Launch]:
    """The launches of a job's configuration, on tensors without data."""
    spec, workload = BY_OPERATION[job.cell], job.workload
    tensors: dict[str, Any] = dict(spec.inputs(gpu, workload))
    tensors |= make_optional_inputs(spec.cell, "forward", tensors["wx"], job.optional.split())
    made = launches_of(workload, job.config, {**tensors, **spec.outputs(gpu, workload, tensors)}, gpu)
    return [watched(launch) if job.kind in WATCHED else launch for launch in made]


def compile_job(plain: dict[str, Any], name: str) -> None:
    """Compile a job's kernel into the cache on disk."""
    with suppress(Exception):  # the job itself says what is wrong
        for launch in launches_on_meta(load_gpu(name), Job(**plain)):
            if isinstance(launch, CudaLaunch):
                launch.warm_up()


def compile_all(jobs: Sequence[Job], name: str) -> None:
    """Compile every kernel once; layers of other sizes may share it."""
    asked: dict[Any, Job] = {}
    for job in jobs:
        if job.config:
            key = job.cell, job.dim, job.dtype, job.kind in WATCHED, *sorted(job.config.items())
            asked.setdefault(tuple(part for part in key if part not in (("recompute", 0), ("recompute", 1))), job)
    several = min(PROCESSES, os.cpu_count() or 1)
    with ProcessPoolExecutor(several, get_context("spawn")) as pool:
        for done in [pool.submit(compile_job, job.to_plain(), name) for job in asked.values()]:
            done.result()
