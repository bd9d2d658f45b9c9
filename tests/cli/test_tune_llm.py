"""`constrint tune --search llm`: the model is asked for the tuner's candidates, and its records are the tuner's."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from constrint.tune.search.llm.endpoint import KEY_VARIABLE
from tests.support.model_server import says, serving
from tests.support.needs import needs_openai
from tests.support.proposing import KEY, Call
from tests.tune import tiny
from tests.tune.search.llm.tiny_search import reply, space

pytestmark = needs_openai


@pytest.fixture
def tune(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    """The command for the tests' own kernel on the CPU, with a store and tables of its own."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path / "cache"))
    kernel, store = f"{tiny.__file__}:SPEC", tmp_path / "records.sqlite"
    device = ("--gpu", "h200", "--device", "cpu", "--kernel", kernel, "--store", store)
    return lambda *more: run("tune", *device, *more)


@pytest.mark.slow
def test_a_model_proposes_what_the_tuner_measures(tune: Call, run: Call, tmp_path: Path) -> None:
    turns = says(reply(space(tiny.ONE_ELEMENT_OFF), space(tiny.SLOW))), says(reply(space(tiny.RIGHT, because="right")))
    with serving(*turns) as server:
        llm = ("--search", "llm", "--llm", server.url, "--model", "scripted", "--trials", 8, "--json")
        code, out, err = tune(*llm)
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert result["winner"]["config"] == {"what": tiny.RIGHT}
    assert result["outcomes"] == {"ok": 2, "wrong_result": 1}
    assert len(server.asked) == 2  # two rounds of four candidates
    assert "gate right FAILED: an error of" in server.asked[1].text
    assert KEY not in out + err
    store = tmp_path / "records.sqlite"
    kept = json.loads(run("records", "proposals", "--store", store, "--json")[1])["results"]
    assert [one["origin"] for one in kept] == ["cost model", "scripted", "scripted", "scripted"]
    assert "tried before" in kept[-1]["refusals"][0]  # the second round proposes the baseline once more
    assert all(one["gates"][-1]["gate"] in ("right", "fast") for one in kept[:-1])


@pytest.mark.slow
def test_the_built_in_rules_are_a_search_too(tune: Call) -> None:
    code, out, err = tune("--search", "llm:rules", "--trials", 3, "--json")
    assert code == 0, err
    (result,) = json.loads(out)["results"]
    assert sum(result["outcomes"].values()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--search", "llm"), "asks a model: --llm URL --model NAME"),
        (("--llm", "http://127.0.0.1:1/v1", "--model", "m"), "names the model of --search llm"),
        (("--search", "llm", "--model", "m"), "name the endpoint"),
        (("--search", "llm", "--llm", "http://127.0.0.1:1/v1"), "--llm needs the model's name"),
    ],
)
def test_options_that_disagree_are_refused(tune: Call, options: tuple[object, ...], message: str) -> None:
    code, out, err = tune(*options)
    assert (code, out) == (2, ""), err
    assert message in err
