"""Compile many candidates on every core, for a named GPU; no GPU and no driver is needed.

Either for what their binaries take, or into Triton's cache, from which a launch on the device then starts at once.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from constrint.hwmodels import GpuModel
from constrint.select.candidate import CompiledKernel
from constrint.tune.processes import Beat, Processes
from constrint.tune.trial import Load, Outcome, Trial

#: Time limit of one compilation, in seconds.
PATIENCE_S = 60.0


def start_compiling(
    load: Load,
    gpu: GpuModel,
    trials: Sequence[Trial],
    folder: Path,
    *,
    num_workers: int | None = None,
    into_cache: bool = False,
    patience_s: float = PATIENCE_S,
) -> tuple[Processes, Any]:
    """Start processes that compile trials in order; returns them and an array with the outcome of each trial.

    Args:
        load: Finds a kernel by its name.
        gpu: The GPU to compile for.
        trials: The trials.
        folder: Folder for the outcomes.
        num_workers: Number of processes; one per core if None.
        into_cache: Fill Triton's cache instead of reading resources.
        patience_s: Time limit of one compilation, in seconds.
    """
    state = np.memmap(folder / "compiled", np.uint8, "w+", shape=(max(1, len(trials)),))
    workers = max(1, min(num_workers or os.cpu_count() or 1, len(trials)))

    def blame(number: int, outcome: Outcome) -> None:
        if state[number] == Outcome.NOT_RUN:
            state[number] = outcome

    arguments = (workers, load, gpu, trials, folder, into_cache)
    return Processes(folder, compile_share, workers, blame, arguments=arguments, patience_s=patience_s), state


def compile_many(
    load: Load,
    gpu: GpuModel,
    trials: Sequence[Trial],
    *,
    num_workers: int | None = None,
    into_cache: bool = False,
    patience_s: float = PATIENCE_S,
    say: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[CompiledKernel | str]:
    """Compile trials on every core: the resources of each, in the trials' order, or the compiler's error.

    With `into_cache` Triton's cache is filled, and success is an empty string. `say` gets the number of finished ones.
    Once `stop` is true the rest is `NOT_RUN`.
    """
    options: Any = {"num_workers": num_workers, "into_cache": into_cache, "patience_s": patience_s}
    with tempfile.TemporaryDirectory() as name:
        processes, state = start_compiling(load, gpu, trials, Path(name), **options)
        try:
            while not processes.poll() and not (stop is not None and stop()):
                if say is not None:
                    say(int(np.count_nonzero(state)))
                time.sleep(0.05)
        finally:
            processes.stop()
        results: dict[int, CompiledKernel | str] = {}
        for path in Path(name).glob("compiled-*.jsonl"):
            # A process that was stopped may have left half a line.
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n"):
                    number, compiled, error = msgspec.json.decode(line)
                    results[number] = CompiledKernel(**compiled) if compiled else error
        return [results.get(number, _outcome(int(state[number]))) for number in range(len(trials))]


def _outcome(state: int) -> str:
    """The outcome of a trial without a message of its process."""
    return (Outcome.NOT_RUN if state == Outcome.OK else Outcome(state)).name


def compile_share(
    beat: Beat,
    worker: int,
    num_workers: int,
    load: Load,
    gpu: GpuModel,
    trials: Sequence[Trial],
    folder: Path,
    into_cache: bool,
) -> None:
    """Compile every `num_workers`-th trial; the main function of a process."""
    os.nice(10)
    state = np.memmap(folder / "compiled", np.uint8, "r+", shape=(max(1, len(trials)),))
    if into_cache:
        compile_for(gpu)
    with (folder / f"compiled-{worker}.jsonl").open("ab") as file:
        for number in range(worker, len(trials), num_workers):
            if state[number] != Outcome.NOT_RUN:
                continue
            beat.at(number)
            try:
                compiled, error = compile_trial(load, gpu, trials[number], into_cache), ""
                state[number] = Outcome.OK
            except Exception as refusal:  # noqa: BLE001 - the outcome of the trial
                compiled, error = None, f"{type(refusal).__name__}: {refusal}"
                state[number] = Outcome.COMPILE_FAILED
            file.write(msgspec.json.encode((number, compiled and asdict(compiled), error)) + b"\n")
            file.flush()


def compile_trial(load: Load, gpu: GpuModel, trial: Trial, into_cache: bool) -> CompiledKernel | None:
    """Resources of a compiled trial; None where the result went into the compiler's cache."""
    spec = load(trial.kernel)
    if not into_cache:
        return spec.compile(gpu, trial.workload, trial.config)
    inputs = spec.inputs(gpu, trial.workload)
    outputs = spec.outputs(gpu, trial.workload, inputs)
    for launch in spec.launches(gpu, trial.workload, trial.config, inputs, outputs):
        if hasattr(launch, "warm_up"):  # its compiler keeps what it compiled on disk
            launch.warm_up()
    return None


def compile_for(gpu: GpuModel) -> None:
    """Make Triton target a GPU without its driver, from now on."""
    with contextlib.suppress(ImportError):
        from triton.backends.compiler import GPUTarget
        from triton.runtime.driver import driver

        target = GPUTarget(*gpu.maker.triton_target(gpu))
        # The driver's interface for compilation, and for users' files at import.
        answers: dict[str, Any] = {"get_current_target": lambda: target, "get_current_device": lambda: 0}
        answers["get_active_torch_device"] = _meta_device
        driver.set_active(SimpleNamespace(**answers, get_current_stream=lambda device=0: device))


@contextlib.contextmanager
def as_if_here(gpu: GpuModel) -> Iterator[None]:
    """Make Triton target `gpu` inside this block."""
    from triton.runtime.driver import driver

    before = dict(vars(driver))  # its own way back looks for a GPU
    compile_for(gpu)
    try:
        yield
    finally:
        vars(driver).clear()
        vars(driver).update(before)


def _meta_device() -> Any:
    """The `meta` device, whose tensors have no data."""
    import torch

    return torch.device("meta")
