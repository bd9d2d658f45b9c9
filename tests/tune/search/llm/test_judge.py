"""The built-in judge: one typed verdict of the compiler's output, the model's parts and metrics; its edit is a rule."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from constrint.tune.search.llm.actions import MOVES
from constrint.tune.search.llm.judge import judge
from constrint.tune.search.llm.parse import edit_faults, read_rule
from constrint.tune.search.llm.records import (
    CandidateEvidence,
    Edit,
    Failure,
    GateResult,
    PredictedConfig,
    ProposalRefusal,
    Resources,
    SpaceProposal,
    Success,
    Verdict,
)
from constrint.tune.search.llm.resolve import intersect
from tests.tune.search.llm.kernels import TOY, pointer_choice, product_candidates, product_resolver

START = {"tile_m": 64, "tile_n": 128, "num_stages": 3}
ANOTHER = "tile_m != 64 or tile_n != 128 or num_stages != 3"
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
WAITS = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"


def judged(*gates: GateResult, parts_s: dict[str, float] | None = None, **facts: Any) -> Verdict:
    choice = PredictedConfig(
        kernel=TOY.name, config=facts.pop("config", START), predicted_s=2e-6, parts_s=parts_s or {}
    )
    return judge(CandidateEvidence(candidate=choice, gates=gates, kernel=TOY, **facts))


def gate(name: Any, *, passed: bool, **facts: Any) -> GateResult:
    return GateResult(gate=name, passed=passed, kernel=TOY.name, config=START, **facts)


def resources(spill_bytes: int = 0, smem_bytes: int = 0) -> Resources:
    return Resources(registers=90, spill_bytes=spill_bytes, smem_bytes=smem_bytes)


def timed(seconds: float = 3e-6) -> tuple[GateResult, ...]:
    return (
        *(gate(name, passed=True) for name in ("legal", "compiles", "right")),
        gate("fast", passed=True, seconds=seconds),
    )


def rule_of(edit: Edit | None) -> str:
    assert edit is not None
    assert list(edit_faults(edit, [TOY])) == []
    (rule,) = edit.add
    # What it asks for is another configuration than the judged one.
    assert not read_rule(rule.rule, list(START)).holds(START)
    return rule.rule


@pytest.mark.parametrize(
    ("part", "zone", "rule"),
    [
        ("matrix units", "compute", "tile_m > 64"),
        ("DRAM", "memory", "num_stages > 3"),
        ("latency", "latency", "num_stages > 3"),
        ("wave quantisation", "latency", "tile_m < 64 or tile_n < 128"),
        ("a part that nobody knows", "latency", "num_stages > 3"),
    ],
)
def test_what_binds_a_timed_candidate_becomes_a_constraint(part: str, zone: str, rule: str) -> None:
    verdict = judged(*timed(), parts_s={part: 1.5e-6, "load issue": 1e-6})
    assert isinstance(verdict, Success)
    assert (verdict.bottleneck, verdict.zone) == (part, zone)
    assert "3.00 us, predicted 2.00 us" in verdict.evidence
    assert f"modelled: {part} 1.50 us" in verdict.evidence
    assert rule_of(verdict.edit) == rule


def test_metrics_come_before_the_model() -> None:
    verdict = judged(*timed(), parts_s={"matrix units": 1e-6}, metrics={DRAM: 91.0, TENSOR: 40.0})
    assert isinstance(verdict, Success)
    assert (verdict.bottleneck, verdict.zone) == ("DRAM", "memory")
    assert "measured: DRAM busy for 91 %" in verdict.evidence


def test_where_nothing_is_busy_the_longest_wait_binds() -> None:
    verdict = judged(*timed(), metrics={DRAM: 20.0, TENSOR: 30.0, WAITS: 4.0})
    assert isinstance(verdict, Success)
    assert (verdict.bottleneck, verdict.zone) == ("barrier", "latency")


def test_what_is_at_the_roofline_has_nothing_left_to_gain() -> None:
    verdict = judged(*timed(1.02e-6), parts_s={"DRAM": 1e-6}, roofline_s=1e-6)
    assert isinstance(verdict, Success)
    assert verdict.edit is None
    assert "nothing can take less than 1.00 us" in verdict.evidence


def test_a_move_that_can_go_no_further_gives_way_to_the_next() -> None:
    widest = {"tile_m": 128, "tile_n": 128, "num_stages": 3}
    verdict = judged(*timed(), parts_s={"matrix units": 1e-6}, config=widest)
    assert isinstance(verdict, Success)
    assert verdict.edit is not None
    assert [rule.rule for rule in verdict.edit.add] == ["num_stages > 3"]


@pytest.mark.parametrize(
    ("failed", "hint", "rule"),
    [
        (
            gate(
                "compiles",
                passed=False,
                message="spills",
                resources=resources(spill_bytes=64),
            ),
            "more warps, or a smaller tile",
            "tile_m < 64 or tile_n < 128",
        ),
        (
            gate("compiles", passed=False, resources=resources(smem_bytes=300_000)),
            "fewer stages",
            "num_stages < 3",
        ),
        (
            gate("compiles", passed=False, message="error: x"),
            "Leave",
            "tile_m != 64 or tile_n != 128 or num_stages != 3",
        ),
        (gate("right", passed=False, message="nan"), "Leave", ANOTHER),
        (gate("fast", passed=False, message="hung"), "Leave", ANOTHER),
    ],
)
def test_a_failure_says_what_why_and_how_to_mend_it(failed: GateResult, hint: str, rule: str) -> None:
    verdict = judged(gate("legal", passed=True), failed)
    assert isinstance(verdict, Failure)
    assert verdict.critical_issue == (failed.message or "it did not pass the gate `compiles`")
    assert verdict.why_it_matters
    assert hint in verdict.minimal_fix_hint
    assert rule_of(verdict.edit) == rule


@pytest.mark.parametrize("name", ["legal", "honest"])
def test_what_no_constraint_mends_has_no_edit(name: str) -> None:
    verdict = judged(gate(name, passed=False, message="no"))
    assert isinstance(verdict, Failure)
    assert verdict.edit is None


def test_a_verdict_is_one_json_object() -> None:
    verdict = judged(*timed(), parts_s={"DRAM": 1e-6})
    read = msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict)
    assert read == verdict


def test_every_move_against_a_part_leaves_something_of_a_real_kernel() -> None:
    resolver = product_resolver()
    choice = pointer_choice()
    candidates = product_candidates()
    kernel = candidates.kernels[candidates.by_name[choice.kernel]]
    for part in MOVES:
        bound = msgspec.structs.replace(choice, parts_s={part: 1.0})
        verdict = judge(CandidateEvidence(candidate=bound, gates=(), kernel=resolver.kernel(choice.kernel)))
        assert verdict.edit is not None
        found = intersect(SpaceProposal(kernel=choice.kernel, rules=verdict.edit.add), kernel)
        assert not isinstance(found, ProposalRefusal), part
