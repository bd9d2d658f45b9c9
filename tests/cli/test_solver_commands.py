"""`solve`, `explain`, `why-not`, `count` and `sample` on a kernel, a text problem and a params/restrictions file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from constrint.model import parse
from constrint.model.python.restrictions import load_space
from constrint.solve import brute_force, list_backends

ROOT = Path(__file__).parents[2]
TILES = ROOT / "examples" / "tiles.constrint"
NBODY = ROOT / "tests" / "data" / "spaces" / "bat_nbody.json"
HUGE = ROOT / "tests" / "data" / "spaces" / "atf_gemm_10x500x64.json"
KERNEL = ("--gpu", "mi300x", "--kernel", "gemm.pointer", "--m", 512, "--n", 512, "--k", 512)
WAYS = {"kernel": KERNEL, "problem": ("--problem", TILES), "space": ("--space", NBODY)}
EACH_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def json_of(run: Any, *arguments: object) -> Any:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def lines_of(run: Any, *arguments: object) -> list[dict[str, int]]:
    code, out, _ = run(*arguments, "--json")
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


@EACH_WAY
def test_count_all_and_sample_agree(run: Any, way: tuple[object, ...]) -> None:
    document = json_of(run, "count", *way)
    assert document["schema"] == "constrint.count/1"
    (result,) = document["results"]
    assert set(result) == {"title", "num_valid", "num_product"}
    wanted = min(50, result["num_valid"])
    drawn = lines_of(run, "sample", *way, "--count", wanted, "--seed", 7)
    assert drawn == lines_of(run, "sample", *way, "--count", wanted, "--seed", 7)
    assert len({tuple(row.items()) for row in drawn}) == wanted
    for row in drawn[:3]:
        answer = json_of(run, "why-not", *way, *(f"{n}={v}" for n, v in row.items()))
        assert answer["valid"] is True
    if way is not KERNEL:
        rows = lines_of(run, "solve", "--all", *way)
        assert len({tuple(row.items()) for row in rows}) == len(rows) == result["num_valid"]
        assert all(row in rows for row in drawn)


@EACH_WAY
def test_explain_gives_every_rule_and_parameter(run: Any, way: tuple[object, ...]) -> None:
    document = json_of(run, "explain", *way)
    assert document["schema"] == "constrint.explain/1"
    (result,) = document["results"]
    valid = json_of(run, "count", *way)["results"][0]
    assert (result["num_valid"], result["num_product"]) == (valid["num_valid"], valid["num_product"])
    assert result["parameters"]
    assert all({"name", "values", "meaning", "because"} <= set(p) for p in result["parameters"])
    for rule in result["rules"]:
        assert set(rule) == {"name", "kind", "rule", "because", "prunes", "removes_alone", "removes_only"}
        assert 0 <= rule["removes_only"] <= rule["removes_alone"] <= result["num_product"]
    code, out, _ = run("explain", *way)
    assert code == 0
    assert all(rule["name"] in out for rule in result["rules"])


def test_solve_a_problem_best_first(run: Any) -> None:
    document = json_of(run, "solve", "--problem", TILES, "--top", 4)
    assert set(document) == {"schema", "num_product", "num_valid", "solutions"}
    assert (document["schema"], document["num_valid"]) == ("constrint.solutions/1", 226)
    areas = [row["tile_m"] * row["tile_n"] for row in document["solutions"]]
    assert areas == sorted(areas, reverse=True)
    assert areas[0] == 256 * 256
    every = lines_of(run, "solve", "--all", "--problem", TILES)
    areas = [row["tile_m"] * row["tile_n"] for row in every]
    assert areas == sorted(areas, reverse=True)
    code, out, err = run("solve", "--problem", TILES, "--top", 1)
    assert (code, err) == (0, "")
    assert "226 solutions of 1,600 combinations\nbest first: maximise tile_m * tile_n\n" in out
    assert out.splitlines()[-1] == "... and 225 more (--top N prints more, --all prints all)"


def test_solve_all_writes_rows_to_stdout_and_notes_to_stderr(run: Any) -> None:
    code, out, err = run("solve", "--all", "--space", NBODY)
    assert code == 0
    header, *rows = out.splitlines()
    problem = load_space(NBODY)
    assert header.split() == list(problem.variables)
    assert len(rows) == 1568
    assert all(len(row) == len(header) for row in rows)
    assert err == f"{NBODY}: 1,568 solutions of 3,136 combinations\n"


def test_kernel_configs_satisfy_what_was_asked(run: Any) -> None:
    few = ("--set", "num_warps=4", "--set", "tile_n=64")
    rows = lines_of(run, "solve", "--all", *KERNEL, "--set", "tile_m=64,128", *few, "--where", "tile_k <= 32")
    assert rows
    assert {row["tile_m"] for row in rows} == {64, 128}
    assert max(row["tile_k"] for row in rows) == 32


def test_settings_and_rules_work_on_files_too(run: Any) -> None:
    rows = lines_of(run, "solve", "--all", "--problem", TILES, "--set", "stages=3", "--where", "tile_m > tile_n")
    assert rows
    assert all(row["stages"] == 3 and row["tile_m"] > row["tile_n"] for row in rows)


@pytest.mark.parametrize("backend", list_backends())
def test_every_backend_gives_the_same(run: Any, backend: str) -> None:
    found = json_of(run, "count", "--problem", TILES, "--backend", backend)
    assert found["backend"] == backend
    assert found["results"][0]["num_valid"] == 226
    best = json_of(run, "solve", "--problem", TILES, "--top", 1, "--backend", backend)["solutions"][0]
    assert best["tile_m"] * best["tile_n"] == 256 * 256


def test_why_not_shows_the_numbers_and_what_would_fit(run: Any) -> None:
    config = ("tile_m=256", "tile_n=256", "tile_k=48", "stages=4")
    answer = json_of(run, "why-not", "--problem", TILES, *config)
    assert set(answer) == {"schema", "title", "config", "valid", "broken", "doubts", "spill_chance", "changes"}
    assert (answer["doubts"], answer["spill_chance"]) == ([], None)
    assert (answer["schema"], answer["valid"]) == ("constrint.why-not/1", False)
    by_name = {broken["name"]: broken for broken in answer["broken"]}
    assert set(by_name) == {"lds", "no_remainder"}
    assert set(by_name["lds"]) == {"name", "kind", "rule", "because", "seen", "values"}
    assert by_name["lds"]["seen"] == "196608 <= 65536 is false"
    assert by_name["lds"]["because"] == "all stages of A and B are resident in LDS"
    assert by_name["lds"]["values"] == {"tile_m": 256, "tile_n": 256, "tile_k": 48, "stages": 4}
    assert answer["changes"]["tile_k"] == [16]
    code, out, _ = run("why-not", "--problem", TILES, *config)
    assert code == 0
    assert "196608 <= 65536 is false" in out
    assert "because the main loop has no remainder tile" in out
    assert "fits if tile_k <= 16" in out
    code, out, _ = run("why-not", "--problem", TILES, *config[:2], "tile_k=16", "stages=4")
    assert out.endswith("valid: no rule is broken\n")


def test_why_not_names_a_value_outside_the_domain(run: Any) -> None:
    answer = json_of(run, "why-not", "--problem", TILES, "tile_m=100", "tile_n=16", "tile_k=16", "stages=2")
    assert [(broken["name"], broken["seen"]) for broken in answer["broken"]] == [("tile_m", "100 is not in the domain")]


def test_spaces_that_no_one_can_list_are_counted_and_sampled(run: Any) -> None:
    assert json_of(run, "count", "--space", HUGE)["results"][0]["num_valid"] == 251_370_000
    problem = load_space(HUGE)
    rows = lines_of(run, "sample", "--space", HUGE, "--count", 5000, "--seed", 3)
    assert len(rows) == 5000
    assert all(rule.holds(rows[17]) for rule in problem.constraints)


def test_a_problem_with_too_many_solutions_to_list_gives_one(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "wide.constrint"
    path.write_text("x * y == z + 1; x > y; minimise x\n")
    code, out, err = run("solve", "--problem", path, "--json")
    assert code == 0, err
    document = json.loads(out)
    assert err.startswith("note: only one solution is shown: ")
    assert document["num_valid"] is None
    (row,) = document["solutions"]
    assert row["x"] == 2
    assert all(rule.holds(row) for rule in parse(path.read_text()).constraints)


def test_solutions_are_sorted_by_all_objectives_in_order(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "ordered.constrint"
    text = "var x in 1..5; var y in 1..5; soft x + y >= 5 weight 2; soft x != 3; maximise x * y // 4; minimise x\n"
    path.write_text(text)
    problem = parse(text)

    def cost(row: dict[str, int]) -> tuple[int, ...]:
        return (2 * (row["x"] + row["y"] < 5) + (row["x"] == 3), -(row["x"] * row["y"] // 4), row["x"])

    everything = sorted(map(cost, brute_force(problem)))
    code, out, err = run("solve", "--problem", path, "--all", "--json")
    assert code == 0, err
    assert [cost(json.loads(line)) for line in out.splitlines()] == everything
    code, out, err = run("solve", "--problem", path, "--top", 4, "--json")
    assert code == 0, err
    assert [cost(row) for row in json.loads(out)["solutions"]] == everything[:4]
    code, out, err = run("solve", "--problem", path, "--top", 1)
    assert "best first: weight 2 if not x + y >= 5; weight 1 if not x != 3; maximise x * y // 4; then minimise x" in (
        out.replace("; then ", "; ").replace("; minimise", "; then minimise")
    )


def test_the_dialect_decides_what_a_remainder_means(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "three.constrint"
    path.write_text("A == [4, 8]; B == [1, 2]; A % A * B == 0;\n")
    code, out, err = run("count", "--problem", path)
    assert (code, out.split(": ")[1].split()[0]) == (0, "4")
    assert err.startswith(f"warning: {path}:1: `A % A * B` is read here as `(A % A) * B`; ConstrINT reads")
    code, out, err = run("solve", "--all", "--json", "--problem", path, "--dialect", "constrint")
    assert (code, err.count("warning")) == (0, 0)
    assert [json.loads(line) for line in out.splitlines()] == [{"A": 4, "B": 1}, {"A": 8, "B": 1}]


def test_more_than_there_are_is_all_of_them(run: Any) -> None:
    code, out, err = run("sample", "--problem", TILES, "--count", 1000, "--json")
    assert code == 0
    assert len(set(out.splitlines())) == 226
    assert err == "note: there are only 226 solutions; all of them follow\n"


def test_explain_shows_what_makes_the_fastest_so_where_the_kernel_says(run: Any) -> None:
    sizes = ("--m", "5000", "--n", "5000", "--k", "5000", "--transpose-b", "1")
    asked = ("explain", "--gpu", "h200", "--kernel", "gemm.cuda", *sizes)
    code, out, _ = run(*asked, "--set", "tile_m=256", "--set", "tile_n=160", "--json")
    fastest = json.loads(out)["results"][0]["fastest"]
    assert (code, [each["of"] for each in fastest]) == (0, ["as asked", "of all"])
    as_asked, of_all = fastest
    assert (as_asked["config"]["tile_m"], as_asked["config"]["tile_n"]) == (256, 160)
    assert as_asked["seconds"] > of_all["seconds"]
    assert as_asked["figures"]["results_share"] < of_all["figures"]["results_share"]
    text = run(*asked, "--set", "tile_m=256", "--set", "tile_n=160")[1]
    assert "the fastest by prediction" in text
    assert "results_share" in text
    assert (
        "fastest"
        not in json.loads(run("explain", "--gpu", "h200", "--kernel", "gemm.pointer", "--json")[1])["results"][0]
    )
