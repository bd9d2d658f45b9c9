"""`import constrint` offers the main names, whatever was imported before, and loads only what is asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import constrint
from tests.support.clock import PATIENCE_S


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("name", constrint.__all__)
def test_every_name_is_that_of_its_package(name: str) -> None:
    value = getattr(constrint, name)
    assert name in dir(constrint)
    if name not in ("nn", "patch", "solve"):  # packages
        home = importlib.import_module(value.__module__)
        assert getattr(home, value.__name__) is value


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'no_such_thing'"):
        _ = constrint.no_such_thing  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "before", ["", "import constrint.solve", "from constrint.solve import count", "import constrint.model"]
)
def test_solve_is_the_function_and_the_package(before: str) -> None:
    code = f"{before}\nfrom constrint import parse, solve\nprint(solve(parse('var x in 1..9; maximise x')).value)"
    assert run(code) == "9"
    assert run(f"{before}\nimport constrint\nprint(constrint.solve.count(constrint.parse('var x in 1..9')))") == "9"


def test_names_load_only_what_they_need() -> None:
    loaded = run("from constrint import parse, Problem\nimport sys\nprint(*sorted(sys.modules))").split()
    assert "constrint.model.problem" in loaded
    assert not [m for m in loaded if m.startswith(("constrint.hwmodels", "constrint.select", "constrint.solve"))]
    loaded = run("import constrint.model, constrint.solve\nimport sys\nprint(*sorted(sys.modules))").split()
    assert not [m for m in loaded if m.startswith("constrint.solve.")]
