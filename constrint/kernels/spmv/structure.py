"""Facts and arrays that are kept of a sparse matrix: checks, lengths of rows, arrays of kernels. Needs torch.

What is kept belongs to one matrix, is found by its identity, is freed with it, and is dropped when torch's version
counter says that the matrix was written: through itself or through `values()` and the like. Memory that the matrix
shares with the tensors that it was made of may be written without the counter: the places of entries are trusted not
to change so; of values that were copied `writes.py` and `copies.py` tell.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.kernels.spmv.cost import SECTOR_BYTES
from constrint.kernels.spmv.formats import (
    Ell,
    Near,
    Panels,
    Patterns,
    Tiles,
    ell_of,
    near_of,
    panels_of,
    patterns_of,
    reach_of,
    tiles_of,
)
from constrint.kernels.spmv.launch import DTYPE_NAMES
from constrint.kernels.spmv.writes import Writes, version_of
from constrint.select.workload import Workload

#: Entries of a window in which sectors of x are counted, and the number of windows.
WINDOW, WINDOWS = 4096, 8
#: Entries and rows that kernels count, at most.
MOST_COUNTED = 1 << 31


@dataclass(frozen=True)
class RowFacts:
    """Numbers of a matrix that decide about kernels.

    Args:
        longest: Entries of the longest row.
        spread: Standard deviation of the lengths over their mean, in percent.
        scattered: Sectors of x that successive entries touch, in percent of the entries.
        span: Columns from the first to the last one of a row, at most.
        patterns: Patterns of rows (`formats.Patterns`); 0: too many.
    """

    longest: int
    spread: int
    scattered: int
    span: int
    patterns: int = 0


@dataclass(eq=False)
class Structure:
    """The places of the entries of a matrix, checked.

    Args:
        shape: Rows and columns.
        entries: Stored entries.
        facts: Numbers that decide about kernels.
        narrow: (crow, columns) in int32 where the caller's are int64; None where these are int32.
        kept: Tiles and other arrays that do not depend on values, made when they are needed.
    """

    shape: tuple[int, int]
    entries: int
    facts: RowFacts
    narrow: tuple[Tensor, Tensor] | None
    kept: dict[Any, Any] = field(default_factory=dict)

    def made(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the value that was made under a key, or make it now."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]

    def workload(self, dtype: str, width: int) -> Workload:
        """The workload of a product with `width` columns of x."""
        sizes = {"rows": self.shape[0], "cols": self.shape[1], "nnz": self.entries}
        facts = self.facts
        options = {"longest": facts.longest, "spread": facts.spread, "scattered": facts.scattered, "span": facts.span}
        options |= {"width": width} if width > 1 else {}
        options |= {"patterns": facts.patterns} if facts.patterns else {}
        return Workload("spmv", sizes, dtype, options)


def structure_of(crow: Tensor, columns: Tensor, shape: tuple[int, int], element: int) -> Structure:
    """Check a matrix and count its rows; waits for the device.

    Raises:
        UsageError: For offsets that fall or do not end at the number of entries, and for columns out of range.
    """
    entries, rows = columns.shape[0], shape[0]
    lengths = crow[1:] - crow[:-1]
    zero = crow.new_zeros(())
    least_length = lengths.amin() if rows else zero
    longest = lengths.amax() if rows else zero
    least, most = (columns.amin(), columns.amax()) if entries else (zero, zero)
    deviation = lengths.double().std(correction=0) if rows else zero.double()
    sectors = _sectors(columns, element)
    first_of, last_of = reach_of(crow, columns) if entries and rows else (zero, zero)
    numbers = [crow[0], crow[-1], least_length, longest, least, most]
    whole = torch.stack(
        [*(each.double() for each in numbers), deviation, sectors, (last_of - first_of).amax().double()]
    ).tolist()
    first, last, shortest, most_entries, lowest, highest = (int(number) for number in whole[:6])
    if first != 0 or last != entries or shortest < 0:
        raise UsageError(
            f"spmv: crow_indices rise from 0 to the {entries} entries; here they begin at {first}, end at {last}, and "
            f"the least length of a row is {shortest}."
        )
    if entries and (lowest < 0 or highest >= shape[1]):
        raise UsageError(f"spmv: columns are from 0 to {shape[1] - 1}; here they reach from {lowest} to {highest}.")
    mean = entries / max(rows, 1)
    patterns = patterns_of(crow, columns, most_entries) if entries + rows < MOST_COUNTED else None
    facts = RowFacts(
        most_entries,
        min(1_000_000, round(100 * whole[6] / mean)) if mean else 0,
        min(100, round(100 * whole[7])),
        max(1, int(whole[8]) + 1),
        patterns.number if patterns else 0,
    )
    narrow = None
    if crow.dtype != torch.int32 or columns.dtype != torch.int32:
        narrow = (crow.to(torch.int32), columns.to(torch.int32)) if entries + rows < MOST_COUNTED else None
    return Structure(shape, entries, facts, narrow, {"patterns": patterns} if patterns else {})


def _sectors(columns: Tensor, element: int) -> Tensor:
    """Sectors of x that windows of successive entries touch, per entry."""
    entries = columns.shape[0]
    if not entries:
        return columns.new_zeros((), dtype=torch.float64)
    size = min(WINDOW, entries)
    number = WINDOWS if entries > size else 1
    starts = torch.arange(number, device=columns.device) * ((entries - size) // max(1, number - 1))
    window = starts[:, None] + torch.arange(size, device=columns.device)
    sector = torch.sort(torch.div(columns[window] * element, SECTOR_BYTES, rounding_mode="floor"), dim=1).values
    return ((sector[:, 1:] != sector[:, :-1]).sum() + sector.shape[0]).double() / sector.numel()


@dataclass(eq=False)
class Known:
    """One matrix: its arrays, what is kept of it, and what runs its products.

    Args:
        crow, columns, values: Its arrays, detached.
        shape: Rows and columns.
        version: Its version counter when it was read.
        writes: What tells of writes to its values that its own counter does not count.
        structure: Its places, checked; None before they are needed.
        copies: What was made of its values, by tuples of kernel and parameters, and by names of what goes with all.
        runs: What runs products, by kind of call.
        calls: Products so far.
        takes_copies: Whether kernels that copy its values may run.
    """

    crow: Tensor
    columns: Tensor
    values: Tensor
    shape: tuple[int, int]
    version: int
    writes: Writes
    structure: Structure | None = None
    copies: dict[Any, Any] = field(default_factory=dict)
    runs: dict[Any, Any] = field(default_factory=dict)
    calls: int = 0
    takes_copies: bool = True

    def close(self) -> None:
        """Free what is kept, although what runs products refers to it."""
        for run in self.runs.values():
            if hasattr(run, "close"):
                run.close()
        self.runs.clear()
        self.copies.clear()
        self.structure = None

    def read(self) -> Structure:
        """The structure, checked once."""
        if self.structure is None:
            self.structure = structure_of(self.crow, self.columns, self.shape, self.values.element_size())
        return self.structure

    @property
    def indices(self) -> tuple[Tensor, Tensor]:
        """(crow, columns) in int32."""
        narrow = self.read().narrow
        return (self.crow, self.columns) if narrow is None else narrow

    @property
    def dtype(self) -> str:
        """Name of the values' dtype."""
        return DTYPE_NAMES[self.values.dtype]

    @property
    def num_copied_bytes(self) -> int:
        """Bytes of device memory that are kept beside the matrix."""
        kept = [*self.copies.values(), *(self.structure.kept.values() if self.structure else ())]
        kept += [self.structure.narrow] if self.structure and self.structure.narrow else []
        return sum(each.numel() * each.element_size() for each in _tensors_in(kept))

    def copy(self, key: Any, make: Callable[[], Any]) -> Any:
        """A copy of the matrix that was made before under a key, or is made now."""
        if key not in self.copies:
            self.copies[key] = make()
        return self.copies[key]

    def drop_copies_but(self, kernel: str) -> None:
        """Free the copies of all kernels but one; without a name, of all."""
        for key in [key for key in self.copies if not kernel or (isinstance(key, tuple) and key[0] != kernel)]:
            del self.copies[key]

    def tiles(self, size: int) -> Tiles:
        """Tiles of the matrix; they do not depend on values."""
        made: Tiles = self.read().made(("tiles", size), lambda: tiles_of(self.indices[0], size))
        return made

    def near(self) -> Near:
        """Columns in 16 bits; they do not depend on values."""
        made: Near = self.read().made("near", lambda: near_of(*self.indices))
        return made

    def patterns(self) -> Patterns:
        """The patterns of rows, where they are few; they do not depend on values."""
        found: Patterns = self.read().kept["patterns"]
        return found

    def panels(self, width: int, entries_per_lane: int, size: int) -> tuple[Panels, Tiles]:
        """The matrix by panels of columns, and the tiles of its runs."""
        key = ("panels", width, entries_per_lane)
        panels: Panels = self.copy(
            key, lambda: panels_of(*self.indices, self.values, self.shape[1], width, entries_per_lane)
        )
        return panels, self.copy((*key, size), lambda: tiles_of(panels.crow, size))

    def ell(self, height: int, window: int) -> Ell:
        """The matrix as sliced ELL."""
        made: Ell = self.copy(("ell", height, window), lambda: ell_of(*self.indices, self.values, height, window))
        return made


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested dataclasses, tuples and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _tensors_in(each)
    elif is_dataclass(value):
        yield from _tensors_in(list(vars(value).values()))


#: Matrices by the identity of their tensor.
_KNOWN: dict[int, tuple[weakref.ref[Tensor], Known]] = {}


def known(matrix: Tensor) -> Known:
    """The facts and arrays of a matrix; none yet where torch's counter says that it was written since."""
    name = id(matrix)
    entry = _KNOWN.get(name)
    if entry is not None and entry[0]() is matrix and entry[1].version == version_of(matrix):
        return entry[1]
    # Views hold the matrix; detached ones share its memory and its version counter, and let it go.
    crow, columns, values = (each.detach() for each in (matrix.crow_indices(), matrix.col_indices(), matrix.values()))
    shape = matrix.shape[0], matrix.shape[1]
    found = Known(crow, columns, values, shape, version_of(matrix), Writes(matrix, values))
    if entry is not None:
        entry[1].close()

    def drop(gone: Any) -> None:
        if name in _KNOWN and _KNOWN[name][0] is gone:
            _KNOWN.pop(name)
        found.close()

    _KNOWN[name] = weakref.ref(matrix, drop), found
    return found


def forget_matrices() -> None:
    """Drop all that is kept of matrices, and free its memory."""
    for _, found in _KNOWN.values():
        found.close()
    _KNOWN.clear()
