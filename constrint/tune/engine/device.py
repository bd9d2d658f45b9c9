"""The process of one device: candidates are checked on several sets of inputs, then timed."""

from __future__ import annotations

import contextlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from constrint.select import KernelSpec, Workload
from constrint.tune.check import Case, KeptInputs, poison
from constrint.tune.engine.interface import Job, Setup, TrialAnswer
from constrint.tune.measure import FINAL_ROUNDS, ROUNDS, Call, Measurement, Timer, call_of
from constrint.tune.messages import describe
from constrint.tune.pool import compile_for, compile_trial
from constrint.tune.store.record import Compiled, Figures
from constrint.tune.trial import Outcome, Trial

#: A candidate whose first rounds are slower than the best by this factor is not timed to the end.
HOPELESS = 1.5
#: Most workloads whose inputs and expected outputs stay on the device, and the share of its memory that stays free.
KEPT_CASES, FREE_SHARE = 24, 0.5


#: Steps of a trial on the device.
INPUTS, CHECKS, TIMING = "inputs and references", "the checks", "timing"


class _Steps:
    """The seconds of each step of a trial, from now on."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._since = time.monotonic()

    def end(self, step: str) -> None:
        """Note that a step has ended, and that the next one begins."""
        now = time.monotonic()
        self._seconds[step], self._since = now - self._since, now

    def answer(self, outcome: Outcome, **fields: Any) -> TrialAnswer:
        """An answer that states the steps so far."""
        return TrialAnswer(outcome=outcome, steps=self._seconds, **fields)


class JobAnswers(NamedTuple):
    """The answers to a job, and whether the device is lost to this process, which is then replaced."""

    answers: tuple[TrialAnswer, ...]
    is_lost: bool


class _Timed(KeptInputs):
    """Inputs and outputs of a workload whose check is smaller."""

    def __init__(self, spec: KernelSpec, setup: Setup, workload: Workload) -> None:
        self._spec, self._gpu, self._workload = spec, setup.gpu, workload
        self.inputs = spec.inputs(setup.gpu, workload, device=setup.device, seed=setup.seed)
        self.outputs = spec.outputs(setup.gpu, workload, self.inputs)
        self.keep()

    def launches(self, config: Any) -> Any:
        return self._spec.launches(self._gpu, self._workload, config, self.inputs, self.outputs)


class _CaseData(NamedTuple):
    """A workload's data: the cases of the check, and the data that is timed (the first case, unless it is smaller)."""

    checks: Sequence[Case]
    timed: Case | _Timed


class TrialRunner:
    """Checks and times candidates on one device."""

    def __init__(self, setup: Setup, index: int) -> None:
        self.setup = setup
        if setup.device != "cpu":
            import torch

            torch.cuda.set_device(index)
        self.timer = Timer(setup.device)
        self.cases: OrderedDict[tuple[str, str, int | None], _CaseData] = OrderedDict()

    def __call__(self, job: Job) -> JobAnswers:
        """Run a job."""
        answers, is_lost = (self._finals(job) if job.is_final else (self._try(job.trials[0], job.best_s),)), False
        if any(answer.outcome != Outcome.OK for answer in answers):
            # A faulty kernel may have written anywhere.
            self.cases.clear()
            try:
                self.timer.synchronize()
            except Exception:  # noqa: BLE001 - the device is lost to this process, whatever it raises
                is_lost = True
        return JobAnswers(answers, is_lost)

    def _data(self, trial: Trial) -> _CaseData:
        key = trial.kernel, str(trial.workload), trial.seed
        if key in self.cases:
            self.cases.move_to_end(key)
            return self.cases[key]
        while self.cases and (len(self.cases) >= KEPT_CASES or self._free_share() < FREE_SHARE):
            self.cases.popitem(last=False)
        setup, spec = self.setup, self.setup.load(trial.kernel)
        less = spec.checked_as(trial.workload)
        first = setup.seed if trial.seed is None else trial.seed
        checks = [
            Case(spec, setup.gpu, less, device=setup.device, seed=first + number, unusual=number * setup.has_unusual)
            for number in range(setup.num_inputs)
        ]
        timed = checks[0] if less == trial.workload else _Timed(spec, setup, trial.workload)
        self.cases[key] = _CaseData(checks, timed)
        return self.cases[key]

    def _free_share(self) -> float:
        """Free share of the device's memory, torch's cache included."""
        if self.setup.device == "cpu":
            return 1.0
        import torch

        free, whole = torch.cuda.mem_get_info()
        return (free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()) / whole

    def _try(self, trial: Trial, best_s: float) -> TrialAnswer:
        """Check one candidate on every set of inputs, then time it."""
        steps = _Steps()
        try:
            data = self._data(trial)
            steps.end(INPUTS)
            refused, error = self._checked(trial, data)
            steps.end(CHECKS)
            if refused:
                return steps.answer(Outcome.WRONG_RESULT, message=refused, error_over_bound=error)
            launches = data.timed.launches(trial.config)
            poison(data.timed.outputs)
            figures = self._timed(call_of(launches), best_s)
            if refused := _written(data) or _left_undone(data):
                return steps.answer(Outcome.WRONG_RESULT, message=refused, error_over_bound=error)
            steps.end(TIMING)
            taken = _compiled(launches[-1])
            return steps.answer(Outcome.OK, error_over_bound=error, figures=figures, compiled=taken)
        except BaseException as error:  # noqa: BLE001 - the outcome of the trial
            return steps.answer(Outcome.LAUNCH_FAILED, message=describe(error))

    def _checked(self, trial: Trial, data: _CaseData) -> tuple[str, float]:
        """The fault of a candidate's results, empty for none, and its largest error over the bound."""
        worst = 0.0
        for number, case in enumerate(data.checks, 1):
            case.restore()  # only what the candidate itself writes is its fault
            case.renew()
            error = case.check(case.launches(trial.config))
            worst = max(worst, error)
            changed = case.changed_inputs()
            if changed:
                return f"it wrote to its inputs: {', '.join(changed)}", worst
            if error > 1.0:
                of = f"on inputs {number} of {len(data.checks)}"
                return f"an error of {error:.3g} times what rounding allows, {of}", worst
        return "", worst

    def _timed(self, call: Call, best_s: float) -> Figures:
        if self.setup.cache == "warm":
            call()
            about = self.timer.quick(call).median_s
            return _figures(self.timer.warm([call], about)[0], "warm")
        graph = self.timer.graph(call)
        quick = self.timer.quick(graph)
        if quick.median_s > HOPELESS * best_s:
            return _figures(quick, "cold")
        return _figures(self.timer.cold([graph], ROUNDS)[0], "cold")

    def _finals(self, job: Job) -> tuple[TrialAnswer, ...]:
        """Time the finalists in turn; then check each once more, since some are correct only at first."""
        data, calls = [], []
        for trial in job.trials:
            data.append(self._data(trial))
            data[-1].timed.restore()
            launches = data[-1].timed.launches(trial.config)
            call = call_of(launches)
            calls.append(self.timer.graph(call) if self.setup.cache == "cold" else call)
        if self.setup.cache == "cold":
            measured = self.timer.cold(calls, FINAL_ROUNDS)
        else:
            about = max(self.timer.quick(call).median_s for call in calls)
            measured = self.timer.warm(calls, about, rounds=9)
        # Which of several it was, each timed alone will tell.
        written = [_written(of_trial) for of_trial in data]
        answers = []
        for trial, of_trial, figure, wrote in zip(job.trials, data, measured, written, strict=True):
            refused, error = self._checked(trial, of_trial)
            refused = wrote or refused
            figures = _figures(figure, self.setup.cache, is_final=True)
            outcome = Outcome.WRONG_RESULT if refused else Outcome.OK
            message = f"after it was timed: {refused}" if refused else ""
            answers.append(TrialAnswer(outcome=outcome, message=message, error_over_bound=error, figures=figures))
        return tuple(answers)


def _written(data: _CaseData) -> str:
    """The fault of a timed run that wrote to its inputs; empty for none."""
    changed = data.timed.changed_inputs()
    return f"while it was timed it wrote to its inputs: {', '.join(changed)}" if changed else ""


def _left_undone(data: _CaseData) -> str:
    """The fault of a timed run whose results are wrong; empty for none, or where a smaller workload is checked."""
    error = data.timed.error() if isinstance(data.timed, Case) else 0.0
    return f"an error of {error:.3g} times what rounding allows, while it was timed" if error > 1.0 else ""


def _figures(measured: Measurement, cache: str, *, is_final: bool = False) -> Figures:
    return Figures(
        median_s=measured.median_s,
        spread_s=measured.spread_s,
        num_rounds=measured.num_rounds,
        cache=cache,
        is_final=is_final,
    )


def _compiled(launch: Any) -> Compiled | None:
    """Resources of a launch that has run; None where its compiler does not report them."""
    if not hasattr(launch, "compiled"):
        return None
    kernel = launch.compiled()
    if kernel is None:  # Triton's interpreter compiles nothing
        return None
    return Compiled(registers=kernel.n_regs, spill_bytes=4 * kernel.n_spills, smem_bytes=kernel.metadata.shared)


def serve_device(setup: Setup, index: int) -> TrialRunner:
    """Make the function that answers in the process of a device."""
    device = TrialRunner(setup, index)
    if setup.device != "cpu":
        # In parallel with the first compilations. An error here repeats in a candidate, which reports it.
        with contextlib.suppress(Exception):
            _load_libraries(setup.device, device.timer)
    return device


def _load_libraries(device: str, timer: Timer) -> None:
    """Load the libraries that candidates and references use."""
    import torch

    values = torch.randn(64, 64, device=device)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        (values.to(dtype) @ values.to(dtype)).float().square().mean()
    timer.cold([timer.graph(lambda: values.add_(1.0))], rounds=1)
    from triton.runtime.driver import driver

    driver.active.get_current_target()
    _ = driver.active.utils


def serve_compiler(setup: Setup) -> Callable[[Trial], TrialAnswer]:
    """Make the function that compiles, into the compiler's own cache."""
    import os

    os.nice(10)
    if setup.device != "cpu":
        import constrint.tune.engine.warm  # noqa: F401 - no candidate's time, where it was not forked with it

        compile_for(setup.gpu)

    def answer(trial: Trial) -> TrialAnswer:
        try:
            compile_trial(setup.load, setup.gpu, trial, into_cache=True)
        except BaseException as error:  # noqa: BLE001 - the outcome of the trial
            return TrialAnswer(outcome=Outcome.COMPILE_FAILED, message=describe(error))
        return TrialAnswer(outcome=Outcome.OK)

    return answer
