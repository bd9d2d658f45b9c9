"""Variables of other values than integers: what goes in comes out, with its type, by every way to ask."""

from __future__ import annotations

import enum
import itertools
import json
import operator
import pickle
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from constrint.errors import UnknownNameError, UsageError
from constrint.model import Problem, Var, any_of, is_in, parse, render, table
from constrint.solve import (
    brute_force,
    enumerate_space,
    list_backends,
    minimal_conflict,
    relaxations,
    solutions_in_order,
    solve,
    why_not,
)


class Layout(enum.Enum):
    """Stands for objects that only Python knows."""

    ROW = "row"
    COLUMN = "column"


def same(a: Any, b: Any) -> bool:
    """Equal, and of one type."""
    return type(a) is type(b) and a == b


def typed(rows: Any) -> list[list[tuple[str, str, str]]]:
    return sorted([(n, type(v).__name__, repr(v)) for n, v in row.items()] for row in rows)


POOL: list[Any] = [
    *(True, False, None, 0, 1, 2, -3, 7, 0.5, 1.5, 0.1, 2.0, -0.25, 1e-3, 1e300, 5e-324, float("inf"), -float("inf")),
    *("a", "b", "", 'say "a"\n', "größe", (1, 2), Fraction(1, 3), 2**70),
]


def mixed(seed: int) -> tuple[Problem, dict[str, list[Any]]]:
    """Three variables of drawn values, and rules between each and its values."""
    rng = random.Random(seed)
    problem = Problem()
    pools: dict[str, list[Any]] = {}
    for name in ("p", "q", "r"):
        values = rng.sample(POOL, rng.randint(1, 5))
        if rng.random() < 0.4:
            values = [v for v in values if isinstance(v, (int, float)) and abs(v) < 1e9] or [0.5, True]
        kept: list[Any] = []
        for value in values:
            if value not in kept:
                kept.append(value)
        pools[name] = kept
    return problem, pools


def is_numeric(values: list[Any]) -> bool:
    return all(isinstance(v, (int, Fraction)) or (isinstance(v, float) and abs(v) != float("inf")) for v in values)


@pytest.mark.parametrize("start", range(0, 200, 20))
def test_every_way_to_ask_gives_the_values_back(start: int) -> None:
    signs = [operator.le, operator.lt, operator.ge, operator.gt, operator.eq, operator.ne]
    for seed in range(start, start + 20):
        rng = random.Random(seed)
        problem, pools = mixed(seed)
        made = {name: problem.var(name, values) for name, values in pools.items()}
        tests: list[Any] = []
        for name, values in pools.items():
            value = rng.choice(values)
            if not is_numeric(values):
                problem.add(made[name] != value)
                tests.append(lambda row, name=name, value=value: row[name] != value)
        numeric = [name for name in pools if is_numeric(pools[name])]
        if len(numeric) >= 2:
            a, b = numeric[:2]
            sign, factor, shift = rng.choice(signs), rng.choice([1, 2, 0.5, -3]), rng.choice([0, 1, 0.1])
            problem.add(sign(made[a] * factor + shift, made[b]))
            tests.append(
                lambda row, a=a, b=b, sign=sign, factor=factor, shift=shift: sign(
                    Fraction(row[a]) * Fraction(factor) + Fraction(shift), Fraction(row[b])
                )
            )
        rows = [dict(zip(pools, row, strict=True)) for row in itertools.product(*pools.values())]
        expected = [row for row in rows if all(test(row) for test in tests)]
        for backend in ("native", "numpy", "brute", "python-constraint"):
            space = enumerate_space(problem, backend=backend)
            assert typed(space) == typed(expected), (seed, backend, str(problem) if backend else "")
        check_space(problem, rows, expected)


def check_space(problem: Problem, rows: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    space = enumerate_space(problem)
    assert typed(brute_force(problem)) == typed(expected)
    assert [typed([row]) for row in solutions_in_order(problem)] == [typed([row]) for row in expected]
    assert typed(space.sample(10**6, seed=1)) == typed(expected)
    assert len(space) == len(expected)
    for row in rows:
        fits = any(typed([row]) == typed([other]) for other in expected)
        assert space.contains(row) is fits
        assert bool(why_not(problem, row)) is not fits
        if fits:
            assert typed([space[space.index(row)]]) == typed([row])
            assert row not in space.exclude(row)
    columns = space.columns()
    if expected:
        listed = [
            dict(zip(columns, line, strict=True)) for line in zip(*(c.tolist() for c in columns.values()), strict=True)
        ]
        assert typed(listed) == typed(expected)
        assert typed([space.first()]) == typed([expected[0]])
        assert typed([solve(problem).require()]) == typed([expected[0]])
        name = space.names[0]
        value = expected[-1][name]
        assert typed(space.restrict(**{name: value})) == typed([r for r in expected if r[name] == value])
        projected, counts = space.project([name])
        assert counts.sum() == len(expected)
        assert {repr(v) for v in projected[name].tolist()} == {repr(r[name]) for r in expected}
        near = space.neighbours(expected[0])
        assert all(sum(n[k] != expected[0][k] for k in n) == 1 for n in near)
        assert typed(near) == typed([r for r in expected if sum(r[k] != expected[0][k] for k in r) == 1])
        source, moved = space.neighbour_columns(columns)
        assert len(source) == sum(sum(a[k] != b[k] for k in a) == 1 for a in expected for b in expected)
        assert set(moved) == set(columns)
        assert typed(pickle.loads(pickle.dumps(space))) == typed(expected)


def test_numpy_values_become_pythons_own() -> None:
    problem = Problem()
    problem.var("f", np.array([0.5, 2.0], dtype=np.float32))
    problem.var("b", [np.True_, np.False_])
    problem.var("i", np.arange(1, 3, dtype=np.uint8))
    problem.var("s", np.array(["a", "b"]))
    problem.var("z", [np.array(1.5), np.int64(2)])
    first = enumerate_space(problem).first()
    assert typed([first]) == typed([{"f": 0.5, "b": True, "i": 1, "s": "a", "z": 1.5}])
    assert problem.variables["i"].labels is None


def test_columns_have_the_type_of_their_values() -> None:
    problem = Problem()
    problem.var("b", [True, False])
    problem.var("f", [0.5, 1.5])
    problem.var("m", [1, "a"])
    kinds = {name: column.dtype.kind for name, column in enumerate_space(problem).columns().items()}
    assert kinds == {"b": "b", "f": "f", "m": "O"}


def test_any_object_is_a_value() -> None:
    problem = Problem()
    layout = problem.var("layout", list(Layout))
    size = problem.int_var("size", [1, 2])
    problem.add(table([layout, size], [(Layout.ROW, 1), (Layout.COLUMN, 2)]))
    assert list(enumerate_space(problem)) == [
        {"layout": Layout.ROW, "size": 1},
        {"layout": Layout.COLUMN, "size": 2},
    ]
    with pytest.raises(UsageError, match="cannot write"):
        render(problem)


def test_equal_values_count_once() -> None:
    problem = Problem()
    problem.var("x", [1, True, 1.0, 2, 2.0])
    assert typed(enumerate_space(problem)) == typed([{"x": 1}, {"x": 2}])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([float("nan")], "equals no value"),
        ([[1]], "Write a tuple"),
        ([], "is empty"),
        ("abc", "from a list"),
        (3, "from a list"),
        (np.zeros((2, 2)), "Write a tuple"),
        (np.array(3.0), "from a list"),
    ],
)
def test_what_is_no_value_is_refused(values: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Problem().var("x", values)


def test_rules_need_what_var_returned() -> None:
    problem = Problem()
    x = problem.var("x", [0.5, 1.5])
    s = problem.var("s", ["a", "b"])
    with pytest.raises(UsageError, match="what `var` returned"):
        problem.add(Var("x") <= 1)
    with pytest.raises(UsageError, match="what `var` returned"):
        problem.add(Var("s") == 0)
    with pytest.raises(UnknownNameError, match='"a"'):
        problem.add(s == "c")
    for wrong in (lambda: s <= 1, lambda: x % 2 == 0, lambda: s + 1, lambda: x**2, lambda: x / x):
        with pytest.raises((TypeError, UsageError)):
            wrong()  # type: ignore[no-untyped-call]
    problem.add(any_of(s == "a", x > 1))
    problem.add(s.one_of(["a", "b"]))
    problem.add(is_in(x * 2, [1, 3]))
    problem.add(is_in(x, [0.5, 1.5, 7]))
    problem.add(is_in(s, ["a", "b"]))
    for rule in (x <= 1, s == "a"):
        with pytest.raises(UsageError, match=r"space\.contains"):
            rule.holds({"x": 1.5, "s": "b"})
    with pytest.raises(UsageError, match="are no numbers"):
        problem.minimise(s)
    assert enumerate_space(problem).size == 3
    problem.minimise(x)
    assert solve(problem).require() == {"x": 0.5, "s": "a"}
    assert parse(render(problem)) == problem


def test_a_variable_of_true_and_false_is_a_rule() -> None:
    problem = Problem()
    flag = problem.bool_var("flag")
    problem.add(flag)
    assert list(enumerate_space(problem)) == [{"flag": True}]
    assert problem.constraints[0].holds({"flag": True})


def test_explanations_speak_of_values() -> None:
    problem = Problem()
    x = problem.var("x", [0.5, 1.5, 2.5], because="half a tile")
    s = problem.var("s", ["fast", "small"])
    problem.add(x <= 1.5, because="it is limited")
    problem.add(any_of(s == "small", x == 0.5), name="fast_needs_half")
    answer = why_not(problem, {"x": 1.5, "s": "fast"})
    assert answer.changes == {"x": (0.5,), "s": ("small",)}
    assert answer.ways_out == 'fits if x = 0.5, or s = "small"'
    assert answer.broken[0].values == {"x": 1.5, "s": "fast"}
    outside = why_not(problem, {"x": 3, "s": "fast"})
    assert outside.broken[0].seen == "3 is not in the domain"
    assert outside.changes == {"x": (0.5,)}
    both = why_not(problem, {"x": 2.5, "s": "fast"})
    assert [rule.seen for rule in both] == ["2.5 <= 1.5 is false", '"fast" is not in {"small"}; 2.5 == 0.5 is false']
    problem.add(x > 2)
    conflict = minimal_conflict(problem)
    assert [m.text for m in conflict.members] == ["x <= 1.5", "x > 2"]
    ways = relaxations(problem)
    assert ways
    for way in ways:
        assert way.solution["x"] in (0.5, 1.5, 2.5)
        assert why_not(way.problem, way.solution).broken == ()


def test_domains_of_values_take_part_in_conflicts() -> None:
    problem = parse('var x in {0.5, 1.5} because "halves"; var s in {"a", "b"}; var i in 0..3; x > 3; i > 1')
    conflict = minimal_conflict(problem)
    assert [(m.text, m.because) for m in conflict.members] == [("x in {0.5, 1.5}", "halves"), ("x > 3", "")]
    problem = parse('var s in {"a", "b"}; var i in 0..3; s != "a"; s == "b" -> i > 2; i < 3')
    assert minimal_conflict(problem).members[0].text == 's in {"a", "b"}'
    assert len(minimal_conflict(problem).members) == 4
    for way in relaxations(problem):
        assert why_not(way.problem, way.solution).broken == ()
    in_force = minimal_conflict(problem, domains_in_force=True)
    assert {m.text for m in in_force.members} >= {"i < 3", 's in {"b"} -> i > 2'}


def test_long_tables_are_shortened_in_reasons() -> None:
    problem = Problem()
    x, y = problem.int_var("x", lower=0, upper=99), problem.var("y", ["a", "b"])
    problem.add(any_of(table([x, y], [(i, "a") for i in range(90)]), x == 95))
    answer = why_not(problem, {"x": 99, "y": "a"})
    assert answer.broken[0].text == '(x, y) in {(0, "a"), (1, "a"), ... (90 rows)} or x == 95'


def test_best_by_values() -> None:
    problem = Problem()
    x = problem.var("x", [0.5, 1.5, 2.5])
    s = problem.var("s", ["a", "b"])
    problem.add(any_of(s == "a", x < 2))
    space = enumerate_space(problem)
    assert [(r.cost, r.config) for r in space.best(1, x, maximise=True)] == [(2.5, {"x": 2.5, "s": "a"})]
    by_function = space.best(1, lambda columns: columns["x"] + (columns["s"] == "a"))
    assert [(r.cost, r.config) for r in by_function] == [(0.5, {"x": 0.5, "s": "b"})]


def test_solutions_are_json() -> None:
    problem = parse('var x in {0.5, 2}\nvar s in {"a", none}\nvar f in {true, false}\nf -> x > 1')
    assert json.loads(json.dumps(next(iter(enumerate_space(problem))))) == enumerate_space(problem)[0]


@pytest.mark.parametrize("backend", list_backends())
def test_the_text_language_holds_values(backend: str) -> None:
    problem = parse(
        'var x in {0.5, 2, 2.5e-1}\nvar s in {"a", none, true}\nx < 1 or s == none\ns != true -> x in {2, 0.5}'
    )
    assert parse(render(problem)) == problem
    expected = [
        {"x": x, "s": s}
        for x in (0.5, 2, 0.25)
        for s in ("a", None, True)
        if (x < 1 or s is None) and (s is True or x in (2, 0.5))
    ]
    assert typed(enumerate_space(problem, backend=backend)) == typed(expected)
