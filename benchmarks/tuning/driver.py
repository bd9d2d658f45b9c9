"""What the tuner's own process can sustain: devices and compilers are processes that only wait, as long as asked.

    python -m benchmarks.tuning.driver --devices 1 2 4 --trial-ms 8

Everything else is as in a run of `constrint tune --install --kernel gemm`: searches, the engine, the store. Printed are
trials a second from the first to the last, what the driver's process and its main thread take of a core for a trial,
and which share of that time the devices were busy. With `--trial-ms 0` the driver is all that there is.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.harness.table import Table, described
from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_kernel, load_spec
from constrint.tune.engine import local
from constrint.tune.engine.device import Told
from constrint.tune.engine.interface import Job, Setup, TrialAnswer
from constrint.tune.goals import usual_goals
from constrint.tune.search.registry import find_search
from constrint.tune.store.record import Figures
from constrint.tune.store.store import RecordStore
from constrint.tune.trial import Outcome, Trial
from constrint.tune.tuner import Settings, Tuner

COLUMNS = ("devices", "trial_ms", "compile_ms", "trials", "trials_per_s", "process_ms", "main_ms", "busy_share")


class Waiting(Setup):
    """A setup that also says how long things take."""

    trial_s: float
    compile_s: float


def serve_device(setup: Waiting, index: int) -> Callable[[Job, Any], Told]:
    """Answers jobs with times that depend on the configuration alone, after a while that varies."""
    draw = random.Random(index)

    def answer(job: Job, note: Callable[[int], None]) -> Told:
        answers = []
        for trial in job.trials:
            time.sleep(setup.trial_s * draw.uniform(0.6, 1.4))
            spread = random.Random(str(sorted(trial.config.items()))).random()
            figures = Figures(median_s=1e-5 * (1 + spread), spread_s=1e-7, num_rounds=15, is_final=job.is_final)
            answers.append(TrialAnswer(outcome=Outcome.OK, error_over_bound=0.1, figures=figures))
        return Told(tuple(answers), False)

    return answer


def serve_compiler(setup: Waiting) -> Callable[[Trial, Any], TrialAnswer]:
    """Answers that it is compiled, after a while."""

    def answer(trial: Trial, note: Callable[[int], None]) -> TrialAnswer:
        time.sleep(setup.compile_s)
        return TrialAnswer(outcome=Outcome.OK)

    return answer


def measured(num_devices: int, asked: argparse.Namespace) -> dict[str, Any]:
    """One run with so many devices."""
    gpu = load_gpu(asked.gpu)
    setup = Waiting(load_spec, gpu, device="cpu")
    vars(setup).update(trial_s=1e-3 * asked.trial_ms, compile_s=1e-3 * asked.compile_ms)
    fakes = mock.patch.multiple(local, serve_device=serve_device, serve_compiler=serve_compiler)
    with tempfile.TemporaryDirectory() as folder, RecordStore.open(Path(folder) / "records.sqlite") as store, fakes:
        engine = local.LocalEngine(setup, range(num_devices), num_compilers=asked.compilers)
        try:
            settings = Settings(gpu, find_search("model"), asked.trials, load=load_spec)
            tuner = Tuner(settings, engine, store)
            process_s, main_s = time.process_time(), time.thread_time()
            report = tuner.run(usual_goals([load_kernel("gemm")], gpu))
            process_s, main_s = time.process_time() - process_s, time.thread_time() - main_s
        finally:
            engine.close()
    number = sum(sum(tuned.outcomes.values()) for tuned in report.tuned)
    return {
        "devices": num_devices,
        "trial_ms": asked.trial_ms,
        "compile_ms": asked.compile_ms,
        "trials": number,
        "trials_per_s": number / report.seconds,
        "process_ms": 1e3 * process_s / number,
        "main_ms": 1e3 * main_s / number,
        "busy_share": sum(use.busy_s for use in report.devices) / (num_devices * report.seconds),
    }


def main() -> None:
    """Runs from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--trial-ms", type=float, default=8.0, help="what a trial takes on a device")
    parser.add_argument("--compile-ms", type=float, default=5.0, help="what a candidate takes to compile")
    parser.add_argument("--compilers", type=int, default=4, help="processes that compile")
    parser.add_argument("--trials", type=int, default=32, help="of each workload")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--out", type=Path, help="a CSV file")
    asked = parser.parse_args()
    with Table(asked.out, COLUMNS, f"measured: {described()}") as table:
        for num_devices in asked.devices:
            row = measured(num_devices, asked)
            table.add(**row)
            print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
