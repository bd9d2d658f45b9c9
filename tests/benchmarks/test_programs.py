"""The benchmarks' programs: each says how it is used, tables of any age can be read, a space runs without a GPU."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.space import read_space
from benchmarks.harness.table import Table, attempt, read_rows, read_table
from benchmarks.harness.workloads import gemm, listed, of_sizes

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "h200"
TINY = f"{ROOT / 'tests' / 'tune' / 'tiny.py'}:SPEC"
PROGRAMS = (
    "bench_call",
    "space",
    "gemm.library",
    "gemm.candidates",
    "gemm.correct",
    "remake",
    "rnn.cudnn_table",
    "solver.bench",
    "solver.latency",
    "solver.random_problems",
)
NEED_TORCH = ("gemm.bench", "rnn.sweep")
NEED_SCIPY = ("fit", "rnn.fit", "rnn.fit_cuda", "rnn.measure_cuda")
has_torch = importlib.util.find_spec("torch") is not None


def run(monkeypatch: pytest.MonkeyPatch, name: str, *arguments: str) -> None:
    module = importlib.import_module(f"benchmarks.{name}{'.__main__' if name == 'remake' else ''}")
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    module.main()


@pytest.mark.parametrize("name", [*PROGRAMS, *NEED_TORCH, *NEED_SCIPY])
def test_every_program_says_how_it_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in NEED_TORCH and not has_torch:
        pytest.skip("needs the extra [torch]: torch is not installed")
    if name in NEED_SCIPY:
        pytest.importorskip("scipy", reason="fitting needs scipy")
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, name, "--help")
    assert ended.value.code == 0
    assert f"python -m benchmarks.{name}" in capsys.readouterr().out


@pytest.mark.skipif(not has_torch, reason="needs the extra [torch]: torch is not installed")
def test_the_guides_figures_of_drawn_products_are_those_of_the_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(monkeypatch, "gemm.bench", "--show", str(RESULTS / "gemm_drawn.csv.gz"))
    shown, guide = capsys.readouterr().out, (ROOT / "docs/figures.md").read_text(encoding="utf-8")
    for which in ("kernels, cold", "matmul, call"):
        for dtype in ("bf16", "fp16"):
            (line,) = (line for line in shown.splitlines() if line.startswith(f"{dtype}: cublas / {which}: "))
            mean, twentieth, worst = re.findall(r"\d\.\d{3}", line)
            figures = f"{mean}, 5th percentile {twentieth}, worst {worst}", f"{mean}, {twentieth}, worst {worst}"
            assert any(text in guide for text in figures), line


@pytest.mark.skipif(not has_torch, reason="needs the extra [torch]: torch is not installed")
def test_candidates_of_a_product_are_no_figures_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.gemm.bench import print_table

    case = {"m": "8", "n": "8", "k": "8", "dtype": "bf16", "layout": "rr", "outcome": "ok", "floor_us": 1.0}
    case |= {"spread_us": 0.1, "predicted_us": 4.0}
    ours, cold = {"kernel": "gemm.pointer"}, {"how": "cold"}
    rows = [
        case | ours | {"who": "candidate", "how": "picked", "median_us": 5.0},
        case | ours | cold | {"who": "kernels", "median_us": 5.0},
        case | ours | cold | {"who": "matmul", "median_us": 5.0},
        case | cold | {"who": "cublas", "median_us": 10.0},
    ]
    print_table(rows)
    out = capsys.readouterr().out
    assert "cublas / kernels, cold: geometric mean 2.000" in out
    assert "gemm.pointer, measured over predicted, cold: median 1.250 of 1" in out
    assert "candidate" not in out


@pytest.mark.parametrize(
    ("file", "workloads", "kernels"),
    [
        ("gemm_space_bf16.csv", 12, {"gemm.pointer"}),
        ("gemm_choices_bf16.csv", 23, {"gemm.pointer", "gemm.descriptor"}),
        ("rnn_space.csv", 76, {"lstm.triton", "lstm-backward.triton", "slstm.triton", "elman-backward.triton"}),
    ],
)
def test_older_tables_are_read_as_todays_kernels(file: str, workloads: int, kernels: set[str]) -> None:
    measured = read_space(RESULTS / file)
    assert len(measured) == workloads
    assert kernels <= {str(name) for here in measured for name in here.kernels}
    assert all(np.isfinite(here.time_us()).any() for here in measured)


def test_columns_that_told_kernels_apart_name_them_and_a_kernel_has_its_own_parameters_alone(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        "# measured on a GPU, bf16, row-major\n"
        "m,n,k,tile_m,tile_n,tile_k,num_warps,num_stages,split_k,persistent,descriptor,epilogue_subtile,producer,"
        "group_m,outcome,quick_us,cold_us,warm_us,again_us,cublas_cold_us,cublas_warm_us\n"
        "512,256,128,128,128,64,8,4,1,1,1,1,1,8,ok,24.0,12.0,,10.0,7.65,3.53\n"
        "512,256,128,128,128,64,8,4,1,1,1,2,0,8,ok,48.0,24.0,,20.0,7.65,3.53\n"
        "512,256,128,128,128,64,8,4,1,1,0,1,0,8,ok,96.0,,,,7.65,3.53\n"
        "512,256,128,16,16,16,8,4,1,1,0,1,0,8,hung,,,,,7.65,3.53\n"
    )
    (measured,) = read_space(path)
    assert measured.kernels.tolist() == ["gemm.descriptor", "gemm.pointer"]
    shared = {"tile_m": 128, "tile_n": 128, "tile_k": 64, "num_warps": 8, "num_stages": 4, "group_m": 8}
    assert measured.config(0) == shared | {"split_k": 1, "persistent": 1, "epilogue_subtile": 2}
    assert measured.config(1) == shared | {"split_k": 1, "persistent": 1}
    assert measured.find("gemm.pointer", {"tile_m": 128, "split_k": 1}) == 1
    assert measured.best_figure == "again_us"
    # Rougher figures are brought to the scale of the best one.
    assert measured.time_us().tolist() == pytest.approx([20.0, 40.0])


@pytest.mark.skipif(not has_torch, reason="needs the extra [torch]: torch is not installed")
def test_a_space_is_planned_run_and_scored_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, results, more = (tmp_path / name for name in ("plan.json", "results.csv", "more.json"))
    shared = ("--kernel", TINY, "--sizes", "8x8x8", "--dtype", "fp32", "--gpu", "h200", "--all", "--top", "1")
    run(monkeypatch, "space", "plan", *shared, "--out", str(plan))
    assert "9 configurations" in capsys.readouterr().err
    asked = ("--gpu", "h200", "--cpu", "--patience", "1.5", "--out", str(results))
    run(monkeypatch, "space", "run", str(plan), *asked)
    rows = read_rows(results)
    assert len(rows) == 9
    outcomes = {row["what"]: row["outcome"] for row in rows}
    assert outcomes["0"] == outcomes["1"] == "ok"
    assert outcomes["2"] == "wrong_result"
    run(monkeypatch, "space", "score", str(results), "--gpu", "h200")
    assert "of 1 shapes" in capsys.readouterr().out
    run(monkeypatch, "space", "plan", *shared, "--after", str(results), "--out", str(more))
    assert "0 configurations" in capsys.readouterr().err


def test_a_table_is_written_row_by_row_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "table.csv.gz"
    with Table(path, ("name", "us"), "measured on nothing") as table:
        table.add(name="a", us=1.234567)
        table.add(name="b", us=float("nan"))
    assert read_table(path) == ("measured on nothing", ["name", "us"], [["a", "1.2346"], ["b", ""]])
    assert attempt(lambda: {"us": 1})["outcome"] == "ok"
    assert attempt(lambda: {"us": 1 // 0})["outcome"].startswith("ZeroDivisionError")


def test_workloads_have_the_options_of_their_layout() -> None:
    assert gemm((1, 2, 3), "fp32", "rc").options == {"transpose_b": 1, "three_pass": 1}
    assert len(listed("gemm", "table", None)) == 63
    assert {w.dtype for w in listed("lstm", "space", None)} == {"bf16", "fp32", "tf32", "fp16"}
    assert {w.operation for w in listed("gru-backward", "space", "bf16")} == {"gru-backward"}
    assert of_sizes("gemm", "1x2x3,4x5x6", "fp16")[1].sizes == {"m": 4, "n": 5, "k": 6}
