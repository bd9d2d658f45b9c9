"""The engine of this machine: trials are compiled on its cores ahead of time, and run by one process per device."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any

from constrint.errors import ConstrintError, NoDeviceError, UsageError
from constrint.hwmodels import DetectedDevice, GpuModel, detect, load_gpu
from constrint.select.toolchain import toolchain
from constrint.tune.engine.device import JobAnswers, serve_compiler, serve_device
from constrint.tune.engine.interface import START_PATIENCE_S, Engine, Job, JobResult, Setup, TrialAnswer, failed
from constrint.tune.engine.process import Lost, StartError, Worker, machine_memory_bytes, start_server
from constrint.tune.engine.registry import DeviceRequest
from constrint.tune.trial import Outcome, Trial

#: Failed starts of a process before its device is given up.
MAX_STARTS = 3
#: Time between two looks at silent processes, in seconds.
POLL_S = 0.05
#: Jobs queued in a device's process, so that it never waits for this one.
AHEAD = 3


@dataclass
class _Slot:
    """A device: its process, the jobs that wait for it, and the jobs in the process, the current one first."""

    worker: Worker[Job, JobAnswers]
    waiting: deque[Job] = field(default_factory=deque)
    at: deque[Job] = field(default_factory=deque)
    since: float = 0.0
    failed_starts: int = 0
    why_lost: str = ""


@dataclass
class _Compiler:
    worker: Worker[Trial, TrialAnswer]
    at: Job | None = None


class LocalEngine:
    """The devices of this machine.

    Args:
        setup: Settings of the engine.
        devices: Indices of the devices.
        num_compilers: Number of processes that compile; one per core by default.
    """

    def __init__(self, setup: Setup, devices: Sequence[int] = (0,), *, num_compilers: int | None = None) -> None:
        self._setup = setup
        memory = setup.max_memory_bytes or machine_memory_bytes() // 2

        limits: Any = {"start_s": START_PATIENCE_S, "max_memory_bytes": memory}
        self._names = [f"GPU {index}" if setup.device != "cpu" else f"CPU {index}" for index in devices]
        self._slots = [_Slot(Worker(serve_device, (setup, index), Job, JobAnswers, **limits)) for index in devices]
        number = num_compilers or max(1, min(os.cpu_count() or 1, 16 * len(devices)))
        compilers = [Worker(serve_compiler, (setup,), Trial, TrialAnswer, **limits) for _ in range(number)]
        self._compilers = [_Compiler(worker) for worker in compilers]
        self._to_compile: deque[Job] = deque()
        #: Numbers of the jobs that are compiled, and answers of those that the compiler refused.
        self._compiled: set[int] = set()
        self._done: list[JobResult] = []
        self._slot_of: dict[int, int] = {}
        #: When each job was requested, and when the steps that it has taken since then ended.
        self._ends: dict[int, list[tuple[str, float]]] = {}
        #: When all processes are looked at again, whether they have news or not.
        self._look_at = 0.0
        start_server(setup.device)
        for worker in reversed(self._workers()):
            worker.start()

    @property
    def slots(self) -> Sequence[str]:
        """Name of each device."""
        return self._names

    @property
    def toolchain(self) -> Mapping[str, str]:
        """Versions of the tools of this process, the same in all."""
        return toolchain()

    def submit(self, slot: int, job: Job) -> None:
        """Queue a job for a device."""
        if self._slots[slot].why_lost:
            self._refuse(job, slot, self._slots[slot].why_lost)
            return
        self._slot_of[job.number] = slot
        self._ends[job.number] = [("", time.monotonic())]
        self._slots[slot].waiting.append(job)
        if job.is_final:
            self._compiled.add(job.number)
        else:
            self._to_compile.append(job)

    def drop(self, numbers: Set[int]) -> None:
        """Forget jobs; processes that run one of them are replaced, and their other jobs begin again."""
        for compiler in self._compilers:
            if compiler.at is not None and compiler.at.number in numbers:
                compiler.worker.forget()
                compiler.at = None
        for slot in self._slots:
            if any(job.number in numbers for job in slot.at):
                slot.worker.forget()
                slot.waiting.extendleft(reversed(slot.at))
                slot.at.clear()
            slot.waiting = _without(slot.waiting, numbers)
        self._to_compile = _without(self._to_compile, numbers)
        self._compiled -= numbers
        self._done = [done for done in self._done if done.job.number not in numbers]
        for number in numbers:
            self._slot_of.pop(number, None)
            self._ends.pop(number, None)

    def poll(self, timeout_s: float) -> list[JobResult]:
        """The results since the last call; waits up to `timeout_s` for one.

        Raises:
            ConstrintError: When no device can be used any more.
        """
        until = time.monotonic() + timeout_s
        news: Sequence[object] = ()
        while True:
            self._step(news)
            if self._done:
                done, self._done = self._done, []
                return done
            if all(slot.why_lost for slot in self._slots):
                raise ConstrintError(f"no device can be used: {self._slots[0].why_lost}")
            left = until - time.monotonic()
            if left <= 0:
                return []
            pipes = [w.wake for w in self._workers() if w.num_open and w.wake is not None]
            if pipes:
                news = wait(pipes, timeout=min(left, POLL_S))
            else:
                time.sleep(min(left, POLL_S))

    def close(self) -> None:
        """End all processes at once."""
        for worker in self._workers():
            worker.kill()  # a device's process takes a while to end: they do so together
        for worker in self._workers():
            worker.forget()

    def _workers(self) -> list[Worker[Any, Any]]:
        return [*(compiler.worker for compiler in self._compilers), *(slot.worker for slot in self._slots)]

    def _finish(self, job: Job, answers: tuple[TrialAnswer, ...], seconds: float = 0.0) -> None:
        self._compiled.discard(job.number)
        steps = _steps_of(self._ends.pop(job.number), answers[0])
        self._done.append(JobResult(job, self._slot_of.pop(job.number), answers, seconds, steps=steps))

    def _end(self, job: Job, step: str, at: float = math.inf) -> None:
        """Note when a step of a job ended: now, or at an earlier time; before the last step's end it took no time."""
        ends = self._ends[job.number]
        ends.append((step, max(ends[-1][1], min(at, time.monotonic()))))

    def _refuse(self, job: Job, slot: int, why: str) -> None:
        """Answer that a job is not run: its device is lost."""
        self._done.append(JobResult(job, slot, failed(job, Outcome.NOT_RUN, why), 0.0, slot_is_lost=True))

    def _step(self, news: Sequence[object]) -> None:
        """Read the replies of processes with news, from time to time of all, and hand out work."""
        is_due = time.monotonic() >= self._look_at
        if is_due:
            self._look_at = time.monotonic() + POLL_S
        for compiler in self._compilers:
            self._step_compiler(compiler, is_due or compiler.worker.wake in news)
        for slot in self._slots:
            self._step_slot(slot, is_due or slot.worker.wake in news)

    def _step_compiler(self, compiler: _Compiler, is_heard: bool) -> None:
        """Read a compiler's reply, and hand it the next job."""
        job = compiler.at
        if job is not None:
            if not is_heard:
                return
            try:
                answer = compiler.worker.poll()
            except Lost as lost:
                answer = TrialAnswer(outcome=lost.outcome, message=f"compiling: {lost.message}")
            except StartError as error:
                # The device's process compiles the kernel instead.
                compiler.worker.forget()
                answer = TrialAnswer(outcome=Outcome.OK, message=str(error))
            except RuntimeError as error:
                answer = TrialAnswer(outcome=Outcome.COMPILE_FAILED, message=str(error))
            if answer is None:
                return
            if answer.outcome != Outcome.OK and not compiler.worker.was_fresh:
                compiler.worker.retry()
                return
            compiler.at = None
            self._end(job, "compilers that start", compiler.worker.ready_at)
            self._end(job, "compilation")
            if answer.outcome == Outcome.OK:
                self._compiled.add(job.number)
            else:
                self._slots[self._slot_of[job.number]].waiting.remove(job)
                self._finish(job, (answer,))
        if self._to_compile:
            compiler.at = self._to_compile.popleft()
            compiler.worker.ask(compiler.at.trials[0], self._setup.compile_patience_s)

    def _step_slot(self, slot: _Slot, is_heard: bool) -> None:
        """Read the replies of a device's process, and hand it the next compiled jobs."""
        while is_heard and slot.at and self._heard(slot, slot.at[0]):
            pass
        while len(slot.at) < AHEAD and not slot.why_lost:
            job = next((job for job in slot.waiting if job.number in self._compiled), None)
            if job is None:
                return
            slot.waiting.remove(job)
            slot.since = slot.since if slot.at else time.monotonic()
            slot.at.append(job)
            slot.worker.ask(job, self._setup.run_patience_s * len(job.trials))

    def _heard(self, slot: _Slot, job: Job) -> bool:
        """Whether the process has finished its first job, by a result or a fault."""
        try:
            reply = slot.worker.poll()
        except Lost as lost:
            answers = failed(job, lost.outcome, lost.message)
        except StartError as error:
            slot.failed_starts += 1
            if slot.failed_starts >= MAX_STARTS:
                self._give_up(slot, str(error))
            return False
        except RuntimeError as error:
            answers = failed(job, Outcome.LAUNCH_FAILED, str(error))
        else:
            if reply is None:
                return False
            answers, slot.failed_starts = reply.answers, 0
            if len(answers) != len(job.trials):
                answers = failed(job, Outcome.CRASHED, "its answer is none: it is to other trials")
            if reply.is_lost:
                slot.worker.abandon()
        if len(answers) > 1:
            answers = tuple(map(_open_again, answers))
        elif answers[0].outcome != Outcome.OK and not slot.worker.was_fresh:
            # What ran in the process before may be at fault: only a process of its own refuses a candidate.
            slot.worker.retry()
            return False
        slot.at.popleft()
        now = time.monotonic()
        self._end(job, "a device that starts", slot.worker.ready_at)
        # The process begins a trial before this one has heard of the end of the one before.
        self._end(job, "other trials", min(slot.since, now - sum(answers[0].steps.values())))
        self._finish(job, answers, now - slot.since)
        slot.since = now
        return True

    def _give_up(self, slot: _Slot, why: str) -> None:
        """Give up a device, and answer its jobs."""
        number = self._slots.index(slot)
        slot.why_lost = f"{self._names[number]}: its process does not start: {why}"
        slot.worker.forget()
        jobs = [*slot.at, *slot.waiting]
        self.drop({job.number for job in jobs})
        for job in jobs:
            self._refuse(job, number, slot.why_lost)


def _steps_of(ends: Sequence[tuple[str, float]], answer: TrialAnswer) -> dict[str, float]:
    """The seconds of each step of a job, those on the device last."""
    taken = {step: end - begin for (_, begin), (step, end) in itertools.pairwise(ends)}
    return {**taken, **answer.steps}


def _without(jobs: deque[Job], numbers: Set[int]) -> deque[Job]:
    return deque(job for job in jobs if job.number not in numbers)


def _open_again(answer: TrialAnswer) -> TrialAnswer:
    """The answer to one of several finalists, which is run again alone where another one may be at fault."""
    if answer.outcome == Outcome.OK:
        return answer
    return TrialAnswer(outcome=Outcome.NOT_RUN, message=f"with others: {answer.message}")


class LocalFleet:
    """Devices of this machine.

    Args:
        request: The devices to use.

    Raises:
        UsageError: When the request names a cluster.
    """

    def __init__(self, request: DeviceRequest) -> None:
        if request.address is not None:
            raise UsageError("--address is that of a Ray cluster: add --engine ray.")
        start_server(request.device)
        self._request = request
        self._devices = tuple(request.indices or (0,))

    def model(self, name: str | None) -> GpuModel:
        """The model of the devices; on the CPU the one that is named.

        Raises:
            NoDeviceError: When there is no GPU.
            UsageError: When a device is absent, or they are of several models, or of one without a description.
        """
        if self._request.device == "cpu":
            if name is None:
                raise UsageError("--device cpu needs --gpu NAME: the model by which configurations are chosen.")
            return load_gpu(name)
        gpu, self._devices = devices_of(self._request.indices, name)
        return gpu

    def engine(self, setup: Setup) -> Engine:
        """Start the engine."""
        return LocalEngine(setup, self._devices)

    def close(self) -> None:
        """Nothing is held before an engine is started."""


def devices_of(indices: Sequence[int] | None, model: str | None = None) -> tuple[GpuModel, tuple[int, ...]]:
    """The hardware model of devices of this machine, and their indices.

    Args:
        indices: Indices of the devices; None for all.
        model: Name of their model; None to detect it.

    Raises:
        NoDeviceError: When there is no GPU.
        UsageError: When a device is absent, or they are of several models, or of one without a description.
    """
    detected = detect()
    chosen = detected if indices is None else [_device(detected, index) for index in indices]
    if model is None:
        names = {device.model for device in chosen}
        if None in names:
            unknown = next(device for device in chosen if device.model is None)
            raise UsageError(
                f"there is no hardware model of {unknown.name} ({unknown.target}); name one that is alike with --gpu, "
                "or add it (CONTRIBUTING.md says how)."
            )
        if len(names) > 1:
            models = ", ".join(f"{device.index} is {device.model}" for device in chosen)
            raise UsageError(f"the GPUs are of several models ({models}); name those of one with --gpus.")
        (model,) = names
    return load_gpu(str(model)), tuple(device.index for device in chosen)


def _device(detected: Sequence[DetectedDevice], index: int) -> DetectedDevice:
    for device in detected:
        if device.index == index:
            return device
    if not detected:
        raise NoDeviceError("no GPU found on this machine.")
    raise UsageError(
        f"there is no GPU {index}; this machine has {', '.join(str(device.index) for device in detected)}."
    )
