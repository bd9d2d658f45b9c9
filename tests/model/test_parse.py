import contextlib
import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import ConstrintError, LimitReachedError, ParseError, UsageError
from constrint.model import DialectWarning, Domain, Problem, Var, parse, parse_constraint, render
from tests.support import strategies

WORDS = [
    "x",
    "y",
    "1",
    "23",
    "0",
    "->",
    "or",
    "and",
    "not",
    "in",
    "divides",
    "step",
    "because",
    "var",
    "const",
    "problem",
    "minimise",
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "^",
    "**",
    "==",
    "!=",
    "<=",
    "<",
    "=",
    ">",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ";",
    ":",
    "..",
    "|",
    "\n",
    '"r"',
    "min",
    "abs",
    "pow2",
    "#",
    ".",
]
DATA = Path(__file__).parents[1] / "data"


@settings(max_examples=60)
@given(st.data())
def test_rendered_problems_are_read_back(data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    if data.draw(st.booleans()):
        problem.minimise(data.draw(strategies.expressions(tuple(problem.variables))))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert parse(render(problem)) == problem
        # Rendered text means the same in both dialects, unless `%` follows a product of terms.
        parse(render(problem), dialect="constrint")


@given(st.text(max_size=40), st.text(max_size=20))
def test_reasons_and_names_hold_any_text(reason: str, name: str) -> None:
    problem = Problem(name)
    x = problem.int_var("x", lower=0, upper=3, because=reason)
    problem.add(x == 1, because=reason, name=name)
    assert parse(render(problem)) == problem


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a + b * c == 1", "a + (b * c) == 1"),
        ("a - b - c == 1", "(a - b) - c == 1"),
        ("a // b * c == 1", "(a // b) * c == 1"),
        ("-a ^ 2 == 1", "-(a ^ 2) == 1"),
        ("2 ^ b ^ c == 8", "2 ^ (b ^ c) == 8"),
        ("a ** 2 == 4", "a ^ 2 == 4"),
        ("not a == 1 and b == 2 or c == 3", "((not (a == 1)) and (b == 2)) or (c == 3)"),
        ("a == 1 -> b == 1 -> c == 1", "a == 1 -> (b == 1 -> c == 1)"),
        ("a == 1 | b == 2", "a == 1 or b == 2"),
        ("1 <= a < b", "1 <= a and a < b"),
        ("a == [1, 2]", "a in {1, 2}"),
        ("a != [1, 2]", "not a in {2 - 1, 2}"),
        ("a not in 1..9 step 2", "not (a in 1..9 step 2)"),
        ("pow2(a) == 8", "2 ^ a == 8"),
        ("a * b divides c + 1", "(a * b) divides (c + 1)"),
        ("a\n  == 1\n  or b == 2", "a == 1 or b == 2"),
        ("(a ==\n1)", "a == 1 # comment"),
        ("a + -b == -3", "a + (-b) == -3"),
        ("1_000 == a", "1000 == a"),
    ],
)
def test_precedence(text: str, same: str) -> None:
    assert parse_constraint(text) == parse_constraint(same)


@pytest.mark.parametrize(
    ("text", "assignment"),
    [
        ("a / b == 3", {"a": 6, "b": 2}),
        ("not a / b >= 0", {"a": 7, "b": 2}),
        ("ceildiv(a, b) == 4 and min(a, b, 1) == 1 and max(a, b) == 7", {"a": 7, "b": 2}),
        ("gcd(a, b) == 4 and lcm(a, b) == 24 and abs(0 - a) == a", {"a": 8, "b": 12}),
        ("a // b == -4 and a % b == 1", {"a": -7, "b": 2}),
    ],
)
def test_meaning(text: str, assignment: dict[str, int]) -> None:
    assert parse_constraint(text).holds(assignment)


def test_a_whole_file() -> None:
    problem = parse(
        """
        problem gemm   # a comment
        const smem_bytes = 96 * 1024
        var tile in {64, 32}
            because "the instruction takes 32"
        var stages in 1..4
        smem: stages * tile * 64 <= smem_bytes
            because "all stages are \\"resident\\""
        stages >= 2; var other; tile * other >= 3
        maximise tile * stages
        """
    )
    assert problem.name == "gemm"
    assert list(problem.variables) == ["tile", "stages", "other"]
    assert problem.variables["tile"] == Domain(32, 64, 1, (64, 32), "the instruction takes 32")
    assert problem.variables["other"] == Domain.positive()
    assert problem.constraints[0].name == "smem"
    assert problem.constraints[0].because == 'all stages are "resident"'
    assert [str(c) for c in problem.constraints] == [
        "stages * tile * 64 <= smem_bytes",
        "stages >= 2",
        "tile * other >= 3",
    ]
    assert str(problem.objective) == "maximise tile * stages"


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("a == 1\nb = 2", 2, 3, "write `==`"),
        ("a == 1\n\nb <= (2 + 3", 3, 12, r"`\)`"),
        ("a + 'x' == 1", 1, 5, "double quotes"),
        ("var x in {}", 1, 5, "empty"),
        ("var x in 1..5 step 0", 1, 10, "step"),
        ("x == 1\nvar x in 1..2\nvar x in 1..3", 3, 1, "twice"),
        ("x == 0.", 1, 7, "a fraction is written"),
        ("x and y", 1, 1, "compare"),
        ('"x" + 2 == 3', 1, 1, "number is expected"),
        ("x == 1 because reason", 1, 16, "double quotes"),
        ("x in {1, y}", 1, 10, "variable"),
        ("x == 1 y == 2", 1, 8, "complete"),
        ("ceildiv(x) == 1", 1, 1, "takes 2"),
        ("x <= k\nconst k = 3", 1, 6, "before its definition"),
        ("const k = 1 / 0", 1, 11, "not an integer"),
        ("const k = 9 ^ 9 ^ 9", 1, 11, "bits"),
        ("x == 1 & y == 2", 1, 8, "`and`"),
        ("divides(7, x + y)", 1, 1, "write `7 divides a \\+ b`"),
        ('x == 1 because "open', 1, 16, "not closed"),
    ],
)
def test_errors_name_the_place(text: str, line: int, column: int, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        parse(text, source="file")
    assert (caught.value.line, caught.value.column) == (line, column)
    shown = str(caught.value).splitlines()
    assert shown[0].startswith(f"file:{line}:{column}: ")
    assert shown[2].index("^") == column - 1 + 2


def test_the_dialect_separates_whole_terms() -> None:
    standard, other = "(A % B) * C == 0", "A % (B * C) == 0"
    with pytest.warns(DialectWarning, match=r"\(A % B\) \* C.*A % \(B \* C\)"):
        assert parse_constraint("A % B * C == 0") == parse_constraint(standard)
    assert parse_constraint("A % B * C == 0", dialect="constrint") == parse_constraint(other)
    marked = parse("# dialect: constrint\nA % B * C == 0")
    assert marked.constraints[0] == parse_constraint(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (
            standard,
            other,
            "A * B % C == 0",
            "A + B % C == 0",
            "A % B == C * 2",
            "A % B % C == 0",
        ):
            parse_constraint(quiet)
    with pytest.raises(UsageError, match="dialect"):
        parse("a == 1", dialect="other")


def test_language_cases_read_without_error() -> None:
    cases = json.loads((DATA / "constrint_language_cases.json").read_text())
    for case in cases["cases"]:
        assert parse(case["text"], dialect=cases["dialect"]).constraints


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + "x" + ")" * 100_000 + " == 1",
        "-" * 100_000 + "x == 1",
        "not " * 100_000 + "x == 1",
        "min(" * 100_000 + "x",
        "2 ^ " * 100_000 + "2 == x",
        "x == 1 -> " * 100_000 + "x == 1",
        "x == " + "x // " * 100_000 + "1",
        "x == " + "1 + " * 120_000 + "1",
        "x == " + "9" * 1_000_000,
        "x;" * 1_300_000,
    ],
    ids=lambda text: text[:12],
)
def test_hostile_text_ends_in_a_clear_error(text: str) -> None:
    with pytest.raises(ConstrintError, match=r"deep|parts|digits|more than"):
        parse(text)


def test_long_flat_text_is_read() -> None:
    problem = parse("x == " + " + ".join(["y"] * 20_000))
    assert problem.constraints[0].holds({"x": 40_000, "y": 2})
    assert len(parse("x >= 1\n" * 20_000).constraints) == 20_000
    rows = ", ".join(f"({i // 1000}, {i % 1000})" for i in range(180_000))
    table = parse(f"var x in 0..999; var y in 0..999; (x, y) in {{{rows}}}").constraints[0]
    assert table.holds({"x": 179, "y": 999})
    with pytest.raises(LimitReachedError, match="characters"):
        parse("#" * 20_000_000)


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(WORDS),
        max_size=25,
    )
)
def test_any_text_is_read_or_refused_properly(words: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DialectWarning)
        try:
            problem = parse(" ".join(words))
        except ConstrintError:
            return
        assert parse(render(problem)) == problem


@given(st.text(max_size=60))
def test_any_characters_are_read_or_refused_properly(text: str) -> None:
    with contextlib.suppress(ConstrintError), warnings.catch_warnings():
        warnings.simplefilter("ignore", DialectWarning)
        parse(text)


def test_names_may_be_function_names() -> None:
    assert parse_constraint("min == 3").holds({"min": 3})
    assert str(Var("gcd") + 1) == "gcd + 1"
