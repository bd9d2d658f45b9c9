"""`constrint report` on the command line: what it writes, prints and refuses, and its exit codes."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from contextlib import closing
from itertools import chain, repeat
from pathlib import Path

import pytest

from constrint.cli.run import Progress
from constrint.report import Report
from constrint.tune.store.store import RecordStore
from tests.support.reports import facts_of, measured_record, small_kernel

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONSTRINT_STORE", str(tmp_path / "none.sqlite"))
    monkeypatch.chdir(tmp_path)


def test_a_page_is_written_and_said_to_be(run: Call, tmp_path: Path) -> None:
    code, out, err = run("report", "--gpu", "mi300x", "--kernel", small_kernel(tmp_path), "--n", 4096)
    assert (code, err) == (0, "")
    assert out.startswith("report.html: ")
    page = Path("report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "--n 4096" in page
    assert not Path("none.sqlite").exists()


def test_json_prints_the_facts_and_writes_no_page(run: Call, tmp_path: Path) -> None:
    code, out, _ = run("report", "--gpu", "mi300x", "--gpu", "h200", "--kernel", small_kernel(tmp_path), "--json")
    facts: Report = facts_of(out)
    assert code == 0
    assert [gpu.gpu for gpu in facts.gpus] == ["MI300X", "H200-SXM"]
    assert facts.command.startswith("constrint report --gpu mi300x --gpu h200 --kernel ")
    assert not Path("report.html").exists()


def test_a_report_of_what_does_not_fit_says_why_and_exits_with_1(run: Call, tmp_path: Path) -> None:
    words = (
        "report",
        "--gpu",
        "mi300x",
        "--kernel",
        small_kernel(tmp_path),
        "--set",
        "tile_m=128",
        "--set",
        "tile_n=128",
    )
    code, out, _ = run(*words, "--json", "--out", "why.html")
    kernel = facts_of(out).gpus[0].kernels[0]
    assert code == 1
    assert kernel.num_valid == 0
    assert {broken.seen for broken in kernel.conflict} == {"16384 <= 8192 is false", ""}
    assert kernel.ways_out
    assert {rule.kind for rule in kernel.rules} >= {"yours", "certain"}
    page = Path("why.html").read_text(encoding="utf-8")
    assert "16384 &lt;= 8192 is false" in page
    assert kernel.ways_out[0] in page


def test_one_gpu_that_cannot_take_it_does_not_keep_the_others_from_the_page(run: Call) -> None:
    code, out, _ = run(
        "report", "--gpu", "h200", "--gpu", "t4", "--kernel", "gemm.pointer", "--dtype", "bf16", "--json"
    )
    h200, t4 = facts_of(out).gpus
    assert code == 1  # one GPU has no answer
    assert h200.candidates
    assert "no matrix instruction for bf16" in t4.refusal
    code, _, err = run("report", "--gpu", "t4", "--kernel", "gemm.pointer", "--dtype", "bf16", "--json")
    assert code == 2
    assert "no matrix instruction for bf16" in err


def test_records_of_the_workload_stand_beside_the_model(run: Call, tmp_path: Path) -> None:
    words = ("report", "--gpu", "mi300x", "--kernel", small_kernel(tmp_path), "--json")
    best = facts_of(run(*words)[1]).gpus[0].candidates[0]
    with RecordStore.open("measured.sqlite") as store:
        config = {name: int(str(value)) for name, value in best.config.items()}
        asked = {"kernel": "small", "operation": "small", "dtype": "fp16", "sizes": {"n": 1 << 20}}
        store.add([measured_record(config, 3e-4, **asked), measured_record(config, 1e-4)])
    gpu = facts_of(run(*words, "--store", "measured.sqlite")[1]).gpus[0]
    measured = gpu.candidates[0].measured
    assert measured is not None
    assert (measured.median_s, measured.source) == (3e-4, "the store measured.sqlite")
    assert len(gpu.measured) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "say which GPU"),
        (("--gpu", "h201"), "unknown GPU 'h201'"),
        (("--gpu", "h200", "--top", "0"), "--top must be between 1 and 100"),
        (("--gpu", "h200", "--over", "tile_m"), "--over takes two parameters"),
        (("--gpu", "h200", "--over", "tile_m,tile_z"), "unknown parameter 'tile_z'"),
        (("--gpu", "h200", "--out", "there.html"), "there.html exists; name another file with --out, or write over it"),
        (("--gpu", "h200", "--out", "no/report.html"), "there is no folder no"),
        (("--gpu", "h200", "--out", "."), "is a folder"),
        (("--gpu", "h200", "--store", "no.sqlite"), "there is no store no.sqlite"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(run: Call, words: tuple[str, ...], told: str) -> None:
    Path("there.html").write_text("mine")
    code, out, err = run("report", *words)
    assert (code, out) == (2, "")
    assert told in err
    assert "Traceback" not in err
    assert Path("there.html").read_text() == "mine"


def test_a_disk_that_is_full_leaves_no_part_of_a_page(run: Call, tmp_path: Path) -> None:
    kernel = small_kernel(tmp_path)
    code, _, err = run("report", "--gpu", "h200", "--kernel", kernel, "--out", "/dev/full", "--force")
    assert code == 2
    assert "/dev/full cannot be written: No space left on device" in err


def test_the_heat_map_is_over_what_was_asked(run: Call, tmp_path: Path) -> None:
    words = ("report", "--gpu", "h200", "--kernel", small_kernel(tmp_path), "--over", "num_warps,tile_m", "--json")
    document = json.loads(run(*words)[1])
    heat = document["gpus"][0]["kernels"][0]["heat"]
    assert (heat["x"], heat["y"], heat["is_asked"]) == ("num_warps", "tile_m", True)


@pytest.mark.parametrize(
    ("is_terminal", "waited_s", "is_told"), [(True, 1.5, True), (True, 0.5, False), (False, 9.0, False)]
)
def test_progress_is_told_on_a_terminal_once_it_takes_a_moment(
    is_terminal: bool, waited_s: float, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    err, clock = io.StringIO(), chain((0.0,), repeat(waited_s))
    monkeypatch.setattr(err, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with closing(Progress("reporting")) as progress:
        progress.say("H200: ranking")
    assert ("H200: ranking" in err.getvalue()) == is_told
    first = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", err.getvalue()).strip()
    assert not first or first.startswith("reporting H200: ranking ")
