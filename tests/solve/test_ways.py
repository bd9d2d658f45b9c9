"""Tables, depth-first search and decision diagrams list the same solutions, and pick what is quick by themselves."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.core import compiled as core
from constrint.errors import LimitReachedError
from constrint.model import Problem, Var, parse
from constrint.solve import Limits, SearchSpace, brute_force, count, enumerate_space
from constrint.solve.budget import Budget, SearchStats
from constrint.solve.engine.compiled import ENGINE, CompiledFactors, core_model
from constrint.solve.space.tree import Tree
from tests.support import strategies
from tests.support.clock import within
from tests.support.puzzles import SUDOKUS, bits, pigeonholes, sudoku

WAYS = {"tables": 1, "search": 2, "diagram": 3}
pytestmark = pytest.mark.skipif(core is None, reason="the compiled core is not built: numpy has one way only")


def listed_by(problem: Problem, way: str) -> SearchSpace | None:
    """The space as one way lists it; None where the core declines the problem."""
    assert core is not None
    model = core_model(problem, Budget(Limits()))
    answer = None if model is None else core.enumerate_by(model, WAYS[way])
    if answer is None:
        return None
    space, counts = (None, ()) if answer[0] == "infeasible" else answer[1:3]
    return SearchSpace(problem, CompiledFactors(core, problem, space, counts), SearchStats(), ENGINE)


def check_space(problem: Problem, space: SearchSpace, rng: random.Random) -> None:
    """Compares every question a space answers with the list of its solutions."""
    names = problem.names
    solutions = [tuple(s[n] for n in names) for s in brute_force(problem)]
    found = [tuple(s[n] for n in names) for s in space]
    assert sorted(found) == sorted(solutions)
    assert space.size == len(solutions)
    columns = space.columns()
    assert list(zip(*(columns[n].tolist() for n in names), strict=True)) == found
    keep = rng.sample(names, rng.randint(0, len(names)))
    kept, counts = space.project(keep)
    keys = list(zip(*(kept[n].tolist() for n in keep), strict=True)) if keep else [()] * len(counts)
    assert dict(zip(keys, counts.tolist(), strict=True)) == Counter(
        tuple(s[names.index(n)] for n in keep) for s in solutions
    )
    drawn = {n: rng.choice(list(d)) for n, d in problem.variables.items()}
    assert space.contains(drawn) == (tuple(drawn.values()) in solutions)
    near = [s for s in solutions if sum(a != b for a, b in zip(s, drawn.values(), strict=True)) == 1]
    assert sorted(tuple(s.values()) for s in space.neighbours(drawn)) == sorted(near)
    part = {n: drawn[n] for n in keep}
    extended = space.extend(part)
    assert sorted(tuple(s[n] for n in names) for s in extended) == sorted(
        s for s in solutions if all(s[names.index(n)] == v for n, v in part.items())
    )
    if solutions:
        assert tuple(space.first().values()) == solutions[0]
        assert space.contains(dict(zip(names, rng.choice(solutions), strict=True)))


def puzzle(number: int) -> Problem:
    """Sums, differences and other rules over up to seven variables of few values."""
    rng = random.Random(number)
    problem = Problem(f"puzzle {number}")
    num, most = rng.randint(2, 7), rng.randint(1, 3)
    variables = [
        problem.int_var(f"x{i}", lower=0, upper=most)
        if rng.random() < 0.7
        else problem.int_var(f"x{i}", values=rng.sample(range(-3, 5), 3))
        for i in range(num)
    ]
    for _ in range(rng.randint(1, 4)):
        some = rng.sample(variables, rng.randint(2, num))
        pick = rng.randrange(7)
        total = sum((rng.choice((1, 1, 2, -1, 3)) * x for x in some), start=rng.randint(-2, 2) * some[0])
        bound = rng.randint(-2, 6)
        if pick == 0:
            problem.add(total <= bound)
        elif pick == 1:
            problem.add(total == bound)
        elif pick == 2:
            problem.add(total != bound)
        elif pick == 3:
            for a, b in itertools.combinations(some, 2):
                problem.add(a != b)
        elif pick == 4:
            problem.add(some[0] * some[1] >= total - bound)
        elif pick == 5:
            problem.add(total % 3 == rng.randrange(3))
        else:
            problem.add(some[0] // (some[1] + rng.randint(0, 2)) <= bound)
    return problem


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=25)
@given(start=st.integers(0, 10**9))
def test_every_way_lists_what_plain_python_finds(
    random_problem: Callable[[int], Problem], way: str, start: int
) -> None:
    for number in range(start, start + 4):
        for problem in (random_problem(number), puzzle(number)):
            space = listed_by(problem, way)
            if space is not None:
                check_space(problem, space, random.Random(number))


@pytest.mark.parametrize("way", WAYS)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_every_way_lists_drawn_problems(way: str, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    space = listed_by(problem, way)
    if space is not None:
        check_space(problem, space, random.Random(data.draw(st.integers(0, 99))))


@pytest.mark.parametrize("number", [20, 26, 60, 100, 200])
def test_a_bounded_sum_is_counted_without_a_list(number: int) -> None:
    problem, variables = bits(number)
    problem.add(sum(variables) <= 3)
    space = enumerate_space(problem)
    assert space.stats.cells < 20 * number
    assert space.size == sum(math.comb(number, k) for k in range(4))
    assert space.stats.rows < 2000
    if number == 200:
        (part,) = space.parts or ()
        assert isinstance(part, Tree)
        assert sum(len(table.starts) - 1 for table in part.tables) == 791
    last = space[space.size - 1]
    assert sum(last.values()) <= 3
    assert space.contains(last)


def test_counts_beyond_64_bits_are_exact() -> None:
    problem, variables = bits(150)
    problem.add(sum(variables) == 75)
    assert count(problem) == math.comb(150, 75)
    space = enumerate_space(problem)
    middle = space[space.size // 2]
    assert sum(middle.values()) == 75
    assert all(sum(s.values()) == 75 for s in space.sample(20, seed=1))


def test_two_sums_are_counted_together() -> None:
    problem, variables = bits(40)
    problem.add(sum(variables) == 12)
    problem.add(sum(variables[:20]) >= sum(variables[20:]))
    want = sum(math.comb(20, a) * math.comb(20, 12 - a) for a in range(13) if a >= 12 - a)
    assert count(problem) == want


@pytest.mark.parametrize("name", SUDOKUS)
def test_sudokus_have_one_solution_and_it_comes_at_once(name: str) -> None:
    problem = sudoku(SUDOKUS[name])
    space = enumerate_space(problem)
    assert space.stats.cells < 1 << 19
    (solution,) = space
    assert all(c.holds(solution) for c in problem.constraints)


@pytest.mark.parametrize("pigeons", [9, 12, 40])
def test_more_pigeons_than_holes_is_seen_at_once(pigeons: int) -> None:
    assert count(pigeonholes(pigeons), Limits(max_nodes=1 << 10, max_cells=1 << 20)) == 0


def test_an_odd_sum_of_even_numbers_is_seen_at_once() -> None:
    problem, variables = bits(60)
    problem.add(2 * sum(variables) == 61)
    assert count(problem, Limits(max_nodes=1 << 10, max_cells=1 << 20)) == 0


WEIGHTS = [(i * 37 + 11) % 101 + 1 for i in range(200)]
CONDITIONS: dict[str, Callable[[int], bool]] = {
    "{sum} % 3 == 1": lambda total: total % 3 == 1,
    "{sum} in {{30, 60, 90, 120}}": lambda total: total in (30, 60, 90, 120),
    "{sum} divides 420": lambda total: total > 0 and 420 % total == 0,
    "{sum} // 10 == 6": lambda total: total // 10 == 6,
    "max({sum}, 40) == 50 or {sum} == 12": lambda total: total in (50, 12),
    "{sum} * {sum} <= 5000": lambda total: total * total <= 5000,
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_on_a_sum_of_many_variables_is_counted_by_its_values(condition: str) -> None:
    ways: Counter[tuple[int, int]] = Counter({(0, 0): 1})
    for weight in WEIGHTS:
        for (chosen, total), number in list(ways.items()):
            if chosen < 3:
                ways[chosen + 1, total + weight] += number
    weighted = "(" + " + ".join(f"{weight} * x{i}" for i, weight in enumerate(WEIGHTS)) + ")"
    text = (
        "\n".join(f"var x{i} in 0..1" for i in range(200)) + "\n" + " + ".join(f"x{i}" for i in range(200)) + " <= 3\n"
    )
    found = count(parse(text + condition.format(sum=weighted)), Limits(max_cells=1 << 23))
    assert found == sum(number for (_, total), number in ways.items() if CONDITIONS[condition](total))


def test_a_weighted_sum_of_many_variables_is_counted_by_its_values() -> None:
    ways: Counter[int] = Counter({0: 1})
    for weight in WEIGHTS:
        for total, number in list(ways.items()):
            ways[total + weight] += number
    weighted = " + ".join(f"{weight} * x{i}" for i, weight in enumerate(WEIGHTS))
    text = "\n".join(f"var x{i} in 0..1" for i in range(200)) + f"\n{weighted} == 480"
    assert count(parse(text), Limits(max_cells=1 << 22)) == ways[480]


def test_splits_are_counted_by_their_products() -> None:
    """Three ways to write 512 as a product of seven factors, of which some together are bounded."""
    divisors = "{" + ", ".join(str(1 << i) for i in range(10)) + "}"
    names = [[f"{loop}{part}" for part in range(7)] for loop in "fyx"]
    text = "".join(f"var {name} in {divisors}\n" for loop in names for name in loop)
    text += "".join(" * ".join(loop) + " == 512\n" for loop in names) + "f1 * y1 * x1 <= 64"
    # Exponents that add up to nine, with those of the second factors together at most six.
    rest = [math.comb(9 - first + 5, 5) for first in range(10)]
    want = sum(rest[f] * rest[y] * rest[x] for f, y, x in itertools.product(range(7), repeat=3) if f + y + x <= 6)
    assert count(parse(text), Limits(max_cells=1 << 20)) == want


def test_equal_products_are_counted_without_all_combinations() -> None:
    products = Counter(a * b for a in range(1, 121) for b in range(1, 121))
    problem = parse("\n".join(f"var {name} in 1..120" for name in "abcd") + "\na * b == c * d")
    assert count(problem, Limits(max_cells=1 << 18)) == sum(number**2 for number in products.values())


RULES = (
    "{a} + {b} * 2 - {c} <= {n}",
    "({a} + {b} + {c}) % {m} == {n}",
    "({a} * {b} * {c}) % {m} != {n}",
    "{a} * {b} == {c} * {d}",
    "{a} * {b} == {n}",
    "{a} * {b} * {d} <= {n}",
    "max({a}, {b}, {c}) - min({a}, {b}, {c}) == {m} - 1",
    "({a} + {b} - {a}) // {m} == {n} or {c} == 1",
    "{m} divides {a} * {a} + {c} + {d}",
    "{a} * {b} + {c} * {d} in {{{n}, {m}, 3}}",
    "{a} // {b} <= {c}",
    "({a} * {b}) % {c} == 1",
    "abs({a} - {b}) * {c} == {n}",
    "{a} - {a} == {b} - {b}",
    "({a} + {b}) % {m} + ({a} + {b}) // {m} <= {n}",
    "{a} ^ 2 + {b} ^ 2 == {c} ^ 2",
)


def gathered(number: int) -> Problem:
    """Rules on sums, products and extremes over a few variables."""
    rng = random.Random(number)
    names = [f"x{i}" for i in range(rng.randint(2, 6))]
    lines = []
    for name in names:
        values = sorted(rng.sample(range(-2, 7), rng.randint(2, 4)))
        values = values if rng.random() < 0.5 else list(range(rng.randint(0, 2), 5))
        lines.append(f"var {name} in {{{', '.join(map(str, values))}}}")
    for _ in range(rng.randint(1, 4)):
        chosen = dict(zip("abcd", rng.choices(names, k=4), strict=True))
        lines.append(rng.choice(RULES).format(**chosen, n=rng.randint(0, 12), m=rng.randint(1, 6)))
    return parse("\n".join(lines))


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_diagrams_of_what_is_gathered_list_the_same_solutions(first: int) -> None:
    for number in range(first, first + 30):
        problem = gathered(number)
        want = sorted(tuple(s.values()) for s in brute_force(problem))
        space = listed_by(problem, "diagram")
        assert space is not None
        assert sorted(tuple(s.values()) for s in space) == want, problem
        assert sorted(tuple(s.values()) for s in enumerate_space(problem)) == want, problem


ASKED = (
    "a * b == c * d",
    "a * b + 3 == c * d",
    "a * a + b * b == c * c + d * d",
    "a * b % c == {n}",
    "(a * b - 7 * a) % d == 1",
    "c divides a * b - {n}",
    "c divides a * a - b",
    "a - b == c * (d % 3)",
    "(a + 2 * b) % d == c",
)


@pytest.mark.parametrize("rule", ASKED)
def test_places_that_an_equality_asks_for_are_all_tried(rule: str) -> None:
    """With zeros, negative numbers and values that give one part twice; a list is made where states are many."""
    rng = random.Random(rule)
    for _ in range(4):
        domains = {name: rng.sample(range(-6, 14), 12) for name in "ab"}
        domains |= {name: rng.sample(range(rng.choice((-4, 0, 1)), 15), 10) for name in "cd"}
        declared = "".join(f"var {n} in {{{', '.join(map(str, values))}}}\n" for n, values in domains.items())
        problem = parse(declared + rule.format(n=rng.randint(0, 8)))
        want = sorted(tuple(s.values()) for s in brute_force(problem))
        space = listed_by(problem, "diagram")
        assert space is not None
        assert sorted(tuple(s.values()) for s in space) == want


@pytest.mark.parametrize("rule", ["a * b % c == 7", "c divides a * b - 7", "a * b == c * 12"])
def test_divisors_of_many_numbers_are_found_without_trying_all(rule: str) -> None:
    products = Counter(a * b for a in range(1, 401) for b in range(1, 401))
    rules: dict[str, Callable[[int, int], bool]] = {
        "a * b % c == 7": lambda p, c: p % c == 7,
        "c divides a * b - 7": lambda p, c: (p - 7) % c == 0,
        "a * b == c * 12": lambda p, c: p == 12 * c,
    }
    holds = rules[rule]
    problem = parse("\n".join(f"var {name} in 1..400" for name in "abc") + f"\n{rule}")
    want = sum(n for p, n in products.items() for c in range(1, 401) if holds(p, c))
    assert count(problem, Limits(max_cells=1 << 22)) == want


def test_limits_hold_in_a_search() -> None:
    # Each variable stands in several products: nothing is gathered, and there are far too many solutions for one table.
    problem = parse("\n".join(f"var x{i} in 1..9" for i in range(14)))
    products = sum(Var(f"x{i}") * Var(f"x{(i * 5 + 3) % 14}") for i in range(14))
    problem.add(products % 101 == 5)

    def ask() -> None:
        with pytest.raises(LimitReachedError):
            enumerate_space(problem, Limits(max_seconds=0.5))

    within(1.0, ask)


def test_values_too_large_for_a_diagram_are_left_to_other_ways() -> None:
    large = "{2305843009213693960, -2305843009213693951, 7}"
    problem = parse(f"var a in {large}; var b in {{3, 4, 6}}; element(b % 2, a) < 9")
    assert count(problem) == len(brute_force(problem)) == 4
    assert listed_by(problem, "diagram") is None


@pytest.mark.parametrize("length", [10, 40])
def test_an_automaton_is_counted_by_its_states(length: int) -> None:
    # Words of a and b without three b in a row.
    states = "[(0, 0, 0), (0, 1, 1), (1, 1, 2), (1, 0, 0), (2, 0, 0)]"
    problem = parse(f"var x[{length}] in 0..1; regular(x, 0, [0, 1, 2], {states})")
    ways = [1, 0, 0]
    for _ in range(length):
        ways = [sum(ways), ways[0], ways[1]]
    assert within(0.5, lambda: count(problem)) == sum(ways)


def test_lists_in_order_are_counted_where_their_items_alternate() -> None:
    text = "\n".join(f"var x_{i} in 0..3; var y_{i} in 0..3" for i in range(30))
    left, right = (", ".join(f"{name}_{i}" for i in range(30)) for name in "xy")
    problem = parse(f"{text}\nlex_less([{left}], [{right}])")
    assert within(1.0, lambda: count(problem)) == (16**30 - 4**30) // 2
