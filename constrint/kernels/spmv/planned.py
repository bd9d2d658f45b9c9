"""A product by one kernel and configuration: its arrays, its launches, and its plan for later calls. Needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from constrint.errors import ConstrintError, UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.first_call import machine_of
from constrint.kernels.launch.plan.recipe import RecordedCall, recipe_of
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, NotedScratch, Scratch
from constrint.kernels.launch.plan.shape import NotPlannedError
from constrint.kernels.launch.plan.table import IS_NEW, PlanTable
from constrint.kernels.spmv.formats import LANES, Ell, Near, Panels, Patterns, Tiles
from constrint.kernels.spmv.launch import (
    HASH_PROGRAMS,
    OF_RUNS,
    SpmvCall,
    capacity,
    ell_launch,
    hash_launch,
    merge_launches,
    panel_launches,
    patterns_launch,
    stale_launch,
    vector_launch,
)
from constrint.kernels.spmv.structure import Known
from constrint.select.candidate import Config

#: Factors with plans of their own; products with others are launched one by one.
ALPHAS, BETAS = (1.0, -1.0), (0.0, 1.0, -1.0)
#: Runs a product: (x, source, alpha, beta) -> y.
Run = Callable[[Tensor, "Tensor | None", float, float], Tensor]


class Arrays(NamedTuple):
    """The arrays that the launches of a kernel read of a matrix.

    Args:
        tensors: The matrix itself (crow, columns, values), then what the kernel made of it; None for what it lacks.
        numbers: Sizes that the tensors' shapes do not tell.
    """

    tensors: tuple[Tensor | None, ...]
    numbers: tuple[int, ...] = ()


def arrays_of(known: Known, kernel: str, config: Config, *, is_checked: bool) -> Arrays:
    """Make what a kernel reads of a matrix, or find what was made before.

    Args:
        known: The matrix.
        kernel: Name of the implementation.
        config: Its configuration.
        is_checked: Whether values that were copied are compared at every product.
    """
    own = (*known.indices, known.values)
    if kernel == "vector":
        return Arrays(own)
    if kernel == "near":
        near = known.near()
        return Arrays((*own, near.columns, near.firsts))
    if kernel == "merge":
        return Arrays((*own, *_of_tiles(known.tiles(_tile(config)))[0]), _of_tiles(known.tiles(_tile(config)))[1])
    if kernel == "patterns":
        of = known.patterns()
        return Arrays((*own, of.starts, of.of_row, of.lengths, of.distances, of.main), (of.most_entries, of.longest))
    guard = known.copy("guard", lambda: _guard(known)) if is_checked else (None, None)
    if kernel == "panels":
        width = config["panel_kib"] * 1024 // known.values.element_size()
        panels, tiles = known.panels(width, config["entries_per_lane"], _tile(OF_RUNS))
        tensors, numbers = _of_tiles(tiles)
        # A table of plans takes 16 tensors: two arrays are one.
        starts = known.copy(
            ("panels", "starts", width, config["entries_per_lane"]), lambda: torch.cat([panels.places, panels.firsts])
        )
        made = (panels.columns, panels.values, panels.flags, starts, panels.crow, panels.runs)
        return Arrays((*own, *tensors, *made, *guard), (*numbers, panels.width, panels.num_runs))
    ell = known.ell(config["slice_height"], config["window"])
    row_of = ell.row_of if ell.row_of.numel() else None
    return Arrays((*own, ell.slices, ell.columns, ell.values, row_of, *guard))


def _tile(config: Config) -> int:
    return 32 * config["num_warps"] * config["items"]


def _of_tiles(tiles: Tiles) -> tuple[tuple[Tensor | None, ...], tuple[int, int]]:
    is_long = tiles.num_long > 0
    tensors = (tiles.tiles, tiles.segments if is_long else None, tiles.long_rows if is_long else None)
    return tensors, (capacity(tiles.most_entries), capacity(tiles.most_rows + 1))


def _guard(known: Known) -> tuple[Tensor, Tensor]:
    """The hash of values as they are copied, and a flag that becomes 1 where they turn out to have changed."""
    expected = torch.empty(HASH_PROGRAMS, dtype=torch.int64, device=known.values.device)
    hash_launch(known.values, expected).run()
    return expected, torch.zeros(1, dtype=torch.int32, device=known.values.device)


def _tiles_from(tensors: Sequence[Tensor | None], numbers: Sequence[int]) -> Tiles:
    tiles, segments, long_rows = tensors
    assert tiles is not None
    none = tiles[:0]
    segments, long_rows = (none if each is None else each for each in (segments, long_rows))
    return Tiles(tiles, segments, long_rows, most_entries=numbers[0], most_rows=numbers[1] - 1)


def launches_for(
    gpu: GpuModel | None, kernel: str, config: Config, call: SpmvCall, made: Arrays, scratch: Scratch = TORCH_SCRATCH
) -> list[Any]:
    """The launches of a product.

    Args:
        gpu: Model of the device; kernels in Triton need none.
        kernel: Name of the implementation.
        config: Its configuration.
        call: The product, with the matrix itself.
        made: What the kernel reads of the matrix.
        scratch: Memory beside the operands.
    """
    rest = made.tensors[3:]
    if kernel == "vector":
        return [vector_launch(call, config)]
    if kernel == "near":
        columns, firsts = rest
        assert columns is not None
        assert firsts is not None
        return [vector_launch(call, config, Near(columns, firsts))]
    if kernel == "ell":
        slices, columns, values, row_of, *guard = rest
        assert slices is not None
        assert columns is not None
        assert values is not None
        row_of = columns[:0] if row_of is None else row_of
        ell = Ell(slices, columns, values, row_of, config["slice_height"])
        return [ell_launch(call, ell, config), *_guarded(call, guard, scratch)]
    if gpu is None:
        raise UnsupportedError(f"spmv.{kernel}: there is no hardware model of the device.")
    if kernel == "patterns":
        starts, of_row, lengths, distances, main = (each for each in rest if each is not None)
        return [patterns_launch(gpu, call, Patterns(starts, of_row, lengths, distances, main, *made.numbers), config)]
    tiles = _tiles_from(rest[:3], made.numbers)
    if kernel == "merge":
        return list(merge_launches(gpu, call, tiles, config, scratch))
    columns, values, flags, starts, crow, runs = (each for each in rest[3:9] if each is not None)
    num_tiles = flags.shape[0] // LANES
    panels = Panels(columns, values, flags, starts[:num_tiles], starts[num_tiles:], crow, runs, *made.numbers[2:])
    launches: list[Any] = list(panel_launches(gpu, call, panels, tiles, config, scratch))
    return [*launches, *_guarded(call, rest[9:], scratch)]


def _guarded(call: SpmvCall, guard: Sequence[Tensor | None], scratch: Scratch) -> list[Any]:
    """The launches that compare copied values with those of the matrix; none where they need not be."""
    expected, flag = guard
    if expected is None or flag is None:
        return []
    hashes = scratch.empty((HASH_PROGRAMS,), torch.int64, call.values.device)
    return [hash_launch(call.values, hashes), stale_launch(call, hashes, expected, flag)]


def planned(known: Known, kernel: str, config: Config, *, is_checked: bool = True) -> Run:
    """A function that runs products of a matrix by one kernel: by plans where factors have them."""
    made = arrays_of(known, kernel, config, is_checked=is_checked)
    rows, rest = known.shape[0], (kernel, tuple(config.items()), made.numbers, known.shape[0])

    is_scaled_after = known.values.dtype == torch.float64 and kernel != "merge"

    def run(x: Tensor, source: Tensor | None, alpha: float, beta: float) -> Tensor:
        if is_scaled_after and not (alpha in ALPHAS and beta in BETAS):
            # Triton takes numbers in fp32.
            scaled = run(x, None, 1.0, 0.0).mul_(alpha)
            return scaled if source is None else scaled.add_(source, alpha=beta)
        if alpha in ALPHAS and beta in BETAS:
            extra = (*rest, alpha, beta)
            out: Any = _PLANS.call(False, extra, *made.tensors, x, source)
            if out is IS_NEW:
                out = _PLANS.learn(extra, *made.tensors, x, source)
            if isinstance(out, Tensor):
                return out
        y = torch.empty((rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
        for launch in launches_for(
            machine_of(x.device)[0], kernel, config, _call(made, x, y, source, alpha, beta), made
        ):
            launch.run()
        return y

    return run


def compile_side_by_side(
    known: Known, candidates: Sequence[tuple[str, Config]], x: Tensor, source: Tensor | None
) -> None:
    """Compile the kernels of several candidates, different functions in parallel.

    A kernel that does not compile is met again when it is to run.
    """
    gpu = machine_of(x.device)[0]
    y = torch.empty((known.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    by_function: dict[Any, list[Any]] = {}
    for kernel, config in candidates:
        made = arrays_of(known, kernel, config, is_checked=False)
        call = _call(made, x, y, source, 1.0, 0.0 if source is None else 1.0)
        for launch in launches_for(gpu, kernel, config, call, made):
            by_function.setdefault(getattr(launch, "function", None) or id(launch), []).append(launch)

    def compile_each(launches: Sequence[Any]) -> None:
        for launch in launches:
            with suppress(Exception):
                launch.warm_up()

    with ThreadPoolExecutor(max(1, len(by_function))) as threads:
        list(threads.map(compile_each, by_function.values()))


def _call(made: Arrays, x: Tensor, y: Tensor, source: Tensor | None, alpha: float, beta: float) -> SpmvCall:
    crow, columns, values, *_ = made.tensors
    assert crow is not None
    assert columns is not None
    assert values is not None
    return SpmvCall(crow, columns, values, x, y, source, alpha, beta)


def _build(tensors: tuple[Tensor | None, ...], extra: Any) -> RecordedCall:
    """The plan of a product.

    Raises:
        NotPlannedError: Where it cannot be planned.
    """
    kernel, items, numbers, rows, alpha, beta = extra
    *arrays, x, source = tensors
    assert x is not None
    made, scratch = Arrays(tuple(arrays), numbers), NotedScratch()
    y = torch.empty((rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
    try:
        gpu, call = machine_of(x.device)[0], _call(made, x, y, source, alpha, beta)
        launches = launches_for(gpu, kernel, dict(items), call, made, scratch)
        return recipe_of(launches, tensors, [y], scratch, label(kernel, dict(items)))
    except ConstrintError as error:
        raise NotPlannedError(str(error)) from error


def label(kernel: str, config: Mapping[str, int]) -> str:
    """A kernel and its configuration, for people."""
    return " ".join([f"spmv.{kernel}", *(f"{name}={value}" for name, value in config.items())])


_PLANS = PlanTable("spmv", _build, None)
