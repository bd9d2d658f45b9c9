"""Parameters and restrictions as users of tuners write them: any values, Python's own meaning, functions if trusted."""

from __future__ import annotations

import itertools
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from constrint.errors import ParseError, UsageError
from constrint.model import parse, render
from constrint.model.python.evaluate import CALLS
from constrint.model.python.restrictions import load_space, problem_from_space
from constrint.solve import enumerate_space, solve

PARAMS: dict[str, list[Any]] = {
    "x": [1, 2, 16],
    "f": [0.5, 1.5, -0.1, 2.0],
    "flag": [True, False],
    "mode": ["fast", "small", ""],
    "mixed": [0, None, "fast", 2.5],
}


def python_rows(params: dict[str, list[Any]], text: str) -> list[tuple[Any, ...]]:
    """Where Python finds the text true; where it raises it is not."""
    rows = []
    for row in itertools.product(*params.values()):
        values = dict(zip(params, row, strict=True))
        try:
            holds = eval(text, {"__builtins__": {}, **CALLS, "range": range, "p": values, **values})  # noqa: S307
        except (ZeroDivisionError, OverflowError, TypeError, ValueError):
            continue
        rows += [row] if holds else []
    return rows


def typed(rows: Any) -> list[str]:
    return sorted(repr(tuple(row)) for row in rows)


def found(params: dict[str, list[Any]], restrictions: Any, **options: Any) -> list[str]:
    problem = problem_from_space(params, restrictions, **options)
    assert parse(render(problem)) == problem
    rows = typed(row.values() for row in enumerate_space(problem))
    assert rows == typed(row.values() for row in enumerate_space(problem, backend="numpy"))
    return rows


@pytest.mark.parametrize(
    "text",
    [
        "f <= 1.5",
        "x * f < 3",
        "f * 0.1 == -0.1 * 0.1",
        "f + 0.6 == 0.5",
        "f == -0.1",
        "f // 1 == 0",
        "x / f > 2 and x % f == 0",
        "flag",
        "not flag or x > 1",
        "flag == True",
        "flag == 1",
        "flag + x == 2",
        "flag & (x > 1)",
        "flag is True",
        "flag is not False or x == 1",
        "mode == 'fast'",
        "mode != 'fast' and flag",
        "mode in ('fast', '')",
        "mode not in ['fast', 'other']",
        "mode in 'fastest'",
        "mode",
        "mode < 'h'",
        "len(mode) == x + 4 - 1",
        "mixed is None or mixed == 2.5",
        "mixed == mode",
        "mixed in (None, 2.5, x)",
        "mixed == x - 1",
        "mixed or flag",
        "(x if flag else f) == 1.5",
        "x > 1 if mode == 'fast' else flag",
        "mode == 'fast' or x * f >= 8",
        "p['mode'] == 'fast' and p['x'] in range(1, 3)",
        "sum([flag, x > 1, mode == 'fast']) >= 2",
        "int(f * 2) == x",
        "float(x) == f * 0.5 + 0",
        "max(x, f) == 2.0",
        "abs(f) ** 0.5 < 0.75",
        "round(f) == 2",
        "bool(mixed) == flag",
        "'a' == 'a'",
        'mode == "nowhere"',
    ],
)
def test_restrictions_mean_what_python_means(text: str) -> None:
    assert found(PARAMS, text) == typed(python_rows(PARAMS, text))


def test_a_comparison_that_raises_is_false_and_its_negation_true() -> None:
    rows = [row for row in itertools.product(*PARAMS.values()) if row[4] != 2.5]
    assert found(PARAMS, "not mixed > 1") == found(PARAMS, "mixed is None or not mixed > 1") == typed(rows)


VALUES = st.sampled_from([0, 1, 2, 3, -4, 8, 0.5, 0.1, 2.5, -1.5, 1e-3, 3.0, True, False, 1e18, 2**60])
NUMBERS = st.recursive(
    st.sampled_from(["a", "b", "c", "a", "b", "1", "2", "0.5", "0.1", "3.0", "-2"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(inner, st.sampled_from(["<", "==", ">="]), inner).map(lambda t: f"({' '.join(t)})"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        st.tuples(st.sampled_from(["abs", "int", "float", "bool"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
        st.tuples(inner, inner).map(lambda t: f"sum([{t[0]}, {t[1]}])"),
        inner.map(lambda t: f"({t} ** 2)"),
    ),
    max_leaves=4,
)
TESTS = st.one_of(
    st.tuples(NUMBERS, st.sampled_from(["==", "!=", "<=", "<", ">=", ">"]), NUMBERS).map(" ".join),
    st.tuples(NUMBERS, st.sampled_from(["in", "not in"]), NUMBERS).map(lambda t: f"{t[0]} {t[1]} (1, 0.5, {t[2]})"),
    st.tuples(NUMBERS, st.sampled_from(["in", "not in"]), NUMBERS).map(lambda t: f"{t[0]} {t[1]} range(-1, 4)"),
    NUMBERS,
)


@pytest.mark.parametrize(
    "text", ["a == ((a < c) if a else b)", "a == ((a < c) if a else (c < a))", "a == (b if c else b)"]
)
def test_a_choice_between_conditions_as_a_number_is_written_as_one(text: str) -> None:
    found({"a": [0, 1], "b": [True, False], "c": [0, 2]}, [text])


@settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))
@given(
    columns=st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=3, max_size=3),
    text=TESTS,
)
def test_drawn_restrictions_mean_what_python_means(columns: list[list[Any]], text: str) -> None:
    # Equal values count once, the first of them.
    params = dict(zip("abc", (list(dict.fromkeys(values)) for values in columns), strict=True))
    try:
        rows = found(params, [text])
    except ParseError as error:
        if not re.search("raises for all|too many|bits", str(error)):
            raise
        return
    raising = []
    for row in itertools.product(*params.values()):
        values = dict(zip(params, row, strict=True))
        try:
            eval(text, {"__builtins__": {}, **CALLS, "range": range, **values})  # noqa: S307
        except (ZeroDivisionError, OverflowError, TypeError, ValueError):
            raising.append(repr(row))
    # A part of an expression may raise where the whole, read part by part, has a value: these rows say nothing.
    expected = set(typed(python_rows(params, text)))
    assert {row for row in rows if row not in raising} == expected, text


def test_one_text_none_and_arrays() -> None:
    params: dict[str, Any] = {"x": np.arange(1, 5), "f": np.linspace(0.5, 2.0, 4), "r": range(2)}
    plain: dict[str, list[Any]] = {"x": [1, 2, 3, 4], "f": [0.5, 1.0, 1.5, 2.0], "r": [0, 1]}
    assert found(params, "x * f <= 3") == typed(python_rows(plain, "x * f <= 3"))
    assert found(params, None) == found(params, []) == typed(itertools.product(*plain.values()))


NAMES: dict[str, list[Any]] = {
    "step": [1, 2],
    "var": [1, 2],
    "divides": [1, 2],
    "größe": [1, 2],
    "lambda": [1, 2],
    "a b": [1, 2],
    "none": [1, 2],
    "min": [1, 2],
    "`": ["`", '"'],
}


def test_any_names() -> None:
    restrictions = ["step < var", "größe == divides", "p['lambda'] <= p['a b']", "none == min", "p['`'] != '`'"]
    problem = problem_from_space(NAMES, restrictions)
    assert parse(render(problem)) == problem
    rows = [tuple(row.values()) for row in enumerate_space(problem)]
    pairs = ((1, 1), (1, 2), (2, 2))
    wanted: list[tuple[Any, ...]] = [(1, 2, d, d, a, b, n, n, '"') for d in (1, 2) for a, b in pairs for n in (1, 2)]
    assert sorted(rows) == wanted
    for backend in ("numpy", "brute", "cpsat", "python-constraint"):
        assert len(list(enumerate_space(problem, backend=backend))) == len(rows)


def by_name(x: int, f: float) -> bool:
    return x * f > 2


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda p: p["x"] * p["f"] > 2, "x * f > 2"),
        (by_name, "x * f > 2"),
        (lambda x, mode: x > 1 if mode == "fast" else x == 1, "x > 1 if mode == 'fast' else x == 1"),
        (lambda p: p["mode"] == "fast" or (p["flag"] and p["x"] > 1), "mode == 'fast' or flag and x > 1"),
        (lambda p: 4 // (p["x"] - 1) > 1, "4 // (x - 1) > 1"),
        (lambda p: p.get("flag"), "flag"),
        (lambda p: all(p[n] for n in ("flag", "x")), "flag"),
        (lambda p: len(p) == 5, "True"),
        (lambda p: False, "False"),
        (lambda x, y=3: x < y, "x < 3"),
        (lambda **p: True, None),
    ],
)
def test_functions_are_called_where_they_are_trusted(function: Callable[..., Any], text: str | None) -> None:
    with pytest.raises(UsageError, match="trusted=True"):
        problem_from_space(PARAMS, [function])
    if text is None:
        with pytest.raises(UsageError, match="must take one mapping"):
            problem_from_space(PARAMS, function, trusted=True)
        return
    assert found(PARAMS, function, trusted=True) == typed(python_rows(PARAMS, text))
    pickled = pickle.loads(pickle.dumps(enumerate_space(problem_from_space(PARAMS, function, trusted=True))))
    assert len(pickled) == len(python_rows(PARAMS, text))
    assert found(PARAMS, ["x > 1", function], trusted=True) == typed(python_rows(PARAMS, f"x > 1 and ({text})"))


def test_functions_are_values_too() -> None:
    """As in a test of pyATF."""
    params = {"tp4": [min, max], "tp5": range(1, 11), "tp6": range(1, 11)}
    problem = problem_from_space(params, lambda tp6, tp4, tp5: tp4(tp5, tp6) == 10, trusted=True)
    rows: list[Any] = list(enumerate_space(problem))
    assert len(rows) == 20
    assert all(row["tp4"](row["tp5"], row["tp6"]) == 10 for row in rows)
    assert {"tp4": min, "tp5": 10, "tp6": 10} in rows


def test_a_function_reads_only_what_it_needs() -> None:
    params = {name: list(range(50)) for name in "abcdef"}
    problem = problem_from_space(params, [lambda p: p["a"] < 2 or p["f"] < p["a"]], trusted=True)
    assert problem.constraints[0].variables == {"a", "f"}
    with pytest.raises(UsageError, match="too many combinations"):
        problem_from_space(params, [lambda p: sum(p.values()) < 9], trusted=True)
    with pytest.raises(UsageError, match="raised KeyError: 'q'"):
        problem_from_space(params, [lambda p: p["q"] > 1], trusted=True)
    with pytest.raises(UsageError, match=r"raised TypeError.*a = \d+"):
        problem_from_space(params, [lambda p: p["a"] > "x"], trusted=True)


def test_a_file_holds_values_but_no_functions(tmp_path: Path) -> None:
    path = tmp_path / "space.json"
    path.write_text(json.dumps({"params": PARAMS, "restrictions": "mode == 'fast' or f * x > 1"}))
    problem = load_space(path)
    expected = python_rows(PARAMS, "mode == 'fast' or f * x > 1")
    assert typed(row.values() for row in enumerate_space(problem)) == typed(expected)
    path.write_text(json.dumps({"params": PARAMS, "restrictions": "lambda p: True"}))
    with pytest.raises(ParseError, match="Lambda"):
        load_space(path)


@pytest.mark.parametrize("backend", ["native", "numpy", "brute", "cpsat", "python-constraint"])
def test_every_back_end_takes_them(backend: str) -> None:
    params: dict[str, list[Any]] = {"x": [1, 2, 3], "f": [0.5, 1.5], "mode": ["a", "b"]}
    text = "x * f > 1 or mode == 'a' and x ** 0.5 < 1.5"
    problem = problem_from_space(params, [text])
    assert typed(row.values() for row in enumerate_space(problem, backend=backend)) == typed(python_rows(params, text))
    assert tuple(solve(problem, backend=backend).require().values()) in python_rows(params, text)
