"""`constrint tune`: measure candidates on this machine's GPUs, and store the winners for later calls.

Workloads come from the options, or from a YAML file with a list of kernels, types and sizes:

    - {kernel: gemm, dtype: bf16, m: [16, 4096], n: 4096, k: 4096}
    - {kernel: lstm, heads: 12, head_dim: 64}

A list of values stands for each value, several lists for all combinations; omitted keys have their defaults.
"""

from __future__ import annotations

import itertools
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from constrint.answers.trial import FROZEN, TUNED, frozen_page, tuned_page
from constrint.cli.completing import complete_engine, complete_search, one_of
from constrint.cli.completion import complete_tool
from constrint.cli.llm_options import LlmOptions, taking_model
from constrint.cli.options import Choice, KernelCommand, kernel_file_errors
from constrint.cli.output import Output, printing
from constrint.cli.run import INTERRUPTED
from constrint.cli.tune_progress import progress
from constrint.errors import UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import DEFAULT_KERNEL, list_kernels, load_kernel
from constrint.select import Operation, Workload
from constrint.select.workload import workload_of
from constrint.tune.engine.interface import RUN_PATIENCE_S
from constrint.tune.goals import goals_of, usual_goals
from constrint.tune.session import Goal

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
        bool,
        typer.Option(
            "--install", help="Tune the usual workloads of --kernel, or of all kernels; a later run continues."
        ),
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
        bool, typer.Option("--frozen", help="Measure nothing: list the known winners; exit code 1 if any is missing.")
    ] = False,
    search: Annotated[
        str,
        typer.Option(
            "--search", help="The search: model, random, optuna:tpe, llm, ...", autocompletion=complete_search
        ),
    ] = "model",
    cache: Annotated[
        str,
        typer.Option(
            "--cache",
            help="cold: the L2 is overwritten before every timed call; or warm.",
            autocompletion=one_of(*CACHES),
        ),
    ] = "cold",
    store: Annotated[
        str | None, typer.Option("--store", metavar="URL", help="The store of records: a file, or postgresql://...")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", min=0.1, help="Seconds that a candidate may run; it may compile for twice that time."
        ),
    ] = RUN_PATIENCE_S,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random inputs and of the search.")] = 0,
    engine: Annotated[
        str, typer.Option("--engine", help="local, or ray for many machines.", autocompletion=complete_engine)
    ] = "local",
    address: Annotated[
        str | None, typer.Option("--address", help="Address of the Ray cluster; by default one of this machine alone.")
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            "--export",
            metavar="TOOL[:PLACE]",
            help="Write the trials to optuna[:URL], wandb[:PROJECT] or mlflow[:EXPERIMENT], too; may be repeated.",
            autocompletion=complete_tool,
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device",
            help="cuda, or cpu for kernels that run there (with --gpu).",
            autocompletion=one_of("cuda", "cpu"),
        ),
    ] = "cuda",
    *,
    asking: LlmOptions,
    output: Output,
) -> None:
    """Measure candidates on this machine's GPUs; the winners are what later calls launch."""
    _check(choice, install, workloads, cache, device)
    asking.check_search(search)
    output.check(FROZEN if frozen else TUNED)
    started, seconds = time.monotonic(), seconds_of(budget)
    indices = _indices(gpus)
    if frozen:
        _print_frozen(choice, indices, workloads, output, install=install)
        return
    from constrint.tune.export import ExportingListener, open_export

    exports = [open_export(named) for named in export or ()]
    from constrint.cli.records_selection import opened
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
        start_s = time.monotonic() - started
        left = None if seconds is None else max(0.0, seconds - start_s)
        settings = Settings(gpu, make_search, trials, left, resume=resume or install, seed=seed)
        settings = asking.searching(search, settings, goals, records, setup.num_inputs)
        listener = stack.enter_context(progress(runs.slots, trials, len(goals)))
        report = tune(goals, settings, runs, records, ExportingListener(listener, exports) if exports else listener)
    output.show(tuned_page(gpu, report, len(goals), time.monotonic() - started, start_s, seconds))
    if report.is_interrupted:
        raise typer.Exit(INTERRUPTED)
    if len(report.tuned) < len(goals) or any(each.winner is None for each in report.tuned):
        raise typer.Exit(1)


def _print_frozen(
    choice: Choice, indices: tuple[int, ...] | None, workloads: Path | None, output: Output, *, install: bool
) -> None:
    """Print the winners that look-ups hold; ends with exit code 1 if a workload has none."""
    from constrint.select.winners import winner
    from constrint.tune.engine.local import devices_of

    gpu = load_gpu(choice.gpu) if choice.gpu is not None else devices_of(indices)[0]
    goals = goals_of_choice(choice, gpu, workloads, install=install)
    winners = [winner(goal.operation.implementations, gpu, goal.workload, goal.fixed) for goal in goals]
    output.show(frozen_page(gpu, goals, winners))
    if any(entry is None for entry in winners):
        raise typer.Exit(1)


def _check(choice: Choice, install: bool, workloads: Path | None, cache: str, device: str) -> None:
    if install and (workloads is not None or choice.sizes):
        raise UsageError("--install tunes the usual workloads: it takes neither sizes nor --workloads.")
    if workloads is not None and (choice.sizes or choice.dtype):
        raise UsageError("--workloads names sizes and types: give no others.")
    if workloads is not None:
        _entries_of(workloads)  # a file that cannot be read is named before GPUs are looked for
    for name, value, names in (("cache", cache, CACHES), ("device", device, DEVICES)):
        if value not in names:
            raise UnknownNameError(name, value, names)
    if device == "cpu" and choice.gpu is None:
        raise UsageError("--device cpu needs --gpu NAME: the model by which configurations are chosen.")


def seconds_of(budget: str | None) -> float | None:
    """A time such as `60s`, `5m` or `1h` in seconds; None without one.

    Raises:
        UsageError: When the text is not a time.
    """
    if budget is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", budget)
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"--budget {budget!r} is no time; write 60s, 5m or 1h.")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def _indices(gpus: str) -> tuple[int, ...] | None:
    if gpus == "all":
        return None
    parts = gpus.split(",")
    if not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"--gpus {gpus!r}: write all, or indices such as 0,1.")
    return tuple(dict.fromkeys(int(part) for part in parts))


def goals_of_choice(choice: Choice, gpu: GpuModel, workloads: Path | None, *, install: bool) -> list[Goal]:
    """The goals of a command: the usual workloads, those of a file, or the one that the sizes name.

    Raises:
        ConstrintError: When the kernel or the GPU does not take a workload.
    """
    if install:
        names = (choice.kernel,) if choice.kernel else list_kernels()
        return usual_goals(map(load_kernel, names), gpu)
    if workloads is None:
        assert choice.operation is not None
        pairs = [(choice.operation, workload_of(choice.operation, gpu, choice.sizes, choice.dtype))]
    else:
        pairs = read_workloads(workloads, choice.kernel or DEFAULT_KERNEL, gpu)
    goals: list[Goal] = []
    for operation, workload in pairs:
        goals += [goal for goal in goals_of(operation, gpu, [workload]) if goal not in goals]
    return goals


#: Largest file of workloads, and most workloads in it.
MAX_BYTES, MAX_WORKLOADS = 1 << 20, 10_000
#: Keys that are not sizes.
KERNEL, DTYPE = "kernel", "dtype"


def _entries_of(path: Path) -> list[dict[Any, Any]]:
    """The entries of a file of workloads, which may still be no workloads.

    Raises:
        UsageError: When the file cannot be read, or is no list of mappings.
    """
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            raise UsageError(f"{path} has more than {MAX_BYTES} bytes: it is no list of workloads.")
        entries = yaml.safe_load(text)
    except OSError as error:
        raise UsageError(f"cannot read the workloads {path}: {error.strerror}.") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path} is no YAML: {reason}") from None
    if isinstance(entries, dict):
        entries = entries.get("workloads", [entries])
    if not isinstance(entries, list) or not entries:
        raise UsageError(f"{path} holds no list of workloads, such as `- {{kernel: gemm, m: 4096, n: 4096, k: 4096}}`.")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise UsageError(f"{path}, entry {number}: it is no mapping of sizes but {type(entry).__name__}.")
    return entries


def read_workloads(path: Path, default: str, gpu: GpuModel) -> list[tuple[Operation, Workload]]:
    """The workloads of a file.

    Args:
        path: The file.
        default: The kernel of entries that name none.
        gpu: The GPU, which decides default types.

    Raises:
        UsageError: When the file cannot be read, or an entry is not a workload; names the entry.
    """
    pairs: list[tuple[Operation, Workload]] = []
    for number, entry in enumerate(_entries_of(path), 1):
        pairs += _workloads_of(entry, default, gpu, f"{path}, entry {number}")
        if len(pairs) > MAX_WORKLOADS:
            raise UsageError(f"{path}: more than {MAX_WORKLOADS} workloads; split the file.")
    return pairs


def _workloads_of(entry: dict[Any, Any], default: str, gpu: GpuModel, where: str) -> list[tuple[Operation, Workload]]:
    name = entry.get(KERNEL, default)
    if not isinstance(name, str):
        raise UsageError(f"{where}: kernel is no name but {name!r}.")
    with kernel_file_errors(name):
        operation = load_kernel(name)
    sizes_known = [size.name for size in (*operation.sizes, *operation.options)]
    axes: dict[str, list[Any]] = {}
    for key, value in entry.items():
        if key == KERNEL:
            continue
        if key != DTYPE and key not in sizes_known:
            raise UsageError(f"{where}: {UnknownNameError('size', str(key), sizes_known)}")
        axes[key] = values = value if isinstance(value, list) else [value]
        for each in values:
            is_right = isinstance(each, str) if key == DTYPE else isinstance(each, int) and not isinstance(each, bool)
            if not is_right:
                kind = "a type's name" if key == DTYPE else "a whole number"
                raise UsageError(f"{where}: {key} must be {kind} or a list of them, got {each!r}.")
    pairs = []
    for each_one in itertools.islice(itertools.product(*axes.values()), MAX_WORKLOADS + 1):
        sizes = dict(zip(axes, each_one, strict=True))
        dtype = sizes.pop(DTYPE, None)
        pairs.append((operation, workload_of(operation, gpu, sizes, dtype)))
    return pairs
