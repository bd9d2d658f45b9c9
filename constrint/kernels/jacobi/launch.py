"""Launches of sweeps in CUDA C++: as many as the steps take, each of several steps. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.jacobi.shape import MOST_VALUES, SweepTile
from constrint.kernels.jacobi.source_text import coefficients_of, source_of
from constrint.kernels.jacobi.star import StarStencil
from constrint.kernels.launch.cuda.source_spec import CudaLaunch
from constrint.kernels.launch.plan.scratch import TORCH_SCRATCH, Scratch

#: Names of the types that kernels compute.
DTYPE_NAMES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class SweepCall:
    """Sweeps to launch.

    Args:
        u: (..., NY, NX) or (..., NZ, NY, NX), contiguous, with points inside its border.
        f: The right side, likewise; None: zero.
        out: Memory of the result, likewise, which overlaps neither.
        star: The star.
        steps: Sweeps, at least one.
        scratch: Allocates the second of two grids that launches write in turn.
    """

    u: Tensor
    f: Tensor | None
    out: Tensor
    star: StarStencil
    steps: int
    scratch: Scratch = TORCH_SCRATCH


def widths_of(star: StarStencil) -> tuple[int, int, int]:
    """Widths of the border along the streaming axis, y and x; 0 for the missing axis of two."""
    slow, *middle, fast = star.widths
    return slow, (middle or [0])[0], fast


def steps_of_launches(steps: int, most: int) -> list[int]:
    """Steps of each launch: as few launches as there can be, of as equal numbers of steps as there can be."""
    launches = -(-steps // most)
    few, more = divmod(steps, launches)
    return [few + 1] * more + [few] * (launches - more)


def grids_in_turn(call: SweepCall, launches: int) -> list[tuple[Tensor, Tensor]]:
    """Grids that each launch reads and writes: the result and a second one in turn; the last one writes the result."""
    if launches == 1:
        return [(call.u, call.out)]
    second = call.scratch.empty(call.u.shape, call.u.dtype, call.u.device)
    written = [call.out if (launches - 1 - i) % 2 == 0 else second for i in range(launches)]
    return list(zip([call.u, *written], written, strict=False))


def sweep_launches(gpu: GpuModel, call: SweepCall, config: Mapping[str, int]) -> list[CudaLaunch]:
    """State the launches of a call.

    Raises:
        UsageError: For a configuration that leaves no useful part of a tile, and for types that the kernel lacks.
    """
    dtype = DTYPE_NAMES.get(call.u.dtype, "")
    whole = SweepTile.of(config, dtype, widths_of(call.star), is_3d=call.star.axes == 3, has_f=call.f is not None)
    _check(whole)
    every = steps_of_launches(call.steps, config["steps_per_launch"])
    coefficients = coefficients_of(call.star, dtype)
    grids = grids_in_turn(call, len(every))
    return [
        _launch(gpu, call, replace(whole, steps=steps), config["chunks"], grid, coefficients)
        for steps, grid in zip(every, grids, strict=True)
    ]


def _check(tile: SweepTile) -> None:
    if tile.used_x < tile.per_piece or tile.used_y < 1:
        raise UsageError(f"jacobi.cuda: the halo leaves no useful part of a tile of {tile.width} x {tile.height}.")
    if tile.widths[2] > tile.vector or (tile.is_3d and tile.widths[1] > tile.rows) or tile.values > MOST_VALUES:
        raise UsageError(
            "jacobi.cuda: a thread has at least as many elements along an axis as the star's offsets reach, and "
            f"at most {MOST_VALUES}, got {tile.vector} x {tile.rows}."
        )


def _launch(
    gpu: GpuModel, call: SweepCall, tile: SweepTile, chunks: int, grid: tuple[Tensor, Tensor], coefficients: Any
) -> CudaLaunch:
    given, out = grid
    shape = tuple(call.u.shape)
    slow, nx = shape[-call.star.axes], shape[-1]
    ny = shape[-2] if tile.is_3d else 1
    batch = call.u.numel() // (slow * ny * nx)
    piece = int(tile.per_piece) * call.u.element_size()
    tensors = [t for t in (given, call.f, out) if t is not None]
    aligned = nx % int(tile.per_piece) == 0 and all(t.data_ptr() % piece == 0 for t in tensors)
    tile = replace(tile, aligned=aligned)
    tiles_x = int(tile.tiles(nx, tile.used_x, tile.halo_x))
    tiles_y = int(tile.tiles(ny, tile.used_y, tile.halo_y)) if tile.is_3d else 1
    chunk = -(-slow // min(chunks, slow))
    chunks = -(-slow // chunk)
    tiles = batch * chunks * tiles_x * tiles_y
    return CudaLaunch(
        gpu=gpu,
        source=source_of(tile, _without_factors(call.star)),
        grid=(tiles if tile.is_3d else -(-tiles // int(tile.groups)),),
        block=(int(tile.threads),),
        arguments=(
            given,
            call.f,
            out,
            *(np.int32(size) for size in (nx, ny, slow, tiles_x, tiles_y, chunks, chunk, tiles)),
            coefficients,
        ),
        smem_bytes=int(tile.smem_bytes),
    )


def _without_factors(star: StarStencil) -> StarStencil:
    """The star by which sources are looked up: factors are arguments of the kernel."""
    return StarStencil(tuple((offset, 1.0) for offset, _ in star.terms), 1.0)
