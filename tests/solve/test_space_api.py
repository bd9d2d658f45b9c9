"""A space as a sequence, a set, a data frame and a table in a notebook, against plain lists of its solutions."""

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from constrint.errors import LimitReachedError, UnknownNameError, UsageError
from constrint.model import Problem, parse
from constrint.solve import Limits, SearchSpace, brute_force, enumerate_space, solve
from tests.support.html_cells import Cells


def some_spaces(random_problem: Callable[[int], Problem], numbers: range) -> list[tuple[random.Random, SearchSpace]]:
    """Spaces of random problems by several back-ends, some with solutions taken out."""
    spaces = []
    for number in numbers:
        rng = random.Random(number)
        space = enumerate_space(random_problem(number), backend=rng.choice(("native", "numpy", "brute")))
        if space.size and rng.random() < 0.3:
            space = space.exclude(*space.sample(min(2, space.size), seed=number))
        spaces.append((rng, space))
    return spaces


def test_subscripts_are_those_of_a_list(random_problem: Callable[[int], Problem]) -> None:
    for rng, space in some_spaces(random_problem, range(300)):
        listed = list(space)
        assert len(listed) == space.size
        for _ in range(6):
            bounds = [rng.choice((None, rng.randint(-space.size - 3, space.size + 3))) for _ in range(2)]
            part = slice(bounds[0], bounds[1], rng.choice((None, 1, 2, 3, -1, -2)))
            assert space[part] == listed[part], part
        assert space[:] == listed
        wanted = [rng.randrange(-space.size, space.size) for _ in range(5)] if space.size else []
        assert space[wanted] == [listed[i] for i in wanted]
        assert space[tuple(wanted)] == space[np.array(wanted, dtype=np.int64)] == space[wanted]
        if listed:
            assert space[-1] == listed[-1]
            assert space[np.int64(0)] == listed[0]


def test_wrong_subscripts_are_refused() -> None:
    space = enumerate_space(parse("var x in 1..8; var y in 1..8; x + y <= 9"))
    wrong: Any
    for wrong in ([0, 36], [-37], np.array([99])):
        with pytest.raises(IndexError, match="outside the space"):
            space[wrong]
    for wrong in ("0", 1.5, [1.5], slice(0, 1.5), slice(0, 9, 0), np.ones(36, dtype=bool), None, {1}, [True]):
        with pytest.raises(UsageError):
            space[wrong]
    with pytest.raises(IndexError):
        space[36]


def test_slices_of_a_space_too_large_to_list() -> None:
    space = enumerate_space(parse("; ".join(f"var v{i} in 1..1000" for i in range(30))))
    assert space[10**50 : 10**50 + 2] == [space[10**50], space[10**50 + 1]]
    assert space[-1:] == [space[-1]]
    assert space[[0, -1]] == [space[0], space[-1]]
    with pytest.raises(LimitReachedError):
        space[:]


def test_restricting_to_several_values(random_problem: Callable[[int], Problem]) -> None:
    seen = 0
    for rng, space in some_spaces(random_problem, range(300, 600)):
        names = rng.sample(space.names, rng.randint(1, len(space.names)))
        wanted: dict[str, Any] = {}
        kept = list(space)
        for name in names:
            domain = list(space.problem.variables[name])
            values = rng.sample([*domain, 777], rng.randint(0, len(domain)))
            fits = all(abs(value) < 2**63 for value in values)
            array = np.array(values, dtype=np.int64 if fits else object)
            wanted[name] = rng.choice((values, set(values), array, iter(values)))
            if rng.random() < 0.3:
                values = [rng.choice(domain)]
                (wanted[name],) = values
            kept = [c for c in kept if c[name] in values]
        smaller = space.restrict(**wanted)
        assert sorted(c.items() for c in smaller) == sorted(c.items() for c in kept)
        assert smaller.size == len(kept)
        seen += 0 < len(kept) < space.size
        twice = smaller.restrict(**{names[0]: list(space.problem.variables[names[0]])})
        assert twice == smaller
    assert seen > 30


def test_restricting_free_derived_and_fixed_variables() -> None:
    space = enumerate_space(parse("var x in 0..9000; var y in 1..40; var z in {7}; var w in 1..100000; x == 3 * y * y"))
    assert space.restrict(x=[12, 27, 28]).size == 2 * 100_000
    assert [c["y"] for c in space.restrict(x=[12, 27, 28], w=5)] == [2, 3]
    assert space.restrict(z=[6, 7], w=range(3, 9)).size == 40 * 6
    assert space.restrict(z=[6, 8]).size == 0
    assert space.restrict(x=[]).size == space.restrict(w=()).size == 0
    assert sorted(c["w"] for c in space.restrict(y=1, w=[10**5, 5, 5, 0])) == [5, 10**5]
    assert space.restrict(w=[4, 5]).restrict(w=[5, 6]).restrict(y=2) == space.restrict(w=5, y=2)
    assert space.restrict(x=[12, 27]).restrict(x=[27, 48]) == space.restrict(y=3)
    wrong: Any
    for wrong in (1.0, [1.0], "1", ["1"], None, True):
        with pytest.raises(UsageError):
            space.restrict(y=wrong)
    with pytest.raises(UnknownNameError):
        space.restrict(yy=[1])


def test_equality_is_that_of_sets(random_problem: Callable[[int], Problem]) -> None:
    equal = 0
    for rng, space in some_spaces(random_problem, range(600, 900)):
        other = enumerate_space(random_problem(600 + rng.randrange(3)), backend="numpy")
        again = enumerate_space(space.problem, backend="numpy")
        for one in (other, again, again.exclude(*space.excluded), space.restrict()):
            same = set(one.names) == set(space.names) and sorted(
                map(tuple, (sorted(c.items()) for c in one))
            ) == sorted(map(tuple, (sorted(c.items()) for c in space)))
            assert (one == space) == (space == one) == same
            assert (one != space) == (not same)
            assert not same or hash(one) == hash(space)
            equal += same
    assert equal > 400
    assert space != 3
    assert (space == [*space]) is False


def test_equality_of_large_spaces_is_quick_where_their_tables_are_alike() -> None:
    text = "; ".join(f"var {n} in 1..60" for n in "abcde") + "; a * b <= 900; b * c <= 900; c + d <= 70"
    one, other = enumerate_space(parse(text)), enumerate_space(parse(text))
    assert one.size > 10**8
    assert one == other
    assert one != other.exclude(other.first())
    assert one.exclude(one.first()) != other
    assert enumerate_space(parse(text + "; a * a + b != 2")) != one


def test_data_frames(random_problem: Callable[[int], Problem]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for _, space in some_spaces(random_problem, range(60)):
        frame = space.to_pandas()
        assert isinstance(frame, pandas.DataFrame)
        assert list(frame.columns) == list(space.names)
        assert frame.to_dict("records") == list(space)
    wide = enumerate_space(parse(f"var x in {{1, {2**80}}}; var y in 1..2")).to_pandas()
    assert sorted(set(wide["x"])) == [1, 2**80]


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    space = enumerate_space(parse("var x in 1..9; var y in 1..9; x * y <= 20"))
    frame = space.to_polars()
    assert isinstance(frame, polars.DataFrame)
    assert frame.rows(named=True) == list(space)
    wide = enumerate_space(parse(f"var x in {{1, {2**80}}}; var y in 1..2")).to_polars()
    assert sorted(set(wide["x"].to_list())) == [1, 2**80]
    assert enumerate_space(parse("var x in 1..3; x > 3")).to_polars().shape == (0, 1)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_library_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    space = enumerate_space(parse("var x in 1..9"))
    with pytest.raises(UsageError, match=rf"to_{name}\(\) needs {name}, which is not installed: pip install {name}"):
        getattr(space, f"to_{name}")()


def test_the_table_in_a_notebook_shows_the_first_solutions() -> None:
    problem = parse("var x in 1..9; var y in {-5, 7}; x + y > 2")
    problem.name = '<script>alert("&")</script>'
    space = enumerate_space(problem)
    text = space._repr_html_()
    assert "<script" not in text
    cells = Cells(text)
    assert problem.name in cells.caption
    assert f"{space.size} of 18 configs" in cells.caption
    assert cells.rows[0] == ["", "x", "y"]
    shown = [[str(i), *(str(v) for v in config.values())] for i, config in enumerate(space[:10])]
    assert cells.rows[1 : 1 + len(shown)] == shown
    assert cells.rows[-1] == [f"... {space.size - 10} more"] if space.size > 10 else True
    nothing = Cells(enumerate_space(parse("var x in 1..9; x > 9"))._repr_html_())
    assert nothing.rows == []
    assert "0 of 9 configs" in nothing.caption
    assert (
        "1.00e120 of 1.00e120 configs"
        in enumerate_space(parse("; ".join(f"var v{i} in 1..1000" for i in range(40))))._repr_html_()
    )
    assert "<SearchSpace" in repr(
        enumerate_space(parse("; ".join(f"var v{i}" + " in 1..10000000" for i in range(999))))
    )


def test_spaces_and_solutions_are_readable() -> None:
    space = enumerate_space(parse("problem tiles; var x in 1..9; var y in 1..2; x > 4; maximise x * y"))
    assert repr(space) == "<SearchSpace 'tiles': 10 of 18 configs over x, y>"
    assert str(solve(space.problem)) == "solution of 'tiles': x = 9, y = 2; maximise x * y is 18"
    assert str(solve(parse("var x in 1..9; x > 9"))) == "no solution"
    assert str(solve(parse("var x in 1..9; x > 3"))) == "solution: x = 4"
    stopped = solve(parse("var x in 1..9; x > 3"), Limits(max_seconds=0))
    assert str(stopped).startswith("limit reached: ")
    assert brute_force(space.problem)[0] in space
