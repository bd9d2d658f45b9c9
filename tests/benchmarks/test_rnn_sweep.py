"""The sweep of layers beside their peers: what is chosen, timed and compared, and the table that the planner reads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the sweep times torch")

from benchmarks.harness.table import Table, read_rows, read_table
from benchmarks.rnn import cudnn_table, sweep, timing, workers
from benchmarks.rnn.cases import ALL, LISTS, Sizes
from benchmarks.rnn.entries import Entry, Job
from constrint.kernels.rnn.cudnn import spec
from constrint.kernels.rnn.cudnn.spec import CudnnLayer
from constrint.tune.measure import Measurement, Timer
from tests.support import sweep_work

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "h200"
LAYER = Sizes("lstm", 1, 256, 16, 35, ("fp16", "bf16"))


def entry(dtype: str, name: str, forward_ms: float, both_ms: float) -> Entry:
    times = {"forward": Measurement(1e-3 * forward_ms, 1e-6, 5), "both": Measurement(1e-3 * both_ms, 1e-6, 5)}
    return Entry(dtype, name, times)


ENTRIES = [
    entry("fp16", "torch.nn", 2.0, 6.0),
    entry("fp16", "projection", 0.5, 1.0),
    entry("fp16", "rnn triton", 1.0, 4.0),
    entry("fp16", "module auto", 1.6, 5.0),
    entry("bf16", "torch.nn", 20.0, 40.0),
    entry("bf16", "projection", 1.0, 2.0),
    entry("bf16", "nxai cuda_fused", 3.0, 9.0),
    entry("bf16", "rnn triton", 1.0, 4.0),
]


def row(place: int) -> dict[str, Any]:
    return sweep.row_of(LAYER, ENTRIES[place], ENTRIES)


def test_a_row_says_how_much_faster_ours_is_than_the_best_peer() -> None:
    same = {name: row(2)[name] for name in ("same_forward", "same_both", "best_forward", "best_both")}
    assert same == pytest.approx({"same_forward": 1.5, "same_both": 1.25, "best_forward": 1.5, "best_both": 1.25})
    bf16 = row(7)
    assert bf16["same_forward"] == pytest.approx(3.0), "NX-AI's kernels, which start from projected inputs"
    assert bf16["best_forward"] == pytest.approx(1.5), "cuDNN in fp16 less its projection"
    assert row(3)["same_forward"] == pytest.approx(1.25), "a module beside torch.nn, both with the projection"
    assert "same_forward" not in row(0)


def test_rows_state_the_layer_and_its_spread() -> None:
    assert (
        row(2).items()
        >= {"cell": "lstm", "heads": "1", "head_dim": "256", "batch": "16", "time": "35", "dtype": "fp16"}.items()
    )
    assert row(2)["both_spread_ms"] == pytest.approx(1e-3)


def test_who_fails_is_a_row_and_the_others_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def contenders(case: Any, *_: Any) -> Iterator[tuple[str, Any]]:
        yield "torch.nn", lambda: (lambda: made.append("forward"), lambda: made.append("both"))
        yield "nxai triton_fused", lambda: (lambda: made.append("alone"), lambda: 1 / 0)
        yield "rnn cuda", lambda: 1 / 0

    monkeypatch.setattr(timing, "contenders", contenders)
    monkeypatch.setattr(timing, "runs_on", lambda case, name: "")
    job = Job(LAYER, ("fp16",), ("nn",))
    failed = timing.prepare(job)
    by_zero = "ZeroDivisionError: division by zero"
    cuda = {("fp16", "rnn cuda", which): by_zero for which in timing.PASSES}
    assert failed == {("fp16", "nxai triton_fused", "both"): by_zero} | cuda
    made.clear()
    good, half, bad = timing.measure(job, "fp16", Timer("cpu"), failed)
    assert (good.outcome, set(good.times)) == ("ok", {"forward", "both"})
    assert (half.outcome, set(half.times)) == (f"both: {by_zero}", {"forward"}), "no gradient, but a time forward"
    assert (bad.outcome, bad.times) == (f"forward: {by_zero}; both: {by_zero}", {})
    assert {"forward", "both", "alone"} == set(made)


def test_tensors_that_do_not_fit_are_a_row_of_their_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    def contenders(case: Any, *_: Any) -> Iterator[tuple[str, Any]]:
        raise RuntimeError(f"no memory for {case.dtype}")

    monkeypatch.setattr(timing, "contenders", contenders)
    asked = Job(LAYER, ("fp16", "bf16"), ("nn",))
    failed = timing.prepare(asked)
    (found,) = timing.measure(asked, "bf16", Timer("cpu"), failed)
    assert (found.dtype, found.outcome, found.times) == ("bf16", "RuntimeError: no memory for bf16", {})


def job(dim: int, dtypes: tuple[str, ...] = ("fp16",)) -> Job:
    return Job(replace(LAYER, dim=dim), dtypes, ("nn",))


def test_layers_that_crash_or_hang_cost_the_others_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(workers, "MEASURE_S", 2.0)
    dims = (64, sweep_work.CRASHES, sweep_work.NEVER_DONE, 1024)
    with Table(tmp_path / "sweep.csv", sweep.COLUMNS, "a note") as table:
        assert sweep.run([job(dim) for dim in dims], table, 0.0, work=sweep_work.work) == len(dims)
    rows = read_rows(tmp_path / "sweep.csv")
    outcomes = {int(row["head_dim"]): row["outcome"] for row in rows}
    assert [row["head_dim"] for row in rows if row["outcome"] == "ok"] == ["64", "64", "1024", "1024"]
    assert outcomes[sweep_work.CRASHES] == "its process ended with 3"
    assert outcomes[sweep_work.NEVER_DONE] == "not timed in 2 s"
    assert [row["same_both"] for row in rows if row["implementation"] == "module auto"] == ["1", "1"]


def test_who_takes_too_long_to_prepare_is_tried_without_nxai_and_then_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(None, sweep.COLUMNS)
    asked = job(sweep_work.NEVER_READY)._replace(kinds=("nn", "nxai"))
    assert sweep.run([asked], table, 0.0, patience_s=1.0, work=sweep_work.work) == 1
    assert [row["outcome"] for row in table.rows] == ["not prepared in 1 s"]
    assert "once more without NX-AI's kernels" in capsys.readouterr().out


def test_a_run_that_was_cut_goes_on_with_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.csv"
    first, second = (replace(LAYER, dim=dim) for dim in (256, 512))
    with Table(path, sweep.COLUMNS, "a GPU") as table:
        for sizes in (first, second):
            for one in ENTRIES:
                table.add(**sweep.row_of(sizes, one, ENTRIES))
    whole = path.read_text()
    path.write_text(whole[: whole.rindex("512") + 1])  # in the middle of the last row
    note, rows = sweep.earlier_rows(path, "a GPU")
    assert (note, {row["head_dim"] for row in rows}, len(rows)) == ("a GPU", {"256"}, len(ENTRIES))
    assert sweep.earlier_rows(path, "another GPU")[0] == "a GPU; then another GPU"
    assert sweep.earlier_rows(tmp_path / "none.csv", "a GPU") == ("a GPU", [])
    monkeypatch.setitem(LISTS, "table", lambda: iter((first, second)))
    monkeypatch.setattr(sweep, "described", lambda: "a GPU")
    timed: list[str] = []

    def run(jobs: Any, table: Table, *_: Any) -> int:
        timed.extend(str(each.sizes) for each in jobs)
        for one in ENTRIES:
            table.add(**sweep.row_of(second, one, ENTRIES))
        return len(jobs)

    monkeypatch.setattr(sweep, "run", run)
    monkeypatch.setattr(sys, "argv", ["sweep", "--out", str(path)])
    sweep.main()
    assert timed == ["lstm-1x512-b16-t35"]
    assert path.read_text().splitlines()[1:] == whole.splitlines()[1:], "as if it had not been cut"
    assert "0 are left, 8 rows are from before" in capsys.readouterr().out


def test_nothing_begins_when_the_time_is_up(tmp_path: Path) -> None:
    with Table(tmp_path / "sweep.csv", sweep.COLUMNS) as table:
        assert sweep.run([job(64)], table, 1e-9, work=sweep_work.work) == 0
        assert table.rows == []


def test_batches_fit_the_memory_of_a_gpu_and_the_list_is_kept() -> None:
    jobs = [Job(sizes, sizes.dtypes, ("rnn",)) for sizes in LISTS["whole"]()]
    batches = list(sweep.batches(jobs))
    assert [each for batch in batches for each in batch] == jobs
    assert max(map(len, batches)) == sweep.BATCH
    for batch in batches:
        assert len(batch) == 1 or sum(each.sizes.peak_bytes for each in batch) <= sweep.BATCH_BYTES
    assert [str(each.sizes) for each in jobs[:3]] == [f"lstm-1x{dim}-b16-t1024" for dim in (768, 1024, 512)]


def test_the_guides_figures_of_many_sequences_are_those_of_the_file() -> None:
    guide = (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    rows = {
        (row["batch"], row["implementation"], row["dtype"]): row for row in read_rows(RESULTS / "rnn_table_many.csv")
    }
    for batch, name in (("1", "1 sequence"), ("64", "64 sequences"), ("256", "256 sequences")):
        cells = [
            f"{float(row['forward_ms']):.2f} / {float(row['both_ms']):.2f}"
            for row in (rows[batch, who, dtype] for who in ("rnn auto", "torch.nn") for dtype in ("bf16", "fp16"))
        ]
        assert f"| LSTM, 768, {name} | {' | '.join(cells)} |" in guide


@pytest.mark.parametrize("name", ["table", "sweep", "whole", "cudnn"])
def test_parts_are_the_whole_list_once(name: str) -> None:
    def asked(part: str, only: tuple[str, ...] = ()) -> list[Sizes]:
        return sweep.chosen(argparse.Namespace(list=name, part=part, only=only))

    whole = asked("1/1")
    timed = [(str(sizes), dtype) for sizes in whole for dtype in sizes.dtypes]
    assert len(set(timed)) == len(timed)
    assert sorted(map(str, asked("1/3") + asked("2/3") + asked("3/3"))) == sorted(map(str, whole))
    assert all("1x1024" in str(sizes) for sizes in asked("1/1", ("1x1024",)))
    if name == "sweep":
        assert len(whole) == 3 * 2 * 5 * 7
        assert all(sizes.dtypes == ALL for sizes in whole)


def test_the_planners_table_is_made_of_a_sweep(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, out = tmp_path / "sweep.csv", tmp_path / "h200-sxm.csv"
    added = [*ENTRIES, entry("fp16", "module cudnn", 2.5, 7.0)]
    with Table(path, sweep.COLUMNS, "python 3, gpu X") as table:
        for one in added:
            table.add(**sweep.row_of(LAYER, one, added))
    assert len(read_rows(path)) == len(added)
    monkeypatch.setattr(sys, "argv", ["cudnn_table", str(path), "--gpu", "h200", "--out", str(out)])
    cudnn_table.main()
    note, _, _ = read_table(out)
    assert "benchmarks.rnn.sweep" in note
    assert "# python 3, gpu X" in out.read_text()
    monkeypatch.setattr(spec, "MEASURED", tmp_path)
    spec.measured.cache_clear()
    try:
        found = spec.layer_s("H200-SXM", CudnnLayer("lstm", "fp16", 16, 256, 256), 35, "forward")
        assert found == pytest.approx(2.0e-3), "a module on cuDNN, less the projection"
        assert spec.layer_s("H200-SXM", CudnnLayer("lstm", "bf16", 16, 256, 256), 35, "backward") == pytest.approx(
            19e-3
        )
    finally:
        spec.measured.cache_clear()


def test_the_planners_table_can_be_added_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, planners = tmp_path / "sweep.csv", tmp_path / "h200-sxm.csv"
    planners.write_text(
        "# made before\n"
        "cell,dtype,batch,dim,time,forward_ms,both_ms,projection_forward_ms,projection_both_ms\n"
        "gru,fp16,16,64,35,1,3,0,0\n"
        "lstm,fp16,16,256,35,9,9,0,0\n"
    )
    with Table(path, sweep.COLUMNS, "python 3, gpu X") as table:
        for one in ENTRIES[:2]:
            table.add(**sweep.row_of(LAYER, one, ENTRIES[:2]))
    for module in (spec, cudnn_table):
        monkeypatch.setattr(module, "MEASURED", tmp_path)
    monkeypatch.setattr(sys, "argv", ["cudnn_table", str(path), "--gpu", "h200", "--keep"])
    try:
        cudnn_table.main()
        lines = planners.read_text().splitlines()
    finally:
        spec.measured.cache_clear()
    assert lines[0] == "# made before"
    assert "# python 3, gpu X" in lines
    rows = lines[-2:]
    assert rows[0] == "gru,fp16,16,64,35,1,3,0,0", "no sweep has this layer"
    assert rows[1].startswith("lstm,fp16,16,256,35,2"), "the sweep's row takes the place of the older one"
    assert not any(line.startswith("lstm,fp16,16,256,35,9") for line in lines)
