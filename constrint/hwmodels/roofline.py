"""Rooflines, special-function rates and wave quantisation: bounds that follow from a GPU's facts alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels.load import load_gpu
from constrint.hwmodels.schema import GpuModel


@dataclass(frozen=True)
class Roofline:
    """Peak rate of a dtype and the bandwidth of every memory level, None where no source states it.

    Args:
        gpu: The GPU's name.
        dtype: Operand type.
        unit: `matrix` or `vector`, whichever the peak belongs to.
        peak_flop_per_s: Dense peak of the device.
        bandwidth_bytes_per_s: Bandwidth of the device per memory level that it has, nearest to the SM first.
    """

    gpu: str
    dtype: str
    unit: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: dict[str, float | None]

    @property
    def ridge_points_flop_per_byte(self) -> dict[str, float | None]:
        """Arithmetic intensity from which the peak rate, and no longer the level, is the bound."""
        return {
            level: None if bandwidth is None else self.peak_flop_per_s / bandwidth
            for level, bandwidth in self.bandwidth_bytes_per_s.items()
        }

    def attainable_flop_per_s(self, flop_per_byte: float, level: str = "dram") -> float | None:
        """Upper bound of the rate at an arithmetic intensity: min(peak, intensity x bandwidth).

        Args:
            flop_per_byte: Operations per byte moved at `level`.
            level: A key of `bandwidth_bytes_per_s`.

        Returns:
            FLOP/s, or None where the level's bandwidth is unknown.
        """
        if level not in self.bandwidth_bytes_per_s:
            raise UnknownNameError("memory level", str(level), self.bandwidth_bytes_per_s, f"It is one of {self.gpu}.")
        if isinstance(flop_per_byte, bool) or not math.isfinite(flop_per_byte) or flop_per_byte < 0:
            raise UsageError(f"flop_per_byte: expected a number of at least 0, got {flop_per_byte!r}.")
        bandwidth = self.bandwidth_bytes_per_s[level]
        return None if bandwidth is None else min(self.peak_flop_per_s, flop_per_byte * bandwidth)


def roofline(gpu: GpuModel | str, dtype: str, *, unit: str | None = None) -> Roofline:
    """Build the roofline of a dtype.

    Args:
        gpu: A model, or a name for `load_gpu`.
        dtype: Operand type, such as `bf16`.
        unit: `matrix` or `vector`; None for the matrix units where they do the dtype, else the vector units.

    Raises:
        UnsupportedError: When the unit cannot do the dtype, or no source confirms how fast.
    """
    model = load_gpu(gpu) if isinstance(gpu, str) else gpu
    model.vector_flop_per_s(dtype)  # refuses what is no dtype
    if unit is None:
        unit = "matrix" if dtype in model.compute.matrix_flop_per_s else "vector"
    if unit not in ("matrix", "vector"):
        raise UnknownNameError("unit", str(unit), ("matrix", "vector"))
    peak = model.vector_flop_per_s(dtype) if unit == "vector" else model.matrix_flop_per_s(dtype)
    if peak is None:
        raise UnsupportedError(f"{model.name}: no peak rate of its {unit} units for {dtype} is known.")
    return Roofline(model.name, dtype, unit, peak, bandwidths_bytes_per_s(model))


def bandwidths_bytes_per_s(gpu: GpuModel) -> dict[str, float | None]:
    """Bandwidth of the whole device per memory level that it has; None where unknown."""
    memory = gpu.memory
    levels = {"l1": memory.l1, "l2": memory.l2, "last_level": memory.last_level, "dram": memory.dram}
    rates = {name: level.bandwidth_bytes_per_s for name, level in levels.items() if level is not None}
    return {"smem": smem_bytes_per_s(gpu), **rates}


def smem_bytes_per_s(gpu: GpuModel) -> float | None:
    """Shared-memory (LDS) bandwidth of the device, banks x bank width x SMs x clock; None where unknown."""
    sm, device = gpu.sm, gpu.device
    if sm.smem_banks is None or sm.smem_bank_width_bytes is None or device.boost_clock_hz is None:
        return None
    return float(sm.smem_banks * sm.smem_bank_width_bytes * device.sm_count * device.boost_clock_hz)


def special_functions_per_s(gpu: GpuModel) -> float | None:
    """exp2, log2, rcp, sin and the like per second on the whole device; None where unknown."""
    if gpu.sm.special_functions_per_clk is None or gpu.device.boost_clock_hz is None:
        return None
    return float(gpu.sm.special_functions_per_clk * gpu.device.sm_count * gpu.device.boost_clock_hz)


def wave_quantisation(num_blocks: int, sm_count: int, blocks_per_sm: int) -> tuple[int, float]:
    """Number of waves that a grid takes, and the share of their block slots that do work.

    Formula: waves = ceil(num_blocks / (sm_count x blocks_per_sm)), share = num_blocks / (waves x slots).

    Raises:
        UsageError: When an argument is no whole number of at least 1.
    """
    for name, value in (("num_blocks", num_blocks), ("sm_count", sm_count), ("blocks_per_sm", blocks_per_sm)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name}: expected a whole number of at least 1, got {value!r}.")
    slots = sm_count * blocks_per_sm
    num_waves = -(-num_blocks // slots)
    return num_waves, num_blocks / (num_waves * slots)
