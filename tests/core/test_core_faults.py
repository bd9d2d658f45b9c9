"""No argument ends the interpreter, whoever calls the core: in short as built, and with sanitizers."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from constrint.core import compiled
from constrint.model import parse
from constrint.model.encode import OPERATIONS, encode_all
from tests.support.clock import PATIENCE_S

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("g++")
FUZZ = [sys.executable, "-X", "faulthandler", "-m", "tests.support.core_fuzz"]

pytestmark = pytest.mark.skipif(compiled is None, reason="the compiled core was not built (no C++ compiler)")


def code(name: str) -> int:
    return OPERATIONS.index(name)


VAR, CONST = [code("var"), 0, 0], [code("const"), 0, 7]
ONE = [[1, 2, 3]]
MALFORMED: dict[str, list[int]] = {
    "one operand for two": [*VAR, code("floordiv"), 1, 0, *CONST, code("=="), 2, 0],
    "three for two": [*VAR, *VAR, *VAR, code("mod"), 3, 0, *CONST, code("=="), 2, 0],
    "none for a sum": [code("add"), 0, 0, *CONST, code("=="), 2, 0],
    "a negative count": [*VAR, code("add"), -1, 0, *CONST, code("=="), 2, 0],
    "a step of 0": [*VAR, code("in range"), 1, 3, 1, 9, 0],
    "an empty range": [*VAR, code("in range"), 1, 3, 9, 1, 1],
    "a short range": [*VAR, code("in range"), 1, 2, 1, 9],
    "a list of -1": [*VAR, code("in list"), 1, -1, 4],
    "a list beyond the end": [*VAR, code("in list"), 1, 5, 4],
    "a list of very many": [*VAR, code("in list"), 1, 2**61, 4],
    "a condition as a number": [*VAR, *CONST, code("=="), 2, 0, *CONST, code("<="), 2, 0],
    "a number as a condition": [*VAR, code("not"), 1, 0],
    "a variable that is not there": [code("var"), 0, 1, *CONST, code("=="), 2, 0],
    "an operation that is not there": [*VAR, len(OPERATIONS), 1, 0],
    "again what was not written": [*VAR, code("again"), 0, 1, code("=="), 2, 0],
    "half an operation": [*VAR, *CONST, code("=="), 2],
    "two left over": [*VAR, *CONST],
    "nothing": [],
}


@pytest.mark.parametrize("words", list(MALFORMED.values()), ids=list(MALFORMED))
def test_malformed_encodings_are_declined(words: list[int]) -> None:
    assert compiled is not None
    assert compiled.build(ONE, [words]) is None
    model = compiled.build(ONE, [])
    assert compiled.require(model, words) is None
    assert compiled.enumerate(model, 100, 100, 0, None)[2] == [3]


def test_a_conjunction_that_stands_in_itself_many_times_is_required_once() -> None:
    assert compiled is not None
    words = [*VAR, *CONST, code("!="), 2, 0]
    # Each conjunction holds the one before it twice: 2^80 conditions if they were gone through one by one.
    for depth in range(80):
        words += [code("again"), 0, depth * 2 + 2, code("and"), 2, 0]
    assert compiled.enumerate(compiled.build(ONE, [words]), 100, 100, 0, None)[2] == [3]


def made() -> tuple[Any, Any, Any]:
    """A model, its space and a walk."""
    assert compiled is not None
    problem = parse("var x in 1..9; var y in 1..9; x * y <= 20")
    model = compiled.build([list(range(1, 10))] * 2, [encode_all(problem.constraints, {"x": 0, "y": 1})])
    answer = compiled.enumerate(model, 1000, 1000, 0, None)
    walk = compiled.walk(model, 1000, None)
    assert answer is not None
    assert walk is not None
    assert math.prod(answer[2]) == 42
    return model, answer[1], walk[1]


def test_arguments_that_do_not_belong_together_are_refused() -> None:
    core: Any = compiled
    model, space, walk = made()
    for rows in (0, 41, 43, -1, 2**62):
        with pytest.raises(ValueError, match="another number"):
            core.columns(space, rows)
    for component in (-1, 1, 99, 2**40):
        with pytest.raises(IndexError):
            core.walk_next(walk, component, 100, None)
    assert core.read({"a": [1]}, [], []) is None
    with pytest.raises(TypeError, match="poll"):
        core.enumerate(model, 100, 100, 0, 3)
    with pytest.raises(ValueError, match="PyCapsule"):
        core.columns(model, 42)


def test_what_is_being_used_is_not_changed_under_the_call() -> None:
    core: Any = compiled
    model = core.build([list(range(1, 400))] * 4, [])
    big = [[code("var"), 0, place] for place in range(4)]
    rule = [*big[0], *big[1], code("mul"), 2, 0, *big[2], *big[3], code("mul"), 2, 0, code("!="), 2, 0]
    core.require(model, rule)

    def change(cells: int, is_hard: bool) -> None:
        core.require(model, rule)

    with pytest.raises(RuntimeError, match="using this object"):
        core.enumerate(model, 1 << 40, 1 << 30, 0, change)
    assert core.require(model, rule) is True
    walk = core.walk(
        core.build([list(range(1, 4000))] * 3, [[*big[0], *big[1], code("mul"), 2, 0, *big[2], code("<"), 2, 0]]),
        10,
        None,
    )[1]
    for _ in range(10):
        core.walk_next(walk, 0, 100_000, None)


def test_a_walk_that_a_limit_ended_says_so() -> None:
    core: Any = compiled
    _, _, walk = made()
    assert core.walk_next(walk, 0, 0, None)[0] == "limit"
    with pytest.raises(RuntimeError, match="ended at a limit"):
        core.walk_next(walk, 0, 1000, None)


def test_no_argument_ends_the_interpreter() -> None:
    assert compiled is not None
    check_fuzz(str(compiled.__file__), calls=3000, seed=20261)


def check_fuzz(extension: str, *, calls: int, seed: int, environment: dict[str, str] | None = None) -> None:
    ended = subprocess.run(
        [*FUZZ, extension, str(calls), str(seed)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
    assert "calls" in ended.stdout


def sanitizers() -> str | None:
    """The libraries to load before the interpreter; None where there are none."""
    if COMPILER is None or sys.platform != "linux":
        return None
    found = [
        subprocess.run(
            [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libubsan.so", "libstdc++.so")
    ]
    # The compiler repeats the bare name of a library that it does not have.
    return " ".join((found[0], found[2])) if all(Path(path).is_absolute() for path in found) else None


@pytest.mark.slow
@pytest.mark.skipif(sanitizers() is None, reason="no g++ with its address and undefined-behaviour sanitizers here")
def test_no_argument_breaks_a_rule_that_sanitizers_check(tmp_path: Path) -> None:
    assert COMPILER is not None
    extension = tmp_path / "_core.abi3.so"
    flags = ["-std=c++17", "-O0", "-g1", "-fPIC", "-shared", "-fwrapv", "-fvisibility=hidden"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize=vptr", "-fno-sanitize-recover=all"]
    source = ROOT / "constrint" / "core" / "src" / "unity.cpp"
    include = sysconfig.get_paths()["include"]
    command = [COMPILER, *flags, f"-I{include}", str(source), "-o", str(extension)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert built.returncode == 0, built.stderr[-4000:]
    environment = {
        **os.environ,
        "LD_PRELOAD": str(sanitizers()),
        "ASAN_OPTIONS": "detect_leaks=0,allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    check_fuzz(str(extension), calls=2000, seed=20262, environment=environment)
