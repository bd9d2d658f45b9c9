"""`--problem` with `--gpu`, and `gpu.` names in rules about kernels: what is solved, shown and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from constrint.hwmodels import load_gpu

TEXT = """
var tile_m in {16, 32, 64, 128, 256}
var tile_k in 16..256 step 16
var stages in 1..4
smem: stages * tile_m * tile_k * 4 <= gpu.max_smem_bytes_per_block because "all stages are resident"
maximise tile_m * tile_k
"""
SETTINGS = ("tile_m=256", "tile_k=256", "stages=4")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tiles.constrint"
    file.write_text(TEXT)
    return file


def count_by_hand(limit: int) -> int:
    tiles = [(m, k, s) for m in (16, 32, 64, 128, 256) for k in range(16, 257, 16) for s in range(1, 5)]
    return sum(m * k * s * 4 <= limit for m, k, s in tiles)


@pytest.mark.parametrize("name", ["h200", "mi300x", "t4"])
def test_the_same_problem_has_other_solutions_on_another_gpu(run: Any, path: Path, name: str) -> None:
    asked, limit = ("--problem", path, "--gpu", name), load_gpu(name).sm.max_smem_bytes_per_block
    (counted,) = json.loads(run("count", *asked, "--json")[1])["results"]
    assert counted["num_valid"] == count_by_hand(limit)
    best = json.loads(run("solve", *asked, "--top", 1, "--json")[1])["solutions"][0]
    assert best["tile_m"] * best["tile_k"] * 4 <= limit < 2 * best["tile_m"] * best["tile_k"] * 4
    lines = run("sample", *asked, "--count", 20, "--seed", 1, "--json")[1].splitlines()
    assert all(4 * r["tile_m"] * r["tile_k"] * r["stages"] <= limit for r in map(json.loads, lines))


def test_explanations_have_the_name_and_the_value(run: Any, path: Path) -> None:
    asked = ("--problem", path, "--gpu", "mi300x")
    assert run("count", *asked)[1].startswith(f"{path} on MI300X: ")
    out = run("why-not", *asked, *SETTINGS)[1]
    assert "<= gpu.max_smem_bytes_per_block [gpu.max_smem_bytes_per_block = 65536]" in out
    assert "1048576 <= 65536 is false" in out
    assert "gpu.max_smem_bytes_per_block = 65,536" in run("explain", *asked)[1]
    (section,) = json.loads(run("explain", *asked, "--json")[1])["results"]
    assert section["constants"] == {"gpu.max_smem_bytes_per_block": 65536}
    code, _, err = run("explain", *asked, "--set", "tile_m=256", "--set", "tile_k=256")
    assert (code, "[gpu.max_smem_bytes_per_block = 65536]" in err) == (1, True)
    ways = err.partition("Nearest ways out:")[2]
    assert ways
    assert "instead of 65536" not in ways, "what a GPU has is no choice of the user"


def test_own_rules_may_name_them_too(run: Any, path: Path) -> None:
    rule = ("--where", "tile_m * tile_k <= gpu.warp_size * 8")
    (counted,) = json.loads(run("count", "--problem", path, "--gpu", "mi300x", *rule, "--json")[1])["results"]
    assert counted["num_valid"] == 4 * sum(m * k <= 512 for m in (16, 32, 64, 128, 256) for k in range(16, 257, 16))
    written = ("--where", "tile_m * tile_k * 2 <= 232448 / 8")
    named = ("--where", "tile_m * tile_k * 2 <= gpu.max_smem_bytes_per_block / 8")
    results = [json.loads(run("count", "--gpu", "h200", *r, "--json")[1])["results"] for r in (written, named)]
    assert results[0] == results[1]
    assert (
        "gpu.max_smem_bytes_per_block = 232,448"
        in run("explain", "--gpu", "h200", "--kernel", "gemm.pointer", *named)[1]
    )


@pytest.mark.parametrize("command", ["solve", "count", "sample", "explain", "why-not"])
def test_without_a_gpu_the_error_says_the_way_out(run: Any, path: Path, command: str) -> None:
    code, out, err = run(command, "--problem", path, *(SETTINGS if command == "why-not" else ()))
    assert (code, out) == (2, "")
    assert f"{path}:5:39: nothing says what `gpu.max_smem_bytes_per_block` is." in err
    assert "--gpu NAME" in err


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("stages <= gpu.smem", "Nearest: gpu.smem_bytes_per_sm, gpu.max_smem_bytes_per_block"),
        ("stages <= gpu.l2_bandwidth_bytes_per_s", "has no value: no source confirms it for H200-SXM"),
        ("stages <= gpu.max_sgprs_per_wave", "H200-SXM has no such number; models of AMD have it"),
        ("stages <= gpu.", "unexpected character '.'"),
        ("stages <= tile_m.x", "there is no number `tile_m.x`"),
        ("stages <= gpu.\x07", "unexpected character"),
        ("stages <= gpu." + "x" * 10_000, "there is no number `gpu.xxx"),
    ],
)
def test_mistakes_name_what_there_is(run: Any, path: Path, rule: str, message: str) -> None:
    code, out, err = run("solve", "--problem", path, "--gpu", "h200", "--where", rule)
    assert (code, out) == (2, "")
    assert message in err
    assert "\x07" not in err
    assert len(err) < 1000


def test_names_are_listed_with_their_values(run: Any) -> None:
    code, out, _ = run("gpu", "mi300x", "--names")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("gpu.max_smem_bytes_per_block "))
    assert row.split()[1] == "65,536"
    document = json.loads(run("gpu", "h200", "--names", "--json")[1])
    assert (document["schema"], document["gpu"]) == ("constrint.gpu.names/1", "H200-SXM")
    values = {entry["name"]: entry["value"] for entry in document["names"]}
    assert (values["gpu.sm_count"], values["gpu.l2_bandwidth_bytes_per_s"]) == (132, None)
    assert "--names and --yaml are about a model" in run("gpu", "--detect", "--names")[2]


@pytest.mark.parametrize("command", ["solve", "explain", "sample"])
def test_what_is_infeasible_is_a_document_for_programs(run: Any, path: Path, command: str) -> None:
    code, out, err = run(command, "--problem", path, "--gpu", "t4", "--where", "tile_m * tile_k >= 65536", "--json")
    document = json.loads(out)
    assert (code, document["schema"]) == (1, "constrint.infeasible/1")
    assert err == f"error: {document['error']}\n"
    reasons = {member["because"] for member in document["conflict"]}
    assert {"all stages are resident", "asked for by --where 'tile_m * tile_k >= 65536'"} <= reasons


def test_each_kernel_has_its_own_conflict(run: Any) -> None:
    code, out, _ = run("solve", "--gpu", "h200", "--set", "tile_k=128", "--where", "tile_k < 64", "--format", "json")
    document = json.loads(out)
    assert (code, document["conflict"]) == (1, [])
    names = ["gemm.descriptor", "gemm.cuda", "gemm.skinny", "gemm.pointer"]
    assert [each["kernel"] for each in document["kernels"]] == names
    for each in document["kernels"]:
        rules = {member["rule"] for member in each["conflict"]}
        assert len(rules) == 2
        assert rules < {"tile_k == 128", "tile_k < 64", "tile_k in {64}"}
