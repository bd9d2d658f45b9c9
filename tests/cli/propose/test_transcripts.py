"""Transcripts of the command: they replay bit for bit without a model, and a run goes on where it was."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from constrint.tune.search.llm.endpoint import KEY_VARIABLE
from tests.support.clock import PATIENCE_S, wait_until
from tests.support.model_server import (
    fails,
    says,
    serving,
    silent,
)
from tests.support.needs import needs_openai
from tests.support.proposing import HOSTILE, KEY, Call, candidates
from tests.tune import tiny
from tests.tune.search.llm.tiny_search import reply, space

pytestmark = needs_openai
ROOT = Path(__file__).resolve().parents[3]


def test_a_transcript_replays_bit_for_bit_without_a_model(asked: Any, propose: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    turns = (
        says(reply(space(3), space(99))),
        says(f"{HOSTILE} {KEY}"),
        fails(400, f"bad {KEY}"),
    )
    more = ("--rounds", 4, "--trials", 2, "--json", "--transcript", path)
    code, out, _, _ = asked(*turns, more=more)
    again, replayed, err = propose("--modelled", "--json", "--replay", path)
    assert (again, replayed) == (code, out), err
    assert len(json.loads(out)["results"][0]["rounds"]) == 2
    assert KEY not in path.read_text()
    assert KEY_VARIABLE not in path.read_text()
    assert "other ones than" not in err


def test_the_built_in_proposers_transcript_replays_too(propose: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    _, out, _ = propose("--modelled", "--rounds", 2, "--json", "--transcript", path)
    assert propose("--modelled", "--json", "--replay", path)[1] == out


@pytest.mark.slow
def test_kernels_that_are_compiled_replay_bit_for_bit_too(
    run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))  # the second time what was compiled is looked up
    pytest.importorskip("triton", reason="needs the extra [torch]: triton is not installed")
    path, store = tmp_path / "t.jsonl", tmp_path / "records.sqlite"
    gemm = ("propose", "--gpu", "mi300x", "--kernel", "gemm.pointer", "--m", 512, "--n", 512, "--k", 512)
    said = reply(
        {
            "type": "strategy",
            "name": "wide",
            "text": "few blocks",
            "kernel": "gemm.pointer",
            "rules": [{"rule": "tile_m >= 128"}],
        },
        {"type": "action", "kernel": "gemm.pointer", "action": "pipeline"},
        {"type": "space", "kernel": "gemm.pointer", "rules": [{"rule": "tile_k > 64"}, {"rule": "tile_k < 64"}]},
    )
    with serving(says(said)) as server:
        llm = ("--llm", server.url, "--model", "scripted", "--rounds", 1, "--trials", 2, "--transcript", path)
        code, out, err = run(*gemm, "--modelled", "--store", store, "--json", *llm)
    assert code == 0, err
    again = run(*gemm, "--modelled", "--store", store, "--json", "--replay", path)
    assert again[:2] == (code, out)
    compiled = [
        gate
        for part in json.loads(out)["results"][0]["rounds"]
        for one in part["candidates"]
        for gate in one["gates"]
        if gate["gate"] == "compiles"
    ]
    assert len(compiled) == 3
    assert all(gate["resources"]["registers"] > 0 for gate in compiled)
    refusals = [told["message"] for part in json.loads(out)["results"][0]["rounds"] for told in part["refusals"]]
    assert any("cheapest change" in message for message in refusals), refusals


def test_a_run_is_resumed_where_its_transcript_ends(asked: Any, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    more: tuple[object, ...] = ("--rounds", 1, "--trials", 1, "--transcript", path)
    asked(says(reply(space(3))), more=more)
    text = path.read_text().replace('"rounds":1', '"rounds":2')
    path.write_text(text)
    code, _, err, _ = asked(says(reply(space(4))), more=more)
    assert code == 2
    assert "is there already" in err
    code, out, _, server = asked(says(reply(space(4))), more=(*more, "--resume", "--json"))
    assert code == 0
    assert candidates(out) == [[0, 3], [4]]
    assert len(server.asked) == 1


@pytest.mark.parametrize("fault", ["refused", "late", "spent"])
@pytest.mark.parametrize("message", ["\x1b[2Jgone\x07", "", "\n\u202e"])
def test_what_a_transcript_says_is_no_command_of_a_terminal(
    propose: Call, tmp_path: Path, fault: str, message: str
) -> None:
    path = tmp_path / "t.jsonl"
    propose("--modelled", "--rounds", 1, "--transcript", path)
    head, line = path.read_text().splitlines()
    told = json.loads(line) | {"answer": {"fault": fault, "message": message}}
    path.write_text(f"{head}\n{json.dumps(told)}\n")
    code, out, err = propose("--modelled", "--replay", path)
    assert code == 1
    assert all(char.isprintable() or char == "\n" for char in out + err)
    assert "Traceback" not in err


def heeds_interrupts() -> None:
    """A job in the background of a shell ignores Ctrl-C, and so does what it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
def test_a_run_that_is_interrupted_says_what_it_has_and_goes_on(tmp_path: Path) -> None:
    path, store = tmp_path / "t.jsonl", tmp_path / "records.sqlite"
    kernel = f"{tiny.__file__}:SPEC"
    with serving(says(reply(space(3))), silent()) as server:
        command = [
            sys.executable,
            "-m",
            "constrint.cli.app",
            "propose",
            "--gpu",
            "h200",
            "--kernel",
            kernel,
            "--modelled",
        ]
        command += ["--store", str(store), "--llm", server.url, "--model", "scripted", "--transcript", str(path)]
        command += ["--trials", "1", "--json"]
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=heeds_interrupts,
        )
        wait_until(lambda: len(server.asked) >= 2, "the second question")
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 130, err
        assert "Traceback" not in err
        assert candidates(out) == [[0, 3]]
    with serving(says(reply(space(4)))) as server:
        changed = [server.url if part.startswith("http") else part for part in command]
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([lines[0].replace('"rounds":5', '"rounds":2'), *lines[1:]]))
        done = subprocess.run(
            [*changed, "--resume"], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=ROOT
        )
    assert done.returncode == 0, done.stderr
    assert candidates(done.stdout) == [[0, 3], [4]]
