"""The rules of the GEMM's space that depend on the sizes, stated once for expressions and for columns of numbers.

`spec.py` makes constraints of them; `choose.py` tests a table of configurations against a new shape in microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from constrint.hwmodels import GpuModel
from constrint.model import any_of, ceildiv, implies

#: Blocks along the first grid dimension, on both vendors.
MAX_GRID_BLOCKS = 2**31 - 1
#: Neighbouring tiles that an XCD takes at a time; with the last value, that of most grids, each XCD has one run.
XCD_CHUNKS = (64, 0, 32, 512)
#: Largest value of a tile parameter.
MAX_TILE = {"tile_m": 256, "tile_n": 384, "tile_k": 256}


class Algebra(NamedTuple):
    """What the rules need beside operators: over expressions, or over columns."""

    ceildiv: Callable[[Any, Any], Any]
    implies: Callable[[Any, Any], Any]
    any_of: Callable[[Any, Any], Any]


EXPRESSIONS = Algebra(ceildiv, implies, any_of)
COLUMNS = Algebra(lambda a, b: -(-a // b), lambda a, b: np.logical_not(a) | b, np.logical_or)


class Rule(NamedTuple):
    """A condition, a constraint or a column of booleans, with its name and its reason."""

    condition: Any
    name: str
    because: str


def grid_rules(gpu: GpuModel, sizes: Mapping[str, int], v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
    """Every rule for a product of these sizes over the parameters `v`; those on the order of tiles come last."""
    m, n, k = (sizes[s] for s in ("m", "n", "k"))
    padding = "a larger tile would compute nothing but padding"
    for size, name, smallest in ((m, "tile_m", 16), (n, "tile_n", 16), (k, "tile_k", 32)):
        limit = max(smallest, 1 << (size - 1).bit_length())
        if limit < MAX_TILE[name]:
            yield Rule(v[name] <= limit, f"{name}_in_size", padding)
    steps = algebra.ceildiv(k, v["tile_k"])
    yield Rule(v["split_k"] <= steps, "split_k_in_k", "every split of K gets at least one tile of K")
    iterations = algebra.ceildiv(k, v["tile_k"] * v["split_k"])
    filled = "the main loop is at least as long as the pipeline ahead of it"
    yield Rule(v["num_stages"] <= iterations + 1, "stages_filled", filled)
    rows, columns = algebra.ceildiv(m, v["tile_m"]), algebra.ceildiv(n, v["tile_n"])
    tiles = rows * columns
    yield Rule(tiles * v["split_k"] <= MAX_GRID_BLOCKS, "grid", f"a grid has at most {MAX_GRID_BLOCKS} blocks")
    is_persistent = v["persistent"] == 1
    whole = "the persistent loop walks whole tiles"
    yield Rule(algebra.implies(is_persistent, v["split_k"] == 1), "persistent_whole_k", whole)
    many = "a persistent block needs more than one tile to walk"
    yield Rule(algebra.implies(is_persistent, tiles > gpu.device.sm_count), "persistent_many_tiles", many)
    if "group_m" in v:
        group = algebra.any_of(v["group_m"] == 1, v["group_m"] < 2 * rows)
        yield Rule(group, "group_in_grid", "a group of more rows than the grid has repeats a smaller one")
    if "xcd_chunk" in v:
        yield from _chunk_rules(gpu.device.num_xcds, tiles, v["xcd_chunk"], algebra)


def _chunk_rules(num_xcds: int, tiles: Any, chunk: Any, algebra: Algebra) -> Iterator[Rule]:
    few = "with fewer tiles than XCDs every XCD has one tile in any order"
    yield Rule(algebra.implies(chunk >= 1, tiles > num_xcds), "chunk_many_tiles", few)
    cycle = algebra.any_of(chunk == max(XCD_CHUNKS), chunk * num_xcds <= tiles)
    yield Rule(cycle, "chunk_in_grid", "chunks that the grid has no whole cycle of are one run per XCD")
