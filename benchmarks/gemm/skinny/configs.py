"""Configurations of the kernel for short sides: all that are valid for a product, ranked by its cost model or drawn."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.skinny.shape import (
    SkinnyLayout,
    SkinnyTile,
    StepSchedule,
    asked_blocks,
    line,
    unit_rows,
    vector,
)
from constrint.kernels.gemm.skinny.source import DTYPES, shape_of
from constrint.kernels.gemm.skinny.spec import SPECS, SkinnySpec
from constrint.solve import enumerate_space

__all__ = ["DTYPES", "SPEC", "candidates", "chain_of", "columns_of", "config_of", "dealt_of", "named"]

SPEC = SPECS[0]
#: Of configurations that are dealt the same rows, and share tiles or do not, how many are tried.
ALIKE = 2
_NAMED = re.compile(r"(mma|fma)(\d+) t(\d+) u(\d+) w(\d+)x(\d+) r(\d+)(?: s(\d+))?(?: f(\d+))?")

Config = dict[str, int]
#: The ways that the space has: one step under way, all sums added at once.
USUAL: Mapping[str, Sequence[int]] = {"num_stages": (1,), "fan_in": (0,)}


class TriedSpec(SkinnySpec):
    """The kernel with all that is tried beside what its space has."""

    steps_ahead = (1, 2)
    fan_ins = (0, 4, 8, 16)


TRIED = TriedSpec()


def columns_of(gpu: GpuModel, product: Product, spec: SkinnySpec = SPEC) -> dict[str, NDArray[np.int64]]:
    """Every valid configuration, as columns."""
    problem = spec.product_problem(gpu, product)
    columns, _ = enumerate_space(problem).project(list(problem.variables))
    return dict(columns)


def config_at(columns: Mapping[str, NDArray[Any]], row: int) -> Config:
    """One of them."""
    return {name: int(column[row]) for name, column in columns.items()}


def named(config: Mapping[str, int], dtype: str, layout: SkinnyLayout) -> str:
    """A configuration in a few words: what multiplies, rows of the short side, tiles and lines of warps, the warps."""
    shape = shape_of(config, dtype, layout)
    how = "mma" if config["mma"] else "fma"
    warps = f"{shape.warps_rows}x{shape.warps_k}"
    text = f"{how}{shape.small} t{shape.tiles} u{shape.unroll} w{warps} r{config['resident']}"
    more = (("s", "num_stages", 1), ("f", "fan_in", 0))
    return text + "".join(f" {letter}{config[name]}" for letter, name, usual in more if config[name] != usual)


def config_of(name: str, dtype: str, layout: SkinnyLayout, *, turned: bool) -> Config:
    """The configuration that `named` names, without what shares tiles.

    Raises:
        ValueError: For other texts.
    """
    found = _NAMED.fullmatch(name)
    if found is None:
        raise ValueError(f"{name!r} names no configuration")
    small, tiles, unroll, warps_rows, warps_k, resident = (int(number) for number in found.groups()[1:7])
    long = tiles * warps_rows * unit_rows(dtype, is_k_major=layout.is_k_major)
    sides = {"tile_m": small, "tile_n": long} if turned else {"tile_m": long, "tile_n": small}
    warps = {"num_warps": warps_rows * warps_k, "warps_k": warps_k, "resident": resident}
    shared = {"mma": int(found[1] == "mma"), "turned": int(turned), "split_k": 1, "persistent": 0}
    shared |= {"num_stages": int(found[8] or 1), "fan_in": int(found[9] or 0)}
    return {**sides, "tile_k": unroll * warps_k * line(dtype), **warps, **shared}


def dealt_of(
    gpu: GpuModel, config: Mapping[str, int], shape: SkinnyTile, sizes: tuple[int, int, int], blocks: int = 0
) -> StepSchedule:
    """Return how a (rows, small, depth) product is distributed over blocks: the configuration's number, or `blocks`."""
    asked = blocks or asked_blocks(config, -(-sizes[0] // shape.rows), gpu.device.sm_count)
    return StepSchedule.of(shape, config, sizes, asked)


def chain_of(config: Mapping[str, int], dtype: str, layout: SkinnyLayout, depth: int) -> int:
    """Additions that a sum sees one after the other, at most: a lane's along K, and those of lanes and warps."""
    shape = shape_of(config, dtype, layout)
    lines = -(-depth // config["tile_k"]) * int(shape.unroll)
    return lines * (2 if config["mma"] else vector(dtype)) + int(shape.warps_k) + 2


def candidates(
    gpu: GpuModel, product: Product, layout: SkinnyLayout, top: int, ways: Mapping[str, Sequence[int]] = USUAL
) -> Iterator[tuple[Config, float]]:
    """Rank configurations by the cost model, with predicted seconds; few that differ little.

    Args:
        gpu: The GPU.
        product: The product.
        layout: How its operands lie.
        top: As many of each way.
        ways: Values by parameters: each combination of them is a way.
    """
    columns = columns_of(gpu, product, TRIED)
    for values in itertools.product(*ways.values()):
        chosen = np.ones(len(columns["tile_m"]), dtype=bool)
        for name, value in zip(ways, values, strict=True):
            chosen &= columns[name] == value
        if chosen.any():
            yield from _ranked(gpu, product, layout, {name: column[chosen] for name, column in columns.items()}, top)


def _ranked(
    gpu: GpuModel, product: Product, layout: SkinnyLayout, columns: Mapping[str, NDArray[np.int64]], top: int
) -> Iterator[tuple[Config, float]]:
    seconds = SPEC.price(gpu, product, columns, np.ones(len(columns["tile_m"]))).seconds
    alike: Counter[tuple[object, ...]] = Counter()
    seen: set[tuple[int, ...]] = set()
    for row in np.lexsort([-columns["mma"], seconds]):
        config = config_at(columns, int(row))
        shape = shape_of(config, product.dtype, layout)
        is_shared = config["persistent"] + (config["split_k"] > 1)
        key = (shape.tiles, shape.unroll, shape.warps_rows, config["mma"], is_shared)
        # Where blocks are not told by what is resident, that tells the compiler of registers alone.
        whole = tuple(value for name, value in config.items() if name != "resident" or config["persistent"])
        if alike[key] < ALIKE and whole not in seen:
            seen.add(whole)
            alike[key] += 1
            yield config, float(seconds[row])
            if len(seen) == top:
                return
