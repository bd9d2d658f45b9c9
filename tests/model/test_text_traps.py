"""Text that is easily written wrong: soft rules that begin with a minus, misspelt names, unknown functions."""

from __future__ import annotations

import pytest

from constrint import count, parse, render
from constrint.errors import ParseError
from constrint.model.text.parse import UndeclaredNameWarning
from constrint.solve import solve


@pytest.mark.parametrize(
    ("text", "rule", "weight"),
    [
        ("soft -3*e != 9", "-3 * e != 9", 1),
        ("soft -3*e != 9 weight 2", "-3 * e != 9", 2),
        ("soft `e` > 3", "e > 3", 1),
        ("soft 2.0 <= e", "2 <= e", 1),
        ("soft mine: -e < -2 weight 3", "-e < -2", 3),
    ],
)
def test_a_soft_rule_may_begin_with_anything_that_a_rule_begins_with(text: str, rule: str, weight: int) -> None:
    problem = parse(f"var e in 1..9\n{text}")
    assert problem.names == ("e",)
    assert problem.constraints == ()
    ((soft,),) = (problem.soft_constraints,)
    assert (str(soft.constraint), soft.weight) == (rule, weight)


def test_a_variable_named_soft_keeps_its_name() -> None:
    problem = parse("var soft in 1..9\nsoft - 3 != 1\nsoft in {1, 2}\nsoft soft > 1")
    assert list(map(str, problem.constraints)) == ["soft - 3 != 1", "soft in {1, 2}"]
    assert len(problem.soft_constraints) == 1


@pytest.mark.parametrize(("used", "meant"), [("Tile", "tile"), ("num_stage", "num_stages"), ("tlie", "tile")])
def test_a_name_that_looks_like_a_declared_one_is_asked_about(used: str, meant: str) -> None:
    said = f"text:3:1: `{used}` is not declared.*did you mean `{meant}`"
    text = f"var tile in 1..4\nvar num_stages in 1..4\n{used} > 1"
    with pytest.raises(ParseError, match=said):
        parse(text)
    with pytest.warns(UndeclaredNameWarning, match=said):
        assert used in parse(text, implicit_variables=True).variables


def test_names_that_differ_in_their_number_are_not_asked_about() -> None:
    text = "var x1 in 1..4\nx1 < x2; other > 3"
    assert parse(text, implicit_variables=True).names == ("x1", "x2", "other")
    with pytest.raises(ParseError, match="`x2` is not declared; declare it: var x2"):
        parse(text)


def test_names_are_positive_integers_where_no_variable_is_declared() -> None:
    assert parse("const size = 4\na < b; a * b <= size").names == ("a", "b")
    assert parse("# dialect: constrint\nvar x in 1..4; x < y").names == ("x", "y")
    with pytest.raises(ParseError, match="did you mean `size`"):
        parse("const size = 4\na < b; a * b <= sise")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gcc(a, b) <= 3", "there is no function `gcc`; write global_cardinality(x, [1, 2], [n, m])"),
        ("alldifferent(a, b)", "there is no function `alldifferent`; did you mean `all_different`?"),
        ("AllDiff(a, b)", "write all_different(x)"),
        ("a > 1 and maximum(a, b) > 2", "did you mean `max`?"),
        ("exact(2, a, b)", "did you mean `exactly`?"),
        ("frobnicate(a)", "known: abs, all_different"),
    ],
)
def test_a_function_that_does_not_exist_is_named_with_what_is_meant(text: str, said: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(f"var a in 1..4; var b in 1..4\n{text}")
    assert said in str(caught.value)


def test_whole_decimal_numbers_are_integers() -> None:
    assert str(parse("var x in 1..1e3 step 2.0; x ^ 2.0 > 1").variables["x"]) == "1..999 step 2"


@pytest.mark.parametrize("backend", ["native", "numpy"])
@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("var x in 1..10000000; x > 1", 9_999_999),
        ("var x in 1..10000000; x % 7 == 3; 5 divides x", 285_715),
        ("var x in 1..10^30; x in 5..10^20 step 10; x >= 7", 10**19 - 1),
        ("var x in 1..10^8; var y in 1..3; x + y > 1", 3 * 10**8),
        ("var x in 1..10^8; x in 0..10^9; x * x >= 1 or x == 7", 10**8),
    ],
)
def test_rules_that_bounds_imply_do_not_make_a_range_too_long(text: str, number: int, backend: str) -> None:
    assert count(parse(text), backend=backend) == number


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_a_rule_without_a_value_somewhere_is_not_implied(backend: str) -> None:
    assert count(parse("var x in 0..5000; 6 // x <= 6"), backend=backend) == 5000
    assert count(parse("var x in 0..5000; x / 3 <= 10^6"), backend=backend) == 1667


@pytest.mark.parametrize("backend", ["native", "numpy", "cpsat"])
@pytest.mark.parametrize("act", ["minimise", "maximise"])
def test_a_fraction_may_be_an_objective(act: str, backend: str) -> None:
    if backend == "cpsat":
        pytest.importorskip("ortools")
    problem = parse(f"var s in {{0.5, 1.5, 2.5}}\nvar x in 1..4\ns * x <= 5\n{act} s * x - 0.25 * x\n{act} x")
    values = [(s * x - x / 4, x, s) for s in (0.5, 1.5, 2.5) for x in range(1, 5) if s * x <= 5]
    _, x, s = max(values) if act == "maximise" else min(values)
    assert dict(solve(problem, backend=backend).assignment) == {"s": s, "x": x}
    again = parse(render(problem))
    assert dict(solve(again, backend=backend).assignment) == {"s": s, "x": x}
