"""Mistakes of a user: the exit code, nothing on stdout, one message, never a traceback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

TILES = Path(__file__).parents[2] / "examples" / "tiles.constrint"
GEMM = ("--gpu", "h200", "--kernel", "gemm")
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
KERNEL_MISTAKES = [
    (("--gpu", "h20z"), "unknown GPU 'h20z'. Nearest: "),
    (("--gpu", ""), "got ''"),
    (("--gpu", "h200", "--kernel", "gem"), "unknown kernel 'gem'. Nearest: gem"),
    ((*GEMM, "--dtype", "fp4"), "unknown dtype 'fp4'"),
    (("--gpu", "t4", "--dtype", "bf16"), "T4 has no matrix instruction for bf16"),
    ((*GEMM, "--m", "0"), "m must be between 1 and"),
    ((*GEMM, "--m", "-3"), "m must be between 1 and"),
    ((*GEMM, "--m", str(10**12)), "m must be between 1 and"),
    ((*GEMM, "--m", "9" * 400), "m must be between 1 and"),
    ((*GEMM, "--m", "abc"), "not a valid int"),
    ((*GEMM, "--set", "tile_m=100"), "Nearest: 96 or 104."),
    ((*GEMM, "--set", "tile_m"), "--set takes NAME=VALUE"),
    ((*GEMM, "--set", "tile_m=x"), "expected an integer, got 'x'"),
    ((*GEMM, "--set", "tile_m="), "expected an integer, got ''"),
    ((*GEMM, "--set", "tile_q=16"), "unknown parameter 'tile_q'. Nearest: tile_"),
    ((*GEMM, "--where", "tile_k <"), "--where is not a rule: text:1:9:"),
    ((*GEMM, "--where", ""), "--where is not a rule"),
    ((*GEMM, "--where", "tile_k = 3"), "write `==`"),
    ((*GEMM, "--where", "(" * 5000), "--where is not a rule"),
    ((*GEMM, "--where", "tile_q <= 3"), "there is no parameter 'tile_q'"),
]
SOURCE_MISTAKES = [
    ((), "say what to look at: --gpu NAME"),
    (("--gpu", "h200", "--space", "x.json"), "--gpu and --space exclude each other"),
    (("--gpu", "h20z", "--problem", TILES), "unknown GPU 'h20z'"),
    (("--gpu", "h200", "--problem", TILES, "--kernel", "gemm"), "--problem takes no --kernel"),
    (("--problem", TILES, "--space", "x.json"), "--problem and --space exclude each other"),
    (("--problem", TILES, "--m", 3), "--problem takes no --m"),
    (("--space", "x.json", "--kernel", "gemm"), "--space takes no --kernel"),
    (("--problem", "none.constrint"), "cannot read the problem file none.constrint: No such file"),
    (("--problem", "/"), "cannot read the problem file /: Is a directory"),
    (("--space", "none.json"), "cannot read the space file none.json: No such file"),
    (("--problem", TILES, "--dialect", "latin"), "unknown dialect 'latin'"),
    (("--problem", TILES, "--set", "stages=9"), "stages takes 1..4. Nearest: 4."),
    (("--problem", TILES, "--set", "tile_k=40"), "in steps of 16"),
    (("--problem", TILES, "--bogus"), "No such option: --bogus"),
]


def check(result: tuple[int, str, str], message: str, code: int = 2) -> None:
    found, out, err = result
    assert (found, out) == (code, ""), err
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert sum(line.startswith("error:") for line in err.splitlines()) == 1


@pytest.mark.parametrize("command", ["solve", "explain", "count"])
@pytest.mark.parametrize(("arguments", "message"), KERNEL_MISTAKES)
def test_mistakes_about_a_kernel(run: Any, command: str, arguments: tuple[str, ...], message: str) -> None:
    check(run(command, *arguments), message)


@pytest.mark.parametrize("command", ["solve", "explain", "count", "sample", "why-not"])
@pytest.mark.parametrize(("arguments", "message"), SOURCE_MISTAKES)
def test_mistakes_about_what_is_asked(run: Any, command: str, arguments: tuple[object, ...], message: str) -> None:
    extra = ("stages=1",) if command == "why-not" else ()
    check(run(command, *arguments, *extra), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("solve", *GEMM, "--top", 0), "--top must be between 1"),
        (("solve", *GEMM, "--top", 10**20), "--top must be between 1"),
        (("solve", *GEMM, "--backend", "brute"), "ranked by the native back-end"),
        (("solve", "--problem", TILES, "--backend", "z3"), "unknown back-end 'z3'"),
        (("count", "--problem", TILES, "--backend", "cpsta"), "Nearest: cpsat."),
        (("sample", "--problem", TILES, "--count", 0), "--count must be between 1"),
        (("sample", "--problem", TILES, "--count", 10**12), "--count must be between 1"),
        (("sample", "--problem", TILES, "--seed", -1), "--seed must not be negative"),
        (("why-not", "--problem", TILES), "Missing argument"),
        (("why-not", "--problem", TILES, "tile_m=16"), "missing: tile_n, tile_k, stages"),
        (("why-not", "--problem", TILES, "tile_m"), "written NAME=VALUE"),
        (("why-not", "--problem", TILES, "tile_m=1.5"), "expected an integer, got '1.5'"),
        (("why-not", "--problem", TILES, "tile_q=1"), "unknown parameter 'tile_q'"),
        (("why-not", "--problem", TILES, "stages=1", "stages=2"), "stages is given twice"),
        (("bogus",), "No such command 'bogus'"),
        (("limits",), "Missing option '--gpu'"),
    ],
)
def test_mistakes_of_one_command(run: Any, arguments: tuple[object, ...], message: str) -> None:
    check(run(*arguments), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (BOMB, "gpu.yaml"),
        ("a: !!python/object/apply:os.system ['touch owned']\n", "gpu.yaml"),
        ("a: [1, 2\n", "gpu.yaml"),
        ("\x00\x01", "gpu.yaml"),
        ("[" * 100_000, "gpu.yaml"),
        ("name: X\n", "schema: missing"),
    ],
    ids=["missing", "bomb", "object", "broken", "binary", "nested", "incomplete"],
)
def test_a_bad_hardware_file(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "gpu.yaml"
    if content is not None:
        path.write_text(content)
    check(run("solve", "--gpu", path), message)
    assert not (tmp_path / "owned").exists()


def test_an_unreadable_hardware_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "gpu.yaml"
    path.mkdir()
    check(run("limits", "--gpu", path), "gpu.yaml")


@pytest.mark.parametrize("command", ["solve", "explain", "sample"])
def test_settings_that_exclude_each_other_end_in_a_conflict(run: Any, command: str) -> None:
    settings = ("--set", "tile_m=256", "--set", "tile_n=256", "--set", "tile_k=128", "--set", "num_stages=5")
    result = run(command, *GEMM, *settings)
    check(result, "cannot hold together", code=1)
    assert "asked for by --set tile_m=256" in result[2]


@pytest.mark.parametrize("arguments", [("solve",), ("solve", "--all"), ("explain",), ("sample",)])
def test_an_infeasible_problem_exits_with_1_and_its_conflict(
    run: Any, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = tmp_path / "none.constrint"
    path.write_text('var a in 1..4\nvar b in {8}\na * 2 >= b + 1 because "it has to be large"\n')
    result = run(*arguments, "--problem", path)
    check(result, f"{path} has no solution. These 3 constraints cannot hold together:", code=1)
    assert "because it has to be large" in result[2]
    assert ("Nearest ways out:" in result[2]) == (arguments == ("explain",))
    code, out, _ = run("count", "--problem", path)
    assert (code, out) == (0, f"{path}: 0 of 4 combinations\n")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.constrint", "a <= 3\nb <\n", "p.constrint:3:1: expected a number"),
        ("p.constrint", "a & b\n", "p.constrint:1:3: unexpected character '&'; write `and`"),
        ("p.constrint", "x == 9 ^ 9 ^ 9\n", ""),
        ("p.constrint", "(" * 100_000, "nested more than"),
        ("s.json", '{"params": {"a": [1]}, "restrictions": ["a.b > 1"]}', "restrictions[0]:1:1: attributes are not"),
        ("s.json", '{"params": {"a": [1]}, "restrictions": ["9**9**9 > a"]}', "bits"),
        ("s.json", '{"params": {"a": [[1]]}}', "can be hashed"),
        ("s.json", "[1", "not JSON"),
    ],
)
def test_a_malformed_file(run: Any, tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    result = run("solve", "--problem" if name.endswith("constrint") else "--space", path)
    check(result, message, code=result[0])
    assert result[0] in (1, 2)
