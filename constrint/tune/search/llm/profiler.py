"""Metrics of a candidate by Nsight Compute (`ncu`), where it is installed and permitted: evidence for the judge.

`ncu` measures a second process, this module as a program: it launches the candidate once between `cudaProfilerStart`
and `cudaProfilerStop`. A profile that fails gives no metrics and a reason: it is evidence, and no gate.
"""

from __future__ import annotations

import csv
import json
import math
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from constrint.hwmodels import load_gpu
from constrint.select import Workload
from constrint.tune.search.llm.judge import STALLS, THROUGHPUTS
from constrint.tune.search.llm.records import PredictedConfig
from constrint.tune.trial import Load

#: Duration of a kernel. Of a candidate's several launches, the longest kernel counts.
DURATION = "gpu__time_duration.sum"
METRICS = (DURATION, *THROUGHPUTS, *STALLS)
#: Time limit of a profile: a process that loads torch, and a replay of the kernel for each group of metrics.
PATIENCE_S = 120.0
#: Error of `ncu` where only administrators may read the counters.
FORBIDDEN = "ERR_NVGPUCTRPERM"


def find_ncu() -> str | None:
    """The path of Nsight Compute's command; None where it is not installed."""
    return shutil.which("ncu")


@dataclass
class Profiler:
    """Profiles candidates of one workload.

    Args:
        ncu: Path of Nsight Compute's command.
        load: Finds a kernel by name, importable in another process.
        workload: The workload.
        gpu: Name of the GPU's model.
        device: `cuda`, or `cpu` for kernels that run there.
        patience_s: Time limit of a profile, in seconds.
        problem: Reason for which the last profile gave no metrics; empty where it did.
    """

    ncu: str
    load: Load
    workload: Workload
    gpu: str
    device: str = "cuda"
    patience_s: float = PATIENCE_S
    problem: str = field(default="", init=False)

    def __call__(self, candidate: PredictedConfig, kernel: str) -> dict[str, float]:
        """The metrics of a candidate, whose kernel `load` finds by this name; none where it cannot be profiled."""
        work = self.workload
        launch: dict[str, Any] = {"load": f"{self.load.__module__}:{self.load.__qualname__}", "kernel": kernel}
        launch |= {"gpu": self.gpu, "config": dict(candidate.config), "operation": work.operation}
        launch |= {"sizes": dict(work.sizes), "dtype": work.dtype, "options": dict(work.options), "device": self.device}
        command = [self.ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"]
        command += ["--target-processes", "all", "--metrics", ",".join(METRICS)]
        command += [sys.executable, "-m", __name__, json.dumps(launch)]
        metrics: dict[str, float] = {}
        try:
            printed = _output_of(command, self.patience_s)
            metrics = metrics_of(printed.splitlines())
            self.problem = "" if metrics else _problem(printed)
        except subprocess.TimeoutExpired:
            self.problem = f"ncu gave nothing within {self.patience_s:g} s"
        except OSError as error:
            self.problem = f"ncu gave nothing: {error.strerror}"
        return metrics


def _output_of(command: Sequence[str], patience_s: float) -> str:
    """The output of a command; the command and all its children end with this call."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True) as child:
        try:
            return child.communicate(timeout=patience_s)[0]
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise


def metrics_of(lines: Sequence[str]) -> dict[str, float]:
    """The metrics of the longest kernel in the output of `ncu --csv --page raw`.

    A line of names comes first, then a line of units, then one line per kernel; other lines are messages.
    """
    rows = list(csv.reader(line for line in lines if line.startswith('"')))
    kernels = [_numbers(dict(zip(rows[0], row, strict=False))) for row in rows[2:]]
    return max(kernels, key=lambda kernel: kernel.get(DURATION, 0.0), default={})


def _numbers(cells: Mapping[str, str]) -> dict[str, float]:
    """The metrics in a line; what is no number is left out."""
    numbers = {}
    for name in METRICS:
        with suppress(ValueError):
            numbers[name] = float(cells.get(name, "").replace(",", ""))
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def _problem(printed: str) -> str:
    if FORBIDDEN in printed:
        return f"ncu may not read the GPU's counters ({FORBIDDEN}): they are for administrators here"
    lines = [line for line in printed.splitlines() if line.strip()]
    return f"ncu gave no metrics: {lines[-1] if lines else 'it said nothing'}"[:200]


def launch_once(launch: Mapping[str, Any]) -> None:
    """Launch a candidate twice: first so that everything is compiled, then inside the profiler's range."""
    from constrint.tune.measure import Timer, call_of

    load: Load = pkgutil.resolve_name(launch["load"])
    spec, gpu = load(launch["kernel"]), load_gpu(launch["gpu"])
    workload = Workload(launch["operation"], launch["sizes"], launch["dtype"], launch["options"])
    inputs = spec.inputs(gpu, workload, device=launch["device"])
    outputs = spec.outputs(gpu, workload, inputs)
    call = call_of(spec.launches(gpu, workload, launch["config"], inputs, outputs))
    timer = Timer(launch["device"])
    for profiled in (nullcontext(), timer.shown_to_profiler()):
        with profiled:
            call()
            timer.synchronize()


if __name__ == "__main__":
    launch_once(json.loads(sys.argv[1]))
