"""Constraints written as Python expressions are true in Python exactly where they hold."""

from __future__ import annotations

import itertools

import pytest

from constrint.model import (
    Domain,
    Problem,
    Var,
    all_different,
    divides,
    element,
    gcd,
    if_then_else,
    implies,
    is_in,
    parse,
)
from constrint.model.python.restrictions import problem_from_space
from constrint.model.python.write import CannotWrite, write_restriction, write_value
from constrint.model.ratio import expression_of
from constrint.solve import enumerate_space

X, Y = Var("x"), Var("y")
DOMAINS = {"x": Domain.from_range(-3, 4), "y": Domain.from_range(0, 5)}


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (X * Y <= 12, "x * y <= 12"),
        (X - Y - 3 == 2, "x - y - 3 == 2"),
        (X - (Y - 3) == 2, "x - (y - 3) == 2"),
        (divides(4, X), "x % 4 == 0"),
        (divides(Y, X), "y != 0 and x % y == 0"),
        (X // Y == 1, "y != 0 and x // y == 1"),
        (~(X // Y == 1), "not (y != 0 and x // y == 1)"),
        (X / Y == 1, "y != 0 and x % y == 0 and x // y == 1"),
        (X // (Y + 1) * 2 <= 3, "x // (y + 1) * 2 <= 3"),
        (2**X == 4, "x >= 0 and 2 ** x == 4"),
        (implies(X == 1, Y == 2), "x != 1 or y == 2"),
        ((X == 1) | (Y == 2) & (X == 2), "x == 1 or y == 2 and x == 2"),
        (is_in(X, [1, 3]), "x in (1, 3)"),
        (~is_in(X, range(-2, 3, 2)), "x not in range(-2, 3, 2)"),
        (if_then_else(X > 0, X, Y // X) == 1, "(True if x > 0 else x != 0) and (x if x > 0 else y // x) == 1"),
        (element(Y, [4, X, 2]) == 2, "y in range(3) and (4 if y == 0 else x if y == 1 else 2) == 2"),
        (all_different(X, Y), "x != y"),
        ((X > 1) == (Y > 1), "(x > 1) == (y > 1)"),
        (X & 2 | Y == 3, "x & 2 | y == 3"),
        (-(X**2) == -4, "-x ** 2 == -4"),
        ((-X) ** 2 == 4, "(-x) ** 2 == 4"),
    ],
)
def test_what_is_written_is_what_python_finds_true(rule: object, text: str) -> None:
    from constrint.model import Constraint

    assert isinstance(rule, Constraint)
    written = write_restriction(rule, DOMAINS)
    assert written == text
    for x, y in itertools.product(DOMAINS["x"], DOMAINS["y"]):
        assert bool(eval(written, {"x": x, "y": y})) is rule.holds({"x": x, "y": y}), (x, y)  # noqa: S307


def test_a_divisor_that_cannot_be_0_needs_no_test() -> None:
    assert write_restriction(X // Y == 1, {**DOMAINS, "y": Domain.from_values([2, 4])}) == "x // y == 1"


def test_values_stand_for_codes() -> None:
    half, mode = Domain.of([0.5, 1.5, 2]), Domain.of(["a b", None, "'"])
    f, m = expression_of("f", half), expression_of("m", mode)
    domains = {"f": half, "m": mode, **DOMAINS}
    assert write_restriction(f <= 1.5, domains) == "f <= 1.5"
    assert write_restriction(f * 2 + X <= 3, domains) == "int(f * 2) + x <= 3"
    assert write_restriction(m == "a b", domains) == r"m == 'a\x20b'"
    assert write_restriction(~m.one_of([None, "'"]), domains) == """m not in (None, "'")"""


def test_other_names_and_values_are_put_in() -> None:
    assert write_restriction(X * Y <= 12, DOMAINS, {"x": "BLOCK", "y": "-3"}) == "BLOCK * -3 <= 12"


def test_what_cannot_be_said_exactly_is_refused() -> None:
    for rule in (gcd(X, Y) == 1, 3 ** (3 ** (X * X * X * X)) == 3):
        with pytest.raises(CannotWrite):
            write_restriction(rule, DOMAINS)
    for value in (float("inf"), float("nan"), 1j, object(), [1]):
        with pytest.raises(CannotWrite, match="has no literal"):
            write_value(value)


def test_rows_of_parameters_are_read_as_a_table() -> None:
    params: dict[str, list[object]] = {"x": list(range(60)), "mode": ["a", "b"], "ratio": [0.5, 1, True, 2.0]}
    for text in (
        "(x, mode) in {(1, 'a'), (7, 'b'), (99, 'a'), (1, 2)}",
        "(x, ratio) not in [(1, 1.0), (2, 0.5), (3, 9)]",
    ):
        problem = problem_from_space(params, [text])
        wanted = {
            (x, mode, ratio)
            for x, mode, ratio in itertools.product(params["x"], params["mode"], [0.5, 1, 2.0])
            if eval(text, {"x": x, "mode": mode, "ratio": ratio})  # noqa: S307
        }
        assert {tuple(row.values()) for row in enumerate_space(problem)} == wanted
        assert parse(str(problem)) == problem
    assert isinstance(problem, Problem)
