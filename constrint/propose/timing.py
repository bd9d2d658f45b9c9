"""The time of a candidate by the clock of this process, which the candidate has no access to.

The worker draws inputs anew for every timed call, from seeds that it is told only then, poisons the outputs and waits
for the device. Then it is asked to call the candidate on all of them and to wait for the device again, and the time
from the question to the answer is taken, less that of a question which asks for no call. After that, elements at random
places of every call are compared with the reference in fp64, which this process computes from the same seeds, and what
the worker watched meanwhile is judged as in any other call.
"""

from __future__ import annotations

import math
import secrets
import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

from constrint.hwmodels import GpuModel
from constrint.propose import wire
from constrint.propose.honesty import dishonest, floor_s
from constrint.propose.operands import Expected
from constrint.propose.process import SandboxWorker
from constrint.propose.task import Task, find_task
from constrint.propose.tolerance import compare
from constrint.propose.values import generator
from constrint.tune.floor import impossible

#: Rounds; calls of a round, within so much memory; elements of each output that are compared after a round.
ROUNDS, MAX_CALLS, MAX_BYTES, SAMPLES = 7, 8, 6 << 30, 1 << 16
#: Empty questions that are asked for their time.
EMPTY = 20
#: Lock of timing: of candidates examined at once in this process, one is timed at a time.
_CLOCK = threading.Lock()


@dataclass(frozen=True)
class Timed:
    """Times of a candidate and of plain PyTorch.

    Args:
        seconds: Time of one call, the median of the rounds.
        baseline_s: That of plain PyTorch, timed in the same way and in turn.
        floor_s: The least time that the GPU allows.
        problem: Why it is refused; empty where it is not.
    """

    seconds: float
    baseline_s: float
    floor_s: float
    problem: str = ""

    @property
    def text(self) -> str:
        """The result in words."""
        return (
            f"{1e6 * self.seconds:.1f} us; plain PyTorch {1e6 * self.baseline_s:.1f} us; "
            f"at least {1e6 * self.floor_s:.1f} us"
        )


def time_candidate(
    name: str, gpu: GpuModel, workers: tuple[SandboxWorker, SandboxWorker], device: str, patience_s: float
) -> Timed:
    """Time a candidate and plain PyTorch in turn; no other candidate of this process meanwhile.

    Args:
        name: The task, as `find_task` takes it.
        gpu: The GPU that is named.
        workers: One that has loaded the candidate, and one that has loaded plain PyTorch.
        device: Where the workers compute, `cuda`, and so where the reference does.
        patience_s: How long one request may take.
    """
    with _CLOCK:
        return _time_in_turn(name, gpu, workers, device, patience_s)


def _time_in_turn(
    name: str, gpu: GpuModel, workers: tuple[SandboxWorker, SandboxWorker], device: str, patience_s: float
) -> Timed:
    task = find_task(name)
    sizes, dtype = task.timed_sizes, task.timed_dtype
    calls = max(2, min(MAX_CALLS, int(MAX_BYTES / task.moved_bytes(sizes, dtype))))
    least = floor_s(task, sizes, dtype, gpu, calls)
    candidate, baseline = workers
    times: dict[SandboxWorker, list[float]] = {candidate: [], baseline: []}
    for round_ in range(ROUNDS):
        for worker in times if round_ % 2 else reversed(times):
            seeds = [secrets.randbits(48) for _ in range(calls)]
            seconds = _time_round(worker, name, task, seeds, patience_s)
            # The first round compiles.
            if round_:
                times[worker].append(seconds)
            if worker is candidate:
                problem = _check_after(worker, task, seeds, device, patience_s)
                if problem:
                    return Timed(seconds, 0.0, least, f"when it was timed: {problem}")
    seconds, baseline_s = (statistics.median(of_one) for of_one in times.values())
    problem = impossible(min(times[candidate]), least, gpu)
    if not problem and not 0 < baseline_s < math.inf:
        problem = f"plain PyTorch took {1e6 * baseline_s:.2f} us: other work disturbs the clock; time it again."
    return Timed(seconds, baseline_s, least, problem)


def check_timed_sizes(name: str, worker: SandboxWorker, device: str, patience_s: float) -> str:
    """The fault of one call at the sizes of the timing, which is watched and compared as a timed one; empty for none.

    Args:
        name: The task, as `find_task` takes it.
        worker: One that has loaded the candidate.
        device: Where it computes, and so where the reference does.
        patience_s: How long one request may take.
    """
    task, seeds = find_task(name), [secrets.randbits(48)]
    _prepare(worker, name, task, seeds, patience_s)
    worker.ask(wire.RunWorker(count=1), wire.Acknowledged, patience_s)
    return _check_after(worker, task, seeds, device, patience_s)


def _time_round(worker: SandboxWorker, name: str, task: Task, seeds: list[int], patience_s: float) -> float:
    """Seconds of one call, for each seed."""
    _prepare(worker, name, task, seeds, patience_s)
    empty = statistics.median(_clock(worker, 0, patience_s) for _ in range(EMPTY))
    return (_clock(worker, len(seeds), patience_s) - empty) / len(seeds)


def _prepare(worker: SandboxWorker, name: str, task: Task, seeds: list[int], patience_s: float) -> None:
    sizes, dtype = task.timed_sizes, task.timed_dtype
    sets = tuple(wire.Drawn(task=name, sizes=sizes, dtype=dtype, seed=seed) for seed in seeds)
    worker.ask(wire.Prepare(sets=sets), wire.Acknowledged, patience_s)


def _clock(worker: SandboxWorker, count: int, patience_s: float) -> float:
    """Seconds from the request for calls to its answer."""
    started = time.perf_counter()
    worker.ask(wire.RunWorker(count=count), wire.Acknowledged, patience_s)
    return time.perf_counter() - started


def _check_after(worker: SandboxWorker, task: Task, seeds: list[int], device: str, patience_s: float) -> str:
    """The fault of the calls of a round; empty for none."""
    import torch

    random, count = generator(secrets.randbits(48), "cpu"), SAMPLES // len(seeds)
    for index, seed in enumerate(seeds):
        expected = _reference(task, seed, device)
        positions = {
            name: tuple(torch.randint(n := one.value.numel(), (min(n, count),), generator=random).tolist())
            for name, one in expected.items()
        }
        reply = worker.ask(wire.TimeSample(index=index, positions=positions), wire.Sampled, patience_s)
        problem = dishonest([reply.watched])
        if not problem and reply.watched.launches < len(seeds):
            problem = f"{len(seeds)} calls launched {reply.watched.launches} kernels."
        problem = problem or _compare_samples(task, reply, expected, positions)
        if problem:
            return problem
    return ""


def _compare_samples(
    task: Task, reply: wire.Sampled, expected: Mapping[str, Expected], positions: Mapping[str, tuple[int, ...]]
) -> str:
    import torch

    from constrint.propose.worker.tensors import values_from

    outputs, expected_samples = {}, {}
    kinds = {layout.name: layout.dtype for layout in task.layouts(task.timed_sizes, task.timed_dtype)[0]}
    for name, at in positions.items():
        try:
            outputs[name] = values_from(reply.values.get(name, b""), kinds[name], (len(at),))
        except ValueError as error:
            return f"its answer is none: {error}."
        places = torch.tensor(at, device=expected[name].value.device)
        expected_samples[name] = Expected(
            *(part.flatten()[places].cpu() for part in (expected[name].value, expected[name].magnitude))
        )
    return compare(outputs, expected_samples, task.num_terms(task.timed_sizes), "after timing")[1]


def _reference(task: Task, seed: int, device: str) -> dict[str, Expected]:
    """The reference of the inputs that a worker drew from a seed."""
    import torch

    with torch.no_grad():
        inputs = task.draw(task.timed_sizes, task.timed_dtype, seed=seed, device=device)
        return task.reference({n: v.double() if v.is_floating_point() else v for n, v in inputs.items()})
