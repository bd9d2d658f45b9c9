"""Whatever a candidate does is an answer, and the next one is run as if nothing had been."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from constrint.hwmodels import load_gpu
from constrint.kernels.registry import load_spec
from constrint.select import Workload
from constrint.tune import Outcome, Trial
from constrint.tune.engine.device import CHECKS, INPUTS, TIMING
from constrint.tune.engine.interface import Engine, Job, JobResult, Setup
from constrint.tune.engine.local import LocalEngine
from tests.support.clock import PATIENCE_S

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs the extra [torch]: torch is not installed", allow_module_level=True)

KERNEL = f"{Path(__file__).parents[1] / 'hostile.py'}:SPEC"
WORKLOAD = Workload("hostile", {"n": 8}, "fp32")
SETUP = Setup(
    load_spec, load_gpu("h200"), device="cpu", run_patience_s=8.0, compile_patience_s=8.0, max_memory_bytes=500 << 20
)
SPEC = load_spec(KERNEL)
NAMES = type(SPEC).__module__ and __import__(type(SPEC).__module__).NAMES
BEHAVIOURS = __import__(type(SPEC).__module__).BEHAVIOURS


def trial(what: str) -> Trial:
    return Trial(KERNEL, WORKLOAD, {"what": NAMES.index(what), "times": 1})


#: Steps of a job in a process of a device.
HERE = ("compilers that start", "compilation", "a device that starts", "other trials")


def answers(engine: Engine, number: int, limit_s: float = PATIENCE_S) -> dict[int, JobResult]:
    """The answers to so many jobs, by number."""
    found: dict[int, JobResult] = {}
    until = time.monotonic() + limit_s
    while len(found) < number:
        assert time.monotonic() < until, f"only {sorted(found)} are answered"
        found |= {done.job.number: done for done in engine.poll(0.2)}
    return found


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    made = LocalEngine(SETUP, (0, 1), num_compilers=2)
    # Each process loads torch with its first candidate, which a busy machine may take longer for than a trial may run:
    # wait until both devices, and with them both compilers, have finished one in time.
    for first in range(0, 40, 2):
        for slot in (0, 1):
            made.submit(slot, Job(first + slot, (trial("right"),)))
        if all(done.answers[0].outcome == Outcome.OK for done in answers(made, 2).values()):
            break
    yield made
    made.close()


def test_every_behaviour_has_its_outcome_and_harms_no_other(engine: LocalEngine) -> None:
    # A candidate that is right stands between any two others.
    order = [name for pair in zip(NAMES, ["right"] * len(NAMES), strict=True) for name in pair]
    began = time.monotonic()
    for number, name in enumerate(order):
        engine.submit(number // 2 % 2, Job(number, (trial(name),)))
    found = answers(engine, len(order))
    told = {number: (order[number], done.answers[0].outcome.name) for number, done in found.items()}
    assert told == {number: (name, BEHAVIOURS[name].name) for number, name in enumerate(order)}
    for number, done in found.items():
        answer = done.answers[0]
        assert (answer.figures is not None) == (answer.outcome == Outcome.OK), order[number]
        assert (answer.message == "") == (answer.outcome == Outcome.OK), order[number]
        assert len(answer.message.splitlines()) <= 1
        # Its steps, none of which is counted twice.
        on_device = {step: done.steps[step] for step in done.steps if step not in HERE}
        assert on_device == answer.steps
        assert answer.outcome != Outcome.OK or list(done.steps) == [*HERE, INPUTS, CHECKS, TIMING]
        assert min(done.steps.values()) >= 0.0
        assert sum(done.steps.values()) <= time.monotonic() - began + 1e-6
