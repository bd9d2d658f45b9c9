"""The jobs: small layers of every kind to check, the layers that the kernel is for to time, and configurations."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from typing import Any

from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.rnn.spec import with_sizes, workload_of
from constrint.kernels.rnn.wgmma.spec import SPECS
from constrint.select import Workload, rank
from constrint.select.spec import Launch
from constrint.solve import enumerate_space

#: Kinds of jobs.
KINDS = ("check", "repeat", "loop", "cuda", "call")
#: The kernel by operation.
BY_OPERATION = {spec.operation: spec for spec in SPECS}
#: Units of a head and sequences of the layers that are timed, of 1,024 steps in bf16.
TIMED = ((768, 256), (768, 128), (768, 64), (1024, 256), (1024, 64), (512, 256), (512, 128), (1536, 256))
TIME = 1024
#: Configurations of a layer that are timed: ways to deal it out, and of the first of them ways to wait.
DEALT, FIRST, WAYS = 7, 2, 10
#: Layers that are checked: cell, sequences, steps, heads, units of each, dtype, and which optional inputs they have.
CHECKED = (
    ("lstm", 64, 1, 1, 768, "bf16", ""),
    ("lstm", 256, 2, 1, 768, "bf16", "initial"),
    ("lstm", 256, 3, 1, 768, "bf16", ""),
    ("lstm", 256, 35, 1, 768, "bf16", "initial"),
    ("lstm", 250, 75, 1, 768, "fp16", "initial lengths reset"),
    ("lstm", 64, 35, 1, 1024, "bf16", ""),
    ("lstm", 256, 35, 1, 1024, "fp16", "initial"),
    ("lstm", 200, 35, 1, 512, "bf16", ""),
    ("lstm", 300, 40, 2, 256, "bf16", "lengths"),
    ("gru", 256, 35, 1, 768, "bf16", "initial"),
    ("gru", 100, 75, 1, 512, "fp16", "initial lengths reset"),
    ("slstm", 256, 13, 1, 768, "bf16", ""),
    ("elman", 256, 35, 1, 768, "bf16", ""),
    ("elman_relu", 64, 13, 1, 512, "fp16", ""),
    ("lstm", 600, 20, 1, 768, "bf16", ""),
)
#: Parameters that say how a step waits.
WAITING = ("probe", "chunk", "window")
#: Configurations of a layer that are checked.
CHECKED_WAYS = 4


#: Turns of a waiting loop, a second or two, after which a checked kernel ends.
WATCH = 1 << 21
#: Kinds of jobs whose waits end, and the most processes that compile.
WATCHED, PROCESSES = ("check", "repeat"), 14


@dataclass(frozen=True)
class Job:
    """Something that is run by itself.

    Args:
        kind: One of `KINDS`.
        cell, batch, time, heads, dim, dtype: The layer.
        optional: Names of its optional inputs.
        config: The kernel's configuration; empty where the kind chooses it.
        seconds: How long it may take once it has begun to run.
    """

    kind: str
    cell: str
    batch: int
    time: int
    heads: int
    dim: int
    dtype: str
    optional: str = ""
    config: dict[str, int] = field(default_factory=dict)
    seconds: float = 10.0

    @property
    def workload(self) -> Workload:
        """The layer as a workload."""
        return workload_of(self.cell, (self.batch, self.time, self.heads, self.dim), self.dtype)

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def title(self) -> str:
        """The layer and the configuration in a line."""
        config = " ".join(f"{name}={value}" for name, value in self.config.items())
        layer = f"{self.cell} {self.heads}x{self.dim} B{self.batch} T{self.time} {self.dtype}"
        return " ".join(part for part in (self.kind, layer, self.optional, config) if part)


def ranked(gpu: GpuModel, workload: Workload, recompute: int) -> list[dict[str, int]]:
    """All configurations of a layer, those first that are predicted to be fastest."""
    spec = BY_OPERATION[workload.operation]
    space = enumerate_space(spec.problem(gpu, workload))
    candidates = rank(spec, gpu, workload, top=space.size).candidates
    return [dict(c.config) for c in candidates if c.config["recompute"] == recompute]


def dealt(config: Mapping[str, int]) -> tuple[int, ...]:
    """Parameters that distribute a layer over blocks and warpgroups."""
    return tuple(config[name] for name in ("units", "tile_batch", "depth_groups"))


def spread(configs: list[dict[str, int]], ways: int, first: int, waits: int) -> list[dict[str, int]]:
    """The first configuration of several ways to deal a layer out, and of the first ways several ways to wait.

    Those differ from the first configuration in one parameter: whether it probes, then its chunks, then its windows.
    """
    by_way: dict[tuple[int, ...], list[dict[str, int]]] = {}
    for config in configs:
        by_way.setdefault(dealt(config), []).append(config)
    chosen: list[dict[str, int]] = []
    for number, (base, *alike) in enumerate(list(by_way.values())[:ways]):
        near = [c for c in alike if sum(c[name] != base[name] for name in WAITING) == 1]
        near.sort(key=lambda c, base=base: next(i for i, name in enumerate(WAITING) if c[name] != base[name]))  # type: ignore[misc]
        chosen += [base, *near[: waits - 1 if number < first else 0]]
    return chosen


def checks(gpu: GpuModel) -> Iterator[Job]:
    """Layers beside their references, and repeats that have to give the same bits."""
    for cell, batch, time, heads, dim, dtype, optional in CHECKED:
        job = Job("check", cell, batch, time, heads, dim, dtype, optional)
        configs = ranked(gpu, with_sizes(job.workload, time=TIME), 0)
        for config in spread(configs, CHECKED_WAYS, 1, 2):
            yield Job("check", cell, batch, time, heads, dim, dtype, optional, config)
    for dim, batch in ((768, 256), (768, 64), (1024, 256), (512, 128)):
        configs = ranked(gpu, workload_of("lstm", (batch, TIME, 1, dim), "bf16"), 0)
        for config in spread(configs, 2, 0, 1):
            yield Job("repeat", "lstm", batch, 200, 1, dim, "bf16", "initial", config)
    for dim, batch in ((768, 256), (1024, 100)):
        yield Job("call", "lstm", batch, 35, 1, dim, "bf16", seconds=60.0)


def times(gpu: GpuModel) -> Iterator[Job]:
    """The loops of the layers that the kernel was made for, beside those of `cuda`, and calls as users make them."""
    for dim, batch in TIMED:
        layer = "lstm", batch, TIME, 1, dim, "bf16"
        yield Job("cuda", *layer, seconds=30.0)
        for config in spread(ranked(gpu, Job("loop", *layer).workload, 1), DEALT, FIRST, WAYS):
            yield Job("loop", *layer, config=config)
        yield Job("call", *layer, seconds=90.0)


def watched(launch: Launch) -> Launch:
    """A launch whose waits end."""
    if not isinstance(launch, CudaLaunch):
        return launch
    return replace(launch, source=replace(launch.source, macros={**launch.source.macros, "WATCH": WATCH}))


def launches_on_meta(gpu: GpuModel, job: Job) -> list[Launch]:
    """The launches of a job's configuration, on tensors without data."""
    from constrint.kernels.rnn.tensors import make_optional_inputs
    from constrint.kernels.rnn.wgmma.launch import launches_of

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
