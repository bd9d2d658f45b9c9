"""On which inputs a candidate is checked: fresh ones for each seed, and those that kernels go wrong on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
#: Behaviours of the kernel below: right, wrong where every element of A is 0, wrong on the inputs of one seed.
RIGHT, WRONG_ON_ZEROS, KNOWS_THE_SEED = range(3)
KNOWN_SEED = 5


@dataclass(frozen=True)
class CarelessLaunch(TorchLaunch):
    """A launch that is right on most inputs."""

    known: Any = None

    def run(self) -> None:
        self.out.copy_(self.a @ self.b)
        is_zero = not bool(self.a.any())
        is_wrong = self.what == WRONG_ON_ZEROS and is_zero
        if self.what == KNOWS_THE_SEED:
            is_wrong = not bool((self.a == self.known).all())
        if is_wrong:
            self.out.add_(1.0)


class CarelessSpec(TinySpec):
    """A product that is right on random inputs alone."""

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
        return [CarelessLaunch(inputs["a"], inputs["b"], outputs["out"], config["what"], known)]


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
