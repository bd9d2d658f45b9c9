"""Launches of sweeps in Triton: one for each step. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.jacobi.launch import DTYPE_NAMES, SweepCall, grids_in_turn
from constrint.kernels.jacobi.star import Star
from constrint.kernels.launch.triton import TritonLaunch


def sweep_launches(call: SweepCall, config: Mapping[str, int]) -> list[TritonLaunch]:
    """State the launches of a call."""
    import triton.language as tl

    from constrint.kernels.jacobi.pointer.kernel import sweep_kernel

    star, shape = call.star, tuple(call.u.shape)
    ny, nx = shape[-2:]
    nz = shape[-3] if star.axes == 3 else 1
    planes = call.u.numel() // (ny * nx)
    tiles_x, tiles_y = -(-nx // config["block_x"]), -(-ny // config["block_y"])
    offsets = [(0,) * (3 - star.axes) + offset for offset, _ in star.terms]
    widths = (0,) * (3 - star.axes) + star.widths
    constants = {
        "HAS_F": call.f is not None,
        "RIGHT_SIDE": star.right_side,
        **{name: tuple(offset[axis] for offset in offsets) for axis, name in enumerate(("DZ", "DY", "DX"))},
        "FACTORS": tuple(factor for _, factor in star.terms),
        "BEFORE_F": before_right_side(star),
        **dict(zip(("BZ", "BY", "BX"), widths, strict=True)),
        "SUMS": tl.float64 if DTYPE_NAMES[call.u.dtype] == "fp64" else tl.float32,
        "BLOCK_Y": config["block_y"],
        "BLOCK_X": config["block_x"],
    }
    sizes = {"nz": nz, "ny": ny, "nx": nx, "tiles_x": tiles_x, "tiles_y": tiles_y}
    grid, options = (planes * tiles_x * tiles_y,), {"num_warps": config["num_warps"]}
    return [
        TritonLaunch(
            sweep_kernel,
            grid,
            {"u": given, "f": out if call.f is None else call.f, "out": out, **sizes, **constants},
            options,
        )
        for given, out in grids_in_turn(call, call.steps)
    ]


def before_right_side(star: Star) -> int:
    """Terms of a star that are summed before the right side: all but those of rows behind."""
    return sum(offset[0] <= 0 for offset, _ in star.terms)
