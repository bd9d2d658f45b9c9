"""`--format`, `--columns`, `--sort`, `--wide` and `--legend` of commands that print tables."""

from __future__ import annotations

import csv
import io
import json
from itertools import pairwise
from typing import Any

import pytest

from constrint.answers.registry import PAGES
from constrint.answers.table import Cell, Column, Table
from constrint.errors import UnknownNameError
from tests.cli.conftest import Call

#: A GPU without a table of its library: every row has a configuration.
SOLVE = ("solve", "--gpu", "rtx-5090", "--top", 20)


def rows_of(run: Call, *arguments: object) -> list[dict[str, str]]:
    code, out, _ = run(*arguments, "--format", "csv")
    assert code == 0
    return list(csv.DictReader(io.StringIO(out)))


def test_csv_of_a_ranking_has_what_json_has(run: Call) -> None:
    rows = rows_of(run, *SOLVE)
    (result,) = json.loads(run(*SOLVE, "--json")[1])["results"]
    assert len(rows) == len(result["candidates"]) == 20
    for row, candidate in zip(rows, result["candidates"], strict=True):
        for name in ("kernel", "bound_by", "limited_by"):
            assert row[name] == candidate[name]
        for name in ("predicted_s", "op_per_s", "smem_bytes_per_block", "spill_chance", "num_variants"):
            assert float(row[name]) == candidate[name], "numbers in full"
        assert {name: int(row[name]) for name in candidate["config"]} == candidate["config"]
    lines = [json.loads(line) for line in run(*SOLVE, "--format", "jsonl")[1].splitlines()]
    assert [line["predicted_s"] for line in lines] == [float(row["predicted_s"]) for row in rows]


@pytest.mark.parametrize("gpu", ["h200", "rtx-4090", "mi100", "7900xtx"])
def test_rows_are_in_the_order_of_the_printed_times(run: Call, gpu: str) -> None:
    code, out, _ = run("solve", "--gpu", gpu, "--top", 100, "--columns", "us")
    assert code == 0
    times = [float(line) for line in out.splitlines() if line.strip().replace(".", "").isdigit()]
    assert len(times) == 100
    assert all(earlier <= later for earlier, later in pairwise(times))


def test_rows_are_sorted_by_title_or_key_in_every_format(run: Call) -> None:
    rows = rows_of(run, *SOLVE, "--sort", "regs,-us")
    keys = [(int(row["registers_per_thread"]), -float(row["predicted_s"])) for row in rows]
    assert keys == sorted(keys)
    (result,) = json.loads(run(*SOLVE, "--json", "--sort=-registers_per_thread")[1])["results"]
    registers = [candidate["registers_per_thread"] for candidate in result["candidates"]]
    assert registers == sorted(registers, reverse=True)
    gpus = json.loads(run("gpus", "--json", "--sort=-sm_count")[1])["gpus"]
    assert [gpu["sm_count"] for gpu in gpus] == sorted((gpu["sm_count"] for gpu in gpus), reverse=True)


def test_rows_without_a_value_come_last_and_equal_ones_keep_their_order() -> None:
    table = Table((Column("n"), Column("t")), [[2, "a"], [None, "b"], [Cell(1, "~9"), "c"], [2, "d"], ["x", "e"]])

    def order(*names: str) -> str:
        return "".join(row[1] for row in table.sorted_by(names).rows)

    tiles = Table((Column("tile_m", joined="tile"), Column("tile_n", joined="tile")), [[2, 1], [1, 2], [1, 1]])
    assert tiles.sorted_by(["tile"]).rows == [[1, 1], [1, 2], [2, 1]]
    assert (order("n"), order("-n"), order("-t"), order("n", "-t")) == ("cadeb", "eadcb", "edcba", "cdaeb")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--columns", "reg"], "unknown column 'reg'. Nearest: regs."),
        (["--columns", "nothing_like_it"], "blk, blocks_per_sm, "),
        (["--kernel", "gemm.cuda", "--sort", "predicted"], "unknown column 'predicted'. Nearest: predicted_s."),
        (["--columns", "us,"], "--columns takes names with commas"),
        (["--format", "xml"], "unknown format 'xml'"),
        (["--json", "--format", "csv"], "--json is --format json, and --format csv is given"),
        (["--wide", "--columns", "us"], "leave one out"),
        (["--json", "--columns", "us"], "--format json prints all of its document"),
        (["--all", "--sort", "tile_m"], "--sort does not go with rows that are printed as they are found"),
    ],
)
def test_a_mistake_is_answered_with_the_rule_and_the_way_out(run: Call, options: list[str], said: str) -> None:
    code, out, err = run("solve", "--gpu", "h200", *options)
    assert (code, out) == (2, "")
    assert said in err


def test_all_solutions_stream_in_every_format(run: Call) -> None:
    asked = ("solve", "--all", "--problem", "examples/tiles.constrint")
    lines = [json.loads(line) for line in run(*asked, "--json")[1].splitlines()]
    assert lines == [json.loads(line) for line in run(*asked, "--format", "jsonl")[1].splitlines()]
    assert [{name: int(value) for name, value in row.items()} for row in rows_of(run, *asked)] == lines
    assert len(run(*asked, "--format", "markdown")[1].splitlines()) == len(lines) + 2
    names = list(lines[0])[::-1]
    assert run(*asked, "--format", "csv", "--columns", ",".join(names))[1].splitlines()[0] == ",".join(names)
    assert run(*asked, "--columns", names[0])[1].split() == [names[0], *(str(line[names[0]]) for line in lines)]


def test_a_kernel_without_a_parameter_has_an_empty_cell(run: Call) -> None:
    rows = rows_of(run, "sample", "--gpu", "h200", "--count", 200, "--seed", 1)
    assert {row["kernel"] for row in rows} == {"gemm.descriptor", "gemm.cuda", "gemm.pointer"}
    assert all((row["epilogue_subtile"] == "") == (row["kernel"] != "gemm.descriptor") for row in rows)


def test_wide_prints_every_column_and_the_legend_what_they_mean(run: Call) -> None:
    usual, wide, legend = (run("solve", "--gpu", "mi300x", *more)[1] for more in ([], ["--wide"], ["--legend"]))
    heads = [next(line for line in text.splitlines() if "bound" in line).split() for text in (usual, wide)]
    assert set(heads[0]) < set(heads[1])
    assert {"threads", "B/s", "equal", "st"} <= set(heads[1])
    assert "assumed: " not in usual
    assert "assumed: " in legend
    assert "  xcd (xcd_chunk): neighbouring tiles" in legend
    assert len(usual.partition("best:")[2].splitlines()) <= 6


def columns_of(run: Call, *arguments: object) -> list[str]:
    return next(csv.reader(io.StringIO(run(*arguments, "--format", "csv")[1])))


@pytest.mark.parametrize(
    ("arguments", "columns"),
    [
        (["gpus"], ["name", "fp16_flop_per_s"]),
        (["occupancy", "--gpu", "h200", "--threads", 256, "--registers", 64], ["limit", "blocks_per_sm"]),
        (["banks", "--gpu", "h200"], ["kind", "width_bits", "phases", "source"]),
        (["explain", "--gpu", "h200"], ["kernel", "rule", "removes_alone", "because"]),
        (["count", "--gpu", "h200"], ["kernel", "num_valid", "num_product"]),
        (["solve", "--problem", "examples/tiles.constrint"], ["tile_m"]),
    ],
)
def test_every_table_is_there_for_machines(run: Call, arguments: list[Any], columns: list[str]) -> None:
    assert set(columns) <= set(columns_of(run, *arguments))


def test_there_are_the_formats_that_the_help_names(run: Call) -> None:
    assert list(PAGES.built_in) == ["csv", "json", "jsonl", "markdown", "table"]
    assert "table, csv, json, jsonl or markdown" in " ".join(run("gpus", "--help")[1].split())
    with pytest.raises(UnknownNameError, match=r"unknown format 'cvs'\. Nearest: csv\."):
        PAGES.named("cvs")
