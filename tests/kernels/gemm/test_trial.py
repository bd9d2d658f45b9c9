"""The candidates that the first calls of a product try, and what is remembered; on the CPU as if it were an H200."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch", "triton"):
    pytest.skip("needs the extra [torch]: torch or triton is not installed", allow_module_level=True)

import torch

from constrint.choose import Decision, Evidence, Program, decide
from constrint.choose.decision import Step
from constrint.errors import CompileError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm import first_call, trial
from constrint.kernels.gemm.candidates import request_of, with_activation
from constrint.kernels.gemm.first_call import plan_of_call
from constrint.kernels.gemm.launch import Machine
from constrint.kernels.gemm.library.candidates import COMPOSED
from constrint.kernels.gemm.library.cost import library_s
from constrint.kernels.gemm.library.estimate import REFERENCE, band_of, estimated_s
from constrint.kernels.gemm.library.spec import ALGORITHM, LIBRARY
from constrint.kernels.gemm.operator import PLAIN, STEADY_END
from constrint.kernels.launch.plan.recipe import FillStep, Recipe, RecordedCall
from constrint.kernels.launch.plan.trial import no_trials, use_trials
from tests.support.decisions import begin_anew, without_winners
from tests.support.gemm import product
from tests.support.library_table import forget_tables, use_tables_of, write_table

H200 = load_gpu("h200")


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for made-up tables of the library; trials are on, and there are no measured winners."""
    use_tables_of(tmp_path, monkeypatch)
    without_winners(monkeypatch)
    begin_anew(monkeypatch)
    use_trials(True)
    yield tmp_path
    use_trials(False)
    trial.forget_trials()
    monkeypatch.undo()
    forget_tables()


def decided(m: int, n: int, k: int, gpu: GpuModel = H200, device: Any = "cuda:0", activation: str = "") -> Decision:
    request = request_of(gpu, product(m, n, k), device=device)
    return decide(with_activation(request, activation) if activation else request)


def test_what_is_predicted_is_tried_and_what_is_measured_is_not(tables: Path) -> None:
    decision = decided(1000, 1000, 1000)
    assert trial.is_due(decision)
    steps = tuple(replace(step, evidence=Evidence.MEASURED) for step in decision.program.steps)
    assert not trial.is_due(replace(decision, program=replace(decision.program, steps=steps)))
    assert not trial.is_due(decided(1000, 1000, 1000, device=None)), "nothing runs on a named GPU"
    named = decide(request_of(H200, product(1000, 1000, 1000), device="cuda:0", kernel="pointer"))
    assert not trial.is_due(named)
    any_rows = request_of(H200, replace(product(512, 256, 256), any_rows=True), device="cuda:0")
    assert not trial.is_due(decide(any_rows))


def test_trials_are_off_where_the_caller_wants_the_same_result_always(tables: Path) -> None:
    decision = decided(1000, 1000, 1000)
    torch.use_deterministic_algorithms(True)
    try:
        assert not trial.is_due(decision)
    finally:
        torch.use_deterministic_algorithms(False)
    with no_trials():
        assert not trial.is_due(decision)
    use_trials(False)
    assert not trial.is_due(decision)


def test_rivals_are_the_library_and_what_the_error_reaches(tables: Path) -> None:
    write_table(tables, H200, 0.9)
    forget_tables()
    decision = decided(256, 256, 256)
    rivals = trial.rivals_of(decision)
    every = [decision.program, *rivals]
    names = [program.name for program in every]
    assert len({(p.name, str(p.step("product").config)) for p in every}) == len(every)
    assert len(set(names)) == len([p for p in every if not trial.is_library(p) or not p.step("product").config])
    assert LIBRARY in names
    assert 1 <= sum(not trial.is_library(program) for program in rivals) <= trial.MOST_COMPILED
    limit = (1 + trial.MOST_ERROR) * decision.seconds
    for program in rivals:
        assert program.seconds is not None
        if not trial.is_library(program):
            assert program.step("product").config, "it can be launched"
            assert (1 - trial.MOST_ERROR) * program.seconds <= limit
    # A library that takes ten times as long is not worth a launch.
    write_table(tables, H200, 0.05)
    forget_tables()
    assert LIBRARY not in [program.name for program in trial.rivals_of(decided(1024, 1024, 1024))]


def test_the_library_is_tried_by_further_algorithms_where_they_are_worth_it(tables: Path) -> None:
    write_table(tables, H200, 0.9)
    forget_tables()
    decision = decided(4096, 1024, 4096)
    programs = [decision.program, *trial.rivals_of(decision)]
    configs = [program.step("product").config for program in programs if program.name == LIBRARY]
    assert configs == [{}, *({ALGORITHM: place} for place in range(1, 1 + trial.MORE_ALGORITHMS))]
    assert [program.step("product").config for program in programs if trial.is_standard(program)] == [{}]
    # Neither where the product is short, nor where the library takes twice as long.
    short = decided(256, 256, 256)
    assert [p.name for p in (short.program, *trial.rivals_of(short))].count(LIBRARY) == 1
    write_table(tables, H200, 0.25)
    forget_tables()
    rivals = trial.rivals_of(decided(4096, 1024, 4096))
    assert [program.name for program in rivals].count(LIBRARY) == 1


def test_short_batches_are_tried_by_further_algorithms(tables: Path) -> None:
    steps = (Step("product", LIBRARY, workload=product(64, 64, 64, batch=8).workload, seconds=3e-6),)
    assert len(trial.variants_of(Program(LIBRARY, steps))) == trial.MORE_ALGORITHMS
    alone = (replace(steps[0], workload=product(64, 64, 64).workload),)
    assert not trial.variants_of(Program(LIBRARY, alone))


def test_without_any_table_nothing_is_estimated(tables: Path) -> None:
    decision = decided(1000, 2000, 512, gpu=load_gpu("l4"))
    assert decision.program_of(LIBRARY).seconds is None


def test_where_nothing_was_measured_the_library_is_tried_by_an_estimate(tables: Path) -> None:
    write_table(tables, H200, 0.9)
    forget_tables()
    l4, asked = load_gpu("l4"), product(1000, 2000, 512)
    assert library_s(l4, asked) is None
    decision = decided(1000, 2000, 512, gpu=l4)
    assert decision.program.name != LIBRARY, "no choice rests on an estimate"
    assert decision.program_of(LIBRARY).seconds == estimated_s(l4, asked)
    assert LIBRARY in [program.name for program in trial.rivals_of(decision)]
    with_end = decided(1000, 2000, 512, gpu=l4, activation="gelu")
    assert COMPOSED in [program.name for program in trial.rivals_of(with_end)]
    named = decided(1000, 2000, 512, gpu=l4, device=None)
    assert named.program_of(LIBRARY).refusal, "on a named GPU nothing is tried"


def test_estimates_are_the_roofline_times_a_measured_slowdown() -> None:
    l4, asked = load_gpu("l4"), product(4096, 4096, 4096)
    seconds, band = estimated_s(l4, asked), band_of(l4, asked)
    assert seconds is not None
    assert band is not None
    ideal = 2 * 4096**3 / l4.peak_flop_per_s("bf16")  # type: ignore[operator]
    assert 1.0 < seconds / ideal < 2.0
    assert REFERENCE in band.source
    decision = decide(request_of(l4, asked, device="cuda:0"))
    program = decision.program_of(LIBRARY)
    assert program.seconds == seconds
    assert program.evidence is Evidence.MODELLED
    assert decision.program is not program
    # fp32 that keeps its precision has a ninth of the rate of the units that multiply tf32 on this GPU or less.
    exact, tf32 = (estimated_s(H200, product(4096, 4096, 4096, "tf32", three_pass=number)) for number in (1, 0))
    assert exact is not None
    assert tf32 is not None
    assert exact > 5 * tf32


def test_an_estimate_is_near_where_it_can_be_checked() -> None:
    """Products of the H100's own table by the H200's slowdowns: four in five within half as much again."""
    h100 = load_gpu("h100-sxm5")
    ratios = []
    for sizes in ((256, 4096, 4096), (4096, 4096, 512), (2048, 2048, 2048), (8192, 1024, 4096), (512, 512, 512)):
        known, estimate = library_s(h100, product(*sizes)), estimated_s(h100, product(*sizes))
        assert known is not None
        assert estimate is not None
        ratios.append(estimate / known)
    assert sum(1 / 1.5 < ratio < 1.5 for ratio in ratios) >= 4


@pytest.fixture
def recorded(tables: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The CPU is an H200 with a library; plans are fills, and nothing is compiled. Names of what is recorded."""
    write_table(tables, H200, 0.9)
    forget_tables()
    monkeypatch.setattr(first_call, "machine_of", lambda _: (H200, Machine.of(H200)))
    names: list[str] = []

    def made(program: Program, *_: Any, **__: Any) -> RecordedCall:
        names.append(program.name)
        if program.name == "gemm.pointer":
            raise CompileError("a device refuses it")
        return RecordedCall(Recipe([FillStep(4, 0, len(names))], [([256, 256], [256, 1], "float16")], 1, 0), [])

    monkeypatch.setattr(first_call, "_recorded", made)
    return names


def operands() -> tuple[Any, ...]:
    return torch.randn(256, 256).bfloat16(), torch.randn(256, 256).bfloat16(), None, None


def test_a_call_is_recorded_with_its_rivals_and_the_fastest_is_remembered(recorded: list[str]) -> None:
    call = operands()
    made = plan_of_call(call, PLAIN)
    assert made.rivals is not None
    rivals = made.rivals
    assert len(rivals.labels) == len(rivals.seconds) == 1 + len(rivals.recipes) > 1
    assert "gemm.pointer" not in " ".join(rivals.labels), "what a device refuses is no rival"
    best = len(rivals.labels) - 1
    rivals.settled([2e-6] * best + [1e-6], best)
    recorded.clear()
    again = plan_of_call(call, PLAIN)
    assert again.rivals is None, "tried before"
    (name,) = recorded
    assert rivals.labels[best].startswith(name)
    use_trials(False)
    recorded.clear()
    assert plan_of_call(operands(), PLAIN).rivals is None


def test_one_kernel_for_any_number_of_rows_is_not_tried(recorded: list[str]) -> None:
    assert plan_of_call(operands(), STEADY_END).rivals is None
    assert len(recorded) >= 1
