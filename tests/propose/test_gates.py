"""Correct candidates pass every gate in its order; each cheat is refused by the gate that it should be, with a reason.

Triton's interpreter runs candidates here, on the CPU and without bf16, so nothing is timed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.attacks.triton_source import refused_by
from constrint.hwmodels import load_gpu
from constrint.propose import GateSettings, examine, find_sandbox, find_task, order
from constrint.propose.examination import Examination, Failing
from constrint.propose.score import GATES
from constrint.propose.values import CERTAINTY, ENOUGH_CALLS, RARE, InputSet, input_sets
from constrint.tune.search.llm.records import SourceProposal
from tests.propose.cheats import CHEATS, Cheat, cheats_of
from tests.support.forked_worker import ForkedWorker, OpenWorker
from tests.support.needs import needs_triton

pytestmark = needs_triton
GPU = load_gpu("h200")
#: Without bubblewrap the gates work all the same; `test_sandbox.py` is about the sandbox.
SETTINGS = GateSettings(allow_unsandboxed=isinstance(find_sandbox(), str), device="cpu", patience_s=60)


def proposal(source: str, task: str = "softmax") -> SourceProposal:
    return SourceProposal(task=task, language="triton", source=source)


def first_refusal(source: str, gates: Sequence[str]) -> tuple[str, str]:
    """The first of some gates, run without those before them, that refuses a softmax, and why."""
    # A call that never ends is waited for as long.
    patience_s = 3 if "while True" in source else 60
    return refused_by(Examination(proposal(source), GPU, GateSettings(True, "cpu", patience_s=patience_s)), gates)


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that start at once; `test_sandbox.py` is about the sandbox."""
    monkeypatch.setattr("constrint.propose.examination.SandboxWorker", ForkedWorker)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that start at once and give a candidate all of Python."""
    monkeypatch.setattr("constrint.propose.examination.SandboxWorker", OpenWorker)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("cheat", [one for one in CHEATS if one.gate != "legal"], ids=lambda one: one.name)
def test_a_cheat_that_reads_well_is_refused_by_its_gate(cheat: Cheat) -> None:
    gate, message = first_refusal(cheat.source, ("right", "honest") if cheat.gate != "compiles" else ("compiles",))
    assert gate == cheat.gate, message
    # Who writes past the end of y may hit what the allocator keeps there, or no memory at all, and end before the guard
    # is looked at.
    is_ended = re.search(r"free\(\)|malloc\(\)|realloc\(\)|killed by SIG(ABRT|SEGV|BUS)", message) is not None
    assert cheat.says in message or (cheat.says == "wrote beside y" and is_ended), message


@pytest.mark.usefixtures("opened")
@pytest.mark.parametrize("cheat", [one for one in CHEATS if one.deeper], ids=lambda one: one.name)
def test_a_cheat_is_refused_although_nobody_read_it(cheat: Cheat) -> None:
    gate, message = first_refusal(cheat.source, ("right", "honest"))
    if "kept" in cheat.name and gate == "right":
        # In one run of a hundred sizes are drawn twice, and what was kept of the first is wrong for the second.
        assert "times what rounding explains" in message
        return
    assert gate == cheat.deeper, message
    assert cheat.deeper_says in message


@pytest.mark.usefixtures("opened")
def test_what_is_kept_is_seen_although_the_first_sizes_drawn_have_one_output_whatever_the_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row of one element has the softmax 1: a kept result is right there, and other sizes are drawn."""
    drawn: list[int] = []

    def one_column_first(*given: Any) -> Iterator[InputSet]:
        for one in input_sets(*given):
            drawn.append(given[-1])
            yield replace(one, sizes={**one.sizes, "n": 1}) if len(set(drawn)) < 4 else one

    cheat = next(cheat for cheat in CHEATS if "kept and given again" in cheat.name)
    examination = Examination(proposal(cheat.source), GPU, SETTINGS)
    monkeypatch.setattr("constrint.propose.examination.input_sets", one_column_first)
    try:
        with pytest.raises(Failing, match="right at first, and not when other values"):
            examination.honest()
    finally:
        examination.close()
    assert len(set(drawn)) == 4


@pytest.mark.usefixtures("forked")
def test_pytorch_does_no_work_at_the_sizes_of_the_timing() -> None:
    """They are not checked here, where nothing is timed; what is launched at them is compiled."""
    source = find_task("softmax").examples[0].read_text()
    act = f"    if x.shape[0] == {find_task('softmax').timed_sizes['m']}:\n        e = 2.0 ** x\n        y.zero_()\n"
    gate, message = first_refusal(source + act, ("legal", "compiles"))
    assert gate == "compiles"
    assert "PyTorch may not do the work" in message


@pytest.mark.usefixtures("forked")
def test_a_result_that_is_rarely_wrong_is_seen_by_the_number_of_calls() -> None:
    """The first row of one call in ten, by its values, is half of what it should be.

    Bits of a value times an odd number are as good as drawn, of a short type too, whose last bits are zeros: that all
    228 calls are right has a chance of 4e-11.
    """
    (source, *_) = (path.read_text() for path in find_task("softmax").examples if "one_block" in path.name)
    rare = "weights = tl.where((row == 0) & (bits % 10 == 7), 0.5 * weights, weights) + 0.0\n    tl.store("
    drawn = "(tl.max(values, axis=0).to(tl.int32, bitcast=True).to(tl.int64) * 2654435761) >> 20 & 0xFFFF"
    source = source.replace("tl.store(", f"bits = {drawn}\n    {rare}")
    source = source.replace("weights / tl.sum(weights", "weights / tl.sum(tl.exp(values - tl.max(values, axis=0))")
    assert first_refusal(source, ("legal",)) == ("", "")
    gate, message = first_refusal(source, ("right", "honest"))
    assert gate in ("right", "honest")
    assert "times what rounding explains" in message


def test_the_number_of_checked_calls_is_what_the_documents_say() -> None:
    assert ENOUGH_CALLS == 228
    assert (1 - 1 / RARE) ** ENOUGH_CALLS <= 1 - CERTAINTY < (1 - 1 / RARE) ** (ENOUGH_CALLS - 1)


def test_a_correct_candidate_passes_every_gate_in_order() -> None:
    source = find_task("softmax").examples[0].read_text()
    found = examine(proposal(source), GPU, SETTINGS)
    assert found.refused_by == "", found.message
    assert [result.gate for result in found.results] == list(GATES)
    assert found.is_sound
    assert found.is_interpreted
    assert found.score is None, "nothing was timed"
    legal, compiles, right, honest, fast = found.results
    assert compiles.resources is not None
    assert 16 <= compiles.resources.registers <= 255
    assert "interpreted on the CPU, without bf16" in right.message
    assert fast.is_modelled
    assert "not timed" in fast.message
    assert fast.seconds == pytest.approx(8.56e-5, rel=0.01)
    assert {result.kernel for result in found.results} == {"softmax"}
    assert len({result.candidate for result in found.results}) == 1
    assert legal.candidate
    assert honest.seconds is None
    assert "228 calls are right" in honest.message


def test_no_gate_runs_before_the_one_before_it_was_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    for gate in GATES[1:]:
        monkeypatch.setattr(Examination, gate, lambda self, gate=gate: ran.append(gate))
    found = examine(proposal("import os"), GPU, SETTINGS)
    assert [(result.gate, result.passed) for result in found.results] == [("legal", False)]
    assert ran == []


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("name", [pytest.param("cross_entropy", marks=pytest.mark.slow), "rotary"])
def test_the_gates_order_correct_candidates_before_cheats(name: str) -> None:
    """`benchmarks/propose/source_order.py` does this again and again, with all candidates and cheats of all tasks."""
    cheat = next(cheat for cheat in cheats_of(name) if cheat.says == "not written")
    examples = find_task(name).examples[:1]
    found = [
        examine(proposal(source, name), GPU, SETTINGS) for source in (cheat.source, *map(Path.read_text, examples))
    ]
    assert [one.refused_by for one in found] == ["right", *("" for _ in examples)], [one.message for one in found]
    assert 0 not in order(found)[: len(examples)]
    assert found[0].score == 0
    assert cheat.says in found[0].message
