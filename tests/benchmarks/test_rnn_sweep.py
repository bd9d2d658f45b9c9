"""The sweep of layers beside their peers: what is chosen, timed and compared, and the table that the planner reads."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the sweep times torch")

from benchmarks.harness.table import Table, read_rows, read_table
from benchmarks.rnn import cudnn_table, sweep
from benchmarks.rnn.cases import ALL, Sizes
from constrint.kernels.rnn.cudnn import cost
from constrint.kernels.rnn.cudnn.algorithm import Shape
from constrint.tune.measure import Measurement, Timer

LAYER = Sizes("lstm", 1, 256, 16, 35, ("fp16", "bf16"))


def entry(dtype: str, name: str, forward_ms: float, both_ms: float) -> sweep.Entry:
    times = {"forward": Measurement(1e-3 * forward_ms, 1e-6, 5), "both": Measurement(1e-3 * both_ms, 1e-6, 5)}
    return sweep.Entry(dtype, name, times)


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
    return sweep.row_of(LAYER, ENTRIES[place], ENTRIES, None)


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
        >= {"cell": "lstm", "heads": 1, "head_dim": 256, "batch": 16, "time": 35, "dtype": "fp16"}.items()
    )
    assert row(2)["both_spread_ms"] == pytest.approx(1e-3)


def test_who_fails_is_a_row_and_the_others_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def contenders(case: Any, kinds: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        yield "torch.nn", lambda: (lambda: made.append("forward"), lambda: made.append("both"))
        yield "rnn cuda", lambda: (lambda: 1 / 0, lambda: None)

    monkeypatch.setattr(sweep, "contenders", contenders)
    monkeypatch.setattr(sweep, "runs_on", lambda case, name: "")
    good, bad = sweep.measure(LAYER, "fp16", Timer("cpu"), ("nn",))
    assert (good.outcome, set(good.times)) == ("ok", {"forward", "both"})
    assert (bad.outcome, bad.times) == ("ZeroDivisionError: division by zero", {})
    assert {"forward", "both"} == set(made)


@pytest.mark.parametrize("name", ["table", "sweep", "cudnn"])
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
            table.add(**sweep.row_of(LAYER, one, added, None))
    assert len(read_rows(path)) == len(added)
    monkeypatch.setattr(sys, "argv", ["cudnn_table", str(path), "--gpu", "h200", "--out", str(out)])
    cudnn_table.main()
    note, _, _ = read_table(out)
    assert "benchmarks.rnn.sweep" in note
    assert "# python 3, gpu X" in out.read_text()
    monkeypatch.setattr(cost, "MEASURED", tmp_path)
    cost.measured.cache_clear()
    try:
        found = cost.layer_s("H200-SXM", Shape("lstm", "fp16", 16, 256, 256), 35, "forward")
        assert found == pytest.approx(2.0e-3), "a module on cuDNN, less the projection"
        assert cost.layer_s("H200-SXM", Shape("lstm", "bf16", 16, 256, 256), 35, "backward") == pytest.approx(19e-3)
    finally:
        cost.measured.cache_clear()
