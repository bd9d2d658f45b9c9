"""Compile many candidates on every core, for a named GPU; no GPU and no driver is needed.

Either for what their binaries take, or into Triton's cache, from which a launch on the device then starts at once.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from constrint.hwmodels import GpuModel
from constrint.tune.compile import CompiledKernel
from constrint.tune.processes import Beat, Processes
from constrint.tune.trial import Load, Outcome, Trial, read_trials, write_trials

#: How long one kernel may take to compile.
PATIENCE_S = 60.0


@runtime_checkable
class CachedLaunch(Protocol):
    """A launch whose compiler keeps what it compiled on disk."""

    def warm_up(self) -> None:
        """Compile into the cache; launch nothing."""


class CompilePool:
    """Processes that compile trials in order; `state` has the outcome of each as it comes.

    Args:
        load: Finds a kernel by its name.
        gpu: What is compiled for.
        folder: Where `trials.json` lies, and where outcomes are written.
        num_workers: Processes; one per core if None.
        into_cache: Fill Triton's cache instead of reading resources.
        patience_s: How long one kernel may take.
    """

    def __init__(
        self,
        load: Load,
        gpu: GpuModel,
        folder: Path,
        *,
        num_workers: int | None = None,
        into_cache: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._folder, self._num = folder, len(read_trials(folder / "trials.json"))
        self.state = np.memmap(folder / "compiled", np.uint8, "w+", shape=(max(1, self._num),))
        workers = max(1, min(num_workers or os.cpu_count() or 1, self._num))
        for old in folder.glob("compiled-*.jsonl"):
            old.unlink()
        self._processes = Processes(
            folder,
            compile_share,
            workers,
            self._blame,
            arguments=(workers, load, gpu, folder, into_cache),
            patience_s=patience_s,
        )

    def poll(self) -> bool:
        """Whether every trial was compiled or failed."""
        return self._processes.poll()

    def stop(self) -> None:
        """End the processes; what is not compiled by now stays `NOT_RUN`."""
        self._processes.stop()

    def results(self) -> list[CompiledKernel | str]:
        """What every trial takes, or why it is not known."""
        told: dict[int, CompiledKernel | str] = {}
        for path in self._folder.glob("compiled-*.jsonl"):
            for line in path.read_text().splitlines():
                number, compiled, error = msgspec.json.decode(line)
                told[number] = CompiledKernel(**compiled) if compiled else error
        return [told.get(number, Outcome(int(self.state[number])).name) for number in range(self._num)]

    def _blame(self, number: int, outcome: Outcome) -> None:
        if self.state[number] == Outcome.NOT_RUN:
            self.state[number] = outcome


def compile_many(
    load: Load,
    gpu: GpuModel,
    trials: Sequence[Trial],
    *,
    num_workers: int | None = None,
    into_cache: bool = False,
    patience_s: float = PATIENCE_S,
) -> list[CompiledKernel | str]:
    """Compile trials on every core: what each takes, in the trials' order, or why it does not compile.

    With `into_cache` Triton's cache is filled, and what compiles gives an empty string.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trials(folder / "trials.json", trials)
        pool = CompilePool(load, gpu, folder, num_workers=num_workers, into_cache=into_cache, patience_s=patience_s)
        try:
            while not pool.poll():
                time.sleep(0.05)
            return pool.results()
        finally:
            pool.stop()


def compile_share(
    beat: Beat, worker: int, num_workers: int, load: Load, gpu: GpuModel, folder: Path, into_cache: bool
) -> None:
    """Compile every `num_workers`-th trial; runs in a process of its own."""
    os.nice(10)
    trials = read_trials(folder / "trials.json")
    state = np.memmap(folder / "compiled", np.uint8, "r+", shape=(max(1, len(trials)),))
    if into_cache:
        _compile_for(gpu)
    with (folder / f"compiled-{worker}.jsonl").open("ab") as file:
        for number in range(worker, len(trials), num_workers):
            if state[number] != Outcome.NOT_RUN:
                continue
            beat.at(number)
            try:
                compiled, error = _compile(load, gpu, trials[number], into_cache), ""
                state[number] = Outcome.OK
            except Exception as refusal:  # noqa: BLE001 - the outcome of the trial
                compiled, error = None, f"{type(refusal).__name__}: {refusal}"
                state[number] = Outcome.COMPILE_FAILED
            file.write(msgspec.json.encode((number, compiled and asdict(compiled), error)) + b"\n")
            file.flush()


def _compile(load: Load, gpu: GpuModel, trial: Trial, into_cache: bool) -> CompiledKernel | None:
    spec = load(trial.kernel)
    if not into_cache:
        return spec.compile(gpu, trial.workload, trial.config)
    inputs = spec.inputs(gpu, trial.workload)
    outputs = spec.outputs(gpu, trial.workload, inputs)
    for launch in spec.launches(gpu, trial.workload, trial.config, inputs, outputs):
        if isinstance(launch, CachedLaunch):
            launch.warm_up()
    return None


def _compile_for(gpu: GpuModel) -> None:
    """Let Triton compile for a GPU that this process has no driver of."""
    with contextlib.suppress(ImportError):
        from triton.runtime.driver import driver

        driver.set_active(_NamedGpu(gpu))


class _NamedGpu:
    """What Triton asks its driver while it compiles."""

    def __init__(self, gpu: GpuModel) -> None:
        from triton.backends.compiler import GPUTarget

        self._target = GPUTarget(*gpu.maker.triton_target(gpu))

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return device
