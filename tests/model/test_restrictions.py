"""Restrictions mean what Python means, published spaces have their counts, and hostile text is refused in time."""

from __future__ import annotations

import contextlib
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from constrint.errors import ParseError, UsageError
from constrint.model import (
    Comparison,
    Domain,
    Problem,
    Var,
    all_of,
    any_of,
    const,
    is_in,
    maximum,
    negate,
    parse,
)
from constrint.model.python import expression
from constrint.model.python.evaluate import CALLS, Trials
from constrint.model.python.expression import read_restriction
from constrint.model.python.restrictions import load_space, problem_from_space
from constrint.solve import count, enumerate_space

SPACES = Path(__file__).parents[1] / "data" / "spaces"
FILES = sorted(path for path in SPACES.glob("*.json") if path.stem != "counts")
PARAMS = {"a": [-3, 0, 1, 2, 12], "b": [1, 3, 7, 10], "c": [2, 4, 32], "d": [-6, -4, 5, 8, 49]}
DOMAINS = {name: Domain.from_values(values) for name, values in PARAMS.items()}


def read(text: str) -> Problem:
    return problem_from_space(PARAMS, [text])


def solutions(text: str) -> set[tuple[int, ...]]:
    """Where the constraint object holds; the solver, which may have read the text with its compiled core, agrees."""
    problem = read(text)
    columns = enumerate_space(problem).columns()
    listed = set(zip(*(c.tolist() for c in columns.values()), strict=True))
    (rule,) = problem.constraints
    rows = itertools.product(*PARAMS.values())
    found = {row for row in rows if rule.holds(dict(zip(PARAMS, row, strict=True)))}
    assert listed == found
    return found


def python_says(text: str, row: tuple[int, ...]) -> bool | None:
    """Python's own answer; None where it raises."""
    values = dict(zip(PARAMS, row, strict=True))
    names = {"__builtins__": {}, **CALLS, "range": range, "p": values, **values}
    try:
        return bool(eval(text, names))  # noqa: S307 - the reference: text that this test itself wrote
    except (ZeroDivisionError, OverflowError, TypeError, ValueError):
        return None


def numbers(depth: int) -> st.SearchStrategy[str]:
    leaves = st.one_of(st.sampled_from("abcd"), st.sampled_from("abcd"), st.integers(0, 13).map(str), st.just("2.0"))
    if depth == 0:
        return leaves
    inner = numbers(depth - 1)
    pairs = st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "/", "/", "//", "%", "%"]), inner)
    return st.one_of(
        leaves,
        pairs.map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        pairs.map(lambda t: f"{t[0]} {t[1]} {t[2]}"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
        inner.map(lambda t: f"abs({t})"),
        inner.map(lambda t: f"-{t}"),
        st.sampled_from("abcd").map(lambda n: f"({n} ** 2)"),
        st.sampled_from("abcd").map(lambda n: f"(2 ** {n})"),
    )


SIGNS = st.sampled_from(["==", "!=", "<=", "<", ">=", ">"])
ATOMS = st.one_of(
    st.tuples(numbers(2), SIGNS, numbers(1)).map(" ".join),
    st.tuples(numbers(2), SIGNS, st.integers(-2, 4).map(str)).map(" ".join),
    st.tuples(numbers(1), SIGNS, numbers(1), SIGNS, numbers(1)).map(" ".join),
    st.tuples(numbers(1), st.sampled_from(["in", "not in"]), numbers(1)).map(lambda t: f"{t[0]} {t[1]} (1, 4, {t[2]})"),
    numbers(2),
)
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]}) {t[1]} ({t[2]})"),
        inner.map(lambda t: f"not ({t})"),
    ),
    max_leaves=3,
)
COMMON = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(COMMON, max_examples=200)
@given(text=CONDITIONS, num_trials=st.sampled_from([0, 10**9]))
def test_holds_exactly_where_python_says_so(text: str, num_trials: int) -> None:
    try:
        rule = read_restriction(text, DOMAINS, trials=Trials(num_trials))
    except ParseError:
        return
    for row in itertools.product(*PARAMS.values()):
        expected = python_says(text, row)
        if expected is not None:
            assert rule.holds(dict(zip(PARAMS, row, strict=True))) is expected, (text, row)


@pytest.mark.parametrize(
    "text",
    [
        "a / b == 4",
        "a / b <= c",
        "d / a <= 2",
        "a / d != c / b",
        "-a / d < b / c",
        "a % (b / c) == 0",
        "12 % ((b * c) / d) == 0",
        "a % (d / b) != 0",
        "(d / b) % c == 0",
        "not d % (a / b)",
        "(b * c) / c == b",
        "a / c + b / 4 <= d / 2",
        "c // (b / 2) == 1",
        "min(a / b, c) >= max(1, d / b)",
        "abs(d / b) > 1",
        "d / b * b == d",
        "a in (b, c / 2, 12)",
        "a not in [0, 1]",
        "0 < b <= c < 40",
        "a and not d % c",
        "b > 1 or a == True",
        "2 ** b > c and d",
        "(1 / 3 + 1 / 3) * b <= d",
        "a > 1.5",
        "a <= 1e999",
        "a * 0.5 < b",
        "a * 0.1 < b * 0.3",
        "b != 2.5",
        "a & 1 == 0",
        "(a & 1) == 0",
        "a ^ 2 == 3",
        "b << 2 == c",
        "d >> 1 == -2",
        "~a == -13",
        "(a > 1) & (b > 1) | (c == 2)",
        "(a > 1) ^ (b > 1)",
        "~(a > 1) == -2",
        "(b if a > 1 else c) == 7",
        "b > 3 if a > 1 else c > 3",
        "(a > 1) + (b > 1) == 1",
        "(a > b) == True",
        "a == (b == c)",
        "sum([a > 1, b > 1, c > 2]) >= 2",
        "sum((a, b)) == c",
        "(a or b) == 1",
        "a in range(4)",
        "a in range(12, -9, -4)",
        "a not in range(0, b)",
        "a not in (b, c / 2)",
        "4 // a not in (4,)",
        "int(d / b) == 1",
        "int(a / 7) == 1",
        "float(a) == b / 1",
        "bool(a) == (b > 1)",
        "any([a > 1, b > 7]) and all((c > 2, d > -6))",
        "not any([])",
        "p['a'] > p['b']",
        "min(a > 1, b > 1) == 1",
        "max([a, b]) == 7",
        "abs(a / b) < 0.3",
        "a is not None",
        "len([a, b]) == 2 and c == 2",
        "a != 'x' and b > 1",
        "1 < a ** 0.5 < c / 3",
        "d % 2.5 == 0.5",
        "pow(a, 2) == 144",
    ],
)
def test_true_division_follows_python(text: str) -> None:
    answers = {row: python_says(text, row) for row in itertools.product(*PARAMS.values())}
    expected = {row for row, answer in answers.items() if answer}
    assert {row for row in solutions(text) if answers[row] is not None} == expected
    assert expected, "the case says something"


def test_division_by_zero_is_false_and_its_negation_true() -> None:
    zero_a = {row for row in itertools.product(*PARAMS.values()) if row[0] == 0}
    for text in ("b / a != 100", "b // a != 100", "b % a != 100", "b % (a / c) != 100", "b / a"):
        assert not solutions(text) & zero_a, text
        assert zero_a <= solutions(f"not ({text})"), text
    assert zero_a <= solutions("a == 0 or b / a >= -100")


@pytest.mark.parametrize(
    "text",
    [
        "b / 49 * 49 == b",
        "b / 10 + 2 / 10 == 3 / 10",
        "2 ** a < 1",
        "2 ** a == 0.125",
        "b ** 0.5 <= c / 2",
        "(d / b) ** 2 < c",
        "round(d / b) == 1",
    ],
)
def test_rounding_that_matters_is_tried_on_all_values(text: str) -> None:
    answers = {row: python_says(text, row) for row in itertools.product(*PARAMS.values())}
    assert solutions(text) == {row for row, answer in answers.items() if answer}
    (rule,) = read(text).constraints
    assert rule.because == text


def test_numbers_beyond_floats_are_as_python_has_them() -> None:
    params = {"x": [2**53, 2**53 + 1, 2**60 + 1], "y": [1, 3], "z": [1, 2]}
    # For x = 2**53 + 1 Python says that x / 1 equals 2**53.
    found = enumerate_space(problem_from_space(params, [f"x / y == {2**53}"]))
    assert {row["x"] for row in found} == {2**53, 2**53 + 1}
    assert count(problem_from_space(params, ["x / y > z"])) == 12
    wide = {"x": range(1, 2**40), "y": range(1, 2**40)}
    with pytest.raises(ParseError, match="too many values to try"):
        problem_from_space(wide, ["x / y == y / x"])
    assert problem_from_space(wide, ["x / y == 3"]).constraints[0].same(Var("x") == 3 * Var("y"))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("__import__('os').system('x')", 1, "only min"),
        ("a.real > 1", 1, "attributes"),
        ("a > 1 and a[0] > 1", 11, "subscripts"),
        ("p['q'] > 1", 1, "no parameter 'q'"),
        ("p[a] > 1", 1, "no parameter 'p'"),
        ("a > 'x'", 1, "Python raises for all values .TypeError"),
        ("a > b'x'", 5, "only numbers, text and None"),
        ("a > 1j", 5, "only numbers, text and None"),
        ("a > None", 1, "Python raises for all values"),
        ("a ** 0.5 > 'x'", 1, "Python raises for all values"),
        ("(lambda: 1) == a", 2, "Lambda"),
        ("[x for x in (1, 2)] == a", 1, "ListComp"),
        ("(a := 3) > 1", 2, ":="),
        ("a @ b == 1", 1, "operator"),
        ("a is 1", 1, "write =="),
        ("a in b", 6, "Python raises for all values"),
        ("a in sum(range(4))", 10, "this call"),
        ("a in range(1, 2, 3, 4)", 6, "one to three"),
        ("max(a) == 1", 1, "two or more"),
        ("abs(a, b) == 1", 1, "one number"),
        ("max(*a) == 1", 1, "only min"),
        ("max(a, b, key=c) == 1", 1, "only min"),
        ("print(a)", 1, "only min"),
        ("'x' * 10 ** 9 == a", 1, "repeated"),
        ("'%1000000000d' % a == 'x'", 1, "formatted"),
        ("round(a, -10 ** 9) == 0", 1, "rounding"),
        ("f'{a}' == 1", 1, "JoinedStr"),
        ("a +", 4, "not a Python expression"),
        ("a = 3", 1, "not a Python expression"),
        ("import os", 1, "not a Python expression"),
        ("", 1, "not a Python expression"),
        ("a\0", 1, "not a Python expression"),
        ("\ud800", 1, "not a Python expression"),
        ("aa > 1", 1, "did you mean 'a'"),
        ("é > 1 and q > 2", 1, "no parameter 'é'"),
        ("9 ** 9 ** 9 > a", 1, "bits"),
        ("c ** 100000000 > a", 1, "bits"),
        ("1 << 10 ** 9 > a", 1, "bits"),
        ("a > " + "9" * 5000, 5, "Exceeds the limit|bits"),
        ("a > 0x" + "f" * 5000, 5, "bits"),
    ],
)
def test_everything_else_is_an_error_that_shows_the_place(text: str, column: int, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        read(text)
    error = caught.value
    assert str(error).startswith("restrictions[0]:1:")
    if "not a Python" not in str(error):
        assert error.column == column
        assert str(error).splitlines()[-1] == f"  {' ' * (column - 1)}^"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "-" * 9000 + "a > 1",
        "not " * 4000 + "a",
        "2 ** " * 3000 + "a > 1",
        "[" * 15000,
        "a if b else " * 1000 + "a",
        "lambda: " * 2000 + "a",
        "a > 1 " * 3000,
        "abs(" * 81 + "a / 3" + ")" * 81 + " > 1",
        "a > 1" + " " * 10_000_000,
        "a/3+" * 4000 + "a > 1",
        "a/c*" * 4000 + "a > 1",
        "a/c*" * 1400 + "a > 1",
        "a/c+" * 1400 + "a > 1",
        "a." * 4000 + "a",
        "a > 9**9**9**9",
        "a" * 19_000,
    ],
)
def test_hostile_text_ends_in_an_error(text: str) -> None:
    with pytest.raises(ParseError):
        read(text)


def test_long_but_plain_text_is_read() -> None:
    assert solutions("a + " * 2000 + "a > 0") == solutions("a > 0")
    assert solutions(" and ".join(["a > 0"] * 2000)) == solutions("a > 0")
    assert solutions(f"a in ({', '.join(map(str, range(1, 3000)))})") == solutions("a > 0")
    assert solutions("  (a >\n 0) # positive\n") == solutions("a > 0")


@settings(COMMON, max_examples=200)
@given(text=st.text(max_size=40) | st.text(alphabet="abcd0129+-*/%()<>=!.,[] 'notandri", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ParseError):
        read(text)


def test_three_ways_in_give_one_problem() -> None:
    params = {"tile_m": [16, 32, 64], "tile_k": [16, 32], "stages": [1, 2, 3], "pad": [0, -1]}
    restrictions = [
        "32 <= tile_m * (tile_k + 8) <= 4096",
        "(tile_m + tile_k - 2) // tile_k * 2 > 2 ** stages",
        "stages > 1 or tile_k % 32 == 0 and not pad == 0",
        "tile_m in (16, 64)",
        "pad not in [0, 5]",
        "max(tile_m, tile_k, 3) - abs(pad) != -pad",
    ]
    text = """
        problem tiles
        var tile_m in {16, 32, 64}
        var tile_k in {16, 32}
        var stages in {1, 2, 3}
        var pad in {0, -1}
        32 <= tile_m * (tile_k + 8) <= 4096
        (tile_m + tile_k - 2) // tile_k * 2 > 2 ^ stages
        stages > 1 or tile_k % 32 == 0 and not pad == 0
        tile_m in {16, 64}
        pad not in {0, 5}
        max(tile_m, tile_k, 3) - abs(pad) != -pad
    """
    problem = Problem("tiles")
    tile_m, tile_k, stages, pad = (problem.int_var(name, values) for name, values in params.items())
    size = tile_m * (tile_k + 8)
    problem.add(all_of(Comparison(const(32), "<=", size), size <= 4096))
    problem.add((tile_m + tile_k - 2) // tile_k * 2 > 2**stages)
    problem.add(any_of(stages > 1, all_of(tile_k % 32 == 0, negate(pad == 0))))
    problem.add(is_in(tile_m, [16, 64]))
    problem.add(negate(is_in(pad, [0, 5])))
    problem.add(maximum(tile_m, tile_k, 3) - abs(pad) != -pad)
    assert problem_from_space(params, restrictions, "tiles") == parse(text) == problem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_published_space_gives_its_count(path: Path) -> None:
    facts = json.loads(path.read_text())
    problem = load_space(path)
    assert problem.name == facts["name"] == path.stem
    assert count(problem) == facts["expected"]


def test_there_are_published_spaces() -> None:
    assert len(FILES) == 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"params": {"a": [1], "a": [2]}}', "'a' is given twice"),
        ('{"params": {"a": [' + "9" * 5000 + "]}}", "not JSON|bits"),
        ('{"params": {"a": [NaN]}}', "equals no value"),
        ('{"params": {"a": [[1]]}}', "Write a tuple"),
        ('{"params": {"a": {"b": 1}}}', "must be a list of values"),
        ("[1]", "must be an object"),
        ("{}", '"params" is missing'),
        ('{"params": [1]}', "params must be an object"),
        ('{"params": {"a": 3}}', "'a' must be a list of values, got 3"),
        ('{"params": {"a": "12"}}', "'a' must be a list of values, got '12'"),
        ('{"params": {"a": []}}', "'a' is empty"),
        ('{"params": {"": [1]}}', "at least one character"),
        ('{"params": {"a": [1]}, "restrictions": 3}', "restrictions must be a list"),
        ('{"params": {"a": [1]}, "restrictions": [3]}', r"restrictions\[0\] must be the text"),
        ('{"params": {"a": [1]}, "restrictions": ["a > 1", "a >"]}', r"restrictions\[1\]:1:4: not a Python"),
        ('{"params": {"a": [1]}, "name": 3}', "name must be text"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "space.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=message) as caught:
        load_space(path)
    assert str(path) in str(caught.value)


def test_unreadable_and_huge_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="No such file"):
        load_space(tmp_path / "none.json")
    with pytest.raises(UsageError, match="Is a directory"):
        load_space(tmp_path)
    with pytest.raises(UsageError, match="more than"):
        load_space("/dev/zero")
    monkeypatch.setattr("constrint.model.python.restrictions.MAX_RESTRICTIONS", 2)
    with pytest.raises(UsageError, match="at most 2"):
        problem_from_space(PARAMS, ["a > 1"] * 3)
    assert expression.MAX_CHARACTERS < 10**5


@pytest.mark.parametrize(
    "text",
    [
        "bool(x % n) <= 0",
        "float(x % n) <= 0",
        "(x % n == 0) <= 0",
        "int(x % n == 0) < 1",
        "bool(n == 0 or x % n == 0) == 1",
        "bool(x % n == 0 or n == 0) == 1",
        "(n > 0 and x % n == 0) + 0 == 0",
        "any([x % n == 0, n == 0]) + 0 == 1",
        "(1 <= x % n <= 1) < 1",
        "(not x % n) == 0",
        "(x % n == 0) in (0, 5)",
        "min(x, (x // n > 1)) >= 0",
        "((x // n > 1) if n else 7) >= 1",
        "(x // n > 0 if n > 0 else True) == True",
        "(x / n > 1) <= 0",
        "bool(x / n) <= 0",
    ],
)
def test_a_comparison_in_which_python_raises_is_false_however_deep(text: str) -> None:
    domains = {"x": [1, 2, 4], "n": [0, 1, 2]}

    def python(x: int, n: int) -> bool:
        try:
            return bool(eval(text, {"x": x, "n": n}))  # noqa: S307
        except ZeroDivisionError:
            return False

    expected = {(x, n) for x in domains["x"] for n in domains["n"] if python(x, n)}
    solutions = enumerate_space(problem_from_space(domains, [text]))
    assert {(s["x"], s["n"]) for s in solutions} == expected
