"""`constrint prune` and the thresholds of `constrint compile`, on a list that differs by GPU."""

from __future__ import annotations

import csv
import io
import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Call
from tests.support.needs import needs_triton

pytestmark = needs_triton
ROOT = Path(__file__).parents[2]

#: AMD's options stand among the constants; the list asks PyTorch and Triton for the GPU; one row fits no GPU.
TILES = """
import torch
import triton
import triton.language as tl

MAJOR, _ = torch.cuda.get_device_capability()
PROPERTIES = torch.cuda.get_device_properties(0)
IS_HIP = triton.runtime.driver.active.get_current_target().backend == "hip"
assert PROPERTIES.multi_processor_count == (304 if IS_HIP else 132), PROPERTIES
assert torch.cuda.get_device_name() == PROPERTIES.name
assert bool(torch.version.hip) == IS_HIP == (torch.version.cuda is None)


def reset(args):
    pass


def listed():
    huge = triton.Config({"TILE": 64, "DEPTH": 512}, num_warps=4, num_stages=4)
    if IS_HIP:
        return [triton.Config({"TILE": 32, "DEPTH": 32, "matrix_instr_nonkdim": 16}, num_warps=4, num_stages=2), huge]
    return [
        huge,
        triton.Config({"TILE": 64, "DEPTH": 32}, num_warps=4, num_stages=8 if MAJOR < 9 else 3, pre_hook=reset),
        triton.Config({"TILE": 64, "DEPTH": 32, "waves_per_eu": 2}, num_warps=4, num_stages=3),
    ]


@triton.autotune(listed(), key=["k"])
@triton.jit
def product(a, b, c, k, TILE: tl.constexpr, DEPTH: tl.constexpr):
    rows, depth = tl.arange(0, TILE), tl.arange(0, DEPTH)
    a_tile, b_tile = a + rows[:, None] * k + depth[None, :], b + depth[:, None] * k + rows[None, :]
    sums = tl.zeros((TILE, TILE), tl.float32)
    for _ in range(0, tl.cdiv(k, DEPTH)):
        sums = tl.dot(tl.load(a_tile), tl.load(b_tile), sums)
        a_tile += DEPTH
        b_tile += DEPTH * k
    tl.store(c + rows[:, None] * k + rows[None, :], sums.to(tl.float16))


@triton.jit
def plain(x, TILE: tl.constexpr):
    tl.store(x + tl.arange(0, TILE), 1.0)
"""
SIGNATURE = ("--signature", "*fp16,*fp16,*fp16,i32:16")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / f"tiles_of_{tmp_path.name}.py"
    path.write_text(TILES)
    return path


def test_each_gpu_has_its_own_list_and_each_left_out_configuration_a_reason(
    run: Call, file: Path, tmp_path: Path
) -> None:
    written = tmp_path / "configs.py"
    asked = ("prune", f"{file}:product", "--gpu", "mi300x,h200", *SIGNATURE)
    code, out, err = run(*asked, "--json", "--write", written)
    assert code == 0, err
    document = json.loads(out)
    assert document["schema"] == "constrint.prune/1"
    told = {(one["gpu"], one["row"]): (one["place"], one["can_run"], one["reason"]) for one in document["configs"]}
    assert told["MI300X", 1] == (1, True, "")
    assert told["MI300X", 2][0] is None
    assert "of LDS, a block has 65,536" in told["MI300X", 2][2]
    assert told["H200-SXM", 2] == (1, True, "")
    assert "a block has 232,448" in told["H200-SXM", 1][2]
    assert "the option waves_per_eu, which Triton's back-end cuda does not have" in told["H200-SXM", 3][2]
    amd = document["configs"][0]
    assert amd["options"]["matrix_instr_nonkdim"] == 16
    assert amd["constants"] == {"TILE": 32, "DEPTH": 32}

    configs: dict[Any, Any] = runpy.run_path(str(written), init_globals={"reset": print})["CONFIGS"]
    (first,), (second,) = configs["gfx942"], configs[90]
    assert first.kwargs == {"TILE": 32, "DEPTH": 32, "matrix_instr_nonkdim": 16}
    assert (first.num_warps, first.num_stages, first.pre_hook) == (4, 2, None)
    assert (second.num_stages, second.pre_hook) == (3, print)

    code, out, err = run(*asked, "--format", "python")
    assert code == 0, err
    # The first line is the command.
    assert out.splitlines()[1:] == written.read_text().splitlines()[1:]
    code, _, err = run(*asked, "--write", written)
    assert (code, "exists" in err) == (2, True)


def test_a_model_orders_where_one_is_named(run: Call, file: Path) -> None:
    model = ("--like", "gemm.pointer", "--rename", "TILE=tile_m,DEPTH=tile_k", "--sizes", "m=4096,n=4096,k=4096")
    code, out, err = run("prune", f"{file}:product", "--gpu", "h200", *SIGNATURE, *model, "--format", "csv")
    assert code == 0, err
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["place"], row["row"]) for row in rows] == [("1", "2"), ("", "3"), ("", "1")]
    assert 1e-5 < float(rows[0]["predicted_s"]) < 1


def test_usual_names_of_tiles_are_read_and_a_list_that_the_model_does_not_know_is_refused(
    run: Call, file: Path
) -> None:
    text = file.read_text()
    file.write_text(text.replace("TILE", "BLOCK_SIZE_M").replace("DEPTH", "BLOCK_K"))
    asked = ("prune", f"{file}:product", "--gpu", "h200", *SIGNATURE, "--like", "gemm.pointer")
    named = ("--rename", "BLOCK_SIZE_M=tile_m,BLOCK_K=tile_k")
    code, out, err = run(*asked, "--json")
    assert code == 0, err
    usual = [one["predicted_s"] for one in json.loads(out)["configs"]]
    assert usual == [one["predicted_s"] for one in json.loads(run(*asked, *named, "--json")[1])["configs"]]
    assert "BLOCK_SIZE_M = tile_m, BLOCK_K = tile_k" in run(*asked)[1]
    file.write_text(text.replace("TILE", "TALL"))
    code, out, err = run(*asked)
    assert (code, out) == (2, "")
    assert "has none of the list's parameters TALL, DEPTH: --rename TALL=tile_m" in err


def test_a_signature_that_is_missing_is_begun(run: Call, file: Path) -> None:
    for command in ("prune", "compile"):
        code, out, err = run(command, f"{file}:product", "--gpu", "h200", "--gpu", "mi300x")
        assert (code, out) == (2, "")
        assert "0 entries for 4 arguments: a, b, c, k." in err
        start = err.partition('A start: "')[2].partition('"')[0]
        assert start == "a=*fp16,b=*fp16,c=*fp16,*=i32:16"
    code, _, err = run("prune", f"{file}:product", "--gpu", "h200", "--signature", start)
    assert code == 0, err


def test_a_note_about_a_file_is_printed_once_for_all_gpus(run: Call, file: Path) -> None:
    file.write_text(file.read_text() + "\nraise ValueError('no benchmark')\n")
    code, _, err = run("prune", f"{file}:product", "--gpu", "h200,mi300x", *SIGNATURE)
    assert (code, err.count("no benchmark")) == (0, 1), err


def test_requests_that_make_no_sense_are_refused_in_a_line(run: Call, file: Path) -> None:
    for options, said in (
        ((f"{file}:plain", "--gpu", "h200", "--signature", "*fp32"), "no list of triton.autotune"),
        ((f"{file}:product", "--gpu", ",", *SIGNATURE), "name a GPU"),
        ((f"{file}:product", "--gpu", "h200", *SIGNATURE, "--sizes", "m=1"), "about the kernel of --like"),
        ((f"{file}:product", "--gpu", "h200", *SIGNATURE, "--like", "gemm", "--sizes", "m=-1"), "whole numbers"),
        ((f"{file}:product", "--gpu", "h200", *SIGNATURE, "--constants", "TILE=64"), "which the list sets itself"),
        (("none.py:product", "--gpu", "h200", *SIGNATURE), "no such Python file"),
    ):
        code, out, err = run("prune", *options)
        assert (code, out) == (2, ""), err
        assert said in err, err
    code, _, err = run("gpus", "--format", "python")
    assert (code, "constrint prune" in err or "unknown format" in err) == (2, True)


def test_thresholds_and_a_baseline_end_with_1_and_say_why(run: Call, file: Path, tmp_path: Path) -> None:
    asked = ("compile", f"{file}:product", "--gpu", "h200", *SIGNATURE, "--constants", "DEPTH=32,TILE=64")
    code, out, err = run(*asked, "--json", "--max-spill", "0", "--min-occupancy", "1%", "--max-smem", "100000")
    assert code == 0, err
    document = json.loads(out)
    assert (document["failures"], document["differences"]) == ([], [])
    compiled = document["kernels"][0]["compiled"]
    baseline = tmp_path / "baseline.json"

    def against(**changed: int) -> tuple[int, str, str]:
        document["kernels"][0]["compiled"] = compiled | changed
        baseline.write_text(json.dumps(document))
        return run(*asked, "--baseline", baseline)

    assert against()[0] == 0
    code, out, err = against(registers_per_thread=compiled["registers_per_thread"] - 8)
    assert code == 1
    assert ["registers", f"{compiled['registers_per_thread'] - 8}", f"{compiled['registers_per_thread']}", "+8"] == [
        word for line in out.splitlines() if "+8" in line for word in line.split()
    ][-4:]
    assert "8 before (--baseline)" in err or "before (--baseline)" in err
    # Less than before is shown, and no failure.
    code, out, err = against(smem_bytes_per_block=compiled["smem_bytes_per_block"] + 1024)
    assert (code, "-1,024" in out, err) == (0, True, "")
    code, out, err = run(*asked, "--baseline", baseline, "--num-warps", "8")
    assert "the baseline lacks 1 kernel" in err
    assert code == 0
    code, out, err = run(*asked, "--max-smem", "1024", "--min-occupancy", "0.9", "--format", "csv")
    assert code == 1
    assert "at most 1,024 (--max-smem)" in err
    assert "at least 90% (--min-occupancy)" in err
    assert len(out.splitlines()) == 2


def test_a_row_keeps_its_number_when_rows_are_sorted(run: Call, file: Path) -> None:
    asked = ("compile", f"{file}:product", "--gpu", "h200", *SIGNATURE, "--sort", "smem_bytes_per_block")
    code, out, _ = run(*asked, "--format", "csv")
    assert code == 1
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["row"], row["problem"][:13]) for row in rows] == [
        ("2", ""),
        ("1", "takes 524,288"),
        ("3", "has the optio"),
    ]
    assert "row 1: takes 524,288" in run(*asked)[1]


def test_baselines_and_thresholds_are_read_by_lists_of_what_is_good(run: Call, file: Path, tmp_path: Path) -> None:
    asked = ("compile", f"{file}:product", "--gpu", "h200", *SIGNATURE)
    path = tmp_path / "baseline.json"
    for text, said in (
        (b"\xff", "no output of"),
        (b"{}", "no output of"),
        (b'{"schema": "constrint.solve/1", "kernels": []}', "its schema is"),
        (
            b'{"schema": "constrint.compile/1", "kernels": [{"gpu": "x", "constants": {}, "options": {}, '
            b'"compiled": {"registers_per_thread": "1"}}]}',
            "no registers_per_thread",
        ),
    ):
        path.write_bytes(text)
        code, out, err = run(*asked, "--baseline", path)
        assert (code, out) == (2, ""), err
        assert said in err, err
    assert "No such file" in run(*asked, "--baseline", tmp_path / "none.json")[2]
    for share in ("2", "nan", "-5%", "half"):
        code, _, err = run(*asked, "--min-occupancy", share)
        assert (code, "takes a share" in err) == (2, True)


def test_the_action_and_the_hook_call_commands_with_options_that_there_are() -> None:
    from tests.test_pages import has_these_options

    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (step,) = [step for step in action["runs"]["steps"] if "constrint compile" in step.get("run", "")]
    # Inputs reach the shell as variables, never as its text.
    assert "${{" not in step["run"]
    options = [f"--{name}" for name in action["inputs"] if name not in ("kernel", "python", "version")]
    assert all(option in step["run"] for option in options), options
    has_these_options(["compile", "f.py:k", *(word for option in options for word in (option, "1"))])
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "constrint compile"
    assert hook["pass_filenames"] is False
