"""Kernel Tuner builds the same space from the file: the same configurations, none more and none less."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from constrint import enumerate_space, load_gpu, load_kernel, load_space, parse, problem_from_space
from constrint.answers.formats.kernel_tuner import as_read
from constrint.errors import ConstrintError, InfeasibleError, LimitReachedError, ParseError, UsageError
from constrint.export import export
from constrint.model import Problem, Var, gcd, table
from constrint.select.rank import KernelProblem, requests
from constrint.solve import SearchSpace
from tests.support import random_problems
from tests.support.needs import missing_packages

if missing_packages("kernel_tuner"):  # which takes a second to import
    pytest.skip("kernel_tuner is not installed (pip install kernel_tuner)", allow_module_level=True)
EXAMPLE = Path(__file__).parents[2] / "examples" / "tiles.constrint"


def built_by_kernel_tuner(text: str) -> list[tuple[Any, ...]]:
    """The configurations that Kernel Tuner makes of a file of ours, which is run as a user imports it."""
    from kernel_tuner.searchspace import Searchspace

    names: dict[str, Any] = {}
    exec(compile(text, "space.py", "exec"), names)  # noqa: S102
    found: list[tuple[Any, ...]] = Searchspace(names["tune_params"], names["restrictions"], 1024).list
    return found


def typed(rows: Any) -> list[str]:
    """Rows in an order of their own, in which 1, 1.0 and True differ."""
    return sorted(repr(tuple(row)) for row in rows)


def rows_of(space: SearchSpace) -> list[str]:
    return typed(config.values() for config in space)


def request_of(kernel: str, gpu_name: str, **fixed: int) -> KernelProblem:
    gpu, operation = load_gpu(gpu_name), load_kernel(kernel)
    ((request,), _) = requests(operation, gpu, operation.default_workload(gpu))
    for name, value in fixed.items():
        request.problem.add(Var(name) == value)
    return request


@pytest.mark.parametrize(
    ("kernel", "gpu", "fixed"),
    [
        ("gemm.pointer", "h200", {"group_m": 8, "persistent": 0, "split_k": 1}),
        ("gemm.descriptor", "h200", {"group_m": 8, "split_k": 1, "tile_k": 64}),
        ("gemm.pointer", "mi300x", {"group_m": 8, "persistent": 0, "split_k": 1, "xcd_chunk": 0, "kpack": 1}),
        ("lstm.triton", "mi300x", {}),
        ("lstm.cuda", "h200", {}),
    ],
)
def test_kernels_have_the_same_space(kernel: str, gpu: str, fixed: dict[str, int]) -> None:
    request = request_of(kernel, gpu, **fixed)
    space = enumerate_space(request.problem)
    assert space.size > 40
    text = export(space, "kernel-tuner", about=request)
    assert f"{space.size} configurations" in text
    assert "has at most 1024 threads" in text, "the rules of the hardware are there, with their reasons"
    assert typed(built_by_kernel_tuner(text)) == rows_of(space)


def test_text_problems_and_files_of_params_have_the_same_space(tmp_path: Path) -> None:
    space = enumerate_space(parse(EXAMPLE.read_text()))
    assert typed(built_by_kernel_tuner(export(space, "kernel-tuner"))) == rows_of(space)
    document: dict[str, Any] = {
        "params": {"block_size_x": [32, 64, 128], "vector": [1, 2, 4]},
        "restrictions": ["block_size_x % 64 == 0"],
    }
    path = tmp_path / "space.json"
    path.write_text(json.dumps(document))
    text = export(enumerate_space(load_space(path)), "kernel-tuner")
    assert '"block_size_x": [64, 128]' in text, "values that occur in no configuration are left out"
    assert len(built_by_kernel_tuner(text)) == 6


def test_renamed_and_left_out_parameters_mean_the_same() -> None:
    request = request_of("gemm.descriptor", "h200", group_m=8, split_k=1, persistent=0, tile_k=64, epilogue_subtile=1)
    space = enumerate_space(request.problem)
    rename = {"tile_m": "BM", "group_m": "", "tile_k": ""}
    found = built_by_kernel_tuner(export(space, "kernel-tuner", rename=rename, about=request))
    left = [n for n in space.names if n not in ("group_m", "tile_k")]
    assert typed(found) == typed([config[name] for name in left] for config in space)
    with pytest.raises(UsageError, match="tile_n cannot be left out: it has the values 128, 64"):
        export(space, "kernel-tuner", rename={"tile_n": ""})


def test_narrowed_spaces_are_what_is_left_of_them() -> None:
    space = enumerate_space(problem_from_space({"x": [1, 2, 3], "mode": ["a", "b b"]}, ["x != 2 or mode == 'b b'"]))
    gone: list[dict[str, Any]] = [{"x": 1, "mode": "a"}, {"x": 2, "mode": "b b"}]
    for narrowed in (space.restrict(x=[2, 3]), space.exclude(*gone)):
        assert typed(built_by_kernel_tuner(export(narrowed, "kernel-tuner"))) == rows_of(narrowed)


# python-constraint rewrites comparisons by their looks, and some of these wrongly.
@pytest.mark.parametrize(
    "rule",
    ["x // 2 == 3", "x - y == 2", "x <= y", "x + y <= 1", "x * y <= -6", "x * y >= 5", "x < y", "x * 4 > y", "x == y",
     "x << 1 == y", "x / 2 == 3", "x % 3 == 1", "3 <= x < 7", "x * x <= 9", "x <= 5", "x >= -2", "x // y == 2"],
)  # fmt: skip
def test_comparisons_mean_what_python_means(rule: str) -> None:
    params = {"x": [-7, -2, -1, 0, 1, 2, 5, 6, 7, 9], "y": [-3, -1, 0, 1, 2, 14]}
    space = enumerate_space(problem_from_space(params, [rule]))
    assert typed(built_by_kernel_tuner(export(space, "kernel-tuner"))) == rows_of(space)


def test_plain_rules_stay_plain() -> None:
    params = {"a": (1, 2), "b": (4, 8), "c": (-1, 3)}
    for text in ("a % 16 == 0", "4096 % a == 0", "a * b <= 1024", "a * 32 <= 1024", "a >= 2", "a == 1 or b == 4"):
        assert as_read(text, params) == text
    for text in ("c * b <= 1024", "a * a <= 9", "a // 2 == 3", f"a <= {10**16}"):
        assert as_read(text, params) == f"({text}) and True"


def test_what_python_has_no_word_for_is_listed_or_refused() -> None:
    problem = Problem("divisors")
    x, y = (problem.int_var(name, lower=1, upper=40) for name in "xy")
    problem.add(gcd(x, y) == 7)
    space = enumerate_space(problem)
    text = export(space, "kernel-tuner")
    assert "(x, y) in {(7, 7), (7, 14)" in text
    assert typed(built_by_kernel_tuner(text)) == rows_of(space)
    wide = Problem("wide")
    x, y = (wide.int_var(name, lower=1, upper=2000) for name in "xy")
    wide.add(gcd(x, y) == 7, name="sevens")
    with pytest.raises(UsageError, match=r"gcd\(x, y\) == 7 cannot be said in Python's syntax.*--export csv --all"):
        export(enumerate_space(wide), "kernel-tuner")


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"block size": [1]}, "'block size' cannot stand in a Python expression"),
        ({"class": [1]}, "'class' cannot stand in a Python expression.*Give it another name"),
        ({"max": [1]}, "'max' cannot stand"),
        ({"ﬁ": [1]}, "cannot stand"),
        ({"time": [1]}, "Kernel Tuner takes no parameter called 'time': --rename time=other_name"),
        ({"x": [float("inf")]}, "x has the value inf, which has no literal in Python"),
    ],
)
def test_names_and_values_that_cannot_be_are_refused(params: dict[str, list[object]], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        export(enumerate_space(problem_from_space(params)), "kernel-tuner")


def read_again(document: str) -> SearchSpace:
    data = json.loads(document)
    return enumerate_space(problem_from_space(data["params"], data["restrictions"]))


def check_round_trips(space: SearchSpace) -> None:
    """Kernel Tuner and our own reader of JSON find the same configurations."""
    if not space.size:
        for name in ("kernel-tuner", "json"):
            with pytest.raises(InfeasibleError, match="no valid configuration"):
                export(space, name)
        return
    expected = rows_of(space)
    assert typed(built_by_kernel_tuner(export(space, "kernel-tuner"))) == expected
    if not any(isinstance(value, tuple) for config in space for value in config.values()):
        assert rows_of(read_again(export(space, "json", top=1))) == expected


@pytest.mark.parametrize("seed", range(80))
def test_random_integer_spaces_round_trip(seed: int) -> None:
    """Numbers up to 2^100, negative ones, divisions by zero, powers, tables, choices; some have no solution."""
    drawn = random_problems.draw(seed)
    try:
        expected = [tuple(solution.values()) for solution in random_problems.solutions_of(drawn)]
        space = enumerate_space(random_problems.problem_of(drawn).without_objective())
    except (random_problems.TooLongError, LimitReachedError):
        pytest.skip("numbers of more bits than the solver takes")
    assert rows_of(space) == typed(expected)
    check_round_trips(space)


VALUES: list[list[Any]] = [
    [0.5, 1.5, -0.1, 2.0], [True, False], ["fast", "small", "", "a b", "x and y", "p0"], [0, None, "fast", 2.5],
    [1, 2.0, 3], [2**62, -(2**62), 7], [1, 2, 3, 4], [1e300, 1e-300, 3], [-5, 0, 5], ['q"\'\n\\', "é", "p1"],
    [(1, 2), (3, "a")], [True, 2, 0.5],
]  # fmt: skip


def rule_of(kind: str, one: Any, other: Any, value: Any, bound: Any) -> Any:
    if kind == "sum":
        return one * 2 + other <= bound
    if kind == "<=":
        return one <= bound
    return {"==": one == value, "!=": one != value}[kind] if kind != "same" else one == other


@st.composite
def spaces(draw: Any) -> SearchSpace:
    """Spaces of any values, with rules that compare them with each other, with numbers, and with lists of values."""
    problem = Problem("drawn")
    chosen = draw(st.lists(st.sampled_from(VALUES), min_size=1, max_size=4))
    subsets = [draw(st.lists(st.sampled_from(values), min_size=1, unique=True)) for values in chosen]
    variables = [problem.var(f"p{place}", values) for place, values in enumerate(subsets)]
    for _ in range(draw(st.integers(0, 4))):
        one, other = (draw(st.integers(0, len(variables) - 1)) for _ in range(2))
        value, bound = draw(st.sampled_from(subsets[one])), draw(st.sampled_from([1.5, 2, 7, -3, 2**61]))
        kind = draw(st.sampled_from(["==", "!=", "<=", "sum", "same"]))
        try:
            rule = rule_of(kind, variables[one], variables[other], value, bound)
            problem.add(~rule if draw(st.booleans()) else rule)
        except (TypeError, ConstrintError):
            continue  # text has no sum, and a number is no value of a text
    return enumerate_space(problem)


@settings(max_examples=80, deadline=None)
@given(spaces())
def test_random_spaces_of_any_values_round_trip(space: SearchSpace) -> None:
    check_round_trips(space)


def test_a_rule_that_is_too_long_to_be_read_again_says_so() -> None:
    rows = [(x, y) for x in range(75) for y in range(75) if (x * y) % 3]
    problem = Problem("long")
    x, y = (problem.int_var(name, lower=0, upper=74) for name in "xy")
    problem.add(table([x, y], rows))
    space = enumerate_space(problem)
    assert len(built_by_kernel_tuner(export(space, "kernel-tuner"))) == len(rows)
    with pytest.raises(ParseError, match="characters; at most 20,000 are read"):
        read_again(export(space, "json", top=1))
