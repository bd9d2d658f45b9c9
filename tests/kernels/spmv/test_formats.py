"""Tiles, panels and slices of sparse matrices hold every entry once, in order."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs torch", allow_module_level=True)

import torch
from torch import Tensor

from constrint.kernels.spmv.formats import ell_of, panels_of, tiles_of

DRAW = torch.Generator().manual_seed(5)


def offsets(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32)


CASES = {
    "short": [i * 7 % 5 for i in range(200)],
    "empty ends": [0, 0, 0, 5, 0, 0],
    "long": [3, 100, 0, 64, 63, 65, 1, 0, 300, 2, 0],
    "one": [500],
    "no entries": [0] * 70,
}


@pytest.mark.parametrize("lengths", CASES.values(), ids=CASES)
@pytest.mark.parametrize("size", [16, 64])
def test_tiles_cover_every_row_and_entry_once(lengths: list[int], size: int) -> None:
    crow = offsets(lengths)
    tiles = tiles_of(crow, size)
    entries = int(crow[-1])
    seen, rows = [0] * entries, [0] * len(lengths)
    for (row, first, end, number), (tail, tail_end, head, head_end) in zip(
        tiles.tiles.tolist(), tiles.segments.tolist(), strict=True
    ):
        assert (first, end) == (int(crow[row]), int(crow[row + number]))
        # A tile has at most its items and the rest of its last row, which is shorter than a tile.
        assert end - first + number < 2 * size
        assert (tail_end - tail) + (head_end - head) <= size
        assert end - first // 4 * 4 <= tiles.most_entries
        assert number <= tiles.most_rows
        for at in (*range(first, end), *range(tail, tail_end), *range(head, head_end)):
            seen[at] += 1
        for own in range(row, row + number):
            rows[own] += 1
            assert lengths[own] < size
    for row, first_tile, last_tile, _ in tiles.long_rows.tolist():
        rows[row] += 1
        parts = [tiles.segments[first_tile, 2:], *tiles.segments[first_tile + 1 : last_tile + 1, :2]]
        assert [int(parts[0][0]), int(parts[-1][1])] == crow[row : row + 2].tolist()
        assert all(int(one[1]) == int(other[0]) for one, other in pairwise(parts))
    assert seen == [1] * entries
    assert rows == [1] * len(lengths)


@pytest.mark.parametrize("lengths", CASES.values(), ids=CASES)
def test_copies_hold_the_matrix(lengths: list[int]) -> None:
    crow, width = offsets(lengths), 50
    entries = int(crow[-1])
    columns = torch.randint(0, width, (entries,), generator=DRAW, dtype=torch.int32)
    values = torch.arange(1.0, entries + 1)
    row = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    whole = {(int(r), int(c), float(v)) for r, c, v in zip(row, columns, values, strict=True)}
    for each in (8, 16):
        panels = panels_of(crow, columns, values, width, 20, each)
        lanes = panels.values.view(-1, each // 4, 32, 4).transpose(1, 2).reshape(-1)
        places = (panels.columns.view(-1, each // 8, 32, 8).transpose(1, 2).reshape(-1).long()) & 0xFFFF
        bits = (panels.flags.long()[:, None] >> torch.arange(each) & 1).flatten()
        run = bits.cumsum(0) - bits  # runs are numbered in the order of their ends
        assert panels.places.tolist() == run[:: 32 * each].tolist()
        assert panels.num_runs == int(bits.sum())
        owner = torch.full((panels.num_runs,), -1)
        owner[panels.runs.long()] = torch.repeat_interleave(
            torch.arange(len(lengths)), (panels.crow[1:] - panels.crow[:-1]).long()
        )
        tile = torch.arange(len(lanes)) // (32 * each)
        panel = torch.bucketize(tile, panels.firsts[1:].long(), right=True)
        found = zip(owner[run].tolist(), (places + 20 * panel).tolist(), lanes.tolist(), strict=True)
        assert {entry for entry in found if entry[0] >= 0 and entry[2]} == whole
    for window in (0, 64):
        ell = ell_of(crow, columns, values, 8, window)
        back = []
        for number in range(len(ell.slices) - 1):
            for at in range(int(ell.slices[number]) * 8, int(ell.slices[number + 1]) * 8):
                place = number * 8 + at % 8
                if int(ell.columns[at]) >= 0:
                    own = int(ell.row_of[place]) if window else place
                    back.append((own, int(ell.columns[at]), float(ell.values[at])))
        assert len(back) == entries
        assert set(back) == whole
