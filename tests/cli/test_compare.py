"""Several GPUs: side by side with `compare`, one after the other with `solve`, and refused by all other commands."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from constrint.answers import comparison, terminal
from constrint.cli.compare import MAX_GPUS
from constrint.hwmodels import list_gpus

TILES = Path(__file__).parents[2] / "examples" / "tiles.constrint"
SIX = ("h200", "mi300x", "b200", "t4", "7900xtx", "rtx-4090")
#: A dtype that the T4 lacks.
BF16 = ("--dtype", "bf16")


def test_the_best_of_each_gpu_is_what_solve_ranks_first(run: Any) -> None:
    code, out, _ = run("compare", "h200", "mi300x", "--kernel", "gemm", "--m", 8192, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "constrint.compare/1"
    assert [result["gpu"] for result in document["results"]] == ["H200-SXM", "MI300X"]
    for result in document["results"]:
        (best,) = result["candidates"]
        alone = json.loads(run("solve", "--gpu", result["gpu"], "--m", 8192, "--top", 3, "--json")[1])["results"][0]
        assert best == alone["candidates"][0]
        assert result["num_valid"] == alone["num_valid"]


def test_the_columns_say_time_bound_occupancy_and_limits(run: Any) -> None:
    code, out, err = run("compare", "h200", "b200", "--kernel", "gemm.pointer")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "gemm.pointer m=4096 n=4096 k=4096 bf16: the best configuration of each GPU"
    assert lines[2].split() == ["H200-SXM", "B200"]
    rows = {title: cells for title, *cells in (re.split(r"\s{2,}", line) for line in lines[3:] if line)}
    document = json.loads(run("compare", "h200", "b200", "--kernel", "gemm.pointer", "--json")[1])
    for place, result in enumerate(document["results"]):
        best = result["candidates"][0]
        assert rows["target"][place] == result["target"]
        assert rows["time, us"][place] == f"{best['predicted_s'] * 1e6:.1f}"
        assert rows["TFLOP/s"][place] == f"{best['op_per_s'] / 1e12:,.0f}"
        assert rows["of the roofline"][place] == f"{best['roofline_share']:.0%}"
        assert rows["registers"][place].lstrip("~") == str(best["registers_per_thread"])
        assert rows["smem, bytes"][place] == f"{best['smem_bytes_per_block']:,}"
        assert rows["blocks an SM (CU)"][place] == str(best["blocks_per_sm"])
        assert rows["limited by"][place] == best["limited_by"]
        warps = best["threads_per_block"] // 32 * best["blocks_per_sm"]
        assert rows["occupancy"][place] == f"{warps / 64:.0%}"
    first, second = (result["candidates"][0]["predicted_s"] for result in document["results"])
    assert rows["speed"] == ["1.00", f"{first / second:.2f}"]


def test_a_gpu_without_the_dtype_says_why_in_its_column(run: Any) -> None:
    code, out, _ = run("compare", "h200", "t4", *BF16)
    assert code == 1
    column = [line[out.splitlines()[2].index("T4") :].strip() for line in out.splitlines()[3:8]]
    said = " ".join(" ".join(column).split())
    assert said.startswith("none: T4 has no matrix instruction for bf16 (sm_75).")
    refused = json.loads(run("compare", "h200", "t4", *BF16, "--json")[1])["results"][1]
    assert refused["gpu"] == "T4"
    assert "no matrix instruction for bf16" in refused["refusal"]
    rows = list(csv.DictReader(io.StringIO(run("compare", "h200", "t4", *BF16, "--format", "csv")[1])))
    assert [bool(row["refusal"]) for row in rows] == [False, True]
    assert [bool(row["predicted_s"]) for row in rows] == [True, False]


def test_a_gpu_on_which_nothing_fits_has_the_conflict(run: Any) -> None:
    tile = [word for name in ("tile_m=128", "tile_n=128", "tile_k=64", "num_stages=4") for word in ("--set", name)]
    rules = ("--kernel", "gemm.pointer", *tile)
    code, out, _ = run("compare", "h200", "mi300x", *rules, "--json")
    fits, none = json.loads(out)["results"]
    assert (code, len(fits["candidates"])) == (1, 1)
    assert any("asked for by --set num_stages=4" in member["because"] for member in none["conflict"])
    assert "kernels" not in none
    assert "cannot hold together" in none["refusal"]


def test_where_no_gpu_has_an_answer_the_exit_code_is_1_and_all_say_why(run: Any) -> None:
    for form in ((), ("--json",)):
        code, out, err = run("compare", "t4", "v100", *BF16, *form)
        assert (code, err) == (1, "")
        assert "T4 has no matrix instruction" in out
        assert "V100-SXM2 has no matrix instruction" in out


def test_without_a_dtype_all_gpus_are_asked_about_the_same(run: Any) -> None:
    results = json.loads(run("compare", "h200", "t4", "--json")[1])["results"]
    assert {result["dtype"] for result in results} == {"fp16"}
    note = "fp16 for all, because T4 and V100-SXM2 do not take bf16, the usual type (--dtype chooses)"
    assert note in run("compare", "h200", "t4", "v100")[1]
    assert "for all" not in run("compare", "h200", "t4", "--dtype", "fp16")[1]
    assert {r["dtype"] for r in json.loads(run("compare", "h200", "b200", "--json")[1])["results"]} == {"bf16"}


@pytest.mark.parametrize(("columns", "kernel"), [(40, "gemm"), (80, "gemm"), (120, "gemm"), (80, "lstm")])
def test_every_terminal_shows_six_gpus_whole(
    run: Any, monkeypatch: pytest.MonkeyPatch, columns: int, kernel: str
) -> None:
    for module in (comparison, terminal):
        monkeypatch.setattr(module, "terminal_width", lambda: columns)
    code, out, _ = run("compare", *SIX, "--kernel", kernel, "--dtype", "bf16")
    assert code == int("none:" in out)
    lines = out.splitlines()
    assert all(len(line) <= columns for line in lines)
    assert "…" not in out
    assert sum(line.startswith("time, us") for line in lines) >= (2 if columns <= 80 else 1)
    for name in ("H200-SXM", "MI300X", "B200", "T4", "RX-7900-XTX", "RTX-4090"):
        assert any(name in line.split() for line in lines), name


def test_names_twice_are_one_column_and_options_are_names_too(run: Any) -> None:
    code, out, _ = run("compare", "h200", "H200-SXM", "--gpu", "b200", "--gpu", "b200", "--kernel", "gemm.cuda")
    assert code in (0, 1)
    assert out.splitlines()[2].split() == ["H200-SXM", "B200"]


def test_gpus_can_be_sorted_and_columns_chosen(run: Any) -> None:
    asked = ("compare", "mi300x", "h200", "--kernel", "gemm.pointer")
    orders = [run(*asked, "--sort", name)[1].splitlines()[2].split() for name in ("predicted_s", "-predicted_s", "gpu")]
    assert orders[0] == orders[1][::-1]
    assert orders[2] == ["H200-SXM", "MI300X"]
    out = run(*asked, "--columns", "predicted_s,bound_by")[1]
    assert [line.split("  ")[0] for line in out.splitlines()[3:5]] == ["time, us", "bound by"]


def test_solve_ranks_for_each_gpu(run: Any) -> None:
    asked = ("--top", 2, "--kernel", "gemm.pointer", "--dtype", "bf16")
    code, out, _ = run("solve", "--gpu", "h200", "--gpu", "mi300x", "--gpu", "t4", *asked)
    assert code == 1
    assert run("solve", "--gpu", "h200", "--gpu", "mi300x", *asked)[0] == 0
    places = [out.index(text) for text in ("bf16 on H200-SXM", "bf16 on MI300X", "T4: no answer", "side by side: ")]
    assert places == sorted(places)
    words = shlex.split(out.splitlines()[-1].partition(": ")[2])
    assert words == ["constrint", "compare", "h200", "mi300x", "t4", "--kernel", "gemm.pointer", "--dtype", "bf16"]
    several = json.loads(run("solve", "--gpu", "h200", "--gpu", "mi300x", *asked, "--json")[1])
    for name, result in zip(("h200", "mi300x"), several["results"], strict=True):
        (alone,) = json.loads(run("solve", "--gpu", name, *asked, "--json")[1])["results"]
        assert result["candidates"] == alone["candidates"]
    table = run("solve", "--gpu", "h200", "--gpu", "mi300x", *asked, "--format", "csv")[1]
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["gpu"] for row in rows] == ["H200-SXM"] * 2 + ["MI300X"] * 2
    assert [row["kpack"] for row in rows][:3] == ["", "", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("compare",), "name the GPUs to compare"),
        (("compare", "h200", "h20z"), "unknown GPU 'h20z'. Nearest: "),
        (("compare", "", "h200"), "got ''"),
        (("compare", "h200", "\x1b[31m"), r"unknown GPU '\x1b[31m'"),
        (("compare", "h200", "g" * 10_000), "unknown GPU 'ggg"),
        (("compare", "h200", "größe"), "unknown GPU 'größe'"),
        (("compare", *list_gpus() * 3), "name the GPUs to compare"),
        (("compare", "h200", "b200", "--kernel", "gem"), "unknown kernel 'gem'. Nearest: gem"),
        (("compare", "h200", "b200", "--kernel", ""), "unknown kernel ''"),
        (("compare", "h200", "b200", "--dtype", "fp4"), "unknown dtype 'fp4'"),
        (("compare", "h200", "b200", "--m", 0), "m must be between 1 and"),
        (("compare", "h200", "b200", "--set", "tile_q=1"), "unknown parameter 'tile_q'"),
        (("compare", "h200", "b200", "--problem", TILES), "No such option: --problem"),
        (("compare", "h200", "b200", "--dtype", "fp16", "--dtype", "bf16"), "--dtype is given twice"),
        (("solve", "--gpu", "h200", "--gpu", "b200", "--all"), "several --gpu go with a ranking"),
        (("solve", "--gpu", "h200", "--gpu", "b200", "--problem", TILES), "several --gpu go with a ranking"),
        (("solve", "--gpu", "h200", "--gpu", "x"), "unknown GPU 'x'"),
        (("solve", "--gpu", "h200", "--m", 1, "--m", 2), "--m is given twice"),
        (("explain", "--gpu", "h200", "--gpu", "b200"), "`constrint explain` answers for one GPU"),
        (("count", "--gpu", "h200", "--gpu", "b200"), "`constrint count` answers for one GPU"),
        (("sample", "--gpu", "h200", "--gpu", "b200"), "`constrint compare` sets them side by side"),
        (("why-not", "--gpu", "h200", "--gpu", "b200", "tile_m=1"), "answers for one GPU"),
        (("verify", "--gpu", "h200", "--gpu", "b200"), "answers for one GPU"),
        (("limits", "--gpu", "h200", "--gpu", "b200"), "answers for one GPU"),
    ],
)
def test_mistakes_are_one_line(run: Any, arguments: tuple[object, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, ""), err
    assert message in err
    assert err.startswith("error: ")
    assert len(err) < 1500
    assert "\x1b" not in err


def test_more_gpus_than_there_are_models_is_refused() -> None:
    assert len(list_gpus()) < MAX_GPUS
