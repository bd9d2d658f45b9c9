"""Random sparse matrices of a workload, and the launches of each implementation on them. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.spmv.cost import SparseShape, most_of_tile
from constrint.kernels.spmv.formats import (
    LANES,
    PATTERN_BATCH,
    Ell,
    Near,
    Panels,
    Patterns,
    Tiles,
    ell_of,
    near_of,
    panels_of,
    patterns_of,
    tiles_of,
)
from constrint.kernels.spmv.launch import (
    OF_RUNS,
    SpmvCall,
    ell_launch,
    library_launch,
    merge_launches,
    panel_launches,
    patterns_launch,
    vector_launch,
)
from constrint.select.candidate import Config
from constrint.select.spec import Launch
from constrint.select.workload import Workload

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def random_inputs(workload: Workload, *, device: Any, seed: int) -> dict[str, Tensor]:
    """A matrix with the workload's longest row, spread and scatter, about, and x; without data on `meta`."""
    shape, dtype = SparseShape.of(workload), DTYPES[workload.dtype]
    x_shape = (shape.columns,) if shape.width == 1 else (shape.columns, shape.width)
    if torch.device(device).type == "meta":
        crow = torch.empty(shape.rows + 1, dtype=torch.int32, device=device)
        columns = torch.empty(shape.entries, dtype=torch.int32, device=device)
        values, x = (torch.empty(size, dtype=dtype, device=device) for size in ((shape.entries,), x_shape))
        return {"crow": crow, "columns": columns, "values": values, "x": x}
    draw = torch.Generator(device).manual_seed(seed)
    lengths = _even_lengths(shape, device) if shape.patterns else _lengths(shape, draw, device)
    crow = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
    row = torch.repeat_interleave(torch.arange(shape.rows, device=device), lengths)
    place = torch.arange(shape.entries, device=device) - crow[row]
    near = row * shape.columns // shape.rows + place
    far = torch.randint(0, shape.columns, (shape.entries,), generator=draw, device=device)
    is_far = torch.rand(shape.entries, generator=draw, device=device) < shape.scattered
    columns = torch.where(is_far, far, near.remainder(shape.columns)).int()
    if shape.span < shape.columns:
        # Within the span of a row, which begins at the same share of the columns as the row of the rows.
        start = row * (shape.columns - shape.span) // shape.rows
        columns = (start + torch.where(is_far, far, place).remainder(shape.span)).int()
    if shape.patterns:
        # Equal distances within the span; rows near the end go on with the first columns.
        columns = (row + place * max(1, shape.span // shape.longest)).remainder(shape.columns).int()
    values, x = (torch.randn(size, generator=draw, device=device).to(dtype) for size in ((shape.entries,), x_shape))
    return {"crow": crow.int(), "columns": columns, "values": values, "x": x}


def _even_lengths(shape: SparseShape, device: Any) -> Tensor:
    """Lengths of rows that sum to the number of entries and differ by at most one."""
    lengths = torch.full((shape.rows,), shape.entries // shape.rows, dtype=torch.int64, device=device)
    lengths[: shape.entries % shape.rows] += 1
    return lengths


def _lengths(shape: SparseShape, draw: torch.Generator, device: Any) -> Tensor:
    """Lengths of rows that sum to the number of entries, with one longest row."""
    deviation = min(shape.spread, 1.0) * shape.mean
    drawn = shape.mean + deviation * torch.randn(shape.rows, generator=draw, device=device)
    lengths = drawn.clamp(0, max(shape.longest, 1)).round().long()
    lengths[shape.rows // 2] = shape.longest
    # What is missing or too much is dealt evenly to the rows that can take it.
    for _ in range(64):
        missing = shape.entries - int(lengths.sum())
        if missing == 0:
            break
        able = (lengths < shape.longest if missing > 0 else lengths > 0).nonzero()[:, 0]
        step = max(1, abs(missing) // max(1, len(able)))
        chosen = able[: min(len(able), abs(missing) // step)]
        room = shape.longest - lengths[chosen] if missing > 0 else lengths[chosen]
        lengths[chosen] += (1 if missing > 0 else -1) * room.clamp(max=step)
    lengths[-1] += shape.entries - int(lengths.sum())
    return lengths


def launches_of(
    gpu: GpuModel,
    kernel: str,
    workload: Workload,
    config: Config,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
) -> Sequence[Launch]:
    """The launches of an implementation; on `meta` with stand-ins for what is made of the matrix."""
    call = SpmvCall(**inputs, y=outputs["y"])
    if kernel == "library":
        return [library_launch(call)]
    if kernel == "vector":
        return [vector_launch(call, config)]
    is_meta = call.values.is_meta
    if kernel == "near":
        near = _near_on_meta(call) if is_meta else near_of(call.crow, call.columns)
        return [vector_launch(call, config, near)]
    if kernel == "patterns":
        longest = SparseShape.of(workload).longest
        patterns = _patterns_on_meta(call, workload) if is_meta else patterns_of(call.crow, call.columns, longest)
        if patterns is None:
            raise UsageError("spmv.patterns: a random matrix of this workload has rows of too many patterns.")
        return [patterns_launch(gpu, call, patterns, config)]
    if kernel == "ell":
        height, window = config["slice_height"], config["window"]
        ell = _ell_on_meta(call, height, window) if is_meta else ell_of(
            call.crow, call.columns, call.values, height, window
        )  # fmt: skip
        return [ell_launch(call, ell, config)]
    if kernel == "merge":
        size = 32 * config["num_warps"] * config["items"]
        tiles = _tiles_on_meta(call, workload, size) if is_meta else tiles_of(call.crow, size)
        return merge_launches(gpu, call, tiles, config)
    width, each = config["panel_kib"] * 1024 // call.x.element_size(), config["entries_per_lane"]
    size = 32 * OF_RUNS["num_warps"] * OF_RUNS["items"]
    if is_meta:
        panels, tiles = _panels_on_meta(call, width, each), _tiles_on_meta(call, workload, size)
    else:
        panels = panels_of(call.crow, call.columns, call.values, call.x.shape[0], width, each)
        tiles = tiles_of(panels.crow, size)
    return panel_launches(gpu, call, panels, tiles, config)


def _near_on_meta(call: SpmvCall) -> Near:
    """Columns in 16 bits, without data."""
    return Near(call.columns.new_empty(call.columns.shape, dtype=torch.int16), call.crow.new_empty(call.y.shape[0]))


def _patterns_on_meta(call: SpmvCall, workload: Workload) -> Patterns:
    """Rows of few patterns, without data."""
    shape = SparseShape.of(workload)
    starts = call.crow.new_empty(-(-shape.rows // LANES) + 1)
    of_row = call.crow.new_empty(shape.rows, dtype=torch.uint8)
    lengths, main = call.crow.new_empty(shape.patterns), call.crow.new_empty(max(1, round(shape.mean)))
    distances = call.crow.new_empty((-(-shape.longest // PATTERN_BATCH) * PATTERN_BATCH, shape.patterns))
    return Patterns(starts, of_row, lengths, distances, main, LANES * shape.longest, shape.longest)


def _tiles_on_meta(call: SpmvCall, workload: Workload, size: int) -> Tiles:
    """Tiles of rows of the mean length, without data."""
    shape = SparseShape.of(workload)
    tiles = call.crow.new_empty((-(-(shape.entries + shape.rows) // size), 4))
    filled, most_rows = most_of_tile(size, shape.mean, shape.spread)
    long_rows = call.crow.new_empty((1 if shape.longest >= size else 0, 4))
    most_entries = filled + min(shape.longest, size)
    return Tiles(tiles, tiles, long_rows, most_entries=most_entries, most_rows=most_rows)


def _panels_on_meta(call: SpmvCall, width: int, each: int) -> Panels:
    """Panels whose entries are all runs, without data."""
    tiles, number = -(-call.values.shape[0] // (32 * each)), -(-call.x.shape[0] // width)
    entries = 32 * each * tiles
    short, word = (call.crow.new_empty(entries, dtype=dtype) for dtype in (torch.int16, torch.int32))
    values = call.values.new_empty(entries)
    flags, places = short[: 32 * tiles], word[:tiles]
    firsts = call.crow.new_empty(number + 1)
    return Panels(short, values, flags, places, firsts, call.crow, word, width, entries)


def _ell_on_meta(call: SpmvCall, height: int, window: int) -> Ell:
    """Sliced ELL without padding and data."""
    slices = call.crow.new_empty(-(-call.y.shape[0] // height) + 1)
    row_of = call.crow.new_empty(call.y.shape[0] if window > height else 0)
    return Ell(slices, call.columns, call.values, row_of, height)
