import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint.errors import LimitReachedError, UndefinedValueError, UnknownNameError, UnsupportedError, UsageError
from constrint.model import Problem, parse
from constrint.solve import Limits, Status, brute_force, enumerate_space, list_backends, solve
from constrint.solve.backends import cpsat_model
from constrint.solve.backends.backend import get_backend
from tests.support import strategies
from tests.support.clock import PATIENCE_S

OTHERS = ("cpsat", "python-constraint")
# A problem that takes longer than this counts as a failure.
LIMITS = Limits(max_seconds=PATIENCE_S)


def rows(problem: Problem, assignments: Iterable[Mapping[str, int]]) -> list[tuple[int, ...]]:
    return sorted(tuple(a[n] for n in problem.variables) for a in assignments)


def listed(problem: Problem, backend: str) -> list[tuple[int, ...]]:
    columns = get_backend(backend).solutions(problem, LIMITS)
    found = list(zip(*(columns[n].tolist() for n in problem.variables), strict=True))
    assert len(found) == len(set(found))
    return sorted(found)


@settings(deadline=None, max_examples=40)
@given(start=st.integers(0, 10**9))
def test_native_equals_brute_force_on_two_thousand_problems(
    random_problem: Callable[[int], Problem], start: int
) -> None:
    for number in range(start, start + 50):
        problem = random_problem(number)
        expected = listed(problem, "brute")
        assert listed(problem, "native") == expected, str(problem)
        assert listed(problem, "numpy") == expected, str(problem)


@pytest.mark.parametrize(("name", "library"), [("cpsat", "OR-tools"), ("python-constraint", "python-constraint2")])
def test_a_back_end_whose_library_is_missing_names_the_extra(
    name: str, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("constrint.solve.backends.backend.find_spec", lambda name: None)
    said = f"back-end '{name}' needs {library}, which is not installed: pip install 'constrint[solvers]'."
    with pytest.raises(UsageError, match=re.escape(said)):
        get_backend(name)
    assert get_backend("native").name == "native"


@pytest.fixture(scope="module", params=[0, cpsat_model.MAX_LISTED], ids=["cpsat translates", "cpsat lists"])
def encodings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs tests with constraints translated into linear ones by CP-SAT's back-end, and with listed ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpsat_model, "MAX_LISTED", request.param)
        yield


def test_cpsat_lists_all_solutions_of_conditions_on_differences(encodings: None) -> None:
    problem = parse(
        "var a in 4294967300..25769803805 step 4294967301; var c in {-613566756, 1, 4294967303, 4294967304, 7};"
        "(a - c in {21474836502, 21474836503}) >= 0"
    )
    assert len(listed(problem, "cpsat")) == 30


@settings(deadline=None, max_examples=20)
@given(start=st.integers(0, 10**9))
def test_all_backends_agree(encodings: None, random_problem: Callable[[int], Problem], start: int) -> None:
    for number in range(start, start + 20):
        problem = random_problem(number)
        expected = listed(problem, "native")
        for backend in OTHERS:
            try:
                assert listed(problem, backend) == expected, f"{backend}\n{problem}"
            except UnsupportedError:
                assert backend == "cpsat"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_backends_agree_on_drawn_problems(encodings: None, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    expected = rows(problem, brute_force(problem))
    for backend in list_backends():
        try:
            assert listed(problem, backend) == expected, backend
        except UnsupportedError:
            # A function of two wide operands, such as gcd(a + a, a * a), is more than CP-SAT gets as a table.
            assert backend == "cpsat"


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_backends_agree_on_the_best(encodings: None, data: st.DataObject) -> None:
    problem = data.draw(strategies.problems())
    expr = data.draw(strategies.expressions(tuple(problem.variables)))
    problem.minimise(expr) if data.draw(st.booleans()) else problem.maximise(expr)

    def answer(backend: str) -> object:
        try:
            found = solve(problem, LIMITS, backend=backend)
        except UndefinedValueError:
            return "no value"
        if found:
            assert all(c.holds(found.assignment) for c in problem.constraints)
            assert expr.value(found.assignment) == found.value
        return found.status, found.value

    expected = answer("brute")
    for backend in ("native", "numpy", *OTHERS):
        try:
            assert answer(backend) == expected, backend
        except UnsupportedError:
            assert backend == "cpsat"


def large_problem(number: int) -> tuple[Problem, list[tuple[int, ...]]]:
    """Small variables x, y; a huge one that they determine, and a divisibility on it. Solutions by plain loops."""
    rng = random.Random(number)
    scale, shift = rng.choice((10**6, 2**20, 3**12)), rng.randint(-50, 50)
    divisor = rng.randint(2, 9)
    problem = Problem()
    x = problem.int_var("x", values=rng.sample(range(-20, 60), 12))
    y = problem.int_var("y", lower=1, upper=rng.randint(2, 15))
    z = problem.int_var("z", lower=-(10**12), upper=10**12, step=rng.choice((1, 1, 2)))
    problem.add(z == x * y * scale + shift)
    problem.add(z % divisor == rng.randrange(divisor))
    problem.add((x * y <= rng.randint(50, 400)) if rng.random() < 0.5 else (z - x >= rng.randint(-(10**7), 10**7)))
    found = []
    for a in problem.variables["x"]:
        for b in problem.variables["y"]:
            values = {"x": a, "y": b, "z": a * b * scale + shift}
            if values["z"] in problem.variables["z"] and all(c.holds(values) for c in problem.constraints):
                found.append((a, b, values["z"]))
    return problem, sorted(found)


@settings(deadline=None, max_examples=25)
@given(start=st.integers(0, 10**9))
def test_large_domains_agree(encodings: None, start: int) -> None:
    for number in range(start, start + 4):
        problem, expected = large_problem(number)
        assert listed(problem, "native") == expected, str(problem)
        assert listed(problem, "cpsat") == expected, str(problem)


def test_earlier_problems_change_nothing(random_problem: Callable[[int], Problem]) -> None:
    problems = [random_problem(n) for n in range(40)]
    forwards = [list(enumerate_space(p)) for p in problems]
    backwards = [list(enumerate_space(p)) for p in reversed(problems)][::-1]
    assert forwards == backwards
    assert [list(enumerate_space(random_problem(n))) for n in range(40)] == forwards


@pytest.mark.parametrize("backend", list_backends())
def test_every_backend_fills_a_search_space(backend: str) -> None:
    problem = parse("var x in {8, 2, 4}; var y in 1..3; x * y <= 8; x % y == 0")
    space = enumerate_space(problem, backend=backend)
    assert rows(problem, space) == [(2, 1), (2, 2), (4, 1), (4, 2), (8, 1)]
    assert space.first() == {"x": 8, "y": 1}
    assert space.contains({"x": 4, "y": 2})
    assert not enumerate_space(parse("var x in 1..3; x > 3"), backend=backend)
    assert list(enumerate_space(Problem(), backend=backend)) == [{}]


def test_unknown_backends_are_named() -> None:
    with pytest.raises(UnknownNameError, match="cpsat"):
        enumerate_space(Problem(), backend="cp-sat")


def test_cpsat_refuses_what_could_overflow() -> None:
    wide = f"var x in 1..{2**45}; var y in 1..{2**45}; "
    with pytest.raises(UnsupportedError, match="native"):
        solve(parse(wide + "x * y % 7 == 3"), LIMITS, backend="cpsat")
    with pytest.raises(UnsupportedError, match="safe in CP-SAT"):
        solve(parse(f"var x in {-(2**62)}..{2**62}; x != 5"), LIMITS, backend="cpsat")
    # Propagation bounds the product first: this one is safe.
    found = solve(parse(wide + "x * y == 10403; x > 1; y > x"), LIMITS, backend="cpsat").require()
    assert found == {"x": 101, "y": 103}


def test_cpsat_optimises_where_nothing_could_be_listed() -> None:
    problem = parse("var x in 1..1000000; var y in 1..1000000; 3 * x + 5 * y <= 2000001; maximise x * y")
    best = max(y * ((2000001 - 5 * y) // 3) for y in range(1, 400_000))
    assert solve(problem, LIMITS, backend="cpsat").value == best


@pytest.mark.parametrize("backend", ["brute", "cpsat", "python-constraint"])
def test_limits_of_backends_are_honest(backend: str) -> None:
    wide = parse("var x in 1..900; var y in 1..900; var z in 1..900; x + y != z")
    with pytest.raises(LimitReachedError):
        enumerate_space(wide, Limits(max_seconds=0.2), backend=backend)


def test_python_constraint_lists_only_small_domains() -> None:
    with pytest.raises(LimitReachedError, match="python-constraint"):
        enumerate_space(parse("var x in 1..1000000; x % 3 != 1"), backend="python-constraint")


def test_status_of_a_cut_off_search_is_limit_reached() -> None:
    wide = parse("var x in 1..900; var y in 1..900; var z in 1..900; x * y * z == 7 * 11 * 13 * 17 * 19; x != y")
    assert solve(wide, Limits(max_seconds=0.0), backend="brute").status is Status.LIMIT_REACHED
