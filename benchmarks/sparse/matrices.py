"""Sparse matrices of the kinds that collections hold, made by programs: stencils, meshes, graphs, dense rows.

Each is a function of a generator and a device that returns a `Pattern`; `MATRICES` has them by name. Sizes are those of
matrices that do not fit an L2, but for the last two. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pattern:
    """Places of the entries of a matrix.

    Args:
        crow: (rows + 1,) int64.
        columns: (entries,) int64, increasing in every row unless the program says otherwise.
        shape: Rows and columns.
    """

    crow: Tensor
    columns: Tensor
    shape: tuple[int, int]

    def matrix(self, dtype: torch.dtype, index: torch.dtype = torch.int32, seed: int = 0) -> Tensor:
        """A CSR tensor with normal random values."""
        draw = torch.Generator(self.columns.device).manual_seed(seed)
        shape = self.columns.shape
        values = torch.randn(shape, generator=draw, device=self.columns.device, dtype=torch.float32).to(dtype)
        return torch.sparse_csr_tensor(
            self.crow.to(index), self.columns.to(index), values, self.shape, check_invariants=False
        )


def _from_pairs(rows: Tensor, columns: Tensor, shape: tuple[int, int]) -> Pattern:
    """A pattern of (row, column) pairs in any order; pairs that occur twice are taken once."""
    key = torch.unique(rows * shape[1] + columns)
    rows = torch.div(key, shape[1], rounding_mode="floor")
    counts = torch.bincount(rows, minlength=shape[0])
    return Pattern(_offsets(counts), key - rows * shape[1], shape)


def _offsets(lengths: Tensor) -> Tensor:
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _from_lengths(lengths: Tensor, columns: Tensor, width: int) -> Pattern:
    """A pattern of rows of given lengths and a column for each entry, which are sorted in every row."""
    rows = lengths.shape[0]
    row = torch.repeat_interleave(torch.arange(rows, device=lengths.device), lengths)
    ordered = torch.sort(row * width + columns).values
    return Pattern(_offsets(lengths), ordered - row * width, (rows, width))


def stencil(draw: torch.Generator, device: Any, sides: tuple[int, ...], *, box: bool = False) -> Pattern:
    """A star of nearest neighbours on a grid with Dirichlet borders (5-point, 7-point), or the whole box (27-point)."""
    axes = [torch.arange(side, device=device) for side in sides]
    places = torch.meshgrid(*axes, indexing="ij")
    steps = torch.cartesian_prod(*[torch.tensor([-1, 0, 1])] * len(sides)).tolist()
    steps = [step for step in steps if box or sum(map(abs, step)) <= 1]
    number = torch.arange(torch.Size(sides).numel(), device=device)
    columns, inside = [], []
    for step in steps:
        shift, is_inside = 0, torch.ones(sides, dtype=torch.bool, device=device)
        for axis, by in enumerate(step):
            shift = shift * sides[axis] + by
            is_inside &= (places[axis] + by >= 0) & (places[axis] + by < sides[axis])
        columns.append(number + shift)
        inside.append(is_inside.flatten())
    chosen = torch.stack(inside, 1)
    every = torch.stack(columns, 1)[chosen]
    return Pattern(_offsets(chosen.sum(1)), every, (number.numel(), number.numel()))


def banded(draw: torch.Generator, device: Any, rows: int, half: int, kept: float = 1.0) -> Pattern:
    """A share `kept` of the diagonals within `half` of the main one, each of them whole."""
    offsets = torch.arange(-half, half + 1, device=device)
    is_kept = torch.rand(offsets.shape, generator=draw, device=device) < kept
    offsets = offsets[is_kept | (offsets == 0)]
    columns = torch.arange(rows, device=device)[:, None] + offsets[None, :]
    inside = (columns >= 0) & (columns < rows)
    return Pattern(_offsets(inside.sum(1)), columns[inside], (rows, rows))


def blocks(draw: torch.Generator, device: Any, nodes: int, neighbours: int, size: int, reach: int) -> Pattern:
    """A mesh of nodes with `size` unknowns each: dense blocks between nodes at most `reach` apart in their numbers."""
    node = torch.arange(nodes, device=device)[:, None].expand(nodes, neighbours)
    step = torch.randint(-reach, reach + 1, (nodes, neighbours), generator=draw, device=device)
    step[:, 0] = 0
    other = (node + step).clamp(0, nodes - 1)
    coarse = _from_pairs(node.flatten(), other.flatten(), (nodes, nodes))
    lengths = (coarse.crow[1:] - coarse.crow[:-1]).repeat_interleave(size)
    row = torch.repeat_interleave(torch.arange(nodes * size, device=device), lengths)
    place = torch.arange(row.shape[0], device=device) - _offsets(lengths)[row]
    source = coarse.columns[coarse.crow[torch.div(row, size, rounding_mode="floor")] + place]
    inner = torch.arange(size, device=device)
    columns = (source[:, None] * size + inner).flatten()
    return Pattern(_offsets(lengths * size), columns, (nodes * size, nodes * size))


def block_diagonal(draw: torch.Generator, device: Any, number: int, size: int) -> Pattern:
    """Dense blocks along the diagonal."""
    rows = number * size
    first = torch.arange(rows, device=device) // size * size
    columns = (first[:, None] + torch.arange(size, device=device)).flatten()
    return Pattern(_offsets(torch.full((rows,), size, device=device)), columns, (rows, rows))


def road(draw: torch.Generator, device: Any, side: int) -> Pattern:
    """A road network: a square grid of crossings of which two roads in five are missing, numbered by rows."""
    whole = stencil(draw, device, (side, side))
    row = torch.repeat_interleave(torch.arange(whole.shape[0], device=device), whole.crow[1:] - whole.crow[:-1])
    low, high = torch.minimum(row, whole.columns), torch.maximum(row, whole.columns)
    # A hash of both ends decides, so that roads lead both ways.
    mixed = (low * 2654435761 + high * 40503 + (low ^ high) * 97) % 1000
    is_kept = (mixed >= 400) & (row != whole.columns)
    counts = torch.bincount(row[is_kept], minlength=whole.shape[0])
    return Pattern(_offsets(counts), whole.columns[is_kept], whole.shape)


def uniform(draw: torch.Generator, device: Any, rows: int, width: int, length: int) -> Pattern:
    """Rows of equal lengths with uniform random columns."""
    lengths = torch.full((rows,), length, device=device)
    columns = torch.randint(0, width, (rows * length,), generator=draw, device=device)
    return _from_lengths(lengths, columns, width)


def power_law(
    draw: torch.Generator, device: Any, rows: int, entries: int, exponent: float = 2.1, reach: int = 0
) -> Pattern:
    """Rows whose lengths follow a power law, in any order; columns are uniform, or within `reach` of the diagonal."""
    weight = torch.rand(rows, generator=draw, device=device, dtype=torch.float64).clamp(min=1e-9)
    weight = weight ** (-1 / (exponent - 1))
    lengths = (weight * (entries / weight.sum())).round().long().clamp(1, rows)
    total = int(lengths.sum())
    columns = torch.randint(0, rows, (total,), generator=draw, device=device)
    if reach:
        row = torch.repeat_interleave(torch.arange(rows, device=device), lengths)
        near = row + torch.randint(-reach, reach + 1, (total,), generator=draw, device=device)
        columns = near.remainder(rows)
    return _from_lengths(lengths, columns, rows)


def rmat(draw: torch.Generator, device: Any, scale: int, degree: int) -> Pattern:
    """A Kronecker graph by the probabilities of Graph500: 0.57, 0.19, 0.19, 0.05."""
    number = degree << scale
    row, column = (
        torch.zeros(number, dtype=torch.int64, device=device),
        torch.zeros(number, dtype=torch.int64, device=device),
    )
    for _ in range(scale):
        u = torch.rand(number, generator=draw, device=device)
        down = u >= 0.76
        right = ((u >= 0.57) & (u < 0.76)) | (u >= 0.95)
        row, column = 2 * row + down, 2 * column + right
    return _from_pairs(row, column, (1 << scale, 1 << scale))


def circuit(draw: torch.Generator, device: Any, rows: int, nets: int) -> Pattern:
    """A circuit: a diagonal, neighbours near by and far away, and `nets` columns and rows that reach everywhere."""
    row = torch.arange(rows, device=device)
    near = row + torch.randint(-20, 21, (3, rows), generator=draw, device=device)
    far = torch.randint(0, rows, (1, rows), generator=draw, device=device)
    columns = torch.cat([row[None], near.clamp(0, rows - 1), far]).flatten()
    reached = torch.randint(0, rows, (nets, rows // 20), generator=draw, device=device)
    net = torch.randint(0, rows, (nets, 1), generator=draw, device=device).expand_as(reached)
    pairs = (row.repeat(5), columns), (net.flatten(), reached.flatten()), (reached.flatten(), net.flatten())
    return _from_pairs(torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs]), (rows, rows))


def dense_rows(draw: torch.Generator, device: Any, rows: int, length: int, dense: int) -> Pattern:
    """Short rows with uniform columns, and some rows that have every column."""
    lengths = torch.full((rows,), length, device=device)
    full = torch.randperm(rows, generator=draw, device=device)[:dense]
    lengths[full] = rows
    row = torch.repeat_interleave(torch.arange(rows, device=device), lengths)
    place = torch.arange(row.shape[0], device=device) - _offsets(lengths)[row]
    drawn = torch.randint(0, rows, row.shape, generator=draw, device=device)
    return _from_lengths(lengths, torch.where(lengths[row] == rows, place, drawn), rows)


def arrow(draw: torch.Generator, device: Any, rows: int) -> Pattern:
    """A diagonal, the first row and the first column."""
    row = torch.arange(rows, device=device)
    zero = torch.zeros_like(row)
    return _from_pairs(torch.cat([row, zero, row]), torch.cat([row, row, zero]), (rows, rows))


def rectangular(draw: torch.Generator, device: Any, rows: int, width: int, least: int, most: int) -> Pattern:
    """Constraints of a linear program: rows of random lengths with runs of neighbouring columns at random places."""
    lengths = torch.randint(least, most + 1, (rows,), generator=draw, device=device)
    row = torch.repeat_interleave(torch.arange(rows, device=device), lengths)
    place = torch.arange(row.shape[0], device=device) - _offsets(lengths)[row]
    runs = torch.randint(0, width, (rows, most // 8 + 1), generator=draw, device=device)
    columns = (runs[row, place // 8] + place % 8).remainder(width)
    return _from_lengths(lengths, columns, width)


def mostly_empty(draw: torch.Generator, device: Any, rows: int, share: float, length: int) -> Pattern:
    """Rows of which a share has entries, with uniform columns."""
    has = torch.rand(rows, generator=draw, device=device) < share
    lengths = torch.where(has, length, 0)
    columns = torch.randint(0, rows, (int(lengths.sum()),), generator=draw, device=device)
    return _from_lengths(lengths, columns, rows)


#: The matrices by name.
MATRICES: dict[str, Callable[[torch.Generator, Any], Pattern]] = {
    "poisson 2048^2": partial(stencil, sides=(2048, 2048)),
    "poisson 160^3": partial(stencil, sides=(160, 160, 160)),
    "27-point 100^3": partial(stencil, sides=(100, 100, 100), box=True),
    "tridiagonal 4e6": partial(banded, rows=4_000_000, half=1),
    "banded 5e5 x 51": partial(banded, rows=500_000, half=25),
    "diagonals 1e6 in 400": partial(banded, rows=1_000_000, half=200, kept=0.03),
    "mesh 3x3 blocks": partial(blocks, nodes=200_000, neighbours=20, size=3, reach=2000),
    "mesh 6x6 blocks": partial(blocks, nodes=40_000, neighbours=20, size=6, reach=500),
    "dense blocks of 64": partial(block_diagonal, number=6000, size=64),
    "road 1500^2": partial(road, side=1500),
    "uniform 1e6 x 32": partial(uniform, rows=1_000_000, width=1_000_000, length=32),
    "uniform 2e5 x 10": partial(uniform, rows=200_000, width=200_000, length=10),
    "power law 5e5": partial(power_law, rows=500_000, entries=7_500_000),
    "power law near 1e6": partial(power_law, rows=1_000_000, entries=15_000_000, exponent=2.5, reach=5000),
    "graph 2^19": partial(rmat, scale=19, degree=16),
    "circuit 1e6": partial(circuit, rows=1_000_000, nets=20),
    "dense rows 3e5": partial(dense_rows, rows=300_000, length=6, dense=20),
    "arrow 2e6": partial(arrow, rows=2_000_000),
    "linear program": partial(rectangular, rows=200_000, width=2_000_000, least=8, most=120),
    "mostly empty 5e6": partial(mostly_empty, rows=5_000_000, share=0.1, length=8),
    "poisson 64^2": partial(stencil, sides=(64, 64)),
    "uniform 1e4 x 8": partial(uniform, rows=10_000, width=10_000, length=8),
}


def pattern_of(name: str, device: Any, seed: int = 1) -> Pattern:
    """The pattern of a name, always the same."""
    return MATRICES[name](torch.Generator(device).manual_seed(seed), device)
