"""Arrays that are made of a sparse matrix once: tiles of equal work, panels of columns, sliced ELL. Needs torch.

All of it is computed on the matrix's device; numbers that a launch needs on the host are read together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

#: Entries that are loaded together: a tile's products begin at a multiple of it.
VECTOR = 4


@dataclass(frozen=True)
class Tiles:
    """Tiles of equal work: an item of work is an entry or the start of a row.

    Args:
        tiles: (tiles, 4) int32: first row, first entry, end of entries, number of rows that are summed whole.
        segments: (tiles, 4) int32: begin and end of the tail and of the head of long rows in each tile.
        long_rows: (long rows, 4) int32: row, tile of its head, tile of its last tail, 0.
        firsts: (panels + 1,) int32: first tile of each panel, and the number of tiles.
        most_entries: Most entries of rows that are summed whole in a tile, from a multiple of `VECTOR` on.
        most_rows: Most such rows of a tile.
    """

    tiles: Tensor
    segments: Tensor
    long_rows: Tensor
    firsts: Tensor
    most_entries: int
    most_rows: int

    @property
    def number(self) -> int:
        """Number of tiles."""
        return self.tiles.shape[0]

    @property
    def num_long(self) -> int:
        """Number of rows that several tiles share."""
        return self.long_rows.shape[0]


def tiles_of(crow: Tensor, size: int, panel_rows: int | None = None) -> Tiles:
    """Deal the rows of a matrix to tiles of `size` items; rows of `size` entries or more are shared by tiles.

    Args:
        crow: (rows + 1,) offsets of rows.
        size: Items of a tile.
        panel_rows: Rows of a panel: no tile reaches from one panel into the next.
    """
    crow = crow.long()
    rows = crow.shape[0] - 1
    row = torch.arange(rows + 1, device=crow.device)
    item = crow + row
    panel_rows = panel_rows or rows
    if panel_rows < rows:
        # Every panel begins at a multiple of `size`.
        starts = item[::panel_rows]
        filled = ((starts[1:] - starts[:-1] + size - 1) // size * size).cumsum(0)
        shift = torch.cat([filled.new_zeros(1), filled]) - starts
        shift = shift.repeat_interleave(panel_rows)[: rows + 1]
        shift = torch.cat([shift, shift[-1:]])[: rows + 1]
    else:
        shift = torch.zeros_like(item)
    item = item + shift
    offset = row + shift  # entry j of row i is item j + offset[i]
    offset[-1] = offset[-2]
    last_item = crow[-1:] + rows + shift[-2:-1]
    number = int((last_item + size - 1) // size)
    tile = torch.arange(number + 1, device=crow.device)
    first = torch.searchsorted(item[:-1].contiguous(), tile * size)
    first[-1] = rows
    begin, end, tile = first[:-1], first[1:], tile[:-1]
    is_long = torch.cat([(crow[1:] - crow[:-1]) >= size, torch.zeros(1, dtype=torch.bool, device=crow.device)])
    has_head = (end > begin) & is_long[(end - 1).clamp(min=0)]
    whole = end - begin - has_head.long()
    entry, entry_end = crow[begin], crow[begin + whole]
    tiles = torch.stack([begin, entry, entry_end, whole], 1)
    tail = (begin - 1).clamp(min=0)
    tail_begin = tile * size - offset[tail]
    tail_end = torch.minimum(crow[tail + 1], (tile + 1) * size - offset[tail])
    has_tail = (begin > 0) & is_long[tail] & (tail_begin < tail_end)
    head = (end - 1).clamp(min=0)
    head_begin = crow[head]
    head_end = torch.minimum(crow[head + 1], (tile + 1) * size - offset[head])
    zero = torch.zeros_like(tile)
    segments = torch.stack(
        [
            torch.where(has_tail, tail_begin, zero),
            torch.where(has_tail, tail_end, zero),
            torch.where(has_head, head_begin, zero),
            torch.where(has_head, head_end, zero),
        ],
        1,
    )
    longs = is_long.nonzero()[:, 0]
    firsts, lasts = item[longs] // size, (crow[longs + 1] - 1 + offset[longs]) // size
    long_rows = torch.stack([longs, firsts, lasts, torch.zeros_like(longs)], 1)
    most = torch.stack([(entry_end - entry // VECTOR * VECTOR).amax(), whole.amax()]).tolist()
    firsts = torch.cat([item[:-1:panel_rows] // size, torch.full_like(tile[:1], number)])
    arrays = [each.to(torch.int32).contiguous() for each in (tiles, segments, long_rows, firsts)]
    return Tiles(arrays[0], arrays[1], arrays[2], arrays[3], int(most[0]), int(most[1]))


@dataclass(frozen=True)
class Panels:
    """A matrix whose entries are sorted by panel of columns, then by row.

    Args:
        crow: (panels * rows + 1,) int32: offsets of the rows of each panel.
        columns: (entries,) int16, read as unsigned: columns, counted from the panel's first one on.
        values: (entries,).
        width: Columns of a panel.
        number: Number of panels.
    """

    crow: Tensor
    columns: Tensor
    values: Tensor
    width: int
    number: int


def panels_of(crow: Tensor, columns: Tensor, values: Tensor, num_columns: int, width: int) -> Panels:
    """Sort the entries of a matrix by panel of `width` columns; rows keep their order, and entries of a row theirs."""
    rows = crow.shape[0] - 1
    number = -(-num_columns // width)
    panel = torch.div(columns, width, rounding_mode="floor")
    row = torch.repeat_interleave(torch.arange(rows, device=crow.device), (crow[1:] - crow[:-1]).long())
    counts = torch.bincount(panel.long() * rows + row, minlength=number * rows)
    del row
    offsets = torch.zeros(number * rows + 1, dtype=torch.int32, device=crow.device)
    torch.cumsum(counts, 0, out=offsets[1:]) if offsets.dtype == counts.dtype else offsets[1:].copy_(counts.cumsum(0))
    order = torch.sort(panel.to(torch.int16), stable=True).indices
    local = (columns - panel * width)[order].to(torch.int32).to(torch.int16)
    return Panels(offsets, local.contiguous(), values[order].contiguous(), width, number)


@dataclass(frozen=True)
class Ell:
    """Sliced ELL: rows in slices of equal height, each as wide as its longest row.

    Args:
        slices: (slices + 1,) int32: first column of each slice, counted in columns of all slices.
        columns: (height * all columns,) int32, -1 where there is no entry.
        values: The same, 0 where there is no entry.
        row_of: (rows,) int32: row of each place; (0,) where rows are not sorted.
        height: Rows of a slice.
    """

    slices: Tensor
    columns: Tensor
    values: Tensor
    row_of: Tensor
    height: int


def ell_of(crow: Tensor, columns: Tensor, values: Tensor, height: int, window: int) -> Ell:
    """Make slices of `height` rows, which are sorted by length within windows of `window` rows (0: not sorted)."""
    lengths = (crow[1:] - crow[:-1]).long()
    rows, device = lengths.shape[0], crow.device
    number = -(-rows // height)
    place = torch.arange(rows, device=device)
    row_of = place
    if window > height:
        key = (place // window) * (int(lengths.max()) + 1) - lengths
        # Longest rows first in each window; equal ones keep their order.
        row_of = torch.sort(key + (place // window), stable=True).indices
        place = torch.empty_like(row_of)
        place[row_of] = torch.arange(rows, device=device)
    padded = torch.zeros(number * height, dtype=torch.int64, device=device)
    padded[:rows] = lengths[row_of]
    widths = padded.view(number, height).amax(1)
    slices = torch.zeros(number + 1, dtype=torch.int64, device=device)
    slices[1:] = widths.cumsum(0)
    total = int(slices[-1]) * height
    row = torch.repeat_interleave(torch.arange(rows, device=device), lengths)
    entry = torch.arange(columns.shape[0], device=device) - crow.long()[row]
    at = (slices[place[row] // height] + entry) * height + place[row] % height
    wide = torch.full((total,), -1, dtype=torch.int32, device=device)
    wide[at] = columns.to(torch.int32)
    filled = torch.zeros(total, dtype=values.dtype, device=device)
    filled[at] = values
    kept = row_of.to(torch.int32) if window > height else torch.empty(0, dtype=torch.int32, device=device)
    return Ell(slices.to(torch.int32), wide, filled, kept, height)
