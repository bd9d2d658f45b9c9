"""Rounds of source: what is taken of a reply, what goes back, and which candidate is the best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.propose import Examined, find_task
from constrint.propose.writing import Files, SourceRounds, built_in_files
from constrint.tune.search.llm.answer import Response
from constrint.tune.search.llm.prompt import writing
from constrint.tune.search.llm.records import GateResult, SourceProposal
from tests.tune.search.llm.tiny_search import Script, reply, space

TASK = find_task("softmax")


def source(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "source", "task": "softmax", "language": "triton", "source": text, **more}


def examine(proposal: SourceProposal) -> Examined:
    """A stand-in for the gates, which a source's text tells how far it comes: `right`, `fast 2.0`."""
    word, _, gain = proposal.source.partition(" ")
    gates = ("legal", "compiles", "right", "honest", "fast")
    told = []
    for gate in gates:
        failed = gate == word and not gain
        seconds = 1e-4 / float(gain) if gate == "fast" and gain else None
        message = f"{gate} said no" if failed else ""
        result = {"gate": gate, "passed": not failed, "kernel": "softmax", "message": message, "seconds": seconds}
        told.append(GateResult(**result))  # type: ignore[arg-type]
        if failed:
            break
    return Examined(tuple(told), float(gain) if gain else None)


def rounds_of(*answers: str | Response, **options: Any) -> tuple[SourceRounds, Script]:
    script = Script(answers)
    made = SourceRounds(TASK, load_gpu("h200"), script, examine, **{"rounds": len(answers), **options})
    made.run()
    return made, script


def test_the_best_is_the_fastest_that_is_right_and_honest() -> None:
    made, _ = rounds_of(
        reply(source("right"), source("fast 1.5")), reply(source("honest"), source("fast 3"), source("x"))
    )
    assert made.best is not None
    assert made.best.proposal.source == "fast 3"
    assert [one.examined.refused_by for one in made.written] == ["right", "", "honest", "", ""]
    none, _ = rounds_of(reply(source("compiles")))
    assert none.best is None


def test_sources_and_what_came_of_them_go_back() -> None:
    _, script = rounds_of(reply(source("fast 2")), reply(source("right")), reply(source("legal")))
    text = writing(script.asked[2].facts)[1].content
    assert "right said no" in text
    assert "Candidate 1, which was tried" in text
    assert [one.source for one in script.asked[2].facts.sources] == ["fast 2", "right"]  # the best, and the last
    assert TASK.describe() in text
    assert script.asked[1].facts.verdicts


def test_a_candidate_that_was_not_timed_has_no_verdict() -> None:
    made, _ = rounds_of(reply(source("untimed")))
    assert made.written[0].examined.is_sound
    assert made.written[0].verdict is None


USELESS = {
    "no JSON": ("def run(): pass", "no JSON object"),
    "a space": (reply(space(1)), ""),
    "another task": (reply(source("fast 2") | {"task": "layer_norm"}), "the task is 'softmax'"),
    "the same again": (reply(source("fast 1")), "tried before"),
    "too long": (reply(source("x" * 70_000)), "length <= 60000"),
}


@pytest.mark.parametrize("name", USELESS)
def test_what_is_no_candidate_costs_a_round(name: str) -> None:
    said, told = USELESS[name]
    made, script = rounds_of(reply(source("fast 1")), said, reply(source("fast 2")))
    assert [len(one.written) for one in made.rounds] == [1, 0, 1]
    assert told in script.asked[2].facts.refusals[0].message


def test_a_round_has_so_many_candidates_and_no_more() -> None:
    made, script = rounds_of(reply(*(source(f"fast {n}") for n in range(1, 7))), reply(), trials=3)
    assert [one.proposal.source for one in made.written] == ["fast 1", "fast 2", "fast 3"]
    assert "left out" in script.asked[1].facts.refusals[0].message


def test_files_are_examined_once_each(tmp_path: Path) -> None:
    paths = [tmp_path / "a.py", tmp_path / "b.py"]
    for path, text in zip(paths, ("right", "fast 2"), strict=True):
        path.write_text(text)
    made = SourceRounds(TASK, load_gpu("h200"), Files("softmax", paths, "human"), examine)
    made.run()
    assert [one.origin for one in made.written] == ["human", "human"]
    assert made.best is not None
    assert made.best.proposal.because == "from the file b.py"
    assert len(made.rounds) == 1


def test_files_that_are_no_source_are_refused(tmp_path: Path) -> None:
    for text, told in ((b"\xff\xfe", "UTF-8"), (b"", "nothing"), (b"x" * 70_000, "more than")):
        (tmp_path / "a.py").write_bytes(text)
        with pytest.raises(UsageError, match=told):
            Files("softmax", [tmp_path / "a.py"], "human")
    with pytest.raises(UsageError, match="cannot read"):
        Files("softmax", [tmp_path / "missing.py"], "human")
    (tmp_path / "a.py").write_text("x")
    with pytest.raises(UsageError, match="17 files"):
        Files("softmax", [tmp_path / "a.py"] * 17, "human")


def test_the_package_has_candidates_of_its_own_tasks() -> None:
    assert [path.name for path in built_in_files("softmax")] == ["softmax_one_block.py", "softmax_online.py"]
    assert built_in_files("mine") == []
