"""Search spaces of Kernel Tuner's tests and examples, of pyATF and of BAT load and count as they do there.

The files state them as data, with where they come from; `expected` is the count that plain Python finds. Functions of
the originals stand as text (`source` says so). Kernel Tuner's own limit on threads for a device is left out.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from constrint.model import parse, render
from constrint.model.python.restrictions import problem_from_space
from constrint.solve import count, enumerate_space

FIELD = Path(__file__).parents[1] / "data" / "spaces" / "field"
SPACES = [(path.stem, space) for path in sorted(FIELD.glob("*.json")) for space in json.loads(path.read_text())]
NAMED = {(group, space["name"]): space for group, space in SPACES}
#: Spaces of more combinations are listed by plain Python in slow tests only.
QUICK = 1_000_000
FUNCTIONS = {"__builtins__": {}, "min": min, "max": max, "int": int}


def params_of(space: dict[str, Any]) -> dict[str, Any]:
    return {n: range(*v["range"]) if isinstance(v, dict) else v for n, v in space["params"].items()}


def names_in(text: str, params: dict[str, Any]) -> set[str]:
    """The parameters that a restriction names, as `x` or as `p["x"]`."""
    tree = ast.walk(ast.parse(text, mode="eval"))
    named = {
        getattr(node, "id", getattr(node, "value", None)) for node in tree if isinstance(node, (ast.Name, ast.Constant))
    }
    return {name for name in params if name in named}


def function(text: str, names: list[str]) -> Callable[..., object]:
    """A restriction as a function of parameters, which it calls `x` or `p["x"]`."""
    values = ", ".join(f"{name!r}: {name}" for name in names)
    body = f"(lambda p: {text})({{{values}}})" if re.search(r"\bp\b", text) else text
    made: Callable[..., object] = eval(f"lambda {', '.join(names)}: {body}", dict(FUNCTIONS))  # noqa: S307 - our own files
    return made


def by_plain_python(space: dict[str, Any]) -> tuple[list[str], list[tuple[Any, ...]], int]:
    """Nested loops in Python's own words, over the parameters that restrictions name; and how often each row counts."""
    params = params_of(space)
    tests = [(text, names_in(text, params)) for text in space["restrictions"]]
    named = [name for name in params if any(name in scope for _, scope in tests)]
    rows: list[tuple[Any, ...]] = [()]
    for place, name in enumerate(named):
        known, values = named[: place + 1], list(dict.fromkeys(params[name]))
        longer: Iterable[tuple[Any, ...]] = ((*row, value) for row in rows for value in values)
        for text, scope in tests:
            if name in scope and scope <= set(known):
                test = function(text, known)
                longer = [row for row in longer if test(*row)]
        rows = list(longer)
    times = math.prod(len(dict.fromkeys(values)) for name, values in params.items() if name not in named)
    return named, rows, times


def cases() -> list[Any]:
    return [
        pytest.param(group, space["name"], id=f"{group}-{space['name']}", marks=[pytest.mark.slow] if large else [])
        for group, space in SPACES
        for large in (math.prod(map(len, params_of(space).values())) > QUICK,)
    ]


@pytest.mark.parametrize(("group", "name"), list(NAMED))
def test_every_space_loads_and_counts_as_there(group: str, name: str) -> None:
    space = NAMED[group, name]
    problem = problem_from_space(params_of(space), space["restrictions"], name)
    assert count(problem) == space["expected"]
    assert count(problem, backend="numpy") == space["expected"]
    assert parse(render(problem)) == problem


@pytest.mark.parametrize(("group", "name"), cases())
def test_plain_python_finds_the_same_configurations(group: str, name: str) -> None:
    space = NAMED[group, name]
    named, rows, times = by_plain_python(space)
    assert len(rows) * times == space["expected"]
    found = enumerate_space(problem_from_space(params_of(space), space["restrictions"]))
    columns, counts = found.project(named)
    listed = list(zip(*(columns[n].tolist() for n in named), strict=True)) if named and rows else []
    expected = set(rows if named else [])
    assert len(listed) == len(expected)
    assert set(listed) == expected
    for place in range(len(named) if rows else 0):  # 1, 1.0 and True are equal
        assert {type(row[place]) for row in listed} == {type(row[place]) for row in rows}
    assert all(number == times for number in counts.tolist())


def test_known_sizes() -> None:
    """Sizes that the tests of the originals assert themselves."""
    named = {key: space["expected"] for key, space in NAMED.items()}
    assert len(named) == len(SPACES) >= 60
    tests = "kernel_tuner_tests"
    sizes = {"simple": 6, "layers_over_gpus": 10660, "true_tunable_params": 3, "mixed_param_types": 18, "full": 349853}
    assert {name: named[tests, name] for name in sizes} == sizes
    assert named[tests, "mixed_samples"] == 24
    assert named["pyatf", "test_dependent"] == 11
    assert named["pyatf", "test_groups"] == 220
