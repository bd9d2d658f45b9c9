"""The launch of the skinny GEMM: its operands and their layout, the sizes that it takes, memory for shared tiles.

Needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from constrint.errors import UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.epilogue.added import OUTPUTS, as_added, name_of
from constrint.kernels.gemm.epilogue.compiled import CompiledEpilogue
from constrint.kernels.gemm.launch import Epilogue, GemmCall
from constrint.kernels.gemm.reference import DTYPE_NAMES
from constrint.kernels.gemm.skinny.shape import (
    ALIGNED,
    MOST_COUNTED,
    RAGGED_LARGE,
    RAGGED_SMALL,
    SHIFTED,
    STRIDED,
    WARP,
    SkinnyLayout,
    SkinnyTile,
    StepSchedule,
    asked_blocks,
    dynamic_smem_bytes,
)
from constrint.kernels.gemm.skinny.source import shape_of, source_of
from constrint.kernels.gemm.units import WIDEST_BYTES
from constrint.kernels.launch.cuda.source_spec import CudaLaunch


def skinny_launches(call: GemmCall, config: Mapping[str, int]) -> list[CudaLaunch]:
    """State the launches of a call: one, or several for a batch that exceeds the largest grid.

    Raises:
        UsageError: For a GPU without a model, other dtypes, and a long operand that lies along no axis.
    """
    return [_launch(part, config) for part in call.parts()]


def _launch(call: GemmCall, config: Mapping[str, int]) -> CudaLaunch:
    gpu, dtype = _checked(call)
    sides = SkinnyOperands.of_batch(call.a, call.b, call.out, turned=bool(config["turned"]))
    shape = shape_of(config, dtype, sides.layout)
    tiles = -(-sides.shape[0] // shape.rows)
    schedule = StepSchedule.of(shape, config, sides.shape, asked_blocks(config, tiles, gpu.device.sm_count))
    return launch_of(gpu, config, dtype, sides, schedule, call)


#: The fields of `Sizes` in the source, which the kernel takes as single arguments.
SIZES = np.dtype(
    [
        *((name, np.int32) for name in ("rows", "small", "depth", "tiles", "steps", "counters")),
        *((name, np.float32) for name in ("alpha", "beta")),
        *((name, np.int64) for name in ("pitch", "small_row", "small_step", "out_row", "out_small")),
        *((name, np.int64) for name in ("source_row", "source_column")),
    ],
    align=True,
)


@dataclass(frozen=True)
class SkinnyOperands:
    """The operands in the kernel's terms: `large` (rows, K) times `small` (small, K) transposed.

    Args:
        large, small: The long and the short operand, of any strides.
        out: C, or its transpose, (rows, small).
        layout: Modes in which the kernel reads both operands.
        sizes: Sizes and strides, by names of `SIZES`.
        batch: Products; the operands are those of the first one.
        steps: Bytes from an operand of a product to that of the next, long and short, and elements of C; 0: shared.
    """

    large: Tensor
    small: Tensor
    out: Tensor
    layout: SkinnyLayout
    sizes: Mapping[str, int]
    batch: int = 1
    steps: tuple[int, int, int] = (0, 0, 0)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(rows, small, depth)."""
        return self.out.shape[0], self.out.shape[1], self.large.shape[1]

    @staticmethod
    def of(
        a: Tensor,  # (M, K)
        b: Tensor,  # (K, N)
        out: Tensor,  # (M, N)
        *,
        turned: bool,
    ) -> SkinnyOperands:
        """Assign the roles of the operands of one product; see `of_batch`."""
        return SkinnyOperands.of_batch(a[None], b[None], out[None], turned=turned)

    @staticmethod
    def of_batch(
        a: Tensor,  # (batch, M, K)
        b: Tensor,  # (batch, K, N)
        out: Tensor,  # (batch, M, N)
        *,
        turned: bool,
    ) -> SkinnyOperands:
        """Assign the roles of the long and the short operand; where `turned`, the long side is N.

        Raises:
            UsageError: Where the elements of the long operand follow each other along neither axis.
        """
        all_b, all_out = b.transpose(1, 2), out.transpose(1, 2)
        every = (all_b, a, all_out) if turned else (a, all_b, out)
        large, small, result = (each[0] for each in every)
        batch = a.shape[0]
        steps = [each.stride(0) if batch > 1 else 0 for each in every]
        along_k, along_rows = large.stride(1) == 1, large.stride(0) == 1
        if not (along_k or along_rows):
            raise UsageError(
                "gemm.skinny reads a long operand whose elements follow each other along an axis, "
                f"got strides {large.stride()}."
            )
        (rows, depth), width, element = large.shape, small.shape[0], large.element_size()
        lines, pitch = (rows, large.stride(0)) if along_k else (depth, large.stride(1))
        is_along = small.stride(1) == 1 or depth == 1
        layout = SkinnyLayout(
            along_k,
            _mode(large.data_ptr(), lines, pitch * element, steps[0] * element),
            _mode(small.data_ptr(), width, small.stride(0) * element, steps[1] * element) if is_along else STRIDED,
            RAGGED_LARGE * _is_ragged(large, steps[0]) + RAGGED_SMALL * (is_along and _is_ragged(small, steps[1])),
        )
        between = steps[0] * element, steps[1] * element, steps[2]
        sizes = {"rows": rows, "small": width, "depth": depth, "pitch": pitch, "small_row": small.stride(0)}
        sizes |= {"small_step": 1 if is_along else small.stride(1)}
        sizes |= {"out_row": result.stride(0), "out_small": result.stride(1)}
        return SkinnyOperands(large, small, result, layout, sizes, batch, between)


def _mode(address: int, lines: int, pitch_bytes: int, batch_bytes: int) -> int:
    """Return `ALIGNED` if all lines of all products begin at multiples of 16 bytes, else `SHIFTED`."""
    starts = (address, batch_bytes, pitch_bytes if lines > 1 else 0)
    return SHIFTED if any(start % WIDEST_BYTES for start in starts) else ALIGNED


def _is_ragged(operand: Tensor, batch_step: int) -> bool:
    """Whether an operand (lines, K) of any product of a batch ends at no multiple of 16 bytes."""
    last = sum((size - 1) * stride for size, stride in zip(operand.shape, operand.stride(), strict=True))
    element = operand.element_size()
    end = operand.data_ptr() + (last + 1) * element
    return any(place % WIDEST_BYTES for place in (end, batch_step * element))


def launch_of(
    gpu: GpuModel, config: Mapping[str, int], dtype: str, sides: SkinnyOperands, schedule: StepSchedule, call: GemmCall
) -> CudaLaunch:
    """State the launch of a call under a schedule.

    Raises:
        UsageError: Where there are more steps than the kernel counts.
    """
    if (schedule.units + 1) * (schedule.blocks + 1) >= MOST_COUNTED:
        raise UsageError(
            f"gemm.skinny counts in 32 bits: {schedule.units} steps among {schedule.blocks} blocks are too many."
        )
    end = call.epilogue
    bias, source = as_added(end.bias), as_added(end.source)
    ends = CompiledEpilogue(OUTPUTS[call.out.dtype], name_of(bias), name_of(source), end.activation)
    shape, is_batched = shape_of(config, dtype, sides.layout), sides.batch > 1
    source_bytes = 0 if source is None else source.stride(0) * source.element_size()
    return CudaLaunch(
        gpu=gpu,
        source=source_of(config, dtype, sides.layout, ends, batched=is_batched),
        grid=(schedule.blocks, schedule.columns, *([sides.batch] if is_batched else [])),
        block=(WARP * config["num_warps"],),
        arguments=(
            sides.large,
            sides.small,
            sides.out,
            bias,
            source,
            *_memory(call, shape, schedule, sides.batch),
            *kernel_sizes(sides, schedule, end, source)[()],
            *(np.int64(step) for step in ((*sides.steps, source_bytes) if is_batched else ())),
        ),
        smem_bytes=dynamic_smem_bytes(shape, config["num_warps"]),
    )


def kernel_sizes(
    sides: SkinnyOperands, schedule: StepSchedule, end: Epilogue, source: Tensor | None = None
) -> np.ndarray[tuple[()], np.dtype[np.void]]:
    """Return the kernel's size arguments as one record of type `SIZES`."""
    sizes = np.zeros((), SIZES)
    values: dict[str, float] = {
        **sides.sizes,
        "tiles": schedule.tiles,
        "steps": schedule.steps,
        "counters": schedule.counters,
    }
    values |= {"alpha": end.alpha, "beta": end.beta}
    if source is not None:
        values |= {"source_row": source.stride(1), "source_column": source.stride(2)}
    for name, value in values.items():
        sizes[name] = value
    return sizes


def memory_of(shape: SkinnyTile, schedule: StepSchedule, batch: int = 1) -> tuple[int, int]:
    """Return the number of partial sums and of counters; both 0 where every block has whole tiles."""
    if schedule.is_whole:
        return 0, 0
    groups = schedule.columns * batch
    return 2 * schedule.blocks * groups * int(shape.rows * shape.small), schedule.tiles * groups * schedule.counters


def _memory(
    call: GemmCall, shape: SkinnyTile, schedule: StepSchedule, batch: int
) -> tuple[Tensor | None, Tensor | None]:
    num_sums, num_counters = memory_of(shape, schedule, batch)
    if not num_counters:
        return None, None
    sums, device = torch.int32 if call.a.dtype == torch.int8 else torch.float32, call.a.device
    return call.scratch.empty((num_sums,), sums, device), call.scratch.counters(num_counters, device)


def _checked(call: GemmCall) -> tuple[GpuModel, str]:
    """Check that the kernel computes the call; return the GPU's model and the dtype's name."""
    dtype, gpu = DTYPE_NAMES.get(call.a.dtype, ""), call.machine.gpu
    if gpu is None:
        raise UsageError("gemm.skinny needs a model of the device.")
    if not dtype or call.out.dtype not in OUTPUTS or (call.out.dtype == torch.int32 and dtype != "int8"):
        raise UsageError(f"gemm.skinny is not for {call.a.dtype} with results of {call.out.dtype}.")
    if not call.out.numel() or not call.a.shape[2]:
        raise UsageError("gemm.skinny computes no product without elements.")
    return gpu, dtype
