"""On a real device: every kernel of a product and of a layer passes the gates, and the best is what is launched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import says, serving
from tests.support.needs import missing_packages, needs_gpu, needs_triton
from tests.support.proposing import Call
from tests.tune.search.llm.tiny_search import reply

pytestmark = [pytest.mark.gpu, needs_gpu, needs_triton]
needs_openai = pytest.mark.skipif(
    bool(missing_packages("openai")), reason="needs the extra [llm]: the client goes through the openai package"
)


@pytest.fixture
def measured(run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command on this machine's GPU, with a store and tables of its own; gives what it prints as JSON."""
    monkeypatch.setenv("CONSTRINT_CACHE", str(tmp_path))

    def call(*arguments: object) -> Any:
        code, out, err = run("propose", "--store", tmp_path / "records.sqlite", "--json", *arguments)
        assert code == 0, err
        return json.loads(out)

    return call


def candidates(told: Any) -> list[Any]:
    return [one for result in told["results"] for part in result["rounds"] for one in part["candidates"]]


def failed(told: Any) -> list[Any]:
    """Gates that were not passed, with what was said."""
    return [
        (one["kernel"], one["config"], gate) for one in candidates(told) for gate in one["gates"] if not gate["passed"]
    ]


@needs_openai
@pytest.mark.parametrize("options", [(), ("--dtype", "fp16", "--transpose-b", 1), ("--m", 250, "--n", 130, "--k", 72)])
def test_every_kernel_of_a_product_is_right_on_unusual_inputs(measured: Any, options: tuple[object, ...]) -> None:
    sizes = () if "--m" in options else ("--m", 2048, "--n", 2048, "--k", 1024)
    shown = measured("--modelled", "--dry-run", *sizes, *options)
    kernels = [
        line.split()[1].rstrip(":")
        for line in shown["messages"][1]["content"].splitlines()
        if line.startswith("Kernel ")
    ]
    proposals = [{"type": "space", "kernel": name} for name in kernels]
    with serving(says(reply(*proposals))) as server:
        llm = ("--llm", server.url, "--model", "scripted", "--rounds", 1, "--trials", 2 * len(kernels))
        told = measured(*llm, *sizes, *options)
    assert not told["is_modelled"]
    assert {one["kernel"] for one in candidates(told)} == set(kernels)
    assert not failed(told)
    assert all(
        [gate["gate"] for gate in one["gates"]] == ["legal", "compiles", "right", "fast"] for one in candidates(told)
    )
    assert told["results"][0]["best"]["seconds"] > 0


def test_built_in_rules_propose_for_a_layer_and_the_winner_is_what_launches(measured: Any, tmp_path: Path) -> None:
    told = measured("--kernel", "lstm", "--heads", 4, "--head-dim", 64, "--rounds", 1, "--trials", 3)
    assert len(told["results"]) >= 1
    right = [one for one in candidates(told) if one["gates"][-1]["gate"] == "fast"]
    assert len(right) >= len(told["results"])
    (table,) = tmp_path.rglob("tuned-*.json")
    published = json.loads(table.read_text())["entries"]
    assert {entry["run"] for entry in published} == {told["run"]}
    # One for every way of storing and every toolchain: kernels in CUDA C++ and in Triton have different ones.
    assert len(published) >= len(told["results"])
    assert {result["best"]["kernel"] for result in told["results"]} <= {entry["kernel"] for entry in published}
