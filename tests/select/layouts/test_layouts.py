"""Layouts are what their text says: addresses, bytes, and the conflicts of published ones."""

from __future__ import annotations

import numpy as np
import pytest

from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import load_gpu
from constrint.hwmodels.bank_accesses import access_names, check_tile, tile_access
from constrint.select.layouts import parse_layout


def worst(gpu: str, tile: tuple[int, int, str], access: str, layout: str) -> int:
    """The degree of the worst phase of an access."""
    model, checked = load_gpu(gpu), check_tile(*tile)
    return int(parse_layout(layout, checked).conflicts(model, tile_access(model, access, checked)).degree.max())


@pytest.mark.parametrize(
    ("tile", "layout", "formula", "reads"),
    [
        ((16, 16, "bf16"), "xor(7->3,8->4)", lambda o: o ^ (o % 512 >> 7 << 3), ["mfma_16x16x16"]),
        ((16, 32, "bf16"), "xor(9->5)", lambda o: o ^ (o % 1024 >> 9 << 5), ["mfma_16x16x32"]),
        ((32, 16, "bf16"), "xor(9->4)", lambda o: o ^ (o % 1024 >> 9 << 4), ["mfma_32x32x16"]),
        (
            (32, 32, "bf16"),
            "xor(9->5,10->4)",
            lambda o: o ^ (o % 1024 >> 9 << 5) ^ (o % 2048 >> 10 << 4),
            ["mfma_32x32x16", "ds_read_b64_tr_b16_16x16x32", "ds_read_b64_tr_b16_32x32x16"],
        ),
        (
            (16, 128, "fp8"),
            "xor(8->4,9->5,10->6)",
            lambda o: o ^ (o % 2048 >> 8 << 4),
            ["mfma_16x16x128_halves"],
        ),
    ],
)
def test_the_swizzles_of_hipkittens_are_free_of_conflicts_on_the_mi355x(tile, layout, formula, reads) -> None:  # type: ignore[no-untyped-def]
    checked = check_tile(*tile)
    rows, columns = np.divmod(np.arange(checked.rows * checked.row_bytes), checked.row_bytes)
    assert (parse_layout(layout, checked).addresses(rows, columns) == formula(rows * checked.row_bytes + columns)).all()
    for read in reads:
        assert worst("mi355x", tile, read, layout) == 1
    assert max(worst("mi355x", tile, read, "none") for read in reads) > 1


@pytest.mark.parametrize(("mode", "columns"), [("32B", 16), ("64B", 32), ("128B", 64)])
def test_nvidias_modes_are_free_of_conflicts_where_rows_have_their_bytes(mode: str, columns: int) -> None:
    for access in ("store_rows", "ldmatrix", "mma_m16n8k16_b", "ldmatrix_trans", "wgmma"):
        assert worst("h100", (64, columns, "bf16"), access, mode) == 1
    assert worst("h100", (64, columns, "bf16"), "wgmma", "none") == columns // 8


@pytest.mark.parametrize("gpu", ["h200", "a100", "mi300x", "mi355x"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp32"])
def test_an_access_touches_every_byte_of_a_tile(gpu: str, dtype: str) -> None:
    model, tile = load_gpu(gpu), check_tile(128, 256, dtype)
    for name in access_names(model, dtype):
        if "trans" in name and model.terms.warp == "warp" and tile.element_bytes != 2:
            with pytest.raises(UsageError, match="elements of 16 bits"):
                tile_access(model, name, tile)
            continue
        access = tile_access(model, name, tile)
        assert access.rows.shape == access.columns.shape == (len(access.rows), model.sm.warp_size)
        offsets = access.rows * tile.row_bytes + access.columns
        touched = (offsets[..., None] + np.arange(access.width_bits // 8)).reshape(-1)
        counts = np.bincount(touched, minlength=tile.rows * tile.row_bytes)
        assert counts.min() == counts.max() == 1, name


def test_lanes_of_an_operand_hold_the_rows_that_the_instruction_states() -> None:
    gpu, tile = load_gpu("mi355x"), check_tile(64, 64, "bf16")
    access = tile_access(gpu, "mfma_16x16x32", tile)
    assert access.rows[0].tolist() == [lane % 16 for lane in range(64)]
    assert access.columns[0].tolist() == [lane // 16 * 16 for lane in range(64)]
    # The first transposed read loads K = 0 .. 3 and 8 .. 11 (CDNA4 ISA, 11.4), sixteen lanes to four rows.
    turned = tile_access(gpu, "ds_read_b64_tr_b16_32x32x16", tile)
    assert sorted(set(turned.rows[0].tolist())) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert turned.columns[0][:4].tolist() == [0, 8, 16, 24]
    assert turned.rows[0][:16].tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "swizzle<3,4,3>",
        "xor(9->5,10->4)",
        "stride(144)",
        "pad(1024:+16)",
        "pad(1024:+16,rows=28)",
        "pad(1024:+0,rows=28)",
    ],
)
def test_a_layout_is_one_to_one_and_its_text_names_it(text: str) -> None:
    tile = check_tile(64, 64, "bf16")
    layout = parse_layout(text, tile)
    rows, columns = np.divmod(np.arange(tile.rows * tile.row_bytes), tile.row_bytes)
    addresses = layout.addresses(rows, columns)
    assert len(set(addresses.tolist())) == len(addresses)
    assert int(addresses.max()) < layout.num_bytes <= int(addresses.max()) + 1
    assert str(layout) == text
    assert parse_layout(str(layout), tile) == layout


def test_rows_of_an_interval_lie_where_their_bits_say() -> None:
    tile = check_tile(64, 64, "bf16")
    layout = parse_layout("pad(1024:+16,rows=28)", tile)
    rows = layout.addresses(np.array([0, 4, 8, 28, 1, 32]), np.zeros(6, np.int64))
    assert rows.tolist() == [0, 128, 256, 7 * 128, 1040, 4 * 1040]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "give none, swizzle"),
        ("swizzle<3,4>", "give none, swizzle"),
        ("swizzle<3,4,-3>", "give none, swizzle"),
        ("xor(5->9)", "only a higher bit"),
        ("xor(5->5)", "only a higher bit"),
        ("swizzle<2,4,0>", "only a higher bit"),
        ("xor(99->98)", "no multiple of"),
        ("stride(64)", "this stride"),
        ("pad(0:+16)", "an interval has 1 to"),
        ("pad(1024:+16,rows=7777)", "does not hold rows|lie beyond"),
        ("pad(1024:+16,rows=448)", "lie beyond"),
        ("pad(1024:+16,rows=1)", "does not hold rows"),
        ("pad(99999999999:+16)", "give none, swizzle"),
    ],
)
def test_what_is_no_layout_is_refused_by_a_sentence(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_layout(text, check_tile(64, 64, "bf16"))


@pytest.mark.parametrize(
    ("tile", "message"),
    [
        ((0, 64, "bf16"), "rows are a number"),
        ((64, 10**9, "bf16"), "columns are a number"),
        ((True, 64, "bf16"), "rows are a number"),
        ((64, 64, "bf17"), "unknown dtype"),
        ((4096, 4096, "fp64"), "far smaller"),
    ],
)
def test_what_is_no_tile_is_refused_by_a_sentence(tile: tuple[int, int, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_tile(*tile)


def test_an_access_that_the_gpu_or_the_tile_has_not_is_refused_by_a_sentence() -> None:
    h100, mi300x, tile = load_gpu("h100"), load_gpu("mi300x"), check_tile(64, 64, "bf16")
    for gpu, name in ((h100, "mfma_16x16x16"), (mi300x, "mfma_16x16x32"), (mi300x, "ldmatrix"), (mi300x, "wgmma")):
        with pytest.raises(UnsupportedError, match="no such instruction"):
            tile_access(gpu, name, tile)
    with pytest.raises(UnsupportedError, match="no such instruction"):
        tile_access(mi300x, "ds_read_b64_tr_b16", tile)
    with pytest.raises(UsageError, match="unknown access"):
        tile_access(h100, "ldmatrix_x5", tile)
    with pytest.raises(UsageError, match="blocks of 16 rows and 32 bytes"):
        tile_access(h100, "ldmatrix", check_tile(8, 64, "bf16"))
