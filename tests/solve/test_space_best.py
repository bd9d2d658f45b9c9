"""The k best solutions of a space against sorting all of them."""

import itertools
import random
import tracemalloc
from collections.abc import Callable

import pytest

from constrint.core import compiled
from constrint.errors import CancelledError, LimitReachedError, UndefinedValueError
from constrint.model import Domain, Expr, Problem, Var, parse, parse_constraint
from constrint.model.expr import add
from constrint.solve import Limits, SearchSpace, enumerate_space
from constrint.solve.space import best
from constrint.solve.space.tree import Tree

linked_tables = pytest.mark.skipif(
    compiled is None,
    reason="the compiled core is not built: numpy lists a component as one table, which is too long here",
)


def expression(text: str) -> Expr:
    return parse_constraint(f"{text} == 0").left  # type: ignore[attr-defined, no-any-return]


def costs_of(space: SearchSpace, expr: Expr, maximise: bool) -> list[int]:
    """The cost of every solution that has one, the best first."""
    costs = []
    for config in space:
        try:
            costs.append(expr.value(config))
        except UndefinedValueError:
            continue
    return sorted(costs, reverse=maximise)


def check_best(space: SearchSpace, expr: Expr, maximise: bool, k: int, costs: list[int]) -> None:
    """Compares the k best with the sorted costs of all solutions; which of equally good ones come is open."""
    found = space.best(k, expr, maximise=maximise)
    assert [r.cost for r in found] == costs[:k], (str(space.problem), str(expr), maximise, k)
    assert all(r.config in space and expr.value(r.config) == r.cost for r in found)
    assert len({tuple(r.config.items()) for r in found}) == len(found)
    assert space.best(k, expr, maximise=maximise) == found


def check(space: SearchSpace, expr: Expr, rng: random.Random, most: int = 10_000) -> int:
    maximise = rng.random() < 0.5
    costs = costs_of(space, expr, maximise)
    check_best(space, expr, maximise, rng.choice((1, 2, 5, 10, most)), costs)
    return len(costs)


def random_expr(rng: random.Random, names: list[str], depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.1:
        return Var(rng.choice(names)) if rng.random() < 0.8 else expression(str(rng.randint(-4, 9)))
    a, b = (random_expr(rng, names, depth - 1) for _ in range(2))
    operations: list[Callable[[], Expr]] = [
        *(lambda: a + b, lambda: a - b, lambda: a * b, lambda: a + b, lambda: a * b, lambda: a + 2 * b - 3),
        *(lambda: a // b, lambda: a % b, lambda: a / b, lambda: abs(a), lambda: a ** rng.randint(0, 3)),
        *(lambda: expression(f"max({a}, {b})"), lambda: expression(f"min({a}, {b})")),
        *(lambda: expression(f"ceildiv({a}, {b})"), lambda: expression(f"gcd({a}, {b})"), lambda: 0 * a),
    ]
    return rng.choice(operations)()


@pytest.mark.parametrize("backend", ["native", "numpy", "brute"])
def test_best_equals_sorting(backend: str, random_problem: Callable[[int], Problem]) -> None:
    rng = random.Random(backend)
    sizes = []
    for number in range(600):
        problem = random_problem(number)
        space = enumerate_space(problem, backend=backend)
        if space.size > 1 and rng.random() < 0.2:
            space = space.exclude(*space.sample(min(3, space.size), seed=number))
        sizes.append(check(space, random_expr(rng, list(problem.names), rng.randint(0, 3)), rng))
    assert sum(size > 20 for size in sizes) > 50


@linked_tables
def test_the_search_for_the_best_equals_sorting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tables: chains and stars of rules, and variables that no rule touches; some spaces are narrowed."""
    monkeypatch.setattr(best, "_FEW_COMBINATIONS", 0)
    rng = random.Random(7)
    tables = []
    for _ in range(25):
        names = ["a", "b", "c", "d", "e"]
        problem = Problem()
        for name in names:
            problem.int_var(name, values=rng.sample(range(-4, 9), 6))
        for _ in range(rng.randint(1, 7)):
            x, y = rng.sample(names, 2)
            problem.add(parse_constraint(f"{x} * {rng.randint(1, 3)} + {y} <= {rng.randint(-6, 6)}"))
        space = enumerate_space(problem)
        if not space:
            continue
        if rng.random() < 0.5:
            space = space.restrict(a=rng.sample(list(problem.variables["a"]), 4)).exclude(*space.sample(3, seed=1))
        tables.append(max((len(p.tables) for p in space.parts or () if isinstance(p, Tree)), default=0))
        for _ in range(3):
            check(space, random_expr(rng, names, 3), rng, 100)
    assert max(tables) >= 2


@pytest.mark.parametrize("scale", [2**31, 2**53, 2**63, 2**80])
def test_best_of_wide_values(scale: int) -> None:
    rng = random.Random(scale)
    problem = Problem()
    for name in ("x", "y", "z"):
        problem.declare(name, Domain.from_values([rng.randint(-scale, scale) for _ in range(6)]))
    problem.add(parse_constraint(f"x + y <= {scale}"))
    space = enumerate_space(problem)
    for text in ("x + y + z", "x * y - z", "x * y * z", "(x - y) // z", "x ^ 2 - y ^ 2", "abs(x) % (z - 1)"):
        check(space, expression(text), rng)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_best_over_ranges_that_are_too_long_to_list(backend: str) -> None:
    problem = parse(
        """
        var a in -3..99999999999999997
        var b in -4..99999999999999996
        var c in -3..1 step 2
        a divides 267181325549568 and abs(a) <= 10000
        b divides 69909840 and abs(b) <= 10000
        """
    )
    limits = Limits(max_seconds=5)
    space = enumerate_space(problem, limits, backend)
    part = space.restrict(b=range(1, 5001))
    cost = expression("a - ceildiv(b, a)")
    costs = costs_of(space, cost, maximise=False)
    assert min(len(rows) for _, rows in (space.project(["a", "b"]), part.project(["a", "b"]))) > best._FEW_COMBINATIONS
    tracemalloc.start()
    try:
        found = space.best(3, cost, limits=limits)
        narrowed = part.best(3, cost, limits=limits)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [r.cost for r in found] == costs[:3]
    assert all(r.config in space for r in found)
    assert [r.cost for r in narrowed] == costs_of(part, cost, maximise=False)[:3]
    assert peak < 100 * 2**20


def test_best_of_derived_and_fixed_variables() -> None:
    space = enumerate_space(
        parse("var x in 0..9000; var y in 1..40; var z in {7}; x == 3 * y * y - 40 * y + 9; y % 3 != 1")
    )
    for text in ("x", "x + z", "x - y", "z", "y", "x % z"):
        check(space, expression(text), random.Random(text))


TEXT = """
var a in 1..42; var b in 1..42; var c in 1..42; var d in 1..42; var e in 1..42
a * b <= 882; b + c <= 63; c % 3 == d % 3; d * e <= 588
"""


@linked_tables
@pytest.mark.parametrize(
    "text", ["a + b + c + d + e", "a * b * c * d * e", "(a - 20) * (b - 17) + abs(c - d) * e", "a * e - b * d + c", "a"]
)
def test_best_of_22_million_is_found_without_listing_them(text: str) -> None:
    space = enumerate_space(parse(TEXT))
    assert space.size > 22_000_000
    tracemalloc.start()
    try:
        found = space.best(10, expression(text))
        assert tracemalloc.get_traced_memory()[1] < 22_000_000  # less than a byte a solution
    finally:
        tracemalloc.stop()
    assert len(found) == 10
    # The same with the smallest one excluded, which the cheap bound cannot know of.
    again = space.exclude(found[0].config).best(9, expression(text))
    assert [r.cost for r in again] == [r.cost for r in found[1:]]


@linked_tables
def test_best_of_22_million_equals_the_listed_minimum() -> None:
    space = enumerate_space(parse(TEXT))
    columns = {n: c.astype("int64") for n, c in space.columns().items()}
    costs = (columns["a"] - 20) * (columns["b"] - 17) + abs(columns["c"] - columns["d"]) * columns["e"]
    costs.sort()
    found = space.best(10, expression("(a - 20) * (b - 17) + abs(c - d) * e"))
    assert [r.cost for r in found] == costs[:10].tolist()


@linked_tables
def test_best_keeps_its_limits() -> None:
    space = enumerate_space(parse(TEXT))
    for limits, error in ((Limits(max_seconds=0), LimitReachedError), (Limits(cancel=lambda: True), CancelledError)):
        with pytest.raises(error):
            space.best(10, expression("a * b - c * d"), limits=limits)
        with pytest.raises(error):
            space.best(10, lambda columns: columns["a"], names=["a"], limits=limits)


@linked_tables
@pytest.mark.parametrize(("number", "at_most"), [(30, 3), (40, 2)])
def test_best_over_a_diagram_equals_sorting(number: int, at_most: int) -> None:
    rng = random.Random(number)
    problem = parse("".join(f"var x{i} in 0..1; " for i in range(number)))
    bits = [Var(f"x{i}") for i in range(number)]
    problem.add(add(*bits) <= at_most)
    space = enumerate_space(problem)
    few, ties = bits[0] + bits[number // 2] * bits[-1], add(*(b if rng.random() < 0.7 else -b for b in bits))
    weighted = add(*(rng.randint(-5, 5) * b for b in bits))
    pairs = add(*(a * b for a, b in itertools.pairwise(bits)))
    for cost in (few, ties, weighted, pairs):
        for maximise in (False, True):
            check_best(space, cost, maximise, 10, costs_of(space, cost, maximise))


@linked_tables
def test_best_over_a_diagram_of_200_layers_lists_nothing() -> None:
    problem = parse("".join(f"var x{i} in 0..1; " for i in range(200)))
    bits = [Var(f"x{i}") for i in range(200)]
    problem.add(add(*bits) <= 60)
    space = enumerate_space(problem)
    assert space.size > 2**150
    found = space.best(3, add(*((i % 7 - 2) * b for i, b in enumerate(bits))), maximise=True)
    weights = sorted((i % 7 - 2 for i in range(200)), reverse=True)
    assert [r.cost for r in found] == [sum(weights[:60])] * 3
    assert all(r.config in space for r in found)
    assert len({tuple(r.config.values()) for r in found}) == 3
