"""Every example of the pages about the constraint language is what it says."""

from __future__ import annotations

import itertools
import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from constrint.errors import ParseError
from constrint.model import DialectWarning, parse, render
from constrint.model.expr import RESERVED
from constrint.model.python.restrictions import problem_from_space
from constrint.model.text.functions import KNOWN
from constrint.solve import enumerate_space, solve

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "".join((DOCS / name).read_text() for name in ("guides/problem.md", "reference/language.md"))
BLOCKS = re.findall(r"```constrint[^\n]*\n(.*?)```", TEXT, re.DOTALL)
EXAMPLE, SOFT, VALUES, ARRAYS, UNDEFINED, DIALECT = BLOCKS


@pytest.mark.parametrize("text", BLOCKS)
def test_every_example_is_read_and_has_solutions(text: str) -> None:
    problem = parse(text)
    assert parse(render(problem)) == problem
    assert enumerate_space(problem).size > 0


def test_the_worked_example() -> None:
    problem = parse(EXAMPLE)
    assert [c.name for c in problem.constraints] == ["smem", "no_remainder", "prefetch", "shape"]
    assert all(c.because for c in problem.constraints[:3])
    best = solve(problem).require()
    assert (best["tile_m"], best["tile_n"]) == (256, 256)


def test_soft_rules_and_objectives_in_order() -> None:
    answer = solve(parse(SOFT))
    assert answer.assignment == {"tile_m": 64, "tile_n": 64}
    assert (answer.values, answer.penalty) == ((4096, 64), 0)


def test_arrays_and_loops() -> None:
    problem = parse(ARRAYS)
    assert [c.name for c in problem.constraints if c.name] == [
        f"apart[{pair}]" for pair in ("1,2", "1,3", "2,3", "2,4", "3,4")
    ]
    expected = [
        p
        for p in itertools.permutations(range(1, 5))
        if all(abs(p[i] - p[j]) != j - i for i in range(4) for j in range(i + 1, 4))
        and sum(p[i] > i + 1 for i in range(4)) <= 2
    ]
    assert sorted(tuple(row.values())[:4] for row in enumerate_space(problem)) == expected


def test_undefined_values() -> None:
    assert sorted(row["x"] for row in enumerate_space(parse(UNDEFINED))) == [-2, -1, 0, 2]
    tests = (("1 // x == 0", False), ("1 // x != 0", False), ("1 // x not in {0}", False), ("not 1 // x == 0", True))
    for text, holds in tests:
        assert bool(enumerate_space(parse(f"var x in {{0}}\n{text}"))) is holds


def test_values_that_are_no_integers() -> None:
    expected = [
        {"scale": scale, "layout": layout, "cached": cached, "tile": tile}
        for scale in (0.5, 1.5, 2)
        for layout in ("row", "column", None)
        for cached in (True, False)
        for tile in (16, 32)
        if scale * tile + 0.5 <= 32.5
        and (layout == "row" or scale in (1.5, 2))
        and (not cached or (tile == 32 and layout is not None))
        and (layout, tile) in {("row", 16), ("row", 32), ("column", 32), (None, 16)}
    ]
    found = list(enumerate_space(parse(VALUES)))
    assert sorted(map(str, found)) == sorted(map(str, expected))
    assert not enumerate_space(parse("var x in {0}; 0.1 * 3 == 0.3"))


def test_the_python_examples_run() -> None:
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        names: dict[str, Any] = {}
        exec(block, names)  # noqa: S102 - an example of our own document
        space = enumerate_space(names["problem"])
        assert len(space) > 0
        assert parse(render(names["problem"])) == names["problem"]


def test_the_dialects_differ_as_described() -> None:
    assert {row["B"] for row in enumerate_space(parse(DIALECT))} == {1}
    with pytest.warns(DialectWarning, match=r"`\(A % A\) \* B`; ConstrINT reads `A % \(A \* B\)`"):
        usual = parse(DIALECT.replace("# dialect: constrint", ""))
    assert {row["B"] for row in enumerate_space(usual)} == {1, 2}


def test_the_tables_name_every_word() -> None:
    (listed,) = re.findall(r"Reserved words: `(.*)`", TEXT)
    assert set(listed.split()) == RESERVED
    assert all(f"`{name}(" in TEXT for name in KNOWN)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("2 ^ 3 ^ 2 == 512", "true"),
        ("-2 ^ 2 == -4", "true"),
        ("a == 1 -> b == 1 -> b == 2", "a == 1 -> (b == 1 -> b == 2)"),
        ("a == 1 or b == 1 and a == 2", "a == 1 or (b == 1 and a == 2)"),
        ("a == 1 | b == 1", "a == 1 or b == 1"),
        ("not a == 1 and b == 1", "(not a == 1) and b == 1"),
        ("1 <= a < b", "1 <= a and a < b"),
        ("a == [1, 2]", "a in {1, 2}"),
        ("a // 2 * 2 - b % 3 == 1", "((a // 2) * 2) - (b % 3) == 1"),
        ("pow2(a) == b + 1_0", "2 ^ a == b + 10"),
        ("a / 2 == b", "2 divides a and a // 2 == b"),
        ("iff(a > 1, b > 1)", "(a > 1 and b > 1) or (a <= 1 and b <= 1)"),
        ("(a > 1) == (b > 1)", "iff(a > 1, b > 1)"),
        ("xor(a > 1, b > 1)", "not iff(a > 1, b > 1)"),
        ("if_then_else(a > 1, b > 1, b < 1)", "(a > 1 -> b > 1) and (a <= 1 -> b < 1)"),
        ("if_then_else(a > 1, b, 2) == 2", "a <= 1 or b == 2"),
        ("all_different(a, b, 2)", "a != b and a != 2 and b != 2"),
        ("(a, b) in {(1, 2), (3, 4)}", "(a == 1 and b == 2) or (a == 3 and b == 4)"),
        ("(a, b) not in {(1, 2), (3, 4)}", "not (a, b) in {(1, 2), (3, 4)}"),
        ("bitand(a, 2) == 2", "a in {2, 3}"),
        ("bitor(a, 1) == bitxor(b, 1)", "(a // 2 == b // 2 and b % 2 == 0)"),
        ("element(a, 4, b, 2) == 2", "(a == 1 and b == 2) or a == 2"),
        ("count(a > 1, b > 1) == 1", "(a > 1) + (b > 1) == 1"),
        ("(a > 1) + b == 2", "(a > 1 and b == 1) or (a <= 1 and b == 2)"),
    ],
)
def test_the_grammar_table(text: str, same: str) -> None:
    domains = "var a in 0..4\nvar b in 0..4\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, wanted = (list(enumerate_space(parse(domains + rule))) for rule in (text, same))
    assert sorted(map(str, found)) == sorted(map(str, wanted))


def test_the_example_error() -> None:
    text = "var tile_k in {16, 32}\nvar stages in 1..4\nstages * (tile_k + <= 64\n"
    with pytest.raises(ParseError) as caught:
        parse(text, source="tiles.constrint")
    assert str(caught.value) in TEXT


def test_the_space_example_means_what_python_says() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    space = json.loads(block)
    rows = list(enumerate_space(problem_from_space(space["params"], space["restrictions"], space["name"])))
    wanted = [
        (m, n, v)
        for m in space["params"]["tile_m"]
        for n in space["params"]["tile_n"]
        for v in space["params"]["vector"]
        if 256 <= m * n <= 4096 and m % (n / v) == 0 and (v in (1, 2, 4) or n / 3 > 40) and not (m == 64 and n == 64)
    ]
    assert sorted(tuple(row.values()) for row in rows) == sorted(wanted)
    assert 12 % (8 / 3) != 0
