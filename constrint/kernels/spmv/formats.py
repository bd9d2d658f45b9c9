"""Arrays that are made of a sparse matrix once: tiles of equal work, panels, patterns of rows, ELL. Needs torch.

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
        most_entries: Most entries of rows that are summed whole in a tile, from a multiple of `VECTOR` on.
        most_rows: Most such rows of a tile.
    """

    tiles: Tensor
    segments: Tensor
    long_rows: Tensor
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


def tiles_of(crow: Tensor, size: int) -> Tiles:
    """Deal the rows of a matrix to tiles of `size` items; rows of `size` entries or more are shared by tiles.

    Args:
        crow: (rows + 1,) offsets of rows.
        size: Items of a tile.
    """
    crow = crow.long()
    rows = crow.shape[0] - 1
    row = torch.arange(rows + 1, device=crow.device)
    item = crow + row
    # Entry j of row i is item j + i.
    offset = row
    number = -(-(int(crow[-1]) + rows) // size)
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
    arrays = [each.to(torch.int32).contiguous() for each in (tiles, segments, long_rows)]
    return Tiles(arrays[0], arrays[1], arrays[2], int(most[0]), int(most[1]))


@dataclass(frozen=True)
class Panels:
    """A matrix whose entries are sorted by panel of columns, then by row, and dealt to tiles of one size.

    A run is the entries of a row in a tile. Entries of a tile lie as the lanes of a warp load them (`panels.cu`).

    Args:
        columns: (tiles * size,) int16, read as unsigned: columns, counted from the panel's first one on.
        values: (tiles * size,); 0 in the padding at the end of a panel.
        flags: (tiles * 32,) int16: which of a lane's entries end a run.
        places: (tiles,) int32: the first run of each tile.
        firsts: (panels + 1,) int32: the first tile of each panel, and the number of tiles.
        crow: (rows + 1,) int32: offsets of rows in `runs`.
        runs: (runs of rows,) int32: the runs of each row, in order.
        width: Columns of a panel.
        num_runs: Runs of all tiles, with those of the padding.
    """

    columns: Tensor
    values: Tensor
    flags: Tensor
    places: Tensor
    firsts: Tensor
    crow: Tensor
    runs: Tensor
    width: int
    num_runs: int

    @property
    def num_tiles(self) -> int:
        """Number of tiles."""
        return self.places.shape[0]


#: Lanes of the warp that has a tile, and bytes that a lane loads at a time.
LANES, LOAD_BYTES = 32, 16


def panels_of(
    crow: Tensor, columns: Tensor, values: Tensor, num_columns: int, width: int, entries_per_lane: int
) -> Panels:
    """Sort the entries of a matrix by panel of `width` columns; rows keep their order, and entries of a row theirs."""
    device, rows, size = crow.device, crow.shape[0] - 1, LANES * entries_per_lane
    number = -(-num_columns // width)
    panel = torch.div(columns, width, rounding_mode="floor")
    order = torch.sort(panel.to(torch.int16), stable=True).indices
    row = torch.repeat_interleave(torch.arange(rows, device=device), (crow[1:] - crow[:-1]).long())[order]
    panel = panel[order].long()
    counts = torch.bincount(panel, minlength=number)
    filled = (counts + size - 1) // size * size
    starts = torch.cat([filled.new_zeros(1), filled.cumsum(0)])
    shift = starts[:-1] - (counts.cumsum(0) - counts)
    place = torch.arange(columns.shape[0], device=device) + shift[panel]
    total = int(starts[-1])
    local = torch.zeros(total, dtype=torch.int16, device=device)
    local[place] = (columns[order] - panel * width).to(torch.int32).to(torch.int16)
    filled_values = torch.zeros(total, dtype=values.dtype, device=device)
    filled_values[place] = values[order]
    owner = torch.full((total + 1,), -1, dtype=torch.int64, device=device)
    owner[place] = row
    del order, panel, place, row
    is_end = owner[1:] != owner[:-1]
    is_end[size - 1 :: size] = True
    owner = owner[:-1][is_end]
    by_tile = is_end.view(-1, LANES, entries_per_lane)
    bits = 1 << torch.arange(entries_per_lane, device=device)
    flags = (by_tile * bits).sum(2).to(torch.int32).to(torch.int16).flatten()
    of_tile = by_tile.sum((1, 2))
    places = (of_tile.cumsum(0) - of_tile).to(torch.int32)
    real = (owner >= 0).nonzero()[:, 0]
    runs = real[torch.sort(owner[real], stable=True).indices].to(torch.int32)
    lengths = torch.bincount(owner[real], minlength=rows)
    offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).to(torch.int32)
    local, filled_values = (_as_loaded(each, entries_per_lane) for each in (local, filled_values))
    firsts = (starts // size).to(torch.int32)
    return Panels(local, filled_values, flags, places, firsts, offsets, runs, width, owner.shape[0])


def _as_loaded(array: Tensor, entries_per_lane: int) -> Tensor:
    """Entries of tiles in the order in which lanes load 16 bytes at a time."""
    each = LOAD_BYTES // array.element_size()
    return array.view(-1, LANES, entries_per_lane // each, each).transpose(1, 2).contiguous().view(-1)


@dataclass(frozen=True)
class Near:
    """Columns in 16 bits, counted from the least one of their row.

    Args:
        columns: (entries,) int16, read as unsigned.
        firsts: (rows,) int32: the least column of each row; 0 of empty ones.
    """

    columns: Tensor
    firsts: Tensor


def reach_of(crow: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """(least, greatest) column of every row, int32; (the greatest number, -1) of empty rows.

    Offsets need not have been checked: malformed ones give other numbers, and no error.
    """
    rows = crow.shape[0] - 1
    row = torch.searchsorted(crow[1:].long(), torch.arange(columns.shape[0], device=crow.device), right=True)
    row.clamp_(max=rows - 1)
    columns = columns.to(torch.int32)
    least = torch.full((rows,), torch.iinfo(torch.int32).max, dtype=torch.int32, device=crow.device)
    greatest = torch.full((rows,), -1, dtype=torch.int32, device=crow.device)
    return least.scatter_reduce_(0, row, columns, "amin"), greatest.scatter_reduce_(0, row, columns, "amax")


def near_of(crow: Tensor, columns: Tensor) -> Near:
    """Count the columns of a matrix from the first one of their rows, which span no more than 16 bits."""
    lengths = (crow[1:] - crow[:-1]).long()
    least, _ = reach_of(crow, columns)
    firsts = torch.where(lengths > 0, least, torch.zeros_like(least))
    local = columns.to(torch.int32) - torch.repeat_interleave(firsts, lengths)
    return Near(local.to(torch.int16), firsts)


@dataclass(frozen=True)
class Patterns:
    """The patterns of a matrix's rows: the distances of their columns from the row, in order.

    Args:
        starts: (groups + 1,) int32: first entry of each group of `LANES` rows, or its complement where all of them
            have the main pattern; the number of entries.
        of_row: (rows,) uint8: the pattern of each row.
        lengths: (patterns,) int32: entries of each pattern.
        distances: (longest, patterns) int32: entry j of pattern p at [j, p]; 0 behind its last one, and up to a
            multiple of `PATTERN_BATCH` entries.
        main: (entries,) int32: the distances of the main pattern, that of most rows with entries.
        most_entries: Entries of a group, at most.
        longest: Entries of the longest row.
    """

    starts: Tensor
    of_row: Tensor
    lengths: Tensor
    distances: Tensor
    main: Tensor
    most_entries: int
    longest: int

    @property
    def number(self) -> int:
        """Number of patterns."""
        return self.lengths.shape[0]


#: Patterns that a byte counts; entries of a row and of the table of distances, at most.
MOST_PATTERNS, MOST_PATTERN_ROW, MOST_DISTANCES = 256, 128, 8192
#: Rows of the table of distances are a multiple of this.
PATTERN_BATCH = 8
#: Rows that are looked at first, and entries (of rows of the greatest length) that are looked at together.
SAMPLED_ROWS, CHUNK_ENTRIES = 4096, 1 << 24


def patterns_of(crow: Tensor, columns: Tensor, longest: int) -> Patterns | None:
    """Find the patterns of a checked matrix's rows; None where they are too many, or rows too long.

    Args:
        crow: (rows + 1,) int32 or int64.
        columns: (entries,) int32 or int64.
        longest: Entries of the longest row.
    """
    rows = crow.shape[0] - 1
    if not 0 < longest <= MOST_PATTERN_ROW or not rows:
        return None
    some = torch.linspace(0, rows - 1, min(rows, SAMPLED_ROWS), device=crow.device, dtype=torch.float64).long()
    most = min(MOST_PATTERNS, MOST_DISTANCES // longest)
    if torch.unique(_hashes(_distances(crow, columns, some, longest))).shape[0] > most:
        return None
    size = max(1, CHUNK_ENTRIES // longest)
    chunks = [torch.arange(at, min(rows, at + size), device=crow.device) for at in range(0, rows, size)]
    hashes = torch.cat([_hashes(_distances(crow, columns, chunk, longest)) for chunk in chunks])
    found, of_row = torch.unique(hashes, return_inverse=True)
    if found.shape[0] > most:
        return None
    first = torch.full_like(found, rows).scatter_reduce_(0, of_row, torch.arange(rows, device=crow.device), "amin")
    table = _distances(crow, columns, first, longest)
    # Hashes may agree where rows do not: every row is compared with its pattern.
    for chunk in chunks:
        if not torch.equal(_distances(crow, columns, chunk, longest), table[of_row[chunk]]):
            return None
    is_entry = table != NO_ENTRY
    lengths = is_entry.sum(1).to(torch.int32)
    distances = crow.new_zeros((-(-longest // PATTERN_BATCH) * PATTERN_BATCH, table.shape[0]), dtype=torch.int32)
    distances[:longest] = torch.where(is_entry, table, torch.zeros_like(table)).t()
    most_used = int((torch.bincount(of_row, minlength=table.shape[0]) * (lengths > 0)).argmax())
    main = distances[: int(lengths[most_used]), most_used].contiguous()
    starts, most_entries = _starts(crow, of_row == most_used)
    return Patterns(starts, of_row.to(torch.uint8), lengths, distances, main, most_entries, longest)


def _starts(crow: Tensor, is_main: Tensor) -> tuple[Tensor, int]:
    """`Patterns.starts`, and the most entries of a group; the last group is never one of the main pattern."""
    starts = torch.cat([crow[:-1:LANES], crow[-1:]]).to(torch.int32)
    whole = torch.nn.functional.pad(is_main, (0, -is_main.shape[0] % LANES)).view(-1, LANES).all(1)
    whole[-1] = False
    most_entries = int((starts[1:] - starts[:-1]).amax())
    starts[:-1] = torch.where(whole, ~starts[:-1], starts[:-1])
    return starts, most_entries


#: What stands behind the last entry of a row; no distance.
NO_ENTRY = 1 << 40


def _distances(crow: Tensor, columns: Tensor, rows: Tensor, longest: int) -> Tensor:
    """(rows, longest) int64: columns less their row, in order, and `NO_ENTRY` behind them."""
    entry = torch.arange(longest, device=crow.device)
    at, lengths = crow[rows].long()[:, None] + entry, (crow[rows + 1] - crow[rows])[:, None]
    column = columns[at.clamp_(max=columns.shape[0] - 1)].long()
    return torch.where(entry < lengths, column - rows[:, None], NO_ENTRY)


def _hashes(distances: Tensor) -> Tensor:
    """(rows,) int64: sums of odd multiples of the distances, modulo 2^64, each with another factor for its place."""
    draw = torch.Generator().manual_seed(0)
    factors = torch.randint(-(1 << 62), 1 << 62, (distances.shape[1],), generator=draw).to(distances.device)
    return (distances * (2 * factors + 1)).sum(1)


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
