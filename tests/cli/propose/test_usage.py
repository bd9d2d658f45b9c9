"""What the command says to options that make no sense, and what it would do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.needs import needs_openai
from tests.support.proposing import KEY, Call

pytestmark = needs_openai

OPTIONS = {
    ("--llm", "http://localhost:1/v1"): "--llm needs the model's name",
    ("--model", "m"): "name the endpoint",
    ("--llm", "localhost", "--model", "m"): "the address of an OpenAI-compatible endpoint",
    ("--llm", "http://me:word@h/v1", "--model", "m"): "without user, password",
    ("--llm", "http://host.example/v1", "--model", "m"): "unencrypted",
    ("--judge", "model"): "needs a model",
    ("--judge", "jury"): "unknown judge",
    ("--dollars", "1"): "needs the prices",
    ("--prices", "cheap"): "write dollars for a million tokens",
    ("--prices", "1,nan"): "write dollars for a million tokens",
    ("--budget", "soon"): "is no time",
    ("--rounds", "0"): "0",
    ("--replay", "missing.jsonl"): "cannot read the transcript",
    ("--replay", "a", "--rounds", "2"): "takes rounds and trials from the transcript",
    ("--replay", "a", "--transcript", "b"): "give neither",
    ("--transcript", "missing/t.jsonl"): "cannot write the transcript",
    ("--device", "tpu"): "unknown device",
}


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_options_that_make_no_sense_are_refused_in_a_line(propose: Call, options: tuple[str, ...]) -> None:
    code, out, err = propose("--modelled", *options)
    assert (code, out) == (2, ""), err
    assert OPTIONS[options] in err
    assert len([line for line in err.strip().splitlines() if not line.startswith("note: ")]) == 1
    assert KEY not in err
    assert "me:word" not in err


TASK_OPTIONS = {
    ("--task", "softmx"): "unknown task",
    ("--task", "softmax", "--candidate", "missing.py"): "cannot read the source",
    ("--task", "softmax", "--candidate", "a.py", "--llm", "http://127.0.0.1:1/v1", "--model", "m"): "give one of them",
    ("--task", "softmax", "--m", "5"): "give no --kernel",
    ("--candidate", "a.py"): "add --task",
}


@pytest.mark.parametrize("options", TASK_OPTIONS, ids=" ".join)
def test_options_about_tasks_that_make_no_sense_are_refused(
    run: Call, tmp_path: Path, options: tuple[str, ...]
) -> None:
    code, out, err = run("propose", "--gpu", "h200", "--modelled", "--store", tmp_path / "s.sqlite", *options)
    assert (code, out) == (2, ""), err
    assert TASK_OPTIONS[options] in err


def test_a_dry_run_of_a_task_shows_what_is_to_be_written(run: Call) -> None:
    code, out, _ = run("propose", "--gpu", "h200", "--modelled", "--task", "softmax", "--dry-run")
    assert code == 0
    assert "Write `run(y, x)`" in out
    assert '"SourceProposal"' in out
