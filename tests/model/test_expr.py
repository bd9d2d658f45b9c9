import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from constrint.errors import IntegerOverflowError, UndefinedValueError, UnknownNameError, UsageError
from constrint.model import (
    Constraint,
    Expr,
    Problem,
    Var,
    absolute,
    all_of,
    ceildiv,
    const,
    divides,
    gcd,
    implies,
    is_in,
    lcm,
    maximum,
    minimum,
    negate,
)
from tests.support import strategies

X, Y, Z = Var("x"), Var("y"), Var("z")


def test_variables_are_dictionary_keys_by_name() -> None:
    table = {X: "first", Y: "second"}
    assert table[Var("x")] == "first"
    assert Var("x") is X
    assert pickle.loads(pickle.dumps(X)) is X
    assert copy.deepcopy(X) is X


def test_expressions_and_constraints_are_hashed_by_their_structure() -> None:
    assert hash(X + const(1)) == hash(X + 1)
    assert len({hash(const(3)), hash(X * Y), hash(X + Y), hash(X <= 3)}) == 4


@pytest.mark.parametrize("thing", [X + 1, X == 1, all_of(X == 1, Y == 2)])
def test_truth_value_is_refused_with_advice(thing: Expr | Constraint) -> None:
    with pytest.raises(TypeError, match="all_of"):
        bool(thing)
    with pytest.raises(TypeError, match="all_of"):
        1 <= X <= 3  # noqa: B015


@pytest.mark.parametrize("wrong", [True, "3", None, np.float32(2), np.True_, 1j])
def test_operands_that_are_no_integers_are_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"integer"):
        X + wrong


def test_a_function_in_the_place_of_its_result_is_named() -> None:
    with pytest.raises(UsageError, match=r"sum is a function, and a number is needed here; call it, as in sum\("):
        divides(7, sum)
    assert str(divides(7, sum([X, Y]))) == "7 divides 0 + x + y"


def test_numpy_integers_work_on_both_sides() -> None:
    assert str(np.int64(3) * X) == "3 * x"
    assert str(np.int32(4) >= X) == "x <= 4"
    assert (np.int64(3) * X).value({"x": np.int64(5)}) == 15


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (X // Y, -4),
        (X % Y, -1),
        (ceildiv(X, Y), -3),
        (-X, -7),
        (X - Y - 1, 8),
        (minimum(X, Y, 3), -2),
        (maximum(X, Y), 7),
        (absolute(Y) ** 3, 8),
        (gcd(X * 6, Y * 6), 6),
        (lcm(X, Y), 14),
        (2**X, 128),
        (10 - X, 3),
        (14 / X, 2),
    ],
)
def test_values_follow_python_integers(expr: Expr, expected: int) -> None:
    assert expr.value({"x": 7, "y": -2}) == expected
    assert expr.columns({"x": [7, 7], "y": [-2, -2]}).tolist() == [expected] * 2


@pytest.mark.parametrize("expr", [X // 0, X % (X - X), X / 2, X**-1, ceildiv(1, X * 0)])
def test_undefined_values_raise_and_make_comparisons_false(expr: Expr) -> None:
    with pytest.raises(UndefinedValueError):
        expr.value({"x": 3})
    with pytest.raises(UndefinedValueError):
        expr.columns({"x": [3]})
    for atom in (expr == expr, expr != 5, expr <= 10**9, divides(expr, 0), is_in(expr, range(-99, 99))):
        assert not atom.holds({"x": 3})
        assert negate(atom).holds({"x": 3})
        assert implies(atom, X == 0).holds_columns({"x": [3]}).all()


def test_zero_divides_nothing() -> None:
    assert not divides(X, 0).holds({"x": 0})
    assert divides(X, 0).holds({"x": 5})
    assert divides(X, 6).holds_columns({"x": [0, 1, -2, 4, 6]}).tolist() == [False, True, True, False, True]


def test_columns_never_wrap() -> None:
    big = 2**62
    reflected: Any = big * 4 == X * Y
    assert reflected.holds_columns({"x": [big, big], "y": [4, 3]}).tolist() == [True, False]
    assert (X * Y // Y).columns({"x": [big], "y": [1000]}).tolist() == [big]
    assert (X + Y > X).holds_columns({"x": [2**63 - 1], "y": [1]}).all()
    assert (absolute(X) > 0).holds_columns({"x": np.array([-(2**63)])}).all()
    assert (X // Y == 2**63).holds_columns({"x": [-(2**63)], "y": [-1]}).all()
    with pytest.raises(IntegerOverflowError):
        (X * Y).columns({"x": [big], "y": [2]})
    assert (X == 2**64 - 1).holds_columns({"x": np.array([2**64 - 1], dtype=np.uint64)}).all()


def test_columns_check_their_input() -> None:
    with pytest.raises(UnknownNameError, match="y"):
        (X + Y).columns({"x": [1]})
    with pytest.raises(UsageError, match="integers"):
        (X == 1).holds_columns({"x": [0.5]})
    with pytest.raises(UsageError, match="length"):
        (X + Y).columns({"x": [1, 2], "y": [1, 2, 3]})
    with pytest.raises(UnknownNameError, match="y"):
        (X == Y).holds({"x": 1})


def test_trees_are_bounded() -> None:
    def repeat(step: Callable[[Expr], Expr]) -> None:
        tree: Expr = X
        for _ in range(1000):
            tree = step(tree)

    with pytest.raises(UsageError, match="nested"):
        repeat(lambda tree: tree // 2 + 1)
    with pytest.raises(UsageError, match="parts"):
        repeat(lambda tree: tree + tree)


@given(st.data())
def test_columns_agree_with_exact_values(data: st.DataObject) -> None:
    names = ("a", "b", "c")
    constraint = data.draw(strategies.constraints(names))
    numbers = st.one_of(st.integers(-6, 12), st.sampled_from([2**31, -(2**40), 2**62, -(2**63), 2**63 - 1]))
    rows = data.draw(st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=6))
    columns = {n: [row[i] for row in rows] for i, n in enumerate(names)}
    expected = [constraint.holds(dict(zip(names, row, strict=True))) for row in rows]
    assert constraint.holds_columns(columns).tolist() == expected


def test_columns_broadcast_to_a_grid() -> None:
    x, y = np.arange(4), np.arange(3)
    grid = (X * Y >= 2).holds_columns({"x": x[:, None], "y": y[None, :]})
    expected = [[a * b >= 2 for b in range(3)] for a in range(4)]
    assert grid.tolist() == expected


def test_problem_refuses_what_it_does_not_know() -> None:
    problem = Problem("p")
    x = problem.int_var("x", values=[3, 1, 3])
    assert problem.variables["x"].listed == (3, 1)
    with pytest.raises(UnknownNameError, match="tile"):
        problem.add(Var("tile") == x)
    with pytest.raises(UsageError, match="twice"):
        problem.int_var("x", lower=0, upper=1)
    with pytest.raises(UsageError, match="bool"):
        problem.add(3 <= 4)
    wrong_domains: list[dict[str, Any]] = [
        {"values": []},
        {"lower": 3, "upper": 2},
        {"lower": 1},
        {"values": [1], "upper": 2},
        {"values": [0.5]},
    ]
    for bad in wrong_domains:
        with pytest.raises(UsageError):
            problem.int_var("y", **bad)
    wrong_names: list[Any] = ["", 7, None, "x" * 1001, "\ud800"]
    for name in wrong_names:
        with pytest.raises(UsageError):
            problem.int_var(name, values=[1])


def test_copies_are_independent_and_rules_can_be_left_out() -> None:
    problem = Problem("p")
    x = problem.int_var("x", lower=1, upper=9)
    first = problem.add(x >= 2, because="two", name="low")
    second = problem.add(x >= 2)
    twin = problem.copy()
    twin.add(x <= 4)
    assert len(problem.constraints) == 2
    assert problem.without(second).constraints == (first,)
    assert problem.without("low").constraints == (second,)
    assert (first.because, first.name, first.variables) == ("two", "low", frozenset({"x"}))
    with pytest.raises(UsageError, match="without"):
        problem.without(x >= 2)


def test_domain_of_64_bits_is_never_expanded() -> None:
    problem = Problem()
    problem.int_var("x", lower=-(2**63), upper=2**63 - 1, step=3)
    domain = problem.variables["x"]
    assert domain.size == -(-(2**64) // 3)
    assert domain.upper in domain
    assert domain.upper - 1 not in domain
    assert list(itertools.islice(domain, 2)) == [-(2**63), -(2**63) + 3]


def test_named_constants_keep_one_meaning() -> None:
    problem = Problem()
    x = problem.int_var("x", lower=1, upper=9)
    problem.add(x <= const(4, "limit"))
    assert problem.constants == {"limit": 4}
    with pytest.raises(UsageError, match="limit"):
        problem.add(x <= const(5, "limit"))
    with pytest.raises(UsageError, match="'x'"):
        problem.add(x <= const(5, "x"))
