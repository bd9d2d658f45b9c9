"""Arrays, lists and loops of the text language: what they are read as, and what is refused."""

import pickle
from typing import Any

import pytest

from constrint.errors import LimitReachedError, ParseError, UsageError
from constrint.model import Problem, circuit, cumulative, inverse, parse, regular, render
from constrint.solve import brute_force, count, enumerate_space, solve

NUMBER: Any = 3
DECLARED = """
var x[3] in 0..3
var y[1..2, 1..2] in 0..3
var z[1..2] in 1..2
var k in 0..3
const cost[2] = [5, 7]
"""


def rules(text: str) -> list[str]:
    problem = parse(text)
    assert parse(render(problem)) == problem
    return [f"{c.name}: {c}" if c.name else str(c) for c in problem.constraints]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("sum(x) == 3", ["x_0 + x_1 + x_2 == 3"]),
        ("sum(i in 0..2) (i * x[i]) == 3", ["0 * x_0 + 1 * x_1 + 2 * x_2 == 3"]),
        ("sum(i, j in 1..2) (y[i, j]) == 3", ["y_1_1 + y_1_2 + y_2_1 + y_2_2 == 3"]),
        ("r: forall(i in 0..1) (x[i] < x[i + 1])", ["r[0]: x_0 < x_1", "r[1]: x_1 < x_2"]),
        ("forall(i in 1..2, j in i..2 where i != j) (y[i, j] > 1)", ["y_1_2 > 1"]),
        ("n: forall(i in 1..2)\n (forall(j in {2}) (y[i, j] > 1))", ["n[1,2]: y_1_2 > 1", "n[2,2]: y_2_2 > 1"]),
        ("x[0] > 1 or forall(i in 1..2) (x[i] > 1)", ["x_0 > 1 or x_1 > 1 and x_2 > 1"]),
        ("exists(i in 0..1) (x[i] > 1)", ["x_0 > 1 or x_1 > 1"]),
        ("exactly(1, i in 0..1) (x[i] > 1)", ["exactly(1, x_0 > 1, x_1 > 1)"]),
        ("at_most(x[0], x[1] > 1)", ["at_most(x_0, x_1 > 1)"]),
        ("all_different(y[.., 1])", ["all_different(y_1_1, y_2_1)"]),
        ("all_different(y[2, ..])", ["all_different(y_2_1, y_2_2)"]),
        ("all_different(y[2])", ["all_different(y_2_1, y_2_2)"]),
        ("max(x[1..2]) == 2", ["max(x_1, x_2) == 2"]),
        ("max([x[i] + i for i in 0..2 where i != 1]) == 2", ["max(x_0 + 0, x_2 + 2) == 2"]),
        ("x[k] == 2", ["element(k, x_0, x_1, x_2) == 2"]),
        ("y[k, 1] == 2", ["element(k - 1, y_1_1, y_2_1) == 2"]),
        ("y[1, k] == 2", ["element(k - 1, y_1_1, y_1_2) == 2"]),
        ("cost[1] * k == cost[0]", ["7 * k == 5"]),
        ("cost[k] == 7", ["element(k, 5, 7) == 7"]),
        ("x[0] == [1, 2]", ["x_0 in {1, 2}"]),
        ("inverse(z, z)", ["inverse([z_1 - 1, z_2 - 1], [z_1 - 1, z_2 - 1])"]),
        ("circuit(z)", ["circuit([z_1 - 1, z_2 - 1])"]),
        ("global_cardinality(x, [1, 2], 1)", ["global_cardinality([x_0, x_1, x_2], [1, 2], [1, 1])"]),
        ("cumulative(x, [1, 2, 1], 1, k)", ["cumulative([x_0, x_1, x_2], [1, 2, 1], [1, 1, 1], k)"]),
        ("regular(x, 0, [0], [(0, 1, 0)])", ["regular([x_0, x_1, x_2], 0, [0], [(0, 1, 0)])"]),
        ("forall(i in 3..2) (x[i] > 1)", []),
    ],
)
def test_what_arrays_and_loops_are_read_as(text: str, read: list[str]) -> None:
    declared = (
        "var x[3] in 0..3\nvar y[1..2, 1..2] in 0..3\nvar z[1..2] in 1..2\nvar k in 0..3\nconst cost[2] = [5, 7]\n"
    )
    assert rules(declared + text) == read


def test_an_index_out_of_range_has_no_value() -> None:
    problem = parse("var x[1..2, 2] in 0..1\nvar i in 0..3\nvar j in -1..2\nx[i, j] == 1")
    found = sorted(tuple(row.values()) for row in enumerate_space(problem))
    names = problem.names
    expected = sorted(
        tuple(row[n] for n in names)
        for row in brute_force(problem.without(*problem.constraints))
        if 1 <= row["i"] <= 2 and 0 <= row["j"] <= 1 and row[f"x_{row['i']}_{row['j']}"] == 1
    )
    assert found == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x > 1", "this is an array"),
        ("x[3] > 1", "there is no item 3: the array has the indices 0..2"),
        ("x[0, 1] > 1", "has 1 dimension"),
        ("k[1] > 1", "`k` is no array; declare one: var k[3]"),
        ("forall(i in 0..2) x[i] > 1", "stands in brackets: forall(i in 1..3)"),
        ("forall(k in 0..2, i in 0..k) (w[i] > 1)", "`w` is not declared"),
        ("forall(i in 0..k) (x[i] > 1)", "k is a variable"),
        ("forall(i in 0..2 where k > 1) (x[i] > 1)", "k is a variable"),
        ('forall(i in {"a"}) (k > 1)', "a loop runs over integers"),
        ("forall(i in 1..1000000) (k > 0)", "more than 200,000 rounds"),
        ("lex_less(x, [1])", "lists of one length, got 3, 1"),
        ("regular(x, 0, [1], [(0, 1)])", "is (state, value, next state)"),
        ("regular(x, 0, [1], [(0, 1, 0), (0, 1, 1)])", "at most one transition"),
        ("global_cardinality(x, [1, 1], 2)", "takes each value once"),
        ("global_cardinality(x, [k], 2)", "k is a variable"),
        ("circuit(3)", "circuit takes a list"),
        ("exactly()", "takes a number and conditions"),
        ("later[0] > 1\nvar later[2] in 0..1", "used before its declaration"),
        ("var x in 1..2", "declared twice"),
        ("var big[1000, 1000] in 1..2", "at most 100,000 items"),
        ("const c[2] = [1, k]", "fixed numbers"),
        ("const c[2] = [1, 2, 3]", "has 2 numbers, and 3 are given"),
        ("sum(x, ", "expected a number"),
        ("[x[0] for i in 0..1", "expected"),
        ("x[", "expected"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(f"var x[3] in 0..3\nvar k in 0..3\n{text}")
    assert said in str(caught.value)


def test_words_survive_copies_and_pickles() -> None:
    problem = parse('var x[3] in 0..2\nround: circuit(x) because "once"\nall_different(x)')
    assert pickle.loads(pickle.dumps(problem)) == problem
    assert problem.copy() == problem


def test_a_word_that_is_too_long_to_be_taken_apart_is_left_to_cpsat() -> None:
    problem = Problem()
    x = problem.int_vars("x", 160, lower=0, upper=1)
    problem.add(regular(x, 0, [0], [(0, 0, 1), (1, 1, 0), (0, 1, 0)]))
    with pytest.raises(LimitReachedError, match=r"`regular` over 160 items is too large .*CP-SAT decides it"):
        count(problem)
    assert solve(problem, backend="cpsat")
    assert solve(problem)


@pytest.mark.parametrize(
    "wrong", [lambda: circuit(NUMBER), lambda: inverse([1], [0, 1]), lambda: cumulative([1], [1, 2], 1, 1)]
)
def test_wrong_arguments_are_named(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"circuit takes a list|lists of one length"):
        wrong()
