"""Tests that cost much take turns, and none is left out for good."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.turns import (
    ALLOWED_S,
    COSTS,
    MOST_TURNS,
    TESTS,
    TURN_VARIABLE,
    Cost,
    cases_of_turn,
    read_costs,
    write_costs,
)

CASES = [f"tests/test_a.py::test_long[{number}]" for number in range(7)]
NAMES = [*CASES, "tests/test_a.py::test_short", "tests/test_b.py::test_single"]
COST = {
    "tests/test_a.py::test_long": Cost(7, 2.4 * ALLOWED_S),
    "tests/test_b.py::test_single": Cost(1, 100 * ALLOWED_S),
}


@pytest.mark.parametrize("first", [0, 17, 2**31])
def test_every_case_has_its_turn(first: int) -> None:
    runs = [cases_of_turn(NAMES, COST, turn) for turn in range(first, first + 24)]
    for name in CASES:
        assert sum(name in run for run in runs) == 24 // 3
    assert sum(NAMES[-1] in run for run in runs) == 24 // MOST_TURNS
    assert all(NAMES[-2] in run for run in runs)
    assert {sum(name in run for name in CASES) for run in runs} == {2, 3}
    assert all(run == [name for name in NAMES if name in run] for run in runs)


def test_what_is_not_listed_runs_in_every_turn() -> None:
    assert cases_of_turn(NAMES, {}, 3) == NAMES


def test_costs_are_read_as_written_and_cheap_functions_are_not_listed(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    write_costs(COST | {"tests/test_a.py::test_short": Cost(1, ALLOWED_S / 2)}, path)
    assert {n: (c.cases, round(c.seconds, 1)) for n, c in read_costs(path).items()} == {
        n: (c.cases, round(c.seconds, 1)) for n, c in COST.items()
    }
    assert path.read_text().splitlines()[1].startswith("tests/test_b.py")


def test_every_function_of_the_list_exists() -> None:
    missing = []
    for name in read_costs():
        file, _, function = name.partition("::")
        path = TESTS.parent / file
        tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if function.split("::")[-1] not in defined:
            missing.append(name)
    assert not missing, f"{COSTS.name} lists what is gone: run `make test-all`"


def test_a_run_in_turn_has_a_part_of_the_cases_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support import turns\n"
        "from tests.support.turns import *\n"
        f"turns.read_costs = lambda: {{'test_a.py::test_long': turns.Cost(6, {2 * ALLOWED_S})}}\n"
    )
    (tmp_path / "test_a.py").write_text(
        "import pytest\n@pytest.mark.parametrize('n', range(6))\ndef test_long(n): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:anyio", str(tmp_path)]
    environment = os.environ | {TURN_VARIABLE: "1", "PYTHONPATH": str(TESTS.parent), "PYTEST_ADDOPTS": ""}

    def printed(*options: str) -> str:
        done = subprocess.run([*command, *options], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    in_turn = printed("--in-turn")
    assert "3 passed, 3 deselected" in in_turn
    assert re.search(r"turn 1: of 1 functions .* about 3 of 6 cases run; `make test-all` runs every case", in_turn)
    assert "6 passed" in printed()
