"""Compile many candidates on every core, for a named GPU; no GPU and no driver is needed.

Either for what their binaries take, or into Triton's cache, from which a launch on the device then starts at once.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from types import SimpleNamespace
from typing import Any

import msgspec

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.select.candidate import CompiledKernel
from constrint.tune.engine.process import Lost, StartError, Worker, machine_memory_bytes
from constrint.tune.messages import plain
from constrint.tune.trial import Load, Outcome, Trial

#: Time limits of one compilation and of a process's start, time between two looks at silent processes, in seconds.
PATIENCE_S, START_S, POLL_S = 60.0, 90.0, 0.05
#: Most characters of a compiler's error.
MAX_ERROR = 10_000


class PoolAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The resources of a trial, where they were read, or the compiler's error."""

    compiled: CompiledKernel | None
    error: str = ""


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

    Raises:
        ConstrintError: When no process can be started.
    """
    memory, number = machine_memory_bytes() // 2, max(1, min(num_workers or os.cpu_count() or 1, len(trials)))
    limits: Any = {"start_s": START_S, "max_memory_bytes": memory}
    workers = [Worker(serve_pool, (load, gpu, into_cache), Trial, PoolAnswer, **limits) for _ in range(number)]
    results: list[CompiledKernel | str] = [Outcome.NOT_RUN.name] * len(trials)
    left, at = deque(range(len(trials))), dict[int, int]()
    try:
        while (left or at) and not (stop is not None and stop()):
            for place, worker in enumerate(workers):
                if place in at and (found := _found(worker)) is not None:
                    results[at.pop(place)] = found
                if place not in at and left:
                    at[place] = left.popleft()
                    worker.ask(trials[at[place]], patience_s)
            if say is not None:
                say(len(trials) - len(left) - len(at))
            wait([worker.wake for worker in workers if worker.num_open and worker.wake is not None], POLL_S)
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.forget()
    return results


def _found(worker: Worker[Trial, PoolAnswer]) -> CompiledKernel | str | None:
    """The result of a process's trial; None while there is none."""
    try:
        answer = worker.poll()
    except Lost as lost:
        return lost.outcome.name
    except StartError as error:
        raise ConstrintError(f"a process that compiles ended before its first trial: {error}") from None
    except RuntimeError as error:
        return str(error)
    return None if answer is None else answer.compiled or answer.error


def serve_pool(load: Load, gpu: GpuModel, into_cache: bool) -> Callable[[Trial], PoolAnswer]:
    """Make the function that compiles in a process."""
    os.nice(10)
    if into_cache:
        compile_for(gpu)

    def answer(trial: Trial) -> PoolAnswer:
        try:
            return PoolAnswer(compile_trial(load, gpu, trial, into_cache))
        except Exception as error:  # noqa: BLE001 - the outcome of the trial
            return PoolAnswer(None, plain(f"{type(error).__name__}: {error}", MAX_ERROR))

    return answer


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
        answers["utils"] = SimpleNamespace(get_device_properties=lambda device=0: _driver_properties_of(gpu))
        driver.set_active(SimpleNamespace(**answers, get_current_stream=lambda device=0: device))


@contextlib.contextmanager
def as_if_here(gpu: GpuModel) -> Iterator[None]:
    """Make Triton target `gpu` inside this block, and `torch.cuda` state its capability, name and properties.

    Tensors that are made on it have no data.
    """
    from triton.runtime.driver import driver

    from constrint.tune.no_data import without_data

    before = dict(vars(driver))  # its own way back looks for a GPU
    compile_for(gpu)
    try:
        with _cuda_answers_for(gpu), without_data(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="TRITON_DEFAULT_FP_FUSION")  # of a launch in the file
            yield
    finally:
        vars(driver).clear()
        vars(driver).update(before)


#: The version of a maker's runtime that a file reads where PyTorch here was built without it.
USUAL_RUNTIMES = {"hip": "7.0.0", "cuda": "13.0"}


@contextlib.contextmanager
def _cuda_answers_for(gpu: GpuModel) -> Iterator[None]:
    """Let `torch.cuda` state a GPU's capability, name and properties, and `torch.version` its maker's runtime.

    Files read these as they are imported. Whether a GPU is available stays as it is: a file that reads a tensor's
    values could not.
    """
    import torch

    properties = _properties_of(gpu)
    answers: dict[str, Any] = {
        "get_device_capability": lambda device=None: (properties.major, properties.minor),
        "get_device_name": lambda device=None: properties.name,
        "get_device_properties": lambda device=None: properties,
        "current_device": lambda: 0,
    }
    runtime = "hip" if gpu.arch.target.startswith("gfx") else "cuda"
    here: Any = getattr(torch.version, runtime, None)
    versions = {"hip": None, "cuda": None, runtime: here or USUAL_RUNTIMES[runtime]}
    before = {name: getattr(torch.cuda, name) for name in answers}
    versions_before = {name: getattr(torch.version, name, None) for name in versions}
    vars(torch.cuda).update(answers)
    vars(torch.version).update(versions)
    try:
        yield
    finally:
        vars(torch.cuda).update(before)
        vars(torch.version).update(versions_before)


def _driver_properties_of(gpu: GpuModel) -> dict[str, int]:
    """The properties of a device that Triton's driver gives, as far as a model states them."""
    known = {
        "max_shared_mem": gpu.sm.max_smem_bytes_per_block,
        "multiprocessor_count": gpu.device.sm_count,
        "warpSize": gpu.sm.warp_size,
    }
    registers = getattr(gpu.sm, "max_registers_per_block", None)
    return known if registers is None else {**known, "max_num_regs": registers}


def _properties_of(gpu: GpuModel) -> SimpleNamespace:
    """The properties of PyTorch's device that a model states; on AMD the capability is that of `gfx942`: 9, 4."""
    digits = gpu.arch.target.removeprefix("gfx")
    # The last two digits of an AMD target are its minor version and its stepping, in hexadecimal.
    capability = gpu.arch.compute_capability or f"{digits[:-2]}.{int(digits[-2], 16)}"
    major, _, minor = capability.partition(".")
    sm, memory = gpu.sm, gpu.memory
    known: dict[str, Any] = {
        "name": gpu.name,
        "major": int(major),
        "minor": int(minor),
        "total_memory": memory.dram.size_bytes,
        "multi_processor_count": gpu.device.sm_count,
        "warp_size": sm.warp_size,
        "max_threads_per_multi_processor": sm.max_threads_per_sm,
        "shared_memory_per_block": getattr(sm, "max_smem_bytes_per_block_without_opt_in", sm.max_smem_bytes_per_block),
        "shared_memory_per_block_optin": sm.max_smem_bytes_per_block,
        "shared_memory_per_multiprocessor": sm.smem_bytes_per_sm,
        "L2_cache_size": memory.l2.size_bytes,
    }
    if gpu.arch.target.startswith("gfx"):
        known["gcnArchName"] = gpu.arch.target
    return SimpleNamespace(**known)


def _meta_device() -> Any:
    """The `meta` device, whose tensors have no data."""
    import torch

    return torch.device("meta")
