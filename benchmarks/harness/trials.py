"""Check and time many given trials: compiled on every core, run by one process per device, as kernels become ready.

All trials of a workload run on one device, beside a baseline if there is one. Each is checked, then timed with a cold
and a warm cache. The quickest and those marked as final are timed once more, in turn: the figure that picked a trial as
the best is not the one it is judged by.

The tuner does it otherwise (`constrint.tune.engine`): it has no list beforehand, no competitor and one state of the
cache. Results are rows of a file that every process maps: one that hangs or dies loses the trial it was at, and nothing
else.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from benchmarks.harness.processes import Beat, Processes, start_compiling
from constrint.hwmodels import GpuModel
from constrint.select import Workload
from constrint.tune.check import Case
from constrint.tune.measure import FINAL_ROUNDS, ROUNDS, Call, Timer, call_of
from constrint.tune.trial import Load, Outcome, Trial

#: A trial slower than the quickest by more than this has no warm time.
WARM_WITHIN = 1.25
POLL_S = 0.1

#: What is known of a trial; times are in seconds, nan where they were not measured.
FIGURES = ("error_over_bound", "cold_s", "spread_s", "warm_s", "again_s", "baseline_cold_s", "baseline_warm_s")
RESULT = np.dtype([("outcome", np.uint8), *((name, np.float64) for name in FIGURES)])
#: A competitor's call on a workload's inputs; None where it cannot take them.
Baseline = Callable[[Workload, Mapping[str, Any]], Call | None]


@dataclass(frozen=True)
class Run:
    """Settings of a run of trials.

    Args:
        load: Finds a kernel by its name.
        gpu: The model of the devices.
        device: `cuda`, or `cpu` for kernels that run there.
        num_devices: How many of them.
        baseline: The competitor, importable in another process.
        is_timed: False: only check.
        num_final: The quickest of a workload that are timed once more.
        patience_s: How long one trial may take.
        seed: The seed of the random inputs.
    """

    load: Load
    gpu: GpuModel
    device: str = "cuda"
    num_devices: int = 1
    baseline: Baseline | None = None
    is_timed: bool = True
    num_final: int = 20
    patience_s: float = 25.0
    seed: int = 0


def run_trials(
    run: Run,
    trials: Sequence[Trial],
    folder: Path,
    *,
    limit_s: float = 600.0,
    say: Callable[[str], None] | None = None,
) -> Any:
    """Run all trials, or those that the time allows.

    Args:
        run: How.
        trials: Those of one workload have to be neighbours.
        folder: Where results lie while they come in.
        limit_s: When to stop, in seconds from now.
        say: Told how far it is, every 20 seconds.

    Returns:
        An array of `RESULT`, one row per trial.
    """
    started = told = time.time()
    folder.mkdir(parents=True, exist_ok=True)
    results = open_results(folder, len(trials), is_new=True)

    def blame(number: int, outcome: Outcome) -> None:
        if results["outcome"][number] in (Outcome.NOT_RUN, Outcome.OK):
            results["outcome"][number] = outcome

    compilers, compiled = start_compiling(run.load, run.gpu, trials, folder)
    shares = deal(trials, run.num_devices)
    arguments = (run, trials, folder, shares)
    workers = Processes(folder, run_share, len(shares), blame, arguments=arguments, patience_s=run.patience_s)
    try:
        while time.time() < started + limit_s:
            is_compiled, is_through = compilers.poll(), workers.poll()
            if is_through:
                break
            if say and time.time() > told + 20:
                told = time.time()
                done, ran = np.count_nonzero(compiled), np.count_nonzero(results["outcome"])
                say(f"{told - started:.0f} s: {done} compiled{'' if is_compiled else ' so far'}, {ran} run")
            time.sleep(POLL_S)
    finally:
        workers.stop()
        compilers.stop()
    return np.array(results)


def deal(trials: Sequence[Trial], num_devices: int) -> list[list[int]]:
    """Numbers of the trials of every device: the largest workloads first, each to the device with the least."""
    groups = sorted(_by_workload(range(len(trials)), trials), key=len, reverse=True)
    shares: list[list[int]] = [[] for _ in range(max(1, min(num_devices, len(groups))))]
    for group in groups:
        min(shares, key=len).extend(group)
    return shares


def _by_workload(numbers: Sequence[int], trials: Sequence[Trial]) -> list[list[int]]:
    groups = itertools.groupby(numbers, key=lambda number: trials[number].workload)
    return [list(group) for _, group in groups]


def run_share(
    beat: Beat, device: int, run: Run, trials: Sequence[Trial], folder: Path, shares: list[list[int]]
) -> None:
    """Run one device's trials; runs in a process of its own."""
    if run.device != "cpu":
        import torch

        torch.cuda.set_device(device)
    share = _Share(run, beat, trials, folder)
    for group in _by_workload(shares[device], trials):
        share.run_group(group)


class _Share:
    """State that the trials of one device share."""

    def __init__(self, run: Run, beat: Beat, trials: Sequence[Trial], folder: Path) -> None:
        self.run, self.beat, self.trials = run, beat, trials
        self.timer = Timer(run.device)
        self.results = open_results(folder, len(trials))
        self.compiled = np.memmap(folder / "compiled", np.uint8, "r", shape=(max(1, len(trials)),))
        #: Of the workload at hand, by kernel; and the least cold time so far.
        self.cases: dict[str, Case] = {}
        self.best_s = np.inf

    def run_group(self, numbers: list[int]) -> None:
        """Check and time the trials of one workload, those that are not done."""
        results, self.cases = self.results, {}
        open_numbers = [number for number in numbers if results["outcome"][number] == Outcome.NOT_RUN]
        is_right = results["outcome"][numbers] == Outcome.OK
        lacks_final = self.run.is_timed and is_right.any() and np.isnan(results["again_s"][numbers]).all()
        if not open_numbers and not lacks_final:
            return
        self.beat.at((open_numbers or numbers)[0])
        self.best_s = float(np.fmin.reduce(results["cold_s"][numbers], initial=np.inf))
        baseline = self._baseline(numbers)
        for number in open_numbers:
            while self.compiled[number] == Outcome.NOT_RUN:
                self.beat.at(self.beat.item)
                time.sleep(0.01)
            self.beat.at(number)
            if self.compiled[number] == Outcome.OK:
                self._run_one(number)
            else:
                results["outcome"][number] = self.compiled[number]
        if self.run.is_timed and self.run.num_final:
            self._finals(numbers, baseline)

    def _case(self, number: int) -> Case:
        trial = self.trials[number]
        if trial.kernel not in self.cases:
            spec = self.run.load(trial.kernel)
            self.cases[trial.kernel] = Case(
                spec, self.run.gpu, trial.workload, device=self.run.device, seed=self.run.seed
            )
        return self.cases[trial.kernel]

    def _baseline(self, numbers: list[int]) -> Call | None:
        """The competitor's call, timed."""
        if self.run.baseline is None or not self.run.is_timed:
            return None
        call = self.run.baseline(self.trials[numbers[0]].workload, self._case(numbers[0]).inputs)
        if call is not None:
            (cold,) = self.timer.cold([self.timer.graph(call)], ROUNDS)
            (warm,) = self.timer.warm([call], cold.median_s)
            self.results["baseline_cold_s"][numbers] = cold.median_s
            self.results["baseline_warm_s"][numbers] = warm.median_s
        return call

    def _run_one(self, number: int) -> None:
        results = self.results
        try:
            case = self._case(number)
            launches = case.launches(self.trials[number].config)
            error = case.check(launches)
            results["error_over_bound"][number] = error
            if error <= 1.0 and self.run.is_timed:
                self._time(number, call_of(launches))
            results["outcome"][number] = Outcome.OK if error <= 1.0 else Outcome.WRONG_RESULT
        except Exception as error:  # noqa: BLE001 - the outcome of the trial
            results["outcome"][number] = Outcome.LAUNCH_FAILED
            print(f"{self.trials[number]}: {type(error).__name__}: {error}", flush=True)
            self.timer.synchronize()  # ends this process where the device is lost to it

    def _time(self, number: int, call: Call) -> None:
        results = self.results
        (cold,) = self.timer.cold([self.timer.graph(call)], ROUNDS)
        results["cold_s"][number], results["spread_s"][number] = cold.median_s, cold.spread_s
        self.best_s = min(self.best_s, cold.median_s)
        if cold.median_s <= WARM_WITHIN * self.best_s:
            results["warm_s"][number] = self.timer.warm([call], cold.median_s)[0].median_s

    def _finals(self, numbers: list[int], baseline: Call | None) -> None:
        """Time the quickest and the final ones once more, all in turn, the baseline among them."""
        results = self.results
        right = [number for number in numbers if results["outcome"][number] == Outcome.OK]
        quickest = sorted(right, key=lambda number: float(results["cold_s"][number]))[: self.run.num_final]
        chosen = list(dict.fromkeys([*quickest, *(number for number in right if self.trials[number].is_final)]))
        if not chosen:
            return
        # Kept while graphs refer to what they hold.
        kept = [self._case(number).launches(self.trials[number].config) for number in chosen]
        graphs = []
        for number, launches in zip(chosen, kept, strict=True):
            self.beat.at(number)
            graphs.append(self.timer.graph(call_of(launches)))
        if baseline:
            graphs.append(self.timer.graph(baseline))
        measured = self.timer.cold(graphs, FINAL_ROUNDS)
        for number, figure in zip(chosen, measured, strict=False):
            results["again_s"][number] = figure.median_s
        if baseline:
            results["baseline_cold_s"][numbers] = measured[-1].median_s


def open_results(folder: Path, num: int, *, is_new: bool = False) -> Any:
    """Map the results of `num` trials, an array of `RESULT`."""
    results = np.memmap(folder / "results", RESULT, "w+" if is_new else "r+", shape=(max(1, num),))
    if is_new:
        for name in FIGURES:
            results[name] = np.nan
    return results


def write_trials(path: Path, trials: Sequence[Trial]) -> None:
    """Write trials as JSON."""
    path.write_bytes(msgspec.json.encode(trials))


def read_trials(path: Path) -> list[Trial]:
    """Read what `write_trials` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Trial])
