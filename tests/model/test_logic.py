"""Conditions of conditions: what they mean, that none is silently a bool, and that the text language writes them."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from constrint.errors import ParseError, UsageError
from constrint.model import (
    Constraint,
    Problem,
    Var,
    all_different,
    all_of,
    any_of,
    count,
    element,
    if_then_else,
    iff,
    implies,
    minimum,
    negate,
    parse,
    parse_constraint,
    render,
    table,
    xor,
)
from constrint.solve import enumerate_space, solve

X, Y, Z = Var("x"), Var("y"), Var("z")
VALUES = range(-2, 4)


def same_as(first: Any, second: Any) -> Constraint:
    """`first == second` as Python evaluates it."""
    made: Constraint = first == second
    return made


def not_same_as(first: Any, second: Any) -> Constraint:
    made: Constraint = first != second
    return made


#: A constraint, and what Python says of the same values; None where Python raises.
CASES: list[tuple[Constraint, Callable[[int, int, int], Any]]] = [
    ((X > 1) & (Y > 1), lambda x, y, z: x > 1 and y > 1),
    ((X > 1) | (Y > 1), lambda x, y, z: x > 1 or y > 1),
    ((X > 1) ^ (Y > 1), lambda x, y, z: (x > 1) != (y > 1)),
    (~(X > 1), lambda x, y, z: not x > 1),
    (same_as(X > 1, Y > 1), lambda x, y, z: (x > 1) == (y > 1)),
    (not_same_as(X > 1, Y > 1), lambda x, y, z: (x > 1) != (y > 1)),
    (same_as(X > 1, True), lambda x, y, z: x > 1),
    ((X > 1) + Y == 2, lambda x, y, z: (x > 1) + y == 2),
    (Y - (X > 1) == 2, lambda x, y, z: y - (x > 1) == 2),
    (3 * (X > 1) <= Y, lambda x, y, z: 3 * (x > 1) <= y),
    ((X > 1) <= (Y > 1), lambda x, y, z: (x > 1) <= (y > 1)),
    (same_as(sum([X > 1, Y > 1, Z > 1]), 2), lambda x, y, z: [x > 1, y > 1, z > 1].count(True) == 2),
    (count(X > 1, Y > 1, Z > 1) <= 1, lambda x, y, z: [x > 1, y > 1, z > 1].count(True) <= 1),
    (count([X == Y, Y == Z]) >= 1, lambda x, y, z: x == y or y == z),
    (iff(X > Y, Z > 0), lambda x, y, z: (x > y) == (z > 0)),
    (xor(X > Y, Z > 0), lambda x, y, z: (x > y) != (z > 0)),
    (all_different(X, Y, Z), lambda x, y, z: len({x, y, z}) == 3),
    (all_different([X, Y, Z + 1]), lambda x, y, z: len({x, y, z + 1}) == 3),
    (negate(all_different(X, Y, Z)), lambda x, y, z: len({x, y, z}) < 3),
    (implies(all_different(X, Y), all_different(Y, Z)), lambda x, y, z: x == y or y != z),
    (table([X, Y], [(0, 1), (3, -2), (9, 9)]), lambda x, y, z: (x, y) in {(0, 1), (3, -2)}),
    (~table([X + Y, Z], [(0, 1), (3, -2)]), lambda x, y, z: (x + y, z) not in {(0, 1), (3, -2)}),
    (table([X], [(0,), (2,)]), lambda x, y, z: x in (0, 2)),
    (table([X, Y], []), lambda x, y, z: False),
    (element(X, [5, Y, Z]) == 1, lambda x, y, z: x in (0, 1, 2) and [5, y, z][x] == 1),
    (element(X, [4, 6, 8]) > 4, lambda x, y, z: x in (1, 2)),
    (if_then_else(X > 0, Y, Z) == 1, lambda x, y, z: (y if x > 0 else z) == 1),
    (if_then_else(X == 0, 7, 6 // X) >= 3, lambda x, y, z: (7 if x == 0 else 6 // x) >= 3),
    (if_then_else(X > 0, Y > 0, Z > 0), lambda x, y, z: y > 0 if x > 0 else z > 0),
    ((X & Y) == 2, lambda x, y, z: x & y == 2),
    ((X | Y) == 3, lambda x, y, z: x | y == 3),
    ((X ^ Y) == -1, lambda x, y, z: x ^ y == -1),
    ((X << 2) == 8, lambda x, y, z: x << 2 == 8),
    ((X >> 1) == -1, lambda x, y, z: x >> 1 == -1),
    (~X == Y, lambda x, y, z: ~x == y),
    (any_of(X == Y, same_as(X > 1, Y > 1)), lambda x, y, z: x == y or (x > 1) == (y > 1)),
    (minimum(X > 1, Y > 1) == 1, lambda x, y, z: x > 1 and y > 1),
]


@pytest.mark.parametrize(("rule", "python"), CASES, ids=lambda case: str(case) if isinstance(case, Constraint) else "")
def test_every_way_to_decide_agrees_with_python(rule: Constraint, python: Callable[[int, int, int], Any]) -> None:
    rows = list(itertools.product(VALUES, repeat=3))
    expected = [bool(python(*row)) for row in rows]
    assert [rule.holds(dict(zip("xyz", row, strict=True))) for row in rows] == expected
    columns = {name: np.array(column) for name, column in zip("xyz", zip(*rows, strict=True), strict=True)}
    assert rule.holds_columns(columns).tolist() == expected
    assert parse_constraint(str(rule)).same(rule.labelled())
    assert pickle.loads(pickle.dumps(rule)).same(rule)
    wanted = sorted(row for row, fits in zip(rows, expected, strict=True) if fits)
    problem = Problem()
    for name in "xyz":
        problem.int_var(name, lower=-2, upper=3)
    problem.add(rule)
    assert parse(render(problem)) == problem
    for backend in ("native", "numpy", "brute", "cpsat", "python-constraint"):
        found = sorted(tuple(row.values()) for row in enumerate_space(problem, backend=backend))
        assert found == wanted, backend


def test_a_comparison_of_conditions_is_never_a_bool() -> None:
    with pytest.raises(TypeError, match="same"):
        bool((X > 1) == (Y > 1))
    with pytest.raises(TypeError, match="same"):
        bool((X > 1) != (Y > 1))
    # The same condition agrees with itself: lists, sets and dictionaries of constraints work.
    assert (X > 1) == (X > 1)
    assert bool((X > 1) != (X > 1)) is False
    assert (X > 1) in [X > 1]
    assert {X > 1: "a"}[X > 1] == "a"
    assert (X > 1).labelled("reason").same((X > 1).labelled("reason"))
    assert not (X > 1).same((X > 1).labelled("reason"))
    assert not (X > 1).same(None)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: (X > 1) & Y,
        lambda: (X > 1) & 1,
        lambda: (X > 1) == "yes",
        lambda: (X > 1) + 1.5 + "a",
        lambda: iff(X, Y > 1),
        lambda: count(X, Y),
        lambda: if_then_else(X, 1, 2),
        lambda: if_then_else(X > 1, 1, None),
        lambda: all_different(X, "a"),
        lambda: element(X, []),
        lambda: element(X, ["a"]),
        lambda: table([], [(1,)]),
        lambda: table([X, Y], [(1,)]),
        lambda: table([X, Y], [1]),  # type: ignore[list-item]
        lambda: table([X, Y], ["ab"]),
        lambda: table([X, Y], [(1, None)]),
    ],
)
def test_what_is_no_condition_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises((UsageError, TypeError)) as caught:
        wrong()
    assert len(str(caught.value)) > 20


def test_arrays_and_bools() -> None:
    problem = Problem()
    cells = problem.int_vars("cell", 2, 3, lower=1, upper=3)
    assert [str(var) for row in cells for var in row] == [f"cell_{i}_{j}" for i in range(2) for j in range(3)]
    for row in cells:
        problem.add(all_different(row))
    for column in zip(*cells, strict=True):
        problem.add(all_different(column))
    assert enumerate_space(problem).size == 12
    chosen = problem.bool_vars("chosen", 2)
    problem.add(chosen[0] | (cells[0][0] == 1))
    problem.add(~chosen[1])
    problem.add(count(chosen) <= 1)
    problem.add(implies(chosen[0], cells[0][1] > 1))
    assert parse(render(problem)) == problem
    for row in enumerate_space(problem):
        assert row["chosen_0"] in (True, False)
        assert row["chosen_1"] is False
        assert row["chosen_0"] or row["cell_0_0"] == 1
    with pytest.raises(UsageError, match="sizes"):
        problem.int_vars("y", lower=1, upper=2)


def test_a_sudoku_by_all_different() -> None:
    clues = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    problem = Problem()
    cells = problem.int_vars("c", 9, 9, lower=1, upper=9)
    for i in range(9):
        problem.add(all_different(cells[i]))
        problem.add(all_different([row[i] for row in cells]))
        problem.add(all_different(cells[i // 3 * 3 + k // 3][i % 3 * 3 + k % 3] for k in range(9)))
    for place, clue in enumerate(clues):
        if clue != ".":
            problem.add(cells[place // 9][place % 9] == int(clue))
    solution = solve(problem).require()
    assert "".join(str(solution[f"c_0_{k}"]) for k in range(9)) == "534678912"
    assert all(c.holds(solution) for c in problem.constraints)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(x, y) == 1", "only `in` takes"),
        ("(x, y) in 1..2", "before the rows"),
        ("(x, y) in {(1, 2, 3)}", "3 values for 2"),
        ("iff(x > 1)", "iff takes 2"),
        ("iff(x, y > 1)", "iff takes constraints"),
        ("element(x) == 1", "at least one item"),
        ('x == "a"', "a number is expected"),
        ('"a"', "fixed value"),
        ("x % 0.5 == 0", "needs integers"),
        ("x ^ 0.5 == 0", "integer is expected"),
        ("x / 0.0 == 0", "other than 0"),
        ("x == 1e999", "beyond the range"),
        ("`` == 1", "at least one character"),
        ("`x == 1", "backquote"),
    ],
)
def test_errors_of_the_text_language(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(f"var x in 0..3\nvar y in 0..3\n{text}")


def test_conditions_hold_what_all_of_says_of_no_parts() -> None:
    assert all_different().holds({})
    assert all_different(X).holds({"x": 1})
    assert all_of().holds({})
