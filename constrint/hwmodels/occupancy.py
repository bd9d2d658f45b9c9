"""Occupancy: how many blocks one SM (CU, WGP) holds at once, and which limits bind or forbid a launch.

The rules are the vendors': `vendors/nvidia/vendor.py` follows cuda_occupancy.h, `vendors/amd/vendor.py` LLVM.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from constrint.errors import UsageError
from constrint.hwmodels.load import load_gpu
from constrint.hwmodels.schema import GpuModel
from constrint.hwmodels.vendors import list_vendors
from constrint.hwmodels.vendors.interface import BlockLimit

#: The type of an occupancy's figures: int, or arrays of them.
_Figures = TypeVar("_Figures")


@overload
def occupancy(
    gpu: GpuModel | str,
    *,
    threads_per_block: int,
    registers_per_thread: int,
    smem_bytes_per_block: int = 0,
    accumulator_registers_per_thread: int = 0,
    sgprs_per_wave: int | None = None,
    wave_size: int | None = None,
    wgp_mode: bool = False,
    smem_opt_in: bool = True,
    carveout_percent: int = -1,
    barriers_per_block: int = 0,
    lds_granularity_bytes: int | None = None,
) -> Occupancy[int]: ...


@overload
def occupancy(
    gpu: GpuModel | str,
    *,
    threads_per_block: ArrayLike,
    registers_per_thread: ArrayLike,
    smem_bytes_per_block: ArrayLike = 0,
    accumulator_registers_per_thread: ArrayLike = 0,
    sgprs_per_wave: ArrayLike | None = None,
    wave_size: int | None = None,
    wgp_mode: bool = False,
    smem_opt_in: bool = True,
    carveout_percent: ArrayLike = -1,
    barriers_per_block: ArrayLike = 0,
    lds_granularity_bytes: int | None = None,
) -> Occupancy[Any]: ...


def occupancy(
    gpu: GpuModel | str,
    *,
    threads_per_block: ArrayLike,
    registers_per_thread: ArrayLike,
    smem_bytes_per_block: ArrayLike = 0,
    accumulator_registers_per_thread: ArrayLike = 0,
    sgprs_per_wave: ArrayLike | None = None,
    wave_size: int | None = None,
    wgp_mode: bool = False,
    smem_opt_in: bool = True,
    carveout_percent: ArrayLike = -1,
    barriers_per_block: ArrayLike = 0,
    lds_granularity_bytes: int | None = None,
) -> Occupancy[Any]:
    """Compute the occupancy of one configuration, or of columns of them (arrays broadcast).

    NVIDIA: equal to `cuda_occupancy.h` of CUDA 13.0, so 256 registers per thread are accepted although
    hardware and PTX allow 255. Static and dynamic shared memory count together: the header's result depends
    on their sum alone.

    AMD: `waves_per_simd` is LLVM's figure, with LLVM's LDS granule (512 B on RDNA). `blocks_per_sm` uses the
    granule of the hardware model (1,024 B on RDNA, the larger one where sources disagree) and counts per CU
    in CU mode, per WGP in WGP mode. `lds_granularity_bytes` replaces both granules.

    Args:
        gpu: A model, or a name for `load_gpu`.
        threads_per_block: Threads per block (workgroup), at least 1.
        registers_per_thread: 32-bit registers per thread; on AMD the architectural VGPRs, or, where no
            accumulator registers are given, all VGPRs of a unified file.
        smem_bytes_per_block: Shared memory (LDS), static and dynamic together.
        accumulator_registers_per_thread: AMD, CDNA: accumulation VGPRs.
        sgprs_per_wave: AMD: scalar registers, with VCC and the like; None does not limit, nor does RDNA.
        wave_size: AMD, RDNA: 32 (the default there) or 64.
        wgp_mode: AMD, RDNA: workgroups spread over a WGP instead of one CU.
        smem_opt_in: NVIDIA: whether the kernel opts in to more than 48 KiB of shared memory.
        carveout_percent: NVIDIA: preferred share of shared memory, 0 to 100; -1 is the default, the most.
        barriers_per_block: NVIDIA: named barriers that a block uses; 0 does not limit.
        lds_granularity_bytes: AMD: replaces the granule of LDS allocation.

    Raises:
        UsageError: When an input is no whole number in range, does not broadcast or does not apply.
    """
    model = load_gpu(gpu) if isinstance(gpu, str) else gpu
    if not isinstance(model, GpuModel):
        raise UsageError(f"gpu: expected a GpuModel or a name, got {type(gpu).__name__}.")
    columns = {
        "threads_per_block": whole_numbers("threads_per_block", threads_per_block, least=1),
        "registers_per_thread": whole_numbers("registers_per_thread", registers_per_thread),
        "smem_bytes_per_block": whole_numbers("smem_bytes_per_block", smem_bytes_per_block),
        "accumulator_registers_per_thread": whole_numbers(
            "accumulator_registers_per_thread", accumulator_registers_per_thread
        ),
        "sgprs_per_wave": whole_numbers("sgprs_per_wave", 0 if sgprs_per_wave is None else sgprs_per_wave),
        "carveout_percent": whole_numbers("carveout_percent", carveout_percent, least=-1, most=100),
        "barriers_per_block": whole_numbers("barriers_per_block", barriers_per_block),
    }
    shape = common_shape(columns)
    for name, flag in (("wgp_mode", wgp_mode), ("smem_opt_in", smem_opt_in)):
        if not isinstance(flag, bool):
            raise UsageError(f"{name}: expected True or False, got {flag!r}.")
    numbers = {
        name: None if value is None else whole_number(name, value, least=1)
        for name, value in (("wave_size", wave_size), ("lds_granularity_bytes", lds_granularity_bytes))
    }
    use = KernelUse(**columns, **numbers, wgp_mode=wgp_mode, smem_opt_in=smem_opt_in)
    for name in use.options():
        if name not in model.maker.occupancy_options:
            owners = " and ".join(vendor.title for vendor in list_vendors() if name in vendor.occupancy_options)
            raise UsageError(f"{name} is for {owners} GPUs; {model.name} is one of {model.maker.title}'s.")
    return model.maker.occupancy_limits(model, use).combine(shape)


def broken_limits(gpu: GpuModel, result: Occupancy[Any], **asked: Any) -> list[BlockLimit]:
    """The limits that a block breaks where not one fits an SM; none where one does.

    Args:
        gpu: The hardware model.
        result: The occupancy, of scalar inputs.
        asked: The arguments of `occupancy` that it was computed from, all but `gpu`.
    """
    if result.blocks_per_sm:
        return []
    options: dict[str, Any] = {"lds_granularity_bytes": None, **asked, "sgprs_per_wave": asked["sgprs_per_wave"] or 0}
    limits = gpu.maker.block_limits(gpu, KernelUse(**options))
    broken = [limit for limit in limits if limit.asked > limit.most]
    if broken:
        return broken
    return [_warps_that_fit(gpu, result, asked)]


def _warps_that_fit(gpu: GpuModel, result: Occupancy[Any], asked: dict[str, Any]) -> BlockLimit:
    """The limit where each figure alone is allowed, but warps with these registers are too many for the SM."""
    file, wave = gpu.register_file, asked["wave_size"] or gpu.sm.warp_size
    warps = -(-asked["threads_per_block"] // wave)
    each = result.registers_per_block // (warps * wave)
    fit = file.capacity * gpu.sm.warp_size // (each * file.per_thread * wave)
    most = fit * gpu.sm.num_partitions * (2 if asked["wgp_mode"] else 1)
    return BlockLimit("threads_per_block", f"{gpu.terms.warps} of {each} registers a thread", warps, most)


def sentence(limit: BlockLimit) -> str:
    """`1,025 threads, the limit is 1,024`."""
    return f"{limit.asked:,} {limit.unit}, the limit is {limit.most:,}"


#: A limit that does not limit (INT_MAX, as in cuda_occupancy.h).
UNLIMITED = 2**31 - 1
#: Bit i of `limited_by_mask` stands for name i.
LIMIT_NAMES = ("warps", "registers", "smem", "blocks", "barriers", "sgprs")
_DECODED = np.array(
    [
        "+".join(name for bit, name in enumerate(LIMIT_NAMES) if mask >> bit & 1)
        for mask in range(1 << len(LIMIT_NAMES))
    ],
    dtype=object,
)


@dataclass(frozen=True)
class Occupancy(Generic[_Figures]):
    """Occupancy of one SM by a kernel: ints and a float for scalar inputs, arrays for array inputs.

    Args:
        blocks_per_sm: Resident blocks; per CU on AMD, per WGP in WGP mode. 0: the kernel cannot be launched.
        warps_per_sm: Resident warps (waves).
        occupancy: `warps_per_sm` as a fraction of what the SM holds at most.
        limited_by_mask: Bit i is set when limit i of `LIMIT_NAMES` binds; `limited_by` spells it out.
        limit_warps: Blocks that the warp slots allow. Here and below, `UNLIMITED` (2^31 - 1) does not limit.
        limit_registers: Blocks that the (vector) registers allow.
        limit_smem: Blocks that shared memory (LDS) allows.
        limit_blocks: Blocks that the block (workgroup) slots allow.
        limit_barriers: Blocks that the named barriers allow (NVIDIA, compute capability 9.0 and later).
        limit_sgprs: Blocks that the scalar registers allow (AMD, CDNA).
        registers_per_block: 32-bit registers that a block takes, rounded as they are given out.
        smem_bytes_per_block: Shared memory that a block takes, with what is reserved, rounded up.
        waves_per_simd: AMD: LLVM's occupancy; None on NVIDIA.
    """

    blocks_per_sm: _Figures
    warps_per_sm: _Figures
    occupancy: Any
    limited_by_mask: _Figures
    limit_warps: _Figures
    limit_registers: _Figures
    limit_smem: _Figures
    limit_blocks: _Figures
    limit_barriers: _Figures
    limit_sgprs: _Figures
    registers_per_block: _Figures
    smem_bytes_per_block: _Figures
    waves_per_simd: Any = None

    @property
    def limited_by(self) -> Any:
        """The binding limits, such as `registers` or `warps+registers`; an object array for arrays."""
        return limit_names(self.limited_by_mask)

    @property
    def _has_arrays(self) -> bool:
        return bool(np.ndim(np.asarray(self.blocks_per_sm)))

    def __str__(self) -> str:
        """Render one configuration's as `2 blocks per SM (16 warps, 25 % of what it holds), limited by registers`."""
        if self._has_arrays:
            return repr(self)
        blocks = f"{self.blocks_per_sm} block{'' if self.blocks_per_sm == 1 else 's'} per SM"
        warps = f"{self.warps_per_sm} warps, {self.occupancy:.0%} of what it holds"
        return f"{blocks} ({warps}), limited by {self.limited_by.replace('+', ' and ')}"

    def _repr_html_(self) -> str | None:
        """Render blocks per resource as a table for notebooks; None, for plain text, where the results are arrays."""
        from constrint.frames import html_table  # loaded when it is asked for

        if self._has_arrays:
            return None
        limits = {name: getattr(self, f"limit_{name}") for name in LIMIT_NAMES}
        binding = self.limited_by.split("+")
        rows = [
            (name, f"{limit:,}", "limits" if name in binding else "")
            for name, limit in limits.items()
            if limit != UNLIMITED
        ]
        return html_table(str(self), ["", "blocks_per_sm", "limited_by"], rows)


def limit_names(mask: Any) -> Any:
    """A mask, or an array of them, in words: `limited_by`."""
    return _DECODED[mask]


@dataclass(frozen=True)
class ResourceLimits:
    """Blocks that each resource of an SM allows, and what one block takes (int64, scalars or arrays)."""

    warps: Any
    registers: Any
    smem: Any
    blocks: Any
    warps_per_block: Any
    registers_per_block: Any
    smem_bytes_per_block: Any
    max_warps_per_sm: int
    barriers: Any = UNLIMITED
    sgprs: Any = UNLIMITED
    waves_per_simd: Any = None

    def combine(self, shape: tuple[int, ...]) -> Occupancy[Any]:
        """The occupancy under all limits; `shape` is that of the inputs together."""
        limits = {name: getattr(self, name) for name in LIMIT_NAMES}
        blocks = functools.reduce(np.minimum, [limit for name, limit in limits.items() if name != "barriers"])
        # As in the header, barriers come after the others, whose bits then stay as they are.
        mask = sum((limit <= blocks) * np.int64(1 << bit) for bit, limit in enumerate(limits.values()))
        blocks = np.minimum(blocks, self.barriers)
        warps = blocks * self.warps_per_block
        whole = {
            "blocks_per_sm": blocks,
            "warps_per_sm": warps,
            "limited_by_mask": mask,
            **{f"limit_{name}": limit for name, limit in limits.items()},
            "registers_per_block": self.registers_per_block,
            "smem_bytes_per_block": self.smem_bytes_per_block,
            **({} if self.waves_per_simd is None else {"waves_per_simd": self.waves_per_simd}),
        }
        fraction = warps / self.max_warps_per_sm
        if not shape:
            return Occupancy(**{name: int(value) for name, value in whole.items()}, occupancy=float(fraction))
        columns = {name: _spread(value, shape) for name, value in whole.items()}
        return Occupancy(**columns, occupancy=np.broadcast_to(fraction, shape))


def _spread(value: Any, shape: tuple[int, ...]) -> NDArray[np.int64]:
    return np.broadcast_to(np.asarray(value, dtype=np.int64), shape)


#: Largest value of an input (that of the header's int); keeps every product within 64 bits.
MAX_INPUT = 2**31 - 1


@dataclass(frozen=True)
class KernelUse:
    """A kernel's demand for an SM's resources, checked; `occupancy` explains the fields as its arguments.

    Columns are int64 scalars or arrays that broadcast; `sgprs_per_wave` is 0 where it is not stated.
    """

    threads_per_block: Any
    registers_per_thread: Any
    smem_bytes_per_block: Any
    accumulator_registers_per_thread: Any
    sgprs_per_wave: Any
    carveout_percent: Any
    barriers_per_block: Any
    wave_size: int | None
    wgp_mode: bool
    smem_opt_in: bool
    lds_granularity_bytes: int | None

    def options(self) -> Iterator[str]:
        """Names of the optional arguments of `occupancy` that are given and that not every vendor's GPUs take."""
        stated = {
            "carveout_percent": differs(self.carveout_percent, -1),
            "barriers_per_block": differs(self.barriers_per_block, 0),
            "smem_opt_in=False": not self.smem_opt_in,
            "accumulator_registers_per_thread": differs(self.accumulator_registers_per_thread, 0),
            "sgprs_per_wave": differs(self.sgprs_per_wave, 0),
            "wgp_mode": self.wgp_mode,
            "lds_granularity_bytes": self.lds_granularity_bytes is not None,
        }
        return (name for name, is_given in stated.items() if is_given)


def whole_numbers(name: str, value: Any, *, least: int = 0, most: int = MAX_INPUT) -> Any:
    """The value as an int64 scalar or array.

    Raises:
        UsageError: When it is not made of whole numbers from `least` to `most`.
    """
    rule = f"{name}: expected whole numbers from {least} to {most}"
    if isinstance(value, int) and not isinstance(value, bool):
        if not least <= value <= most:
            raise UsageError(f"{rule}, got {value}.")
        return np.int64(value)
    if value is None or isinstance(value, str | bytes):
        raise UsageError(f"{rule}, got {value!r}.")
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        raise UsageError(f"{rule}, got lists of unequal lengths.") from None
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iu":
        raise UsageError(f"{rule}, got {_shown(value, array)}.")
    if array.size and not (least <= (low := int(array.min())) and int(array.max()) <= most):
        raise UsageError(f"{rule}, got {low if low < least else int(array.max())}.")
    return array.astype(np.int64)[()]


def whole_number(name: str, value: Any, *, least: int = 0) -> int:
    """One whole number."""
    try:
        number = operator.index(value) if not isinstance(value, bool) else None
    except TypeError:
        number = None
    if number is None or not least <= number <= MAX_INPUT:
        raise UsageError(f"{name}: expected one whole number from {least} to {MAX_INPUT}, got {value!r}.")
    return number


def common_shape(columns: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that the inputs broadcast to.

    Raises:
        UsageError: When they do not.
    """
    if all(isinstance(value, np.generic) for value in columns.values()):
        return ()
    try:
        return np.broadcast_shapes(*(np.shape(value) for value in columns.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(value)}" for name, value in columns.items() if np.shape(value))
        raise UsageError(f"the inputs' shapes do not broadcast together: {shapes}.") from None


def differs(value: Any, default: int) -> bool:
    """Whether any element of an input is not the default."""
    different = value != default
    return bool(different if isinstance(different, np.bool_) else different.any())


def _shown(value: Any, array: Any) -> str:
    if array.ndim == 0:
        return repr(value.item() if hasattr(value, "item") else value)
    return f"an array of {array.dtype}"
