"""What a model is asked: everything that it needs, nothing else, and never more than a bounded amount."""

from __future__ import annotations

import json

import msgspec
import pytest

from constrint.tune.search.llm.prompt import MAX_RESULTS, judging, proposing, shown_results
from constrint.tune.search.llm.records import (
    CandidateEvidence,
    Failure,
    GateResult,
    Nearby,
    PredictedConfig,
    ProposalRefusal,
    Resources,
    TaskFacts,
)
from tests.tune.search.llm.kernels import product_resolver


@pytest.fixture(scope="module")
def facts() -> TaskFacts:
    return product_resolver().facts


def result(number: int, **more: object) -> GateResult:
    told = {"gate": "fast", "passed": True, "kernel": "gemm.pointer", "config": {"n": number}, "seconds": 1e-6 * number}
    return msgspec.convert(told | more, type=GateResult)


def test_the_question_says_what_there_is_to_choose_and_why(facts: TaskFacts) -> None:
    system, user = proposing(facts)
    assert system.role == "system"
    assert user.role == "user"
    assert "gemm m=4096 n=4096 k=4096 bf16 on H200" in user.content
    for kernel in facts.kernels:
        assert f"Kernel {kernel.name}:" in user.content
        for param in kernel.params:
            assert f"- {param.name} in {{" in user.content
        for rule in kernel.rules:
            assert f"{rule.rule}   because {rule.because}" in user.content
    assert all(f"{name}:" in user.content for name in facts.limits)
    best = facts.ranking[0]
    assert " ".join(f"{name}={value}" for name, value in best.config.items()) in user.content
    schema = json.loads(system.content[system.content.index("reply:\n") + len("reply:\n") :])
    assert {"SpaceProposal", "StrategyProposal", "ActionProposal"} <= schema["$defs"].keys()


def test_the_same_facts_give_the_same_question(facts: TaskFacts) -> None:
    again = msgspec.json.decode(msgspec.json.encode(facts), type=TaskFacts)
    assert proposing(again) == proposing(facts)


def test_what_happened_is_told(facts: TaskFacts) -> None:
    taken = Resources(registers=255, spill_bytes=64, smem_bytes=1024)
    failed = result(1, gate="right", passed=False, seconds=None, message="an error of 7\ntimes the bound")
    told = msgspec.structs.replace(
        facts,
        round=2,
        results=(failed, result(2, gate="compiles", seconds=None, resources=taken), result(3, is_modelled=True)),
        refusals=(ProposalRefusal(where="proposals[0].kernel", message="unknown kernel 'x'"),),
        verdicts=(Failure(critical_issue="it spills", why_it_matters="slow", minimal_fix_hint="smaller tile"),),
        nearby=(Nearby(workload="gemm m=8", distance=1.0, kernel="gemm.pointer", config={"tile_m": 64}, seconds=2e-6),),
    )
    text = proposing(told)[1].content
    assert "gate right FAILED: an error of 7 times the bound" in text
    assert "255 registers, 64 bytes spilled, 1024 bytes shared memory" in text
    assert "3 us modelled" in text
    assert "proposals[0].kernel: unknown kernel 'x'" in text
    assert "it spills" in text
    assert "gemm m=8" in text
    assert "This is round 3." in text


def test_a_long_run_does_not_make_the_question_longer(facts: TaskFacts) -> None:
    results = tuple(result(number, message="m" * 5000) for number in range(1, 1001))
    short = msgspec.structs.replace(facts, results=results[:MAX_RESULTS])
    long = msgspec.structs.replace(facts, results=results)
    lengths = [len(proposing(one)[1].content) for one in (short, long)]
    assert lengths[1] < lengths[0] + 1000
    assert lengths[1] < len(proposing(facts)[1].content) + 500 * MAX_RESULTS
    kept = shown_results(results)
    assert len(kept) == MAX_RESULTS
    assert kept[0] == results[0]  # the fastest of all
    assert kept[-1] == results[-1]  # the newest


def test_a_judge_is_told_of_one_candidate_and_its_kernel_alone(facts: TaskFacts) -> None:
    candidate: PredictedConfig = facts.ranking[0]
    gates = (result(1, kernel=candidate.kernel, config=candidate.config),)
    evidence = CandidateEvidence(candidate=candidate, gates=gates, best_s=5e-6, metrics={"dram.busy": 71.5})
    system, user = judging(facts, evidence)
    assert '"failure"' in system.content
    assert '"success"' in system.content
    others = [kernel.name for kernel in facts.kernels if kernel.name != candidate.kernel]
    assert f"Kernel {candidate.kernel}:" in user.content
    assert not any(f"Kernel {name}:" in user.content for name in others)
    assert "dram.busy: 71.5" in user.content
    assert "5 us" in user.content
