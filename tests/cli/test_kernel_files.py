"""Kernels from a file: several implementations of one operation in every command, and files that are wrong."""

from __future__ import annotations

import collections
import json
from pathlib import Path
from typing import Any

import pytest

#: Two implementations of one operation, which share `tile_m` and `num_warps` but not its values.
SEVERAL = """
from constrint.select import BlockUse, KernelSpec, Param, Rule, Size


class Scale(KernelSpec):
    operation, summary, dtypes = "scale", "y = a * x", ("fp32", "fp16")
    sizes = (Size("rows", 1024, "rows of x"), Size("row_length", 256, "columns of x"))
    options = (Size("in_place", 0, "1: y is x", least=0, most=1),)

    def params(self, gpu, workload):
        return [Param("tile_m", self.tiles, "rows of a block", "powers of two"), *self.further,
                Param("num_warps", (4, 8), "warps of a block", "few", "w")]

    def rules(self, gpu, workload, v):
        yield Rule(v["tile_m"] <= workload.sizes["rows"], "within", "no more rows than there are")
        if self.further:
            yield Rule(v["tile_m"] * v["unroll"] <= 64, "unrolled", "the instruction cache holds it")

    def use(self, gpu, workload, v):
        return BlockUse(v["num_warps"], 32 + v["tile_m"], v["tile_m"] * 0)


class Plain(Scale):
    name, tiles, further = "plain", (16, 32, 64), ()


class Unrolled(Scale):
    name, tiles = "unrolled", (16, 32, 48)
    further = (Param("unroll", (1, 2, 4), "iterations written out", "few", "un"),)


SPECS = (Unrolled(), Plain())
"""


@pytest.fixture
def several(tmp_path: Path) -> tuple[str, ...]:
    """Options that name both kernels on a GPU."""
    path = tmp_path / "scale.py"
    path.write_text(SEVERAL)
    return ("--gpu", "h200", "--kernel", f"{path}:SPECS")


def json_of(run: Any, *arguments: object) -> Any:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def lines_of(run: Any, *arguments: object) -> list[dict[str, Any]]:
    code, out, err = run(*arguments, "--json")
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def test_help_shows_the_sizes_and_options_of_the_kernel(run: Any, several: tuple[str, ...]) -> None:
    code, out, _ = run("solve", *several, "--help")
    assert code == 0
    text = " ".join(out.split())
    assert "--rows <int> Rows of x. [default: 1024]" in text
    assert "--row-length <int> Columns of x. [default: 256]" in text
    assert "--in-place <int> 1: y is x. [default: 0]" in text
    assert "Operand type: fp32, fp16." in text
    assert "--heads" not in text
    _, out, _ = run("solve", "--kernel", "lstm", "--help")
    assert "--head-dim <int>" in out


def test_a_size_of_another_kernel_is_refused_by_name(run: Any, several: tuple[str, ...]) -> None:
    assert run("solve", *several, "--heads", 3) == (
        2,
        "",
        "error: kernel 'scale' has no size 'heads'; it has rows, row_length.\n",
    )
    assert "No such option: --bogus" in run("solve", *several, "--bogus", 3)[2]


def test_sizes_and_options_reach_the_workload(run: Any, several: tuple[str, ...]) -> None:
    (result,) = json_of(run, "solve", *several, "--rows", 32, "--in-place", 1)["results"]
    assert result["sizes"] == {"rows": 32, "row_length": 256}
    assert result["options"] == {"in_place": 1}
    assert max(c["config"]["tile_m"] for c in result["candidates"]) == 32
    code, _, err = run("solve", *several, "--in-place", 2)
    assert (code, err) == (2, "error: in_place must be between 0 and 1, got 2.\n")


def test_solve_ranks_all_kernels_and_the_rows_name_theirs(run: Any, several: tuple[str, ...]) -> None:
    (result,) = json_of(run, "solve", *several, "--top", 100)["results"]
    assert result["kernel"] == "scale"
    assert result["kernels"] == [
        {"kernel": "scale.unrolled", "num_product": 18, "num_valid": 12, "refusal": "", "is_cut": False},
        {"kernel": "scale.plain", "num_product": 6, "num_valid": 6, "refusal": "", "is_cut": False},
    ]
    assert (result["num_product"], result["num_valid"]) == (24, 18)
    counted = collections.Counter(candidate["kernel"] for candidate in result["candidates"])
    assert counted == {"scale.unrolled": 12, "scale.plain": 6}
    seconds = [candidate["predicted_s"] for candidate in result["candidates"]]
    assert seconds == sorted(seconds)
    code, out, _ = run("solve", *several, "--top", 100)
    assert code == 0
    header, *rows = out.splitlines()[3:22]
    assert header.split()[:6] == ["#", "kernel", "tile", "m", "un", "w"]
    assert {row.split()[3] for row in rows if row.split()[1] == "plain"} == {"-"}
    assert "un = unroll" in out
    assert "best: scale." in out


def test_one_kernel_can_be_named(run: Any, several: tuple[str, ...]) -> None:
    run("count", *several)  # registers what the file has
    (result,) = json_of(run, "solve", "--gpu", "h200", "--kernel", "scale.plain")["results"]
    assert {candidate["kernel"] for candidate in result["candidates"]} == {"scale.plain"}


def test_a_parameter_that_one_kernel_lacks_leaves_it_out(run: Any, several: tuple[str, ...]) -> None:
    (result,) = json_of(run, "solve", *several, "--set", "unroll=2")["results"]
    assert {candidate["kernel"] for candidate in result["candidates"]} == {"scale.unrolled"}
    assert result["kernels"][1]["refusal"] == "it has no parameter 'unroll'"
    code, out, _ = run("solve", *several, "--where", "unroll >= 2")
    assert code == 0
    assert out.startswith("scale.unrolled rows=1024 ")
    assert "\nnot scale.plain: it has no parameter 'unroll'\n" in out


def test_a_value_that_one_kernel_lacks_leaves_it_without_a_solution(run: Any, several: tuple[str, ...]) -> None:
    (result,) = json_of(run, "solve", *several, "--set", "tile_m=64")["results"]
    assert [space["num_valid"] for space in result["kernels"]] == [0, 2]
    code, out, _ = run("solve", *several, "--set", "tile_m=64")
    assert code == 0
    assert "not scale.unrolled: no config satisfies every rule" in out
    code, out, _ = run("explain", *several, "--set", "tile_m=64")
    assert code == 0
    assert "tile_m in {16, 32, 48}   because powers of two" in out
    assert "tile_m = 48 instead of 64" in out
    sections = json_of(run, "explain", *several, "--set", "tile_m=64")["results"]
    assert [(s["kernel"], s["num_valid"]) for s in sections] == [("scale.unrolled", 0), ("scale.plain", 2)]
    assert sections[0]["ways_out"] == ["tile_m = 48 instead of 64"]
    assert {member["rule"] for member in sections[0]["conflict"]} == {"tile_m in {16, 32, 48}", "tile_m == 64"}


def test_what_no_kernel_has_is_refused_with_the_nearest(run: Any, several: tuple[str, ...]) -> None:
    code, _, err = run("solve", *several, "--set", "tile_m=50")
    assert code == 2
    assert "tile_m takes 16, 32, 48, 64" in err
    assert "Nearest: 48 or 64." in err
    assert "unknown parameter 'unrol'. Nearest: unroll." in run("solve", *several, "--set", "unrol=1")[2]
    assert "Parameters: tile_m, unroll, num_warps." in run("solve", *several, "--where", "x == 1")[2]


def test_an_infeasible_request_explains_every_kernel(run: Any, several: tuple[str, ...]) -> None:
    code, out, err = run("explain", *several, "--rows", 8, "--set", "num_warps=4")
    assert (code, out) == (1, "")
    assert err.startswith("error: no config of 'scale' fits H200-SXM for rows=8 row_length=256 fp32.\nscale.unrolled: ")
    assert "\nscale.plain: " in err
    assert "ways out" not in err, "no rule of the user's is to blame"


def test_count_gives_every_kernel_and_the_total(run: Any, several: tuple[str, ...]) -> None:
    results = json_of(run, "count", *several)["results"]
    assert [(r["kernel"], r["num_valid"], r["num_product"]) for r in results] == [
        ("scale.unrolled", 12, 18),
        ("scale.plain", 6, 6),
    ]
    _, out, _ = run("count", *several)
    assert out.splitlines()[2] == "all kernels: 18 of 24 combinations"


def test_all_and_sample_draw_from_the_union(run: Any, several: tuple[str, ...]) -> None:
    rows = lines_of(run, "solve", "--all", *several)
    assert all(next(iter(row)) == "kernel" for row in rows)
    assert all(("unroll" in row) == (row["kernel"] == "scale.unrolled") for row in rows)
    every = {tuple(row.items()) for row in rows}
    assert len(every) == len(rows) == 18
    drawn = lines_of(run, "sample", *several, "--count", 18, "--seed", 1)
    assert {tuple(row.items()) for row in drawn} == every
    first = collections.Counter(
        lines_of(run, "sample", *several, "--count", 1, "--seed", seed)[0]["kernel"] for seed in range(150)
    )
    assert abs(first["scale.unrolled"] - 100) < 25, "12 of 18 belong to it"
    code, out, _ = run("sample", *several, "--count", 18)
    assert code == 0
    assert out.split()[:4] == ["kernel", "tile_m", "unroll", "num_warps"]
    assert any(line.split()[0] == "scale.plain" and line.split()[2] == "-" for line in out.splitlines())


def test_why_not_answers_for_the_kernel_with_these_parameters(run: Any, several: tuple[str, ...]) -> None:
    answer = json_of(run, "why-not", *several, "tile_m=48", "unroll=4", "num_warps=4")
    assert (answer["kernel"], answer["valid"]) == ("scale.unrolled", False)
    assert [broken["name"] for broken in answer["broken"]] == ["unrolled"]
    answer = json_of(run, "why-not", *several, "tile_m=64", "num_warps=4")
    assert (answer["kernel"], answer["valid"]) == ("scale.plain", True)
    code, _, err = run("why-not", *several, "tile_m=64", "unroll=2")
    assert code == 2
    assert "\n  scale.unrolled: missing: num_warps\n" in err
    assert "\n  scale.plain: missing: num_warps; unknown to it: unroll\n" in err


HEAD = "from constrint.select import BlockUse, KernelSpec, Param, Rule, Size\n"
MINIMAL = (
    HEAD
    + """
class Mine(KernelSpec):
    operation, summary, dtypes, sizes = "mine", "nothing", ("fp32",), (Size("m", 8, "rows"),)
    def params(self, gpu, workload):
        return (Param("num_warps", (1, 2), "warps", "few"),)
    def rules(self, gpu, workload, v):
        return iter(())
    def use(self, gpu, workload, v):
        return BlockUse(v["num_warps"], v["num_warps"] + 8, v["num_warps"] * 4)
SPEC = Mine()
"""
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no such Python file"),
        ("def broken(:\n", "line 1: SyntaxError: "),
        ("\n\nimport no_such_package\n", "line 3: ModuleNotFoundError: No module named 'no_such_package'"),
        ("raise SystemError('not today')\n", "line 1: SystemError: not today"),
        ("X = 1\n", "the file has no 'SPEC'"),
        ("SPEC = 3\n", "is no KernelSpec but int"),
        (HEAD + "class Mine(KernelSpec):\n    pass\nSPEC = Mine()\n", "TypeError: Can't instantiate abstract class"),
        (MINIMAL.replace("SPEC = Mine()", "SPEC = Mine"), "it is a class; write SPEC = Mine()"),
        (MINIMAL.replace("return iter(())", "return 1 / 0"), "line 8: ZeroDivisionError: "),
        (MINIMAL.replace('v["num_warps"] * 4', 'v["tile_m"]'), "line 10: KeyError: 'tile_m'"),
        (MINIMAL.replace("sizes =", "dimensions ="), "it states no sizes"),
        (MINIMAL.replace('"m", 8', '"top", 8'), "has a size 'top', which is an option already"),
        (MINIMAL.replace('"m", 8', '"gpu", 8'), "has a size 'gpu', which is an option already"),
    ],
    ids=[
        "missing",
        "syntax",
        "import",
        "raises",
        "no_name",
        "number",
        "abstract",
        "class",
        "rules",
        "use",
        "sizes",
        "option",
        "common_option",
    ],
)
def test_a_wrong_kernel_file_ends_in_one_line(run: Any, tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    code, out, err = run("solve", "--gpu", "h200", "--kernel", f"{path}:SPEC")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith("error: ")
    assert message in err
    assert str(path) in err or "option already" in err


def test_a_kernel_file_is_read_again_after_a_mistake(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "mended.py"
    path.write_text("raise ValueError\n")
    assert run("count", "--gpu", "h200", "--kernel", f"{path}:SPEC")[0] == 2
    path.write_text(MINIMAL)
    assert run("count", "--gpu", "h200", "--kernel", f"{path}:SPEC")[0] == 0
