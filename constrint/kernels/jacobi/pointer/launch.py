"""Launches of sweeps in Triton: one for each step. Needs torch and triton."""

from __future__ import annotations

from collections.abc import Mapping

from constrint.kernels.jacobi.launch import DTYPE_NAMES, SweepCall, grids_in_turn
from constrint.kernels.jacobi.star import StarStencil
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
        "has_f": call.f is not None,
        "factor_f": star.right_side,
        **{
            name: tuple(offset[axis] for offset in offsets)
            for axis, name in enumerate(("steps_z", "steps_y", "steps_x"))
        },
        "factors": tuple(factor for _, factor in star.terms),
        "before_f": before_right_side(star),
        **dict(zip(("border_z", "border_y", "border_x"), widths, strict=True)),
        "sum_type": tl.float64 if DTYPE_NAMES[call.u.dtype] == "fp64" else tl.float32,
        "block_y": config["block_y"],
        "block_x": config["block_x"],
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


def before_right_side(star: StarStencil) -> int:
    """Terms of a star that are summed before the right side: all but those of rows behind."""
    return sum(offset[0] <= 0 for offset, _ in star.terms)
