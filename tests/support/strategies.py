"""Random expressions, constraints and small problems, shared by the tests of `model` and `solve`.

Strategies are built once and drawn from many times: hypothesis validates every new strategy, and validation of the
nested strategies here takes several times as long as a draw.
"""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from constrint import model as m
from tests.support import random_problems

NAMES = ("a", "b", "c", "d", "e")
_BINARY = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: a / b,
    lambda a, b: a ** (b % 4),
    m.minimum,
    lambda a, b: m.maximum(a, b, 3),
    m.ceildiv,
    m.gcd,
    m.lcm,
    lambda a, b: a & b,
    lambda a, b: a | b,
    lambda a, b: a ^ b,
    lambda a, b: m.element(a, [b, 3, a + b]),
    lambda a, b: (a > b) + (b <= 2),
)
_COMPARISONS = (
    lambda a, b: a == b,
    lambda a, b: a != b,
    lambda a, b: a <= b,
    lambda a, b: a < b,
    lambda a, b: a >= b,
    lambda a, b: a > b,
    m.divides,
    lambda a, b: m.all_different(a, b, 3),
    lambda a, b: (a > 1) == (b > 1),
    lambda a, b: m.xor(a > 1, b < 3),
    lambda a, b: m.count(a > 1, b > 1, a == b) >= 2,
    lambda a, b: m.if_then_else(a < b, a % 2, 4 // b) == 1,
    lambda a, b: m.table([a, b], [(0, 1), (1, 0), (2, 2), (5, -1), (3, 12)]),
)


@cache
def expressions(names: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[m.Expr]:
    leaves = st.one_of(
        st.sampled_from(names).map(m.Var),
        st.sampled_from(names).map(m.Var),
        st.integers(-9, 12).map(m.const),
        st.just(m.const(4, "four")),
    )
    if depth == 0:
        return leaves
    below = expressions(names, depth - 1)
    return st.one_of(
        leaves,
        st.builds(lambda f, a, b: f(a, b), st.sampled_from(_BINARY), below, below),
        st.builds(lambda f, a, b: f(a, b), st.sampled_from(_BINARY[:3]), below, below),
        st.builds(lambda f, a: f(a), st.sampled_from((m.absolute, lambda a: -a)), below),
    )


_LISTED = st.lists(st.integers(-9, 30), min_size=1, max_size=5)
_RANGES = st.builds(lambda low, n, step: range(low, low + n * step, step), *(st.integers(1, 6),) * 3)


@cache
def constraints(names: tuple[str, ...], depth: int = 2) -> st.SearchStrategy[m.Constraint]:
    sides = expressions(names, 2)
    small = st.one_of(expressions(names, 1), st.integers(-5, 60).map(m.const))
    atoms = st.one_of(
        st.builds(lambda f, a, b: f(a, b), st.sampled_from(_COMPARISONS), sides, small),
        st.builds(m.is_in, sides, st.one_of(_LISTED, _RANGES)),
    )
    if depth == 0:
        return atoms
    below = constraints(names, depth - 1)
    return st.one_of(
        atoms,
        atoms,
        st.builds(m.any_of, below, below),
        st.builds(m.all_of, below, below),
        st.builds(m.implies, below, below),
        st.builds(m.negate, below),
    )


@cache
def problems(max_variables: int = 4, max_values: int = 6) -> st.SearchStrategy[m.Problem]:
    """Small problems that shrink well, and those of `random_problems`: wide, huge and empty ones."""
    drawn = st.integers(0, 2**40).map(random_problems.draw_listed)
    wide = drawn.map(random_problems.problem_of).map(m.Problem.without_objective)
    return st.one_of(_small_problems(max_variables, max_values), wide)


_TITLES = st.sampled_from(("", "small", "two words"))
_REASONS = st.sampled_from(("", "because", 'a "quoted" \\ one\n'))
_RULE_NAMES = st.sampled_from(("", "rule", "a rule"))


@cache
def _value_lists(max_values: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(-6, 20), min_size=1, max_size=max_values, unique=True)


@cache
def _constraint_lists(names: tuple[str, ...]) -> st.SearchStrategy[list[m.Constraint]]:
    return st.lists(constraints(names), max_size=4)


@st.composite
def _small_problems(draw: st.DrawFn, max_variables: int, max_values: int) -> m.Problem:
    problem = m.Problem(draw(_TITLES))
    names = NAMES[: draw(st.integers(1, max_variables))]
    for name in names:
        if draw(st.booleans()):
            problem.int_var(name, values=draw(_value_lists(max_values)), because=draw(_REASONS))
        else:
            low, step = draw(st.integers(-5, 5)), draw(st.integers(1, 3))
            high = low + draw(st.integers(0, max_values * step - 1))
            problem.int_var(name, lower=low, upper=high, step=step)
    for constraint in draw(_constraint_lists(names)):
        problem.add(constraint, because=draw(_REASONS), name=draw(_RULE_NAMES))
    return problem
