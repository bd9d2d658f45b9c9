"""Compile GEMM configurations into Triton's cache on every core, with no CUDA context in the processes that compile.

A process that dies takes its kernel alone with it: the kernel counts as failed and another process goes on.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from constrint.kernels.gemm import launch as launching

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
DTYPES |= {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
#: Types of the results that differ from the operands'.
OUTPUTS = {"fp8": torch.bfloat16, "int8": torch.int32}
#: Shape, dtype, layout ("rc": A by rows, B by columns), configuration, the launch's view of the device.
Job = tuple[tuple[int, int, int], str, str, Mapping[str, int], launching.Machine]
PENDING, COMPILED, FAILED = 0, 1, 2
#: After this long a kernel counts as failed.
PATIENCE_S = 60
LONGEST_RUN = 16


class Compilation:
    """Processes that compile jobs in order and note, per job, how it went.

    Args:
        jobs: What to compile.
        capability: 90 for sm_90.
        workers: Processes; one per core if None.
        folder: Where `state` (one byte per job) lies, for other processes to map; a new one if None.
    """

    def __init__(
        self, jobs: list[Job], capability: int, *, workers: int | None = None, folder: Path | None = None
    ) -> None:
        os.environ.setdefault("TRITON_CACHE_DIR", "/tmp/triton-cache")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        # The process to fork from does not take over this one's path.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self.folder = folder or Path(tempfile.mkdtemp())
        (self.folder / "jobs").write_bytes(pickle.dumps(jobs))
        self.workers = min(workers or os.cpu_count() or 1, max(1, len(jobs)))
        self.state = np.memmap(self.folder / "state", np.uint8, "w+", shape=(max(1, len(jobs)),))
        self.current = np.memmap(self.folder / "working", np.int64, "w+", shape=(self.workers,))
        self.current[:] = -1
        self.num, self.capability = len(jobs), capability
        # Forked from a process that has imported torch and triton, and nothing else.
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["gemm_compile", "triton", "constrint.kernels.gemm.kernel_descriptor"])
        self.groups = _groups(jobs)
        self.next = self.context.Value("q", 0)
        self.processes = [self._start(worker) for worker in range(self.workers)]

    def _start(self, worker: int) -> Any:
        arguments = (self.folder, worker, self.next, self.groups, self.workers, self.capability)
        process = self.context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        return process

    def is_done(self) -> bool:
        """Whether every job was tried; replaces processes that died, less what was left of their group."""
        for worker, process in enumerate(self.processes):
            job = int(self.current[worker])
            if not process.is_alive() and job >= 0:
                end = int(self.groups[np.searchsorted(self.groups, job, side="right")])
                self.state[job:end], self.current[worker] = FAILED, -1
                self.processes[worker] = self._start(worker)
        return not any(process.is_alive() for process in self.processes)

    def stop(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.terminate()

    def outcomes(self) -> list[str]:
        """Per job: "ok", the error's name, or "crashed"."""
        errors = {}
        if (self.folder / "errors").exists():
            lines = (self.folder / "errors").read_text().splitlines()
            errors = {int(number): name for number, name in (line.split(" ", 1) for line in lines)}
        states = self.state[: self.num]
        return ["ok" if s == COMPILED else errors.get(i, "crashed") for i, s in enumerate(states)]


def compile_all(jobs: list[Job], workers: int | None = None) -> list[str]:
    """Compile all jobs for the device of this machine; outcomes in the jobs' order."""
    if not jobs:
        return []
    major, minor = torch.cuda.get_device_capability(0)
    compilation = Compilation(jobs, 10 * major + minor, workers=workers)
    while not compilation.is_done():
        time.sleep(0.05)
    return compilation.outcomes()


class _NoGpu:
    """What Triton asks its driver while it compiles."""

    def __init__(self, capability: int) -> None:
        from triton.backends.compiler import GPUTarget

        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> Any:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return device


class _NoLaunch:
    """Stands for a kernel that is not to be compiled."""

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **kwargs: None


def _groups(jobs: list[Job]) -> Any:
    """Where runs of jobs begin that differ in warps and stages alone, and the end; a process takes a run at a time."""
    starts, last = [0], None
    for number, (shape, dtype, layout, config, _) in enumerate(jobs):
        rest = {name: value for name, value in config.items() if name not in ("num_warps", "num_stages", "group_m")}
        key = (shape, dtype, layout, rest)
        if number and (key != last or number - starts[-1] == LONGEST_RUN):
            starts.append(number)
        last = key
    return np.array([*starts, len(jobs)])


def _work(folder: Path, worker: int, following: Any, groups: Any, workers: int, capability: int) -> None:
    from triton.runtime.driver import driver

    from constrint.kernels.gemm import kernel_pack

    driver.set_active(_NoGpu(capability))  # type: ignore[arg-type]
    kernel_pack.pack_kernel = _NoLaunch()  # type: ignore[assignment]
    # The operands are on the CPU: there is no device to switch to.
    torch.cuda.device = contextlib.nullcontext  # type: ignore[assignment,misc]
    _translate_once()
    signal.signal(signal.SIGALRM, _expired)
    os.nice(10)
    jobs = pickle.loads((folder / "jobs").read_bytes())
    state = np.memmap(folder / "state", np.uint8, "r+", shape=(len(jobs),))
    current = np.memmap(folder / "working", np.int64, "r+", shape=(workers,))
    while True:
        with following.get_lock():
            group = following.value
            following.value += 1
        if group >= len(groups) - 1:
            return
        for job in range(groups[group], groups[group + 1]):
            current[worker] = job
            try:
                signal.alarm(PATIENCE_S)
                _compile(jobs[job])
                state[job] = COMPILED
            except Exception as error:  # noqa: BLE001 - recorded as the job's outcome
                with (folder / "errors").open("a") as file:
                    file.write(f"{job} {type(error).__name__}\n")
                state[job] = FAILED
            signal.alarm(0)
            current[worker] = -1


def _translate_once() -> None:
    """Keep what Python code was last translated to: kernels that differ in warps and stages alone share it."""
    from triton._C.libtriton import ir
    from triton.compiler import ASTSource

    translate = ASTSource.make_ir
    last: dict[str, str] = {}

    def make_ir(source: Any, target: Any, options: Any, codegen_fns: Any, module_map: Any, context: Any) -> Any:
        key = source.hash()
        if key not in last:
            module = translate(source, target, options, codegen_fns, module_map, context)
            last.clear()
            last[key] = str(module)
            return module
        with tempfile.NamedTemporaryFile("w", suffix=".ttir") as file:
            file.write(last[key])
            file.flush()
            module = ir.parse_mlir_module(file.name, context)
        module.context = context
        return module

    ASTSource.make_ir = make_ir  # type: ignore[method-assign]


def _expired(*_: Any) -> None:
    raise TimeoutError


def _compile(job: Job) -> None:
    (m, n, k), dtype, layout, config, machine = job
    # Rounded to TF32 once, or in three passes: torch's switch is what a launch goes by.
    torch.set_float32_matmul_precision("highest" if dtype == "fp32" else "high")
    a, b, out = operands(m, n, k, dtype, layout, "cpu")
    launching.launch(a[None], b[None], out[None], config, machine, launching.Epilogue(), only_compile=True)


def operands(
    m: int, n: int, k: int, dtype: str, layout: str, device: str
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(M, K), (K, N) and (M, N), uninitialised; r: rows contiguous, c: columns."""
    element = DTYPES[dtype]
    a = torch.empty((m, k) if layout[0] == "r" else (k, m), dtype=element, device=device)
    b = torch.empty((k, n) if layout[1] == "r" else (n, k), dtype=element, device=device)
    out = torch.empty((m, n), dtype=OUTPUTS.get(dtype, element), device=device)
    return (a if layout[0] == "r" else a.T), (b if layout[1] == "r" else b.T), out
