"""Names with dots in a text: numbers that the caller gives, or constants of the text."""

from __future__ import annotations

from typing import Any

import pytest

from constrint.errors import ParseError, UsageError
from constrint.model import parse, parse_constraint, render
from constrint.solve import enumerate_space, minimal_conflict, why_not

NAMES: dict[str, int | str] = {
    "gpu.smem_bytes": 4096,
    "gpu.warp_size": 32,
    "gpu.l2_bytes": "no source confirms it for X1",
    "gpu.max_smem_bytes_per_block": 2048,
}


def test_a_number_stands_wherever_a_constant_may() -> None:
    text = """
    var tile in gpu.warp_size..gpu.warp_size * 4 step gpu.warp_size
    var stages in {1, gpu.warp_size // 8}
    const half = gpu.smem_bytes / 2
    tile * stages * 16 <= half because "two blocks fit"
    maximise tile * gpu.warp_size
    """
    problem = parse(text, names=NAMES)
    assert problem.constants == {"gpu.warp_size": 32, "gpu.smem_bytes": 4096, "half": 2048}
    assert sorted((row["tile"], row["stages"]) for row in enumerate_space(problem)) == [
        (32, 1), (32, 4), (64, 1), (96, 1), (128, 1),
    ]  # fmt: skip


def test_what_was_read_with_names_is_written_so_that_it_is_read_without() -> None:
    problem = parse("var x in 1..99\nx * 2 <= gpu.warp_size\nmaximise x", names=NAMES)
    text = render(problem)
    assert "const gpu.warp_size = 32" in text
    assert "x * 2 <= gpu.warp_size" in text
    assert parse(text) == problem


def test_a_text_may_define_them_itself() -> None:
    problem = parse("const gpu.warp_size = 64\nvar x in 1..99\nx == gpu.warp_size")
    assert [row["x"] for row in enumerate_space(problem)] == [64]
    assert parse("const gpu.warp_size = 64\nx == `gpu.warp_size`") == parse(
        "const gpu.warp_size = 64\nx == gpu.warp_size"
    )


def test_explanations_show_the_name_and_the_value() -> None:
    problem = parse("var x in {32, 64}\nx <= gpu.warp_size\nx > gpu.warp_size", names=NAMES)
    assert "x <= gpu.warp_size [gpu.warp_size = 32]" in str(minimal_conflict(problem))
    (broken,) = why_not(problem, {"x": 64})
    assert (broken.text, broken.seen) == ("x <= gpu.warp_size [gpu.warp_size = 32]", "64 <= 32 is false")


def test_a_single_rule_takes_names_too() -> None:
    rule = parse_constraint("x * 2 <= gpu.warp_size / 2", names=NAMES)
    assert rule.holds({"x": 8})
    assert not rule.holds({"x": 9})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x <= gpu.smem", "1:6: there is no number `gpu.smem`. Nearest: gpu.smem_bytes, gpu.max_smem_bytes_per_block"),
        ("x <= gpu.warpsize", "Nearest: gpu.warp_size"),
        ("x <= gpu.l2_bytes", "1:6: `gpu.l2_bytes` has no value: no source confirms it for X1"),
        ("const gpu.warp_size = 3", "'gpu.warp_size' is known already, since a GPU was named"),
        ("var gpu.x in 1..3", "a variable has a name without dots; write `gpu.x` in backquotes"),
        ("x <= gpu.", "unexpected character '.'"),
        ("x <= .warp_size", "unexpected character '.'"),
        ("x <= gpu.warp_size.x", "there is no number `gpu.warp_size.x`"),
        ("x <= " + "a." * 5000 + "b", "there is no number `a.a."),
        ("x <= gpu.größe", "unexpected character 'ö'"),
    ],
)
def test_mistakes_say_where_and_what_there_is(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text, names=NAMES)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("read", [parse, parse_constraint])
def test_without_a_gpu_the_error_says_the_way_out(read: Any) -> None:
    with pytest.raises(ParseError, match=r"--gpu NAME .*gpu_names.* or declare it .*: const gpu.sm_count = 100"):
        read("x <= gpu.sm_count")


def test_names_are_a_mapping() -> None:
    wrong: Any = ["gpu.sm_count"]
    with pytest.raises(UsageError, match="names maps names to numbers"):
        parse("x <= gpu.sm_count", names=wrong)


def test_ranges_and_variables_with_dots_are_read_as_before() -> None:
    problem = parse("const lo = 2\nconst hi = 4\nvar `a.b` in lo..hi\n`a.b` != 3")
    assert sorted(row["a.b"] for row in enumerate_space(problem)) == [2, 4]
    assert parse(render(problem)) == problem
