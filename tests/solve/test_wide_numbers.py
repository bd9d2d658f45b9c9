"""No integer passes through a float or wraps: domains near 2^53, 2^63 and beyond, with few values and large steps."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from constrint.errors import UsageError
from constrint.model import Domain, Problem, is_in, parse, render
from constrint.model.python.restrictions import problem_from_space
from constrint.solve import brute_force, count, enumerate_space, list_backends, solutions_in_order, solve
from constrint.solve.space.axes import axis_from_domain
from constrint.solve.space.tree import LinkedTable, Tree

NATIVE = ("native", "numpy")


@pytest.mark.parametrize("backend", NATIVE)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("var x in 1..100000000000000000; 10000000000000 divides x", 10_000),
        ("const a = 9007199254740993; a divides x; x <= 3 * a", 3),
        ("var x in 0..18014398509481986 step 18014398509481986; var y in 1..5000", 10_000),
        ("var x in 0..18014398509481986 step 18014398509481986; var y in 1..5000; x + y != 3", 9_999),
        ("var x in -9223372036854775808..9223372036854775807 step 18446744073709551615; x != 0", 2),
        ("var x in -9223372036854775808..9223372036854775807 step 3074457345618258603; x != 1", 5),
        ("var x in -9223372036854775808..9223372036854775807; x % 4611686018427387904 == 0", 4),
        ("var x in 9223372036854775800..9223372036854775820 step 5; x * x > 2 ^ 126", 3),
        ("var x in 5..5 step 1267650600228229401496703205376; x > 4", 1),
    ],
)
def test_counts_of_wide_domains(text: str, expected: int, backend: str) -> None:
    assert count(parse(text), backend=backend) == expected


def test_an_optimum_at_the_end_of_a_wide_domain() -> None:
    problem = parse("var x in 1..100000000000000000; var y in 1..3; 10000000000000 divides x; maximise x - y")
    assert solve(problem).value == solve(problem, backend="numpy").value == 10**17 - 1


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("step", [1, 7, 2**31 + 1, 2**53 - 1, 2**53 + 1, 2**63, 2**70])
@pytest.mark.parametrize("lower", [0, -(2**31) - 1, 2**53 - 1, -(2**63), 2**63 - 1, 2**64])
def test_an_axis_has_the_values_of_its_domain(lower: int, step: int, size: int) -> None:
    domain = Domain.from_range(lower, lower + step * (size - 1), step)
    axis = axis_from_domain(domain)
    assert axis.values.tolist() == list(domain)
    assert axis.bounds == (domain.lower, domain.upper)
    assert (axis.values.dtype == object) == (domain.lower < -(2**63) or domain.upper >= 2**63)


def test_a_bound_beyond_64_bits_beside_small_values() -> None:
    problem = parse("var w in {-1, 8}; var Z in {1, 18446744073709551618}; w <= min(Z, w)")
    expected = brute_force(problem)
    for backend in NATIVE:
        assert list(solutions_in_order(problem, backend=backend)) == expected
    assert solve(problem).require() == expected[0]


def test_totals_are_multiplied_in_64_bits() -> None:
    # Below every row of the root hang two chains of 200 solutions each; 40,000 is more than 8 bits hold.
    few = np.arange(10, dtype=np.uint8)
    last = np.tile(np.arange(200, dtype=np.uint8), 10)
    nodes = [LinkedTable({"r": few}, np.array([0, 10]), {1: few, 3: few})]
    for place, side in ((1, "a"), (3, "b")):
        nodes.append(LinkedTable({f"{side}1": few}, np.arange(11), {place + 1: few}))
        nodes.append(LinkedTable({f"{side}2": last}, np.arange(0, 2001, 200)))
    tree = Tree(nodes, {"r": 10, "a1": 10, "b1": 10, "a2": 200, "b2": 200})
    assert tree.count == 400_000
    indices = np.array([0, 123_456, 399_999])
    assert tree.ranks(tree.take(indices)).tolist() == indices.tolist()
    assert tree.project(["r"])[1].tolist() == [40_000] * 10


def test_unsigned_columns_are_compared_as_integers() -> None:
    problem = Problem()
    problem.int_var("x", values=[2**62 + 1, 2**62 + 2, 5])
    problem.int_var("y", values=[1, 2])
    problem.add(is_in(problem.int_var("z", values=[1, 2]), [1, 2]))
    space = enumerate_space(problem)
    columns = {n: c.astype(np.uint64) for n, c in space.take(range(space.size)).items()}
    source, near = space.neighbour_columns(columns)
    assert len(source) == len(near["x"]) == space.size * 4
    columns["x"][0] += np.uint64(1) if columns["x"][0] != 2**62 + 1 else np.uint64(2)
    with pytest.raises(UsageError, match="outside"):
        space.neighbour_columns(columns)


UNDEFINED = [
    ("4 // a not in {4}", [1]),
    ("not 4 // a in {4}", [0, 1]),
    ("4 // a in {4}", [2]),
    ("not (4 // a not in {4})", [0, 2]),
    ("4 // a != [4]", [1]),
    ("4 // a not in {}", [1, 2]),
    ("4 // a not in 3..5", [1]),
    ("4 // a not in {4} -> b == 1", [0, 2]),
    ("b == 1 or 4 // a not in {4}", [1]),
    ("b == 0 and 4 / a not in {5} and a >= 0", [2]),
    ("2 % a not in {1} or 2 ^ (a - 1) not in {1}", [1, 2]),
    ("a % 3 not in {1}", [0, 1]),
]


@pytest.mark.parametrize("backend", list_backends())
@pytest.mark.parametrize(("text", "places"), UNDEFINED, ids=[text for text, _ in UNDEFINED])
def test_a_test_without_a_value_is_false_wherever_it_stands(text: str, places: list[int], backend: str) -> None:
    problem = parse(f"var a in {{0, 3, 1}}; var b in {{0}}; {text}")
    values = [0, 3, 1]
    assert sorted(c["a"] for c in enumerate_space(problem, backend=backend)) == sorted(values[p] for p in places)
    assert parse(render(problem)) == problem


@pytest.mark.parametrize("backend", NATIVE)
@pytest.mark.parametrize(
    ("restriction", "left"),
    [
        ("4 // a not in (4,)", [3]),
        ("not 4 // a in (4,)", [0, 3]),
        ("4 / a not in (4, 2)", [3]),
        ("4 % a not in [1]", [1]),
        ("4 // a not in (4,) or a == 0", [0, 3]),
    ],
)
def test_restrictions_agree_about_what_has_no_value(restriction: str, left: list[int], backend: str) -> None:
    problem = problem_from_space({"a": [0, 3, 1], "b": [1, 2]}, [restriction, "b < 2"])
    assert sorted(c["a"] for c in enumerate_space(problem, backend=backend)) == left
    assert [c["a"] for c in islice(solutions_in_order(problem, backend=backend), 3)] == [
        a for a in (0, 3, 1) if a in left
    ]


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_multiples_of_small_numbers_beside_wide_ones(backend: str) -> None:
    text = "var a in {6148914691236517205, 4, 2, -3, 5, 0, 12}; var b in 1..6; a % 3 != 1; 4 divides lcm(2, a, a) + b"
    problem = parse(text)
    assert count(problem, backend=backend) == len(brute_force(problem)) > 0
    wide = parse("var a in {6148914691236517205, 0, 12}; var b in 1..6; a == a * 2 ^ 63; 5 divides lcm(2, a, a)")
    assert count(wide, backend=backend) == len(brute_force(wide)) == 6
