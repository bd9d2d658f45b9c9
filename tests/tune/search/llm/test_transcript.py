"""Transcripts: what is written, and that it answers again, whole, cut or changed by someone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from constrint.errors import UsageError
from constrint.tune.search.llm.answer import PromptRequest, Response, Usage
from constrint.tune.search.llm.resolve import Resolver
from constrint.tune.search.llm.search import Effort
from constrint.tune.search.llm.transcript import SCHEMA, Header, read, recorded, replayed
from tests.tune.search.llm.tiny_search import Script, configs, reply, space, tiny_search, tiny_task

HEADER = Header(
    schema=SCHEMA,
    run="r1",
    proposer="scripted",
    host="127.0.0.1:1",
    gpu="H200-SXM",
    kernel="tiny",
    workload="tiny",
    rounds=3,
    trials=2,
)
ANSWERS = [reply(space(3, 4)), "no JSON", Response(fault="late", message="no reply", usage=Usage(input_tokens=7))]


class Notes(list[str]):
    def __call__(self, text: str) -> None:
        self.append(text)


def record_one(path: Path, answers: Any = ANSWERS, rounds: int = 3) -> list[int]:
    transcript = recorded(path, HEADER, resume=False, note=Notes())
    done = tiny_search(transcript.speaking(Script(answers)), Effort(rounds=rounds, candidates=2))
    done.ask(1)
    transcript.close()
    return configs(done.attempts)


def test_a_transcript_answers_again_without_anyone(tmp_path: Path) -> None:
    path, notes = tmp_path / "t.jsonl", Notes()
    before = record_one(path)
    rounds = tiny_search(replayed(path, HEADER, notes), Effort(rounds=3, candidates=2))
    rounds.ask(1)
    assert configs(rounds.attempts) == before == [0, 3, 4]
    assert [one.answer for one in rounds.rounds] == [line.answer for line in read(path, notes)[1]]
    assert rounds.spending.tokens == 110 + 110 + 7
    assert notes == []


def test_it_says_when_the_questions_are_no_longer_the_same(tmp_path: Path) -> None:
    path, notes = tmp_path / "t.jsonl", Notes()
    record_one(path)
    changed = path.read_text().replace('"digest":"', '"digest":"0')
    path.write_text(changed)
    tiny_search(replayed(path, HEADER, notes), Effort(rounds=3, candidates=2)).ask(1)
    assert len(notes) == 1
    assert "other ones than the transcript's" in notes[0]


def test_a_run_that_was_cut_goes_on_where_it_was(tmp_path: Path) -> None:
    path, notes = tmp_path / "t.jsonl", Notes()
    record_one(path, rounds=1)
    with path.open("ab") as file:
        file.write(b'{"purpose":"propose","rou')  # the process was killed while it wrote
    script = Script([reply(space(5))])
    transcript = recorded(path, HEADER, resume=True, note=notes)
    rounds = tiny_search(transcript.speaking(script), Effort(rounds=2, candidates=2))
    rounds.ask(1)
    transcript.close()
    assert configs(rounds.attempts) == [0, 3, 4, 5]
    assert [question.facts.round for question in script.asked] == [1]  # the first round is not asked about again
    assert "not written to its end" in notes[0]
    assert [line.round for line in read(path, notes)[1]] == [0, 1]


def test_what_ended_a_run_does_not_end_the_one_that_resumes_it(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record_one(path, [reply(space(3)), Response(fault="spent", message="the time is up")])
    transcript = recorded(path, HEADER, resume=True, note=Notes())
    rounds = tiny_search(transcript.speaking(Script([reply(space(5))])), Effort(rounds=2, candidates=1))
    rounds.ask(1)
    transcript.close()
    assert configs(rounds.attempts) == [0, 3, 5]


def test_an_old_transcript_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record_one(path)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="is there already"):
        recorded(path, HEADER, resume=False, note=Notes())
    assert path.read_bytes() == before


def test_a_transcript_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record_one(path)
    other = Header(**{name: getattr(HEADER, name) for name in HEADER.__struct_fields__} | {"workload": "tiny m=9"})
    with pytest.raises(UsageError, match="workload"):
        replayed(path, other, Notes())
    with pytest.raises(UsageError, match="workload"):
        recorded(path, other, resume=True, note=Notes())


def test_a_transcript_of_another_course_of_events_ends_the_run(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    record_one(path)
    head, first, second, third = path.read_text().splitlines()
    path.write_text("\n".join([head, first, third, second]) + "\n")
    rounds = tiny_search(replayed(path, HEADER, Notes()), Effort(rounds=3, candidates=2))
    rounds.ask(1)
    assert "another course of events" in rounds.stopped
    assert len(rounds.rounds) == 1


def header(**changes: Any) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(HEADER, **changes)) + b"\n"


BAD = {
    "nothing": (b"", "no line"),
    "no JSON": (b"hello\n", "line 1"),
    "another schema": (json.dumps({"schema": "constrint.transcript/9"}).encode() + b"\n", "line 1"),
    "a pickle": (b"\x80\x04\x95.\n", "line 1"),
    "a field too many": (b'{"purpose":"propose","round":0,"digest":"","answer":{},"run":"sh"}\n', "line 2"),
    "a terminal's commands": (header(proposer="\x1b[2J"), "control characters"),
    "a run's name that is none": (header(run="../x"), "line 1"),
    "rounds without end": (header(rounds=10**9), "line 1"),
    "brackets": (b"[" * 100_000 + b"\n", "line 2"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_transcript_is_refused_with_its_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.jsonl"
    text, told = BAD[name]
    if told == "line 2":
        record_one(path, rounds=0)
        text = path.read_bytes() + text
    path.write_bytes(text)
    with pytest.raises(UsageError, match=told):
        replayed(path, HEADER, Notes())


def test_a_file_that_cannot_be_written_or_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        recorded(tmp_path / "missing" / "t.jsonl", HEADER, resume=False, note=Notes())
    with pytest.raises(UsageError, match="cannot read"):
        replayed(tmp_path / "t.jsonl", HEADER, Notes())


def test_questions_are_told_apart_by_their_facts() -> None:
    facts = Resolver(tiny_task()).facts
    assert PromptRequest(facts).digest == PromptRequest(Resolver(tiny_task()).facts).digest
    assert PromptRequest(msgspec.structs.replace(facts, round=1)).digest != PromptRequest(facts).digest
