"""Tiles, panels and slices of sparse matrices hold every entry once, in order."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.support.needs import missing_packages

if missing_packages("torch"):
    pytest.skip("needs torch", allow_module_level=True)

import torch
from torch import Tensor

from constrint.kernels.spmv import formats
from constrint.kernels.spmv.formats import MOST_PATTERNS, Patterns, ell_of, panels_of, patterns_of, tiles_of

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


def from_rows(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    return offsets([len(row) for row in rows]), torch.tensor(
        [place for row in rows for place in row], dtype=torch.int32
    )


def rows_of(patterns: Patterns) -> list[list[int]]:
    """The columns of every row by its pattern."""
    whole: list[list[int]] = []
    for row, pattern in enumerate(patterns.of_row.tolist()):
        length = int(patterns.lengths[pattern])
        whole.append([row + distance for distance in patterns.distances[:length, pattern].tolist()])
    return whole


def test_patterns_hold_every_column_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "CHUNK_ENTRIES", 64)  # several chunks of rows
    grid = [[r + d for d in (-9, -1, 0, 1, 9) if 0 <= r + d < 100] for r in range(100)]
    unsorted = [[], [4, 1, 4], [5, 2, 5], []] * 10
    unsorted = [[place + row // 4 * 4 for place in columns] for row, columns in enumerate(unsorted)]
    for rows in (grid, unsorted):
        crow, columns = from_rows(rows)
        patterns = patterns_of(crow, columns, max(map(len, rows)))
        assert patterns is not None
        assert rows_of(patterns) == rows
        firsts = [first if first >= 0 else ~first for first in patterns.starts.tolist()]
        assert firsts == [*crow[:-1:32].tolist(), len(columns)]
        assert patterns.most_entries == max(end - first for first, end in pairwise(firsts))
        main = patterns.main.tolist()
        for group, first in enumerate(patterns.starts[:-1].tolist()):
            own = [[place - row for place in rows[row]] for row in range(32 * group, min(len(rows), 32 * group + 32))]
            is_main = len(own) == 32 and all(distances == main for distances in own)
            assert (first < 0) == (is_main and group < len(firsts) - 2)
        assert patterns.number == patterns.lengths.shape[0] == patterns.distances.shape[1]
    assert patterns_of(*from_rows(grid), 5).number == 5  # type: ignore[union-attr]


def test_rows_of_many_patterns_and_long_ones_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    number = MOST_PATTERNS + 1
    several = [[0] for _ in range(number)]  # each row at another distance
    assert patterns_of(*from_rows(several), 1) is None
    assert patterns_of(*from_rows(several[:-1]), 1) is not None
    monkeypatch.setattr(formats, "SAMPLED_ROWS", 8)  # and where the first look finds few
    assert patterns_of(*from_rows(several), 1) is None
    assert patterns_of(*from_rows([list(range(129))]), 129) is None
    assert patterns_of(*from_rows([[], []]), 0) is None


def test_rows_whose_hashes_agree_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "_hashes", lambda distances: torch.zeros(distances.shape[0], dtype=torch.int64))
    assert patterns_of(*from_rows([[0], [1], [2]]), 1) is not None
    assert patterns_of(*from_rows([[0], [1], [1]]), 1) is None
