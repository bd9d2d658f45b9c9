"""The program that remakes shipped tables: its plan, what each part stages, archives, and what is stale. No GPU."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import benchmarks.remake.__main__ as remake
from benchmarks.gemm.library import families
from benchmarks.remake import parts, tables
from benchmarks.remake.parts import PARTS, Part, Run, Spent
from benchmarks.remake.winners import few, shipped_goals
from constrint.errors import UsageError
from constrint.hwmodels import load_gpu
from constrint.kernels.gemm.library.cost import COLUMNS
from constrint.select.winners import SHIPPED, TunedTable, read_tuned, write_tuned

GPU = load_gpu("h200")


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the package's: tables are copies in it, or are not there."""
    folder = tmp_path / "package"
    folder.mkdir()
    files = {name: f"{name}{tables.path_of(name, GPU.name).suffix}" for name in tables.names()}
    files |= {f"candidates-{group}": f"candidates-{group}.csv" for group in tables.GROUPS}
    files["winners"] = tables.path_of("winners", GPU.name).name

    def path_of(name: str, gpu: str) -> Path:
        if name not in files:
            raise UsageError(f"there is no table {name!r}")
        return folder / files[name]

    monkeypatch.setattr(tables, "path_of", path_of)
    monkeypatch.setattr(tables, "EVIDENCE", folder / "evidence.json")
    return folder


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(GPU, tmp_path / "work", is_smoke=False)


def writes(run: Run, write: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs be replaced by a function that writes what they would."""

    def program(module: str, *arguments: str, seconds: float) -> bool:
        assert seconds > 0
        write(module, arguments)
        return True

    monkeypatch.setattr(run, "program", program)


def product(m: int, us: str = "5.0") -> list[str]:
    return ["bf16", "rr", "plain", "1", str(m), "64", "64", "0", us, "0.1", "ok"]


def csv_text(note: str, columns: Any, rows: Any) -> str:
    return "\n".join([f"# {note}", ",".join(columns), *(",".join(row) for row in rows)]) + "\n"


def test_the_library_keeps_what_was_not_measured_again(places: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tables.path_of("library", GPU.name)
    path.write_text(csv_text("old", COLUMNS, [product(8), product(16)]))
    new = run.folder / "library.csv"
    # The last row was cut.
    text = csv_text("new", COLUMNS, [product(16, "9.0")]) + "bf16,rr,pl"
    writes(run, lambda module, arguments: new.write_text(text), monkeypatch)
    assert parts.library(run, 60) == (
        "done",
        f"1 of {sum(one.number for one in families())} products measured, 1 rows stay",
    )
    lines = (run.stage / "library.csv").read_text().splitlines()
    assert lines[:2] == ["# new", "# old"]
    assert lines[3:] == [",".join(product(16, "9.0")), ",".join(product(8))]
    assert path.read_text().splitlines() == lines  # later parts read it


def test_winners_that_were_not_measured_again_stay_while_their_code_does(
    places: Path, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a, b, c, d = read_tuned(SHIPPED / "tuned-h200-sxm.json").entries[:4]
    stale, gone = msgspec.structs.replace(c, source_hash="0" * 16), msgspec.structs.replace(d, kernel="gemm.gone")
    path = tables.path_of("winners", GPU.name)
    write_tuned(TunedTable(GPU.name, (a, b, stale, gone)), path)
    better = msgspec.structs.replace(a, seconds=a.seconds / 2)
    slower = msgspec.structs.replace(better, seconds=a.seconds, toolchain={"triton": "9"})
    new = TunedTable(GPU.name, (slower, better))
    writes(run, lambda *_: write_tuned(new, run.folder / "cache" / path.name), monkeypatch)
    number = len(read_tuned(SHIPPED / "tuned-h200-sxm.json").entries)
    outcome, note = parts.winners(run, 60)
    assert (outcome, note) == ("done", f"1 of {number} workloads tuned, 1 winners stay, 2 stale ones are dropped")
    assert set(map(repr, read_tuned(run.stage / "winners.json").entries)) == {repr(better), repr(b)}


def test_layers_are_staged_by_what_ran_them(places: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    names = "cell,heads,head_dim,layers,batch,time,dtype,implementation,runs_on,forward_ms,both_ms,outcome"
    rows = [
        f"lstm,1,256,1,16,35,bf16,{who},{on},{ms},1.5,ok"
        for who, on, ms in (("torch.nn", "", "0.9"), ("projection", "", "0.1"), ("rnn auto", "cuda", "0.4"))
    ]
    old = tables.path_of("layers-cuda", GPU.name)
    old.write_text("# before\ncell,dtype,batch,dim,time,forward_ms,both_ms\nlstm,bf16,16,64,35,0.2,0.5\n")
    monkeypatch.setattr(tables, "states", lambda: iter(()))
    new = run.folder / "layers.csv"
    writes(run, lambda *_: new.write_text("\n".join(["# on a GPU", names, *rows]) + "\n"), monkeypatch)
    assert parts.layers(run, 60) == ("done", "1 of 210 layers timed; rows: cudnn 1, cuda 2")
    assert "lstm,bf16,16,256,35,0.4,1.5" in (run.stage / "layers-cuda.csv").read_text()
    monkeypatch.setattr(tables, "states", lambda: iter([tables.State("layers-cuda H200-SXM", "lstm.cuda", 0, 1)]))
    assert parts.layers(run, 60) == ("done", "1 of 210 layers timed; rows: cudnn 1, cuda 1"), (
        "rows of older code are dropped"
    )


def test_nothing_measured_is_nothing_staged(places: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    writes(run, lambda *_: None, monkeypatch)
    for name in PARTS:
        assert run.part(name, 0.1).outcome == "failed", name
    assert not list(run.stage.iterdir())


def test_a_part_that_breaks_costs_itself_alone_and_what_was_done_is_archived(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: dict[str, float] = {}

    def works(run: Run, limit: float) -> tuple[str, str]:
        seconds["winners"] = limit
        (run.stage / "layers-cuda.csv").write_text("cell\n")
        return "done", "one"

    def breaks(run: Run, limit: float) -> tuple[str, str]:
        seconds["library"] = limit
        raise ValueError("torn")

    def cut(run: Run, limit: float) -> tuple[str, str]:
        raise KeyboardInterrupt

    fakes = {"library": Part(breaks, 0.25), "winners": Part(works, 0.5), "cut": Part(cut, 0.25)}
    for module in ("benchmarks.remake.__main__", "benchmarks.remake.parts"):
        monkeypatch.setattr(f"{module}.PARTS", fakes)
    folders = ["--work", str(tmp_path / "work"), "--into", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["remake", "--gpu", "h200", *folders])
    # A clock that stands: parts take no time, however busy the machine is.
    monkeypatch.setattr(remake, "time", SimpleNamespace(monotonic=lambda: 7.0))
    args = remake.parse()
    with pytest.raises(KeyboardInterrupt):
        remake.remake(GPU, args)
    assert seconds["library"] == pytest.approx(0.25 * 472)
    assert seconds["winners"] == pytest.approx(472 * 2 / 3), "what a part leaves is the next one's"
    with zipfile.ZipFile(tmp_path / "remade-h200-sxm.zip") as packed:
        assert sorted(packed.namelist()) == ["layers-cuda.csv", "summary.json"]
        summary = json.loads(packed.read("summary.json"))
    assert [(part["part"], part["outcome"]) for part in summary["parts"]] == [
        ("library", "failed"),
        ("winners", "done"),
    ]
    assert "ValueError: torn" in summary["parts"][0]["note"]


def test_programs_are_ended_in_time(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "SAVING_S", 0.5)
    # `timeit` runs what it is told for ever.
    assert not run.program("timeit", "-n", "1", "-r", "1", "import time; time.sleep(600)", seconds=1.6)
    assert run.program("timeit", "-n", "1", "-r", "1", "pass", seconds=30)


def test_what_is_taken_is_in_the_package_with_its_evidence(places: Path, tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    stage.mkdir()
    (stage / "layers-cuda.csv").write_text("cell\n")
    (stage / "winners.json").write_bytes((SHIPPED / "tuned-h200-sxm.json").read_bytes())
    tables.archive(stage, GPU.name, [vars(Spent("layers", "done", 1.0, ""))], tmp_path / "out")
    assert sorted(tables.take(tmp_path / "out")) == [places / "layers-cuda.csv", places / "tuned-h200-sxm.json"]
    recorded = tables.evidence()["h200-sxm/layers-cuda"]
    assert recorded["kernels"] == tables.hashes_of(["lstm.cuda"])
    assert "python" in recorded["on"]


def test_corrections_that_the_run_had_no_time_for_are_fitted_when_they_are_taken(
    places: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, calls = tmp_path / "stage", []
    stage.mkdir()
    for group in tables.GROUPS:
        (stage / f"candidates-{group}.csv").write_text("m\n")
    (stage / "corrections-fp8.json").write_text('{"kernels": {"gemm.cuda": {}}}')
    tables.archive(stage, GPU.name, [], tmp_path)

    def fit(command: list[str], **options: Any) -> None:
        calls.append(command)
        Path(command[-1]).write_text('{"kernels": {"gemm.pointer": {}}}')

    monkeypatch.setattr(subprocess, "run", fit)
    remake.install(tmp_path)
    (command,) = calls
    assert command[2:4] == ["benchmarks.gemm.correct", str(places / "candidates-bf16-fp16.csv")]
    assert command[-2:] == ["--out", str(places / "corrections-bf16-fp16.json")]
    assert set(tables.evidence()) == {"h200-sxm/corrections-fp8", "h200-sxm/corrections-bf16-fp16"}


@pytest.mark.parametrize("name", ["../evil.csv", "other.csv", "winners.py"])
def test_an_archive_with_anything_else_is_refused(places: Path, tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "remade-h200-sxm.zip", "w") as packed:
        packed.writestr("summary.json", json.dumps({"gpu": "h200", "made": "now", "on": {}}))
        packed.writestr(name, "x")
    with pytest.raises(UsageError, match="table"):
        tables.take(tmp_path)
    assert not list(places.iterdir())


def test_no_archive_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no archive"):
        tables.take(tmp_path)


def test_check_names_what_is_stale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    states = list(tables.states())
    assert {state.table.partition(" ")[0] for state in states} >= {"winners", "library", "layers-cuda", "layers-cudnn"}
    assert not [state for state in states if state.stale and state.table.startswith("winners")]
    fresh = tables.State("winners H200-SXM", "gemm.cuda", 12, 0)
    for other, code in ((fresh, 0), (fresh._replace(stale=3), 1), (fresh._replace(number=0, stale=-1), 1)):
        monkeypatch.setattr(tables, "states", lambda other=other: iter([fresh, other]))
        assert tables.print_check() == code
    text = capsys.readouterr().out
    assert "stale: 3 of 12 entries" in text
    assert "of unknown device code" in text


def test_another_gpu_is_tuned_for_the_same_workloads() -> None:
    goals = shipped_goals(load_gpu("h100-sxm"))
    assert len(goals) >= 200
    assert goals[0].workload.operation == "gemm"
    assert [goal.workload.operation for goal in few(goals, 2)] == ["gemm", "lstm"]
