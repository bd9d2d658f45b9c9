"""A solved layout has no conflict in any access, over all lanes; the published ones are among the solutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from constrint import solve_layout
from constrint.errors import InfeasibleError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.hwmodels.bank_accesses import check_tile, tile_access
from constrint.kernels.gemm.pointer.spec import _padding_across_k, _padding_along_k
from constrint.model import const
from constrint.select.layouts.layout import parse_layout
from constrint.select.layouts.solve import FORMS, LayoutSolution, layout_problem


def check(found: LayoutSolution, accesses: list[str]) -> None:
    """Count the conflicts again, address by address: every access is free, and no two bytes share a place."""
    layout, tile = found.layout, found.layout.tile
    rows, columns = np.divmod(np.arange(tile.rows * tile.row_bytes), tile.row_bytes)
    places = layout.addresses(rows, columns)
    assert len(np.unique(places)) == len(places)
    for name in accesses:
        access = tile_access(found.gpu, name, tile)
        assert layout.conflicts(found.gpu, access).is_free
        addresses = layout.addresses(access.rows, access.columns)
        assert (addresses % (access.width_bits // 8) == 0).all()
        # The bytes of an access lie one behind the other.
        last = layout.addresses(access.rows, access.columns + access.width_bits // 8 - 1)
        assert (last - addresses == access.width_bits // 8 - 1).all()


PUBLISHED = [
    ("mi355x", (16, 16, "bf16"), ["mfma_16x16x16"], "xor(7->3,8->4)"),
    ("mi355x", (16, 32, "bf16"), ["mfma_16x16x32", "store_rows"], "xor(9->5)"),
    ("mi355x", (32, 16, "bf16"), ["mfma_32x32x16", "store_rows"], "xor(9->4)"),
    ("mi355x", (32, 32, "bf16"), ["mfma_32x32x16", "store_rows", "ds_read_b64_tr_b16"], "xor(9->5,10->4)"),
    ("mi355x", (16, 128, "fp8"), ["mfma_16x16x128_halves", "store_rows"], "xor(8->4,9->5,10->6)"),
    ("h100", (64, 16, "bf16"), ["store_rows", "ldmatrix", "wgmma"], "32B"),
    ("h100", (64, 32, "bf16"), ["store_rows", "ldmatrix", "wgmma"], "64B"),
    ("h100", (64, 64, "bf16"), ["store_rows", "ldmatrix", "wgmma"], "128B"),
]


@pytest.mark.parametrize(("gpu", "tile", "accesses", "published"), PUBLISHED)
def test_a_published_swizzle_is_a_solution_and_none_has_fewer_flips_than_the_one_found(
    gpu: str, tile: tuple[int, int, str], accesses: list[str], published: str
) -> None:
    found = solve_layout(gpu, *tile, accesses)
    check(found, accesses)
    theirs = parse_layout(published, found.layout.tile)
    assignment = dict.fromkeys(found.problem.names, 0)
    assignment |= {f"flip_{source}_{target}": 1 for source, target in theirs.xor}
    if set(assignment) == set(found.problem.names):
        assert all(rule.holds(assignment) for rule in found.problem.constraints)
    assert found.layout.num_bytes == theirs.num_bytes
    assert len(found.layout.xor) <= len(theirs.xor)


@pytest.mark.parametrize(("columns", "mode"), [(16, "32B"), (32, "64B"), (64, "128B")])
@pytest.mark.parametrize("form", ["swizzle", "tma"])
def test_nvidias_modes_are_found(columns: int, mode: str, form: str) -> None:
    found = solve_layout("h200", 64, columns, "bf16", ["store_rows", "ldmatrix", "mma_m16n8k16_b", "wgmma"], form=form)
    assert found.layout == parse_layout(mode, found.layout.tile)


@pytest.mark.parametrize("rows_of", [16, 32])
@pytest.mark.parametrize("tile_k", [32, 64, 128])
@pytest.mark.parametrize("side", [64, 128])
@pytest.mark.parametrize("is_along_k", [True, False])
def test_the_least_padding_is_that_of_triton_on_gfx950(rows_of: int, tile_k: int, side: int, is_along_k: bool) -> None:
    rule = _padding_along_k if is_along_k else _padding_across_k
    stated = rule("bf16", {"tile_k": const(tile_k), "matrix_instr_nonkdim": const(rows_of)}, const(side)).value({})
    shape = {16: "16x16x32", 32: "32x32x16"}[rows_of]
    accesses = ["copy_rows", f"mfma_{shape}" if is_along_k else f"ds_read_b64_tr_b16_{shape}"]
    rows, columns = (side, tile_k) if is_along_k else (tile_k, side)
    found = solve_layout("mi355x", rows, columns, "bf16", accesses, form="padding", interval=1024)
    check(found, accesses[1:])
    assert found.layout.pad == stated
    plain = rows * columns * 2
    assert found.layout.num_bytes == plain + stated * (plain // 1024 - 1)


@pytest.mark.parametrize(
    ("gpu", "tile", "accesses"),
    [
        ("mi355x", (192, 64, "bf16"), ["store_rows", "mfma_16x16x32", "mfma_32x32x16"]),
        ("mi355x", (64, 96, "bf16"), ["store_rows", "mfma_16x16x32"]),
        ("mi355x", (64, 64, "bf16"), ["store_rows", "mfma_16x16x32", "ds_read_b64_tr_b16"]),
        ("mi300x", (128, 64, "bf16"), ["mfma_16x16x16"]),
        ("h200", (64, 96, "bf16"), ["store_rows", "ldmatrix", "ldmatrix_trans"]),
        ("a100", (64, 64, "bf16"), ["store_rows", "store_columns", "ldmatrix"]),
        ("h100", (128, 32, "fp32"), ["store_rows", "load_rows", "ldmatrix"]),
    ],
)
def test_layouts_are_found_for_tiles_that_nobody_published(
    gpu: str, tile: tuple[int, int, str], accesses: list[str]
) -> None:
    found = solve_layout(gpu, *tile, accesses)
    check(found, accesses)
    assert found.layout.num_bytes == tile[0] * found.layout.tile.row_bytes


def test_reordered_rows_may_take_no_padding() -> None:
    found = solve_layout("h100", 64, 16, "fp8", ["store_columns"], form="padding")
    check(found, ["store_columns"])
    assert (found.layout.pad, found.layout.num_bytes) == (0, 1024)
    assert found.layout.row_bits


def test_a_tile_without_a_layout_gets_the_rules_that_exclude_each_other() -> None:
    # Sixteen lanes read the same half of sixteen pieces of 16 bytes that stores keep whole: 8 places for 16 lanes.
    with pytest.raises(InfeasibleError) as refusal:
        solve_layout("mi300x", 64, 64, "bf16", ["store_rows", "mfma_16x16x16"])
    text = str(refusal.value)
    assert "no layout by XOR of the tile 64x64 bf16" in text
    assert "no padding of the tile" in text
    assert "mfma_16x16x16: 16 lanes of phase 0 agree" in text
    assert "give 8 places" in text
    assert refusal.value.conflict is not None


def test_a_mode_of_tma_whose_rows_are_shorter_than_the_tiles_is_named() -> None:
    with pytest.raises(InfeasibleError) as refusal:
        solve_layout("h100", 64, 128, "bf16", ["ldmatrix"], form="tma")
    text = str(refusal.value)
    assert "a mode's rows have its bytes: 32, 64 or 128" in text
    assert "lanes 0 and 1 are served together and need different banks" in text
    assert refusal.value.conflict is not None
    assert len(refusal.value.conflict.members) > 1
    assert solve_layout("h100", 64, 128, "bf16", ["ldmatrix"], form="swizzle").layout.xor


def test_the_problem_is_one_of_integers_that_any_back_end_can_solve() -> None:
    gpu, tile = load_gpu("mi355x"), check_tile(16, 32, "bf16")
    named = [tile_access(gpu, name, tile) for name in ("mfma_16x16x32", "store_rows")]
    for form in FORMS[1:]:
        problem = layout_problem(gpu, tile, named, form)
        assert problem.constraints
        assert problem.objectives


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"accesses": []}, UsageError, "at least one"),
        ({"accesses": "ldmatrix"}, UsageError, "at least one"),
        ({"accesses": ["ldmatrixx"]}, UnknownNameError, "unknown access"),
        ({"form": "magic"}, UnknownNameError, "unknown form of layout"),
        ({"interval": 1024}, UsageError, "for the form padding"),
        ({"interval": 100, "form": "padding"}, UsageError, "neither whole rows"),
        ({"interval": 0, "form": "padding"}, UsageError, "interval"),
        ({"interval": 10**30, "form": "padding"}, UsageError, "interval"),
        ({"interval": "1024", "form": "padding"}, UsageError, "interval"),
        ({"gpu": "7900xtx", "accesses": ["store_rows"]}, UnsupportedError, "no source states"),
        ({"gpu": "mi210", "accesses": ["mfma_16x16x16"]}, UnsupportedError, "no source states"),
        ({"gpu": "h1000"}, UnknownNameError, "h1000"),
    ],
)
def test_what_cannot_be_solved_is_refused_by_a_sentence(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    asked = {"gpu": "h100", "accesses": ["ldmatrix"], **arguments}
    with pytest.raises(error, match=message):
        solve_layout(asked.pop("gpu"), 64, 64, "bf16", asked.pop("accesses"), **asked)
