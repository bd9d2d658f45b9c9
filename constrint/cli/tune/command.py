"""`constrint tune`: measure what can win on the GPUs of this machine, and keep it where every later call finds it."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from constrint.cli.asked.kernel_options import Choice, KernelCommand
from constrint.cli.llm_options import LlmOptions, taking_model
from constrint.cli.output import Output, printing
from constrint.cli.tune.report import FROZEN, TUNED, print_frozen, print_report
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.tune.engine.interface import RUN_PATIENCE_S

CACHES = ("cold", "warm")
DEVICES = ("cuda", "cpu")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600}


@KernelCommand.taking(files=False, rules=False)
@printing
@taking_model
def tune(
    choice: Choice,
    workloads: Annotated[
        Path | None, typer.Option("--workloads", help="YAML list of kernels and sizes (`constrint docs tuning`).")
    ] = None,
    install: Annotated[
        bool, typer.Option("--install", help="Tune the usual workloads of the kernel named, or of all; continues.")
    ] = False,
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=100_000, help="Configurations of a workload that are tried at most.")
    ] = 16,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time for everything: 60s, 5m, 1h.")
    ] = None,
    gpus: Annotated[
        str, typer.Option("--gpus", metavar="all|0,1", help="Which GPUs of this machine do the work.")
    ] = "all",
    resume: Annotated[
        bool, typer.Option("--resume", help="Do not measure again what the store knows of these kernels and tools.")
    ] = False,
    frozen: Annotated[
        bool, typer.Option("--frozen", help="Measure nothing: say what the tables hold; 1 where anything is missing.")
    ] = False,
    search: Annotated[
        str, typer.Option("--search", help="What proposes configurations: model, random, optuna:tpe, llm, ...")
    ] = "model",
    cache: Annotated[
        str, typer.Option("--cache", help="cold: the L2 is overwritten before every timed call; or warm.")
    ] = "cold",
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="Where records are kept: a file, or postgresql://...")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds that a candidate may take; twice as many to compile.")
    ] = RUN_PATIENCE_S,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the random inputs, and of the search.")] = 0,
    engine: Annotated[str, typer.Option("--engine", help="local, or ray for many machines.")] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Of the Ray cluster; one of this machine alone if left out.")
    ] = None,
    device: Annotated[
        str, typer.Option("--device", help="cuda, or cpu for kernels that run there (with --gpu).")
    ] = "cuda",
    *,
    asking: LlmOptions,
    output: Output,
) -> None:
    """Measure candidates on this machine's GPUs; the winners are what later calls launch."""
    from constrint.cli.tune.goals import goals_of_choice

    _check(choice, install, workloads, cache, device)
    asking.check_search(search)
    output.check(FROZEN if frozen else TUNED)
    started, seconds = time.monotonic(), seconds_of(budget)
    indices = _indices(gpus)
    if frozen:
        gpu = _frozen_gpu(choice, indices)
        print_frozen(gpu, goals_of_choice(choice, gpu, workloads, install=install), output)
        return
    from constrint.cli.records.selection import opened
    from constrint.cli.tune.progress import progress
    from constrint.kernels.registry import load_spec
    from constrint.tune.engine.interface import Setup
    from constrint.tune.engine.registry import DeviceRequest, open_fleet
    from constrint.tune.search.registry import find_search
    from constrint.tune.tuner import Settings
    from constrint.tuning import tune

    make_search = find_search(search)
    with ExitStack() as stack:
        fleet = open_fleet(engine, DeviceRequest(device, indices, address))
        stack.callback(fleet.close)
        gpu = fleet.model(choice.gpu)
        goals = goals_of_choice(choice, gpu, workloads, install=install)
        records = stack.enter_context(opened(store, is_made=True))
        setup = Setup(load_spec, gpu, device, cache, seed=seed).with_patience(timeout)
        runs = fleet.engine(setup)
        stack.callback(runs.close)
        settings = Settings(gpu, make_search, trials, seconds, resume=resume or install, seed=seed)
        settings = asking.searching(search, settings, goals, records, setup.num_inputs)
        listener = stack.enter_context(progress(runs.slots, trials, len(goals)))
        report = tune(goals, settings, runs, records, listener)
    print_report(gpu, report, len(goals), time.monotonic() - started, output)


def _check(choice: Choice, install: bool, workloads: Path | None, cache: str, device: str) -> None:
    if install and (workloads is not None or choice.sizes):
        raise UsageError("--install tunes the usual workloads: it takes neither sizes nor --workloads.")
    if workloads is not None and (choice.sizes or choice.dtype):
        raise UsageError("--workloads names sizes and types: give no others.")
    for name, value, known in (
        ("cache", cache, CACHES),
        ("device", device, ("cuda", "cpu")),
    ):
        if value not in known:
            raise UnknownNameError(name, value, known)
    if device == "cpu" and choice.gpu is None:
        raise UsageError("--device cpu needs --gpu NAME: the model by which configurations are chosen.")


def seconds_of(budget: str | None) -> float | None:
    """A time such as `60s`, `5m` or `1h`; None where none is given.

    Raises:
        UsageError: When it is no time.
    """
    if budget is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", budget)
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"--budget {budget!r} is no time; write 60s, 5m or 1h.")
    return float(found[1]) * _SECONDS[found[2] or "s"]


def _indices(gpus: str) -> tuple[int, ...] | None:
    if gpus == "all":
        return None
    parts = gpus.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--gpus {gpus!r}: write all, or indices such as 0,1.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _frozen_gpu(choice: Choice, indices: tuple[int, ...] | None) -> GpuModel:
    from constrint.tune.engine.local import devices_of

    return load_gpu(choice.gpu) if choice.gpu is not None else devices_of(indices)[0]
