"""On which inputs a candidate is checked: fresh ones for each seed, and those that kernels go wrong on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest

from constrint.hwmodels import GpuModel, load_gpu
from constrint.select import KernelSpec, Workload
from constrint.select.candidate import Config
from constrint.select.spec import Launch
from constrint.tune import Outcome, Trial
from constrint.tune.check import Case
from constrint.tune.engine.device import TrialRunner
from constrint.tune.engine.interface import Job, Setup, TrialAnswer
from tests.tune.tiny import TinySpec, TorchLaunch

pytest.importorskip("torch", reason="needs the extra [torch]: torch is not installed")

WORKLOAD = Workload("tiny", {"m": 8, "n": 8, "k": 8}, "fp32")
#: Behaviours of the kernel below: right, wrong where every element of A is 0, wrong on the inputs of one seed; those
#: that write to an input, or nothing to the output, once they have run as often as a check needs.
RIGHT, WRONG_ON_ZEROS, KNOWS_THE_SEED, WRITES_WHEN_TIMED, IDLE_WHEN_TIMED = range(5)
KNOWN_SEED = 5


@dataclass(frozen=True)
class CarelessLaunch(TorchLaunch):
    """A launch that is right on most inputs."""

    known: Any = None
    runs: Counter[int] = field(default_factory=Counter)

    def run(self) -> None:
        self.runs[self.what] += 1
        if self.runs[self.what] > 1 and self.what == IDLE_WHEN_TIMED:
            return
        if self.runs[self.what] > 1 and self.what == WRITES_WHEN_TIMED:
            self.a.zero_()
        self.out.copy_(self.a @ self.b)
        is_zero = not bool(self.a.any())
        is_wrong = self.what == WRONG_ON_ZEROS and is_zero
        if self.what == KNOWS_THE_SEED:
            is_wrong = not bool((self.a == self.known).all())
        if is_wrong:
            self.out.add_(1.0)


class CarelessSpec(TinySpec):
    """A product that is right on random inputs alone, and counts its runs."""

    runs: ClassVar[Counter[int]] = Counter()

    def unusual_inputs(self, workload: Workload, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        return {name: t * 0 if number == 2 else t for name, t in inputs.items()}

    def launches(
        self,
        gpu: GpuModel,
        workload: Workload,
        config: Config,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> Sequence[Launch]:
        known = self.inputs(gpu, workload, device="cpu", seed=KNOWN_SEED)["a"]
        return [CarelessLaunch(inputs["a"], inputs["b"], outputs["out"], config["what"], known, self.runs)]


SPEC = CarelessSpec()


def load(name: str) -> KernelSpec:
    return SPEC


SETUP = Setup(load, load_gpu("h200"), device="cpu", num_inputs=1, seed=KNOWN_SEED)


def answer(setup: Setup, what: int, seed: int | None = None) -> TrialAnswer:
    told = TrialRunner(setup, 0)(Job(0, (Trial("tiny", WORKLOAD, {"what": what}, seed=seed),)))
    return told.answers[0]


def test_what_is_right_on_random_inputs_alone_is_found_wrong_on_unusual_ones() -> None:
    several = replace(SETUP, num_inputs=5)
    assert answer(several, WRONG_ON_ZEROS).outcome == Outcome.OK
    found = answer(replace(several, has_unusual=True), WRONG_ON_ZEROS)
    assert found.outcome == Outcome.WRONG_RESULT
    assert "inputs 3 of 5" in found.message
    assert answer(replace(several, has_unusual=True), RIGHT).outcome == Outcome.OK


def test_a_trials_own_seed_draws_other_inputs_than_the_engines() -> None:
    assert answer(SETUP, KNOWS_THE_SEED).outcome == Outcome.OK
    assert answer(SETUP, KNOWS_THE_SEED, KNOWN_SEED).outcome == Outcome.OK
    assert answer(SETUP, KNOWS_THE_SEED, KNOWN_SEED + 1).outcome == Outcome.WRONG_RESULT


def test_inputs_of_each_seed_are_kept_apart() -> None:
    device = TrialRunner(SETUP, 0)
    outcomes = []
    for seed in (KNOWN_SEED, KNOWN_SEED + 1, KNOWN_SEED, None):
        job = Job(0, (Trial("tiny", WORKLOAD, {"what": KNOWS_THE_SEED}, seed=seed),))
        outcomes.append(device(job).answers[0].outcome)
    assert [one == Outcome.OK for one in outcomes] == [True, False, True, True]


def test_by_default_a_kernel_has_no_unusual_inputs() -> None:
    import torch

    made = [Case(TinySpec(), SETUP.gpu, WORKLOAD, device="cpu", seed=3, unusual=number) for number in range(4)]
    assert all(torch.equal(case.inputs["a"], made[0].inputs["a"]) for case in made)


def trials(*behaviours: int, is_final: bool = False) -> Job:
    return Job(0, tuple(Trial("tiny", WORKLOAD, {"what": what}) for what in behaviours), is_final)


def test_who_writes_to_inputs_when_timed_is_refused_and_the_next_one_is_not() -> None:
    CarelessSpec.runs.clear()
    device = TrialRunner(SETUP, 0)
    (answered,) = device(trials(WRITES_WHEN_TIMED)).answers
    assert (answered.outcome, answered.message) == (
        Outcome.WRONG_RESULT,
        "while it was timed it wrote to its inputs: a",
    )
    assert device(trials(RIGHT)).answers[0].outcome == Outcome.OK


def test_who_writes_no_results_when_timed_is_refused() -> None:
    CarelessSpec.runs.clear()
    device = TrialRunner(SETUP, 0)
    (answered,) = device(trials(IDLE_WHEN_TIMED)).answers
    assert answered.outcome == Outcome.WRONG_RESULT
    assert answered.message.endswith("times what rounding allows, while it was timed")


def test_a_finalist_that_writes_to_inputs_is_found_when_each_is_timed_alone() -> None:
    CarelessSpec.runs.clear()
    device = TrialRunner(SETUP, 0)
    together = device(trials(RIGHT, WRITES_WHEN_TIMED, is_final=True)).answers
    assert {answered.outcome for answered in together} == {Outcome.WRONG_RESULT}
    alone = [device(trials(what, is_final=True)).answers[0].outcome for what in (RIGHT, WRITES_WHEN_TIMED, RIGHT)]
    assert alone == [Outcome.OK, Outcome.WRONG_RESULT, Outcome.OK]
