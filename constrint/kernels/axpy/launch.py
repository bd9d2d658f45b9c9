"""The launch of a sum of vectors. Needs torch, and triton inside the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from constrint.kernels.launch.triton import TritonLaunch

#: Elements from which places of a row need 64 bits.
WIDE = 1 << 31


@dataclass(frozen=True)
class AxpyCall:
    """One call: out = alpha * x + y.

    Args:
        x, y, out: (rows, N), any strides; `out` may be x or y.
        alpha: The factor.
        factor: The factor as a tensor of one element in place of `alpha`, or None.
    """

    x: Tensor
    y: Tensor
    out: Tensor
    alpha: float = 1.0
    factor: Tensor | None = None


def axpy_launch(call: AxpyCall, config: Mapping[str, int]) -> TritonLaunch:
    """State the one launch of a call; `config` has the parameters of `AxpySpec`."""
    from constrint.kernels.axpy.kernel import axpy_kernel

    (rows, n), tile = call.x.shape, config["tile"]
    arguments: dict[str, Any] = {"x_ptr": call.x, "y_ptr": call.y, "out_ptr": call.out, "factor_ptr": call.factor}
    arguments |= {"columns": n, "alpha": call.alpha}
    longest = n
    for name, t in (("x", call.x), ("y", call.y), ("out", call.out)):
        step = t.stride(1) if n > 1 else 1
        arguments |= {f"{name}_row": t.stride(0) if rows > 1 else 0, f"{name}_step": step}
        longest = max(longest, n * abs(step))
    arguments |= {"tile": tile, "vector": config["vector"], "is_even": n % tile == 0}
    arguments |= {"is_wide": longest + tile >= WIDE, "is_flat": rows == 1}
    arguments["policy"] = "evict_first" if config["evict_first"] else ""
    return TritonLaunch(axpy_kernel, (rows * -(-n // tile),), arguments, {"num_warps": config["num_warps"]})


def collapsed(shape: Sequence[int], *strides: Sequence[int]) -> tuple[list[int], list[list[int]]]:
    """The fewest axes in which all tensors of a shape and these strides are regular; the longest contiguous one last.

    Args:
        shape: Their shape; no axis is empty.
        strides: The strides of each.

    Returns:
        The sizes, and for each tensor its strides.
    """
    axes = [(size, *steps) for size, *steps in zip(shape, *strides, strict=True) if size > 1]
    axes.sort(key=lambda axis: tuple(-abs(step) for step in axis[1:][::-1]))
    merged: list[tuple[int, ...]] = []
    for size, *steps in axes:
        if merged and all(before == step * size for before, step in zip(merged[-1][1:], steps, strict=True)):
            merged[-1] = (merged[-1][0] * size, *steps)
        else:
            merged.append((size, *steps))
    if not merged:
        merged = [(1, *(1 for _ in strides))]
    return [axis[0] for axis in merged], [[axis[1 + i] for axis in merged] for i in range(len(strides))]
