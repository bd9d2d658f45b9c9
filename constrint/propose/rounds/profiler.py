"""Metrics of a candidate by Nsight Compute (`ncu`), where it is installed and may be used: evidence for the judge.

A process of its own launches the candidate once between `cudaProfilerStart` and `Stop`, and `ncu` measures that. What
does not work gives no metrics and says why: a profile is evidence, and no gate.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from constrint.propose.judge import STALLS, THROUGHPUTS
from constrint.propose.records import Ranked
from constrint.select import Workload

#: How long a kernel takes: of several that a candidate launches the longest one counts.
DURATION = "gpu__time_duration.sum"
METRICS = (DURATION, *THROUGHPUTS, *STALLS)
#: How long a profile may take: a process that loads torch, and a replay of the kernel for each group of metrics.
PATIENCE_S = 120.0
#: What `ncu` says where counters are for administrators alone.
FORBIDDEN = "ERR_NVGPUCTRPERM"


def find_ncu() -> str | None:
    """The path of Nsight Compute's command; None where it is not installed."""
    return shutil.which("ncu")


@dataclass
class Profiler:
    """Profiles candidates of one workload.

    Args:
        ncu: The path of Nsight Compute's command.
        program: A module that launches one candidate, told in JSON on its command line what it is.
        workload: What is computed.
        gpu: The name of the GPU's model.
        device: Where it is launched.
        patience_s: Seconds that a profile may take.
        problem: Why the last one gave no metrics; empty where it did.
    """

    ncu: str
    program: str
    workload: Workload
    gpu: str
    device: str = "cuda"
    patience_s: float = PATIENCE_S
    problem: str = field(default="", init=False)

    def __call__(self, candidate: Ranked, kernel: str) -> dict[str, float]:
        """The metrics of a candidate; none where it cannot be profiled.

        Args:
            candidate: The configuration.
            kernel: A name by which another process finds its kernel.
        """
        work = self.workload
        told = {"kernel": kernel, "gpu": self.gpu, "config": dict(candidate.config), "operation": work.operation}
        told |= {"sizes": dict(work.sizes), "dtype": work.dtype, "options": dict(work.options), "device": self.device}
        command = [self.ncu, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off"]
        command += ["--target-processes", "all", "--metrics", ",".join(METRICS)]
        command += [sys.executable, "-m", self.program, json.dumps(told)]
        try:
            said = _said(command, self.patience_s)
        except subprocess.TimeoutExpired:
            self.problem = f"ncu gave nothing within {self.patience_s:g} s"
            return {}
        except OSError as error:
            self.problem = f"ncu gave nothing: {error.strerror}"
            return {}
        found = metrics_of(said.splitlines())
        self.problem = "" if found else _problem(said)
        return found


def _said(command: Sequence[str], patience_s: float) -> str:
    """What a command prints; it and all that it started end with this call."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True) as child:
        try:
            return child.communicate(timeout=patience_s)[0]
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            raise


def metrics_of(lines: Sequence[str]) -> dict[str, float]:
    """The metrics in the output of `ncu --csv --page raw`: those of the kernel that takes longest.

    A line of names comes first, then one of units, then one for each kernel; other lines are messages.
    """
    rows = list(csv.reader(line for line in lines if line.startswith('"')))
    if len(rows) < 3:
        return {}
    names = rows[0]
    kernels = [_numbers(dict(zip(names, row, strict=False))) for row in rows[2:]]
    longest = max(kernels, key=lambda kernel: kernel.get(DURATION, 0.0))
    return {name: longest[name] for name in METRICS if name in longest}


def _numbers(cells: Mapping[str, str]) -> dict[str, float]:
    found = {}
    for name in METRICS:
        text = cells.get(name, "").replace(",", "")
        try:
            found[name] = float(text)
        except ValueError:
            continue
    return {name: value for name, value in found.items() if value == value and abs(value) != float("inf")}


def _problem(said: str) -> str:
    if FORBIDDEN in said:
        return f"ncu may not read the GPU's counters ({FORBIDDEN}): they are for administrators here"
    lines = [line for line in said.splitlines() if line.strip()]
    return f"ncu gave no metrics: {lines[-1] if lines else 'it said nothing'}"[:200]
