"""The command on a device, which here is the CPU: gates by measurement, profiles, and what is kept of all."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_ncu import write_ncu
from tests.support.model_server import (
    says,
    serving,
)
from tests.support.needs import needs_openai
from tests.support.proposing import HOSTILE, Call
from tests.tune import tiny
from tests.tune.search.llm.tiny_search import reply, space

pytestmark = needs_openai


def test_proposals_and_gates_are_kept_with_who_proposed_them(asked: Any, run: Call, tmp_path: Path) -> None:
    turns = says(reply(space(3, because="three is best"), space(99))), says(HOSTILE)
    _, out, _, server = asked(*turns, more=("--rounds", 2, "--trials", 1, "--json"))
    store = tmp_path / "records.sqlite"
    code, listed, _ = run("records", "proposals", "--store", store, "--json")
    assert code == 0
    kept = json.loads(listed)["results"]
    assert [(one["round"], one["kind"], one["origin"], bool(one["gates"])) for one in kept] == [
        (0, "baseline", "cost model", True),
        (0, "space", "scripted", True),
        (0, "", "scripted", False),
        (1, "", "scripted", False),
    ]
    proposed = kept[1]
    assert (proposed["host"], proposed["because"]) == (server.url[7:-3], "three is best")
    assert proposed["run"] == json.loads(out)["run"]
    assert proposed["proposal"]["values"] == [{"parameter": "what", "values": [3], "because": ""}]
    assert [(gate["gate"], gate["is_modelled"]) for gate in proposed["gates"]][-1] == ("fast", True)
    assert "99" in kept[2]["refusals"][0]
    assert run("records", "list", "--store", store)[1].startswith("0 workloads")  # nothing modelled is a measurement
    code, table, _ = run("records", "proposals", "--store", store, "--refused")
    assert code == 0
    assert "2 proposals" in table


@pytest.mark.slow
def test_on_a_device_candidates_are_checked_and_timed_and_the_best_becomes_the_first_choice(
    propose: Call, run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    turns = (
        says(reply(space(tiny.ONE_ELEMENT_OFF), space(tiny.SLOW), space(tiny.DIES))),
        says(reply(space(tiny.KILLS_THE_COMPILER), space(tiny.REFUSED), space(tiny.RIGHT))),
    )
    with serving(*turns) as server:
        more = ("--llm", server.url, "--model", "scripted", "--rounds", 2, "--trials", 3, "--timeout", 5, "--json")
        code, out, err = propose("--device", "cpu", *more)
    assert code == 0, err
    told = json.loads(out)
    gates = {
        one["config"]["what"]: [(gate["gate"], gate["passed"]) for gate in one["gates"]]
        for part in told["results"][0]["rounds"]
        for one in part["candidates"]
    }
    begun = [("legal", True), ("compiles", True)]
    assert gates[tiny.RIGHT] == gates[tiny.SLOW] == [*begun, ("right", True), ("fast", True)]
    assert gates[tiny.ONE_ELEMENT_OFF] == gates[tiny.DIES] == [*begun, ("right", False)]
    assert gates[tiny.REFUSED][-1] == gates[tiny.KILLS_THE_COMPILER][-1] == ("compiles", False)
    assert not told["is_modelled"]
    assert "gate right FAILED: an error of" in server.asked[1].text
    assert told["results"][0]["best"]["config"] == {"what": tiny.RIGHT}
    (published,) = (tmp_path / "cache").rglob("tuned-*.json")
    assert json.loads(published.read_text())["entries"][0]["run"] == told["run"]
    store = tmp_path / "records.sqlite"
    slow = next(
        one["record"]
        for part in told["results"][0]["rounds"]
        for one in part["candidates"]
        if one["config"]["what"] == tiny.SLOW
    )
    _, shown, _ = run("records", "show", slow, "--store", store)
    assert "proposed by:   scripted at 127.0.0.1" in shown


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for ncu is a script with a shebang")
def test_a_profile_tells_the_judge_and_goes_to_the_proposer(
    propose: Call, run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ncu(tmp_path / "bin" / "ncu")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    with serving(says(reply(space(tiny.SLOW))), says(reply())) as server:
        llm = ("--llm", server.url, "--model", "scripted", "--rounds", 2, "--trials", 1)
        code, out, err = propose("--device", "cpu", *llm, "--profile", "--json")
    assert code == 0, err
    first = json.loads(out)["results"][0]["rounds"][0]["candidates"][0]
    assert first["metrics"]["dram__throughput.avg.pct_of_peak_sustained_elapsed"] == 91.5
    assert first["verdict"]["bottleneck"] == "DRAM"
    assert "DRAM busy for 9" in server.asked[1].text
    _, listed, _ = run("records", "proposals", "--store", tmp_path / "records.sqlite", "--json")
    assert json.loads(listed)["results"][0]["verdict"]["bottleneck"] == "DRAM"


def test_a_profile_needs_the_profiler(propose: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, out, err = propose("--device", "cpu", "--profile")
    assert (code, out) == (2, "")
    assert "no command ncu" in err


@pytest.mark.slow
def test_what_was_measured_is_not_measured_again_when_a_run_is_resumed(
    propose: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))

    def measured(*more: object) -> dict[int, str]:
        with serving(says(reply(space(tiny.SLOW, tiny.RIGHT)))) as server:
            llm = ("--llm", server.url, "--model", "scripted", "--rounds", 1, "--trials", 2)
            code, out, err = propose("--device", "cpu", *llm, "--json", *more)
        assert code == 0, err
        (part,) = json.loads(out)["results"][0]["rounds"]
        return {one["config"]["what"]: one["record"] for one in part["candidates"]}

    first = measured()
    assert set(first) == {tiny.RIGHT, tiny.SLOW}
    assert measured("--resume") == first
    assert measured() != first
