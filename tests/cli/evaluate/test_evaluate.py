"""`constrint evaluate` prints suggestions and scores, in every format, and a page with a plot."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from constrint.propose.evaluation import Evaluation, PromptScore
from tests.propose.test_evaluation import OPEN, OTHER, RIGHT, SLOW, WRONG
from tests.support.proposing import Call


def unpacked(text: str) -> bytes:
    """Read what `constrint.report.page.render.packed` wrote."""
    return gzip.decompress(base64.b85decode(text.translate(str.maketrans(",.", "<&"))))


FOUND = Evaluation(
    "H200-SXM",
    False,
    (
        PromptScore("axpy", "triton", (RIGHT, SLOW, WRONG, OTHER)),
        PromptScore("gemv", "triton", (RIGHT,)),
        PromptScore("axpy", "cuda", (OPEN,)),
    ),
)


@pytest.fixture
def scored(run: Call, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command, with scores that are there already."""

    def evaluate(*_: Any, **__: Any) -> Evaluation:
        return FOUND

    monkeypatch.setattr("constrint.propose.evaluation.evaluate", evaluate)
    return lambda *more: run("evaluate", "--suggestions", ".", *more)


def test_the_tables_state_gates_and_scores(scored: Call) -> None:
    code, out, _ = scored()
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    assert ["axpy", "triton", "4", "2", "0.25", "novice", "0.50", "0.15-0.85", "0.25"] in rows
    assert ["gemv", "triton", "1", "1", "1.00", "expert", "1.00", "0.21-1.00", "1.00"] in rows
    assert "0.00-1.00  non-knowledge to expert" in out
    assert "CUDA C++ is compiled only" in " ".join(out.split())
    code, out, _ = scored("--scores")
    assert "right.py" not in out
    assert "mean" in out


def test_programs_get_csv_and_json(scored: Call) -> None:
    _, out, _ = scored("--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["suggestion"], row["right"], row["fast"]) for row in rows[:3]] == [
        ("right.py", "yes", "yes"),
        ("slow.py", "yes", "yes"),
        ("wrong.py", "NO", ""),
    ]
    _, out, _ = scored("--json")
    document = json.loads(out)
    assert document["schema"] == "constrint.evaluate/1"
    prompt = document["prompts"][0]
    assert prompt["level"] == ["novice", "novice"]
    assert prompt["fast_1"]["least"] == 0.25
    assert prompt["pass_at_10"]["least"] is None
    assert prompt["suggestions"][3]["refused_by"] == "model"
    means = {one["model"]: one for one in document["means"]}
    assert means["triton"]["rubric"]["least"] == (0.25 + 1.0) / 2
    assert means["cuda"]["rubric"] == {"least": 0.0, "most": 1.0, "interval": [0.0, 1.0]}


def test_a_page_has_a_plot_for_each_programming_model(scored: Call, tmp_path: Path) -> None:
    pytest.importorskip("plotly", reason="Plotly is not installed (the extra [report])")
    page = tmp_path / "scores.html"
    code, _, err = scored("--plot", page)
    assert code == 0, err
    text = page.read_text()
    plots = json.loads(unpacked(text.partition('id="plots">')[2].partition("</script>")[0]))
    assert plots.keys() == {"all-scores-triton", "all-scores-cuda"}
    assert all(f'id="{name}"' in text for name in plots)
    plot = plots["all-scores-triton"]
    rubric = next(trace for trace in plot["data"] if trace["name"] == "rubric")
    assert dict(zip(rubric["x"], rubric["y"], strict=True)) == {"axpy": 0.25, "gemv": 1.0}
    passed = next(trace for trace in plot["data"] if trace["name"] == "pass@1")
    assert passed["y"] == [0.5, 1.0]
    assert "http" not in text.partition("<main")[2].partition("</main>")[0]
    code, _, err = scored("--plot", page)
    assert (code, "exists" in err) == (2, True)
    code, _, err = scored("--plot", tmp_path / "none" / "scores.html")
    assert (code, "folder that exists" in err) == (2, True)


def test_nothing_right_ends_with_1_and_nothing_to_score_with_2(
    run: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "\x1b[31m"
    code, out, err = run("evaluate", "--suggestions", folder, "--kernel", "axpy", "--model", "triton")
    assert (code, out) == (2, "")
    assert "\x1b" not in err
    assert "the folder is not there" in err
    code, _, err = run("evaluate", "--suggestions", tmp_path, "--kernel", "axpi", "--model", "triton")
    assert (code, "unknown task" in err) == (2, True)
    code, _, err = run("evaluate", "--suggestions", tmp_path, "--device", "tpu")
    assert (code, "takes cpu" in err) == (2, True)
    wrong = Evaluation("H200-SXM", True, (PromptScore("axpy", "triton", (WRONG, OTHER)),))
    monkeypatch.setattr("constrint.propose.evaluation.evaluate", lambda *_, **__: wrong)
    assert run("evaluate", "--suggestions", tmp_path)[0] == 1
