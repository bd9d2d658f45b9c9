"""`constrint propose` against a scripted endpoint on the loopback interface: every way that a reply may go."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from constrint.tune.search.llm.endpoint import KEY_VARIABLE
from tests.support.model_server import (
    Turn,
    breaks_off,
    endless,
    fails,
    says,
    silent,
    streams,
)
from tests.support.needs import needs_openai
from tests.support.proposing import HOSTILE, KEY, Call, candidates
from tests.tune.search.llm.tiny_search import reply, space

pytestmark = needs_openai


def test_a_model_is_asked_round_by_round_and_hears_what_came_of_it(asked: Any) -> None:
    turns = says(reply(space(3, because="three is best"))), says(reply(space(99), space(4)))
    code, out, err, server = asked(*turns, more=("--rounds", 3, "--trials", 2, "--json"))
    assert code == 0, err
    assert candidates(out) == [[0, 3], [4], []]
    first, second, third = (request.text for request in server.asked)
    assert "tiny m=8 n=8 k=8 fp32 on H200" in first
    assert "how it behaves" in first  # the meaning of a parameter
    assert "max_smem_bytes_per_block" in first
    assert '"proposals"' in first  # the schema
    assert "what=3: gate fast passed" in second
    assert "what cannot be 99" in third
    assert KEY not in first + second + third
    document = json.loads(out)
    assert document["proposer"] == {"name": "scripted", "host": server.url[7:-3], "judges": False}
    assert document["tokens"] == {"input": 120, "output": 30, "is_estimated": False}
    assert document["is_modelled"]
    assert "round 1: 1 proposals, 2 candidates" in err


#: What an endpoint does in the first round.
USELESS: dict[str, Turn] = {
    "malformed": says("{'proposals': }"),
    "hostile": says(HOSTILE),
    "wrong schema": says('{"proposals": [{"type": "shell", "command": "true"}]}'),
    "too long": says("x" * (2 << 20)),
    "no end": endless(),
    "half an answer": breaks_off(),
    "half a stream": streams('{"prop'),
    "late": silent(),
    "busy": fails(429),
    "broken": fails(500),
}


@pytest.mark.parametrize("name", USELESS)
def test_whatever_a_model_does_costs_a_round_and_nothing_else(asked: Any, name: str) -> None:
    turns = (USELESS[name],) * (3 if name in ("busy", "broken") else 1)
    more = ("--rounds", 2, "--trials", 1, "--json", "--answer-time", 0.5 if name == "late" else 20)
    code, out, err, _ = asked(*turns, says(reply(space(3))), more=more)
    assert code == 0, err
    assert candidates(out) == [[0], [3]]
    assert json.loads(out)["results"][0]["rounds"][0]["refusals"]
    assert "Traceback" not in err


def test_where_no_proposal_passes_the_code_is_1(asked: Any) -> None:
    code, out, err, _ = asked(says(HOSTILE), more=("--rounds", 2))
    assert code == 1
    assert "cost model" in out  # its own first choice was tried
    assert err.count("refused: the reply is no JSON object") == 2


@pytest.mark.parametrize("status", [401, 404])
def test_an_endpoint_that_refuses_ends_the_run_with_the_reason(asked: Any, status: int) -> None:
    code, _, err, server = asked(fails(status, f"no such thing; key {KEY}"))
    assert code == 1
    assert f"HTTP status {status}" in err
    assert "[key]" in err
    assert len(server.asked) == 1


def test_tokens_end_a_run_before_they_are_exceeded(asked: Any) -> None:
    more = ("--rounds", 9, "--tokens", 8000, "--trials", 1, "--json")
    code, out, _, server = asked(says(reply(space(3)), usage=(3000, 500)), more=more)
    told = json.loads(out)
    assert code == 0
    assert 1 <= len(server.asked) < 9
    assert told["tokens"]["input"] + told["tokens"]["output"] <= 8000
    assert "of 8,000 tokens" in told["results"][0]["stopped"]
    assert all(request.body["max_tokens"] <= 8000 for request in server.asked)


def test_money_ends_a_run_too(asked: Any) -> None:
    more = ("--rounds", 9, "--dollars", 0.05, "--prices", "2,10", "--trials", 1, "--json")
    code, out, _, _ = asked(says(reply(space(3)), usage=(6000, 1000)), more=more)
    told = json.loads(out)
    assert code == 0
    assert 0.022 <= told["dollars"] <= 0.05
    assert "$0.05" in told["results"][0]["stopped"]


def test_time_ends_a_run(asked: Any) -> None:
    code, out, _, server = asked(says(reply(space(3))), silent(), more=("--budget", "1s", "--rounds", 9, "--json"))
    told = json.loads(out)["results"][0]
    assert code == 0
    assert len(server.asked) <= 2
    assert "the time of 1 s is up" in told["stopped"]


def test_a_dry_run_asks_nobody(asked: Any, tmp_path: Path) -> None:
    code, out, _, server = asked(says(""), more=("--dry-run",))
    assert code == 0
    assert server.asked == []
    assert "how it behaves" in out
    assert f"with a key from {KEY_VARIABLE}" in out
    assert not (tmp_path / "records.sqlite").exists()
    _, out, _, _ = asked(says(""), more=("--dry-run", "--json"))
    assert [message["role"] for message in json.loads(out)["messages"]] == ["system", "user"]


def test_without_a_model_the_built_in_proposer_proposes(propose: Call) -> None:
    code, out, err = propose("--modelled", "--rounds", 2, "--trials", 3, "--json")
    assert code == 0, err
    assert json.loads(out)["proposer"]["name"] == "built-in"
    assert [len(part) for part in candidates(out)] == [3, 3]
    code, out, _ = propose("--modelled", "--dry-run")
    assert code == 0
    assert '"proposals"' in out
