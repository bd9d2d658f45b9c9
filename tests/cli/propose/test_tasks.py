"""Kernels that a model writes: the gates of source decide, in their sandbox."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.model_server import (
    says,
    serving,
)
from tests.support.needs import needs_openai
from tests.support.proposing import HOSTILE, Call
from tests.tune.search.llm.tiny_search import reply

pytestmark = needs_openai


@pytest.mark.slow
def test_a_model_writes_kernels_and_the_gates_decide(run: Call, tmp_path: Path) -> None:
    from constrint.propose import find_sandbox
    from constrint.propose.writing import built_in_files

    if isinstance(find_sandbox(), str):
        pytest.skip(f"source runs in a sandbox only: {find_sandbox()}")
    right = built_in_files("softmax")[0].read_text()
    cheat = "import torch\n\n\ndef run(y, x):\n    y.copy_(torch.softmax(x, 1))\n"
    hostile = "import os\n\n\ndef run(y, x):\n    os.system('true')\n"
    said = {"type": "source", "task": "softmax", "language": "triton"}
    turns = (
        says(HOSTILE),
        says(reply(said | {"source": cheat}, said | {"source": hostile})),
        says(reply(said | {"source": right, "because": "one block holds a row"})),
    )
    store = tmp_path / "records.sqlite"
    with serving(*turns) as server:
        code, out, err = run(
            "propose", "--gpu", "h200", "--task", "softmax", "--llm", server.url, "--model", "scripted",
            "--rounds", 3, "--device", "cpu", "--json", "--store", store,
        )  # fmt: skip
    assert code == 0, err
    told = json.loads(out)
    came = [[gate["gate"] for gate in one["gates"]] for part in told["rounds"] for one in part["candidates"]]
    assert came == [["legal"], ["legal"], ["legal", "compiles", "right", "honest", "fast"]]
    assert [one["score"] for part in told["rounds"] for one in part["candidates"]] == [0.0, 0.0, None]
    assert told["best"]["proposal"]["because"] == "one block holds a row"
    assert "import os" in server.asked[2].text  # the candidates of the round before are shown again
    _, listed, _ = run("records", "proposals", "--store", store, "--json")
    assert [one["kind"] for one in json.loads(listed)["results"]] == ["", "source", "source", "source"]
