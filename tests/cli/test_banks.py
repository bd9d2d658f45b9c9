"""`constrint banks`: phases of a GPU, a picture of a tile's conflicts, solved layouts, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.test_gpu_commands import Call, call

__all__ = ["call"]


def test_it_lists_how_a_gpu_serves_each_width_and_what_no_source_states(call: Call) -> None:
    code, out, _ = call("banks --gpu mi355x --columns kind,width_bits,banks,phases")
    assert code == 0
    assert "0-3 12-15 20-27; 4-11 16-19 28-31" in out
    assert "no source states it" in out
    document = json.loads(call("banks --gpu 7900xtx --json")[1])
    assert document["schema"] == "constrint.banks/1"
    assert all(access["phases"] is access["source"] is None for access in document["accesses"])


def test_it_draws_the_lanes_that_meet_in_a_bank_within_80_columns(call: Call) -> None:
    code, out, _ = call("banks --gpu mi355x --tile 16x32 --dtype bf16 --access mfma_16x16x32")
    assert code == 0
    lines = out.splitlines()
    assert "  clock 1    0  20   .   .   1  21   .   .   2  22   .   .   3  23   .   ." in lines
    assert max(map(len, lines)) <= 100
    assert max(len(line) for line in lines if line.startswith(("  bank", "  clock"))) <= 80
    assert "2-way conflicts" in out


def test_a_word_that_lanes_share_is_marked(call: Call) -> None:
    out = call("banks --gpu h100 --tile 32x8 --dtype fp8 --access store_columns")[1]
    assert "+" in out


@pytest.mark.parametrize(
    ("line", "layout"),
    [
        ("--tile 16x32 --gpu mi355x --access mfma_16x16x32 --solve", "swizzle<1,5,4>"),
        ("--tile 64x64 --gpu h100 --access ldmatrix,wgmma --solve --form tma", "swizzle<3,4,3>"),
        (
            "--tile 64x64 --gpu mi355x --access copy_rows,mfma_16x16x32 --solve --form padding --interval 1024",
            "pad(1024:+32,rows=21)",
        ),
    ],
)
def test_it_solves_for_a_layout_and_counts_its_clocks(call: Call, line: str, layout: str) -> None:
    code, out, _ = call(f"banks {line} --json")
    document = json.loads(out)
    assert (code, document["layout"]) == (0, layout)
    assert {phase["clocks"] for access in document["accesses"] for phase in access["phases"]} == {1}
    named = document["layout"]
    tile = f"{document['tile']['rows']}x{document['tile']['columns']}"
    names = ",".join(access["name"] for access in document["accesses"])
    again = json.loads(call(f"banks --gpu {document['gpu']} --tile {tile} --access {names} --layout {named} --json")[1])
    assert again == document


def test_a_tile_without_a_layout_ends_with_exit_code_1_and_the_rules(call: Call) -> None:
    line = "banks --gpu mi300x --tile 64x64 --access store_rows,mfma_16x16x16 --solve --form xor"
    code, out, err = call(line)
    assert (code, out) == (1, "")
    assert "mfma_16x16x16: 16 lanes of phase 0 agree in the bits" in err
    assert "store_rows: accesses of 16 bytes stay whole" in err
    document: dict[str, Any] = json.loads(call(f"{line} --json")[1])
    assert document


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--gpu h100 --access ldmatrix", "give its size, such as --tile 64x32"),
        ("--gpu h100 --solve", "give its size"),
        ("--gpu h100 --tile 64 --access ldmatrix", "give rows x elements"),
        ("--gpu h100 --tile 64x64", "name what the kernel does: store_rows"),
        ("--gpu h100 --tile 64x64 --access ldmatrix, ", "unknown access ''"),
        ("--gpu h100 --tile 64x64 --access lmatrix", "unknown access 'lmatrix'"),
        ("--gpu h100 --tile 64x64 --access ldmatrix --layout 128B --solve", "leave one out"),
        ("--gpu h100 --tile 64x64 --access ldmatrix --form tma", "add --solve"),
        ("--gpu h100 --tile 64x64 --access ldmatrix --layout 256B", "give none, swizzle"),
        ("--gpu h100 --tile 0x64 --access ldmatrix", "its rows are a number"),
        ("--gpu h100 --tile 64x64 --dtype bf17 --access ldmatrix", "unknown dtype"),
        ("--gpu h100 --tile 512x512 --access ldmatrix", "is too far"),
        ("--gpu h100 --tile 64x64 --access mfma_16x16x16", "no such instruction"),
        ("--gpu 7900xtx --tile 64x64 --access store_rows", "no source states"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(call: Call, line: str, message: str) -> None:
    code, out, err = call(f"banks {line}")
    assert (code, out) == (2, "")
    assert message in err
