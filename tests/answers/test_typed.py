"""Typed results: what commands print as JSON is read back as the results' own types."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from constrint.answers.explanation import Explanation
from constrint.cli.app import application
from constrint.cli.count import SpaceCount

TILES = str(Path(__file__).parents[2] / "examples" / "tiles.constrint")


class _Explained(msgspec.Struct):
    schema: str
    results: list[Explanation]


class _Counted(msgspec.Struct):
    schema: str
    backend: str
    results: list[SpaceCount]


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The output of a command in this process."""
    application(words)[0](words, prog_name="constrint", standalone_mode=False)
    return capsys.readouterr().out


@pytest.mark.parametrize("asked", [("--problem", TILES), ("--gpu", "h200", "--kernel", "gemm.pointer")])
def test_an_explanation_is_read_back(capsys: pytest.CaptureFixture[str], asked: tuple[str, ...]) -> None:
    read = msgspec.json.decode(printed(capsys, "explain", *asked, "--json"), type=_Explained)
    (explanation,) = read.results
    assert explanation.num_valid
    assert all(rule.removes_alone is not None for rule in explanation.rules)
    is_kernel = "--gpu" in asked
    assert (explanation.kernel is msgspec.UNSET) is not is_kernel
    assert all((parameter.num_values is msgspec.UNSET) is is_kernel for parameter in explanation.parameters)


def test_a_count_is_read_back_without_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    read = msgspec.json.decode(printed(capsys, "count", "--problem", TILES, "--json"), type=_Counted)
    assert (read.results[0].num_valid, read.results[0].at_least) == (226, msgspec.UNSET)
