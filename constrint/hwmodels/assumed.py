"""Assumptions about a GPU for quantities that neither its vendor nor a measurement of the model itself states.

Assumptions are data: each vendor's `assumed.yaml` has them by quantity, for one GPU, a target or a family. What a GPU's
own file states always comes first.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from constrint.errors import HardwareModelError
from constrint.hwmodels.files import read_yaml

if TYPE_CHECKING:
    from constrint.hwmodels.schema import CacheLevel, GpuModel

#: Quantities that may be assumed: a share of the matrix peak, for 16-bit operands and for others; bytes that a cache
#: gives each SM per clock, and those that kernels load through the port of one SM; a share of the DRAM's rate on the
#: data sheet; seconds to start a kernel and to drain it, alone and among launches one after another.
SUSTAINED = "sustained_matrix_fraction"
SUSTAINED_OF = {"fp8": "sustained_fp8_fraction", "int8": "sustained_int8_fraction"}
L2 = "l2_bytes_per_clk_per_sm"
LAST_LEVEL = "last_level_bytes_per_clk_per_sm"
L2_PORT = "l2_port_bytes_per_clk"
DRAM_SHARE = "dram_share"
LAUNCH, LAUNCH_IN_ROW = "launch_s", "launch_in_row_s"
QUANTITIES = (SUSTAINED, *SUSTAINED_OF.values(), L2, LAST_LEVEL, L2_PORT, DRAM_SHARE, LAUNCH, LAUNCH_IN_ROW)

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Assumption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that stands in for an unknown one.

    Args:
        value: Value for cost models.
        low, high: The error band: the least and the largest value that seem possible.
        source: Where it comes from, or "assumed: " and the reasoning.
    """

    value: Positive
    low: Positive
    high: Positive
    source: Annotated[str, msgspec.Meta(min_length=1)]


class Bandwidth(NamedTuple):
    """Bytes per second of a cache, all SMs together.

    Args:
        value: Value for cost models.
        low, high: The error band; equal to `value` where the GPU's file has the figure.
        source: Where an assumed figure comes from.
        is_stated: Whether the GPU's file states it as the vendor's.
    """

    value: float
    low: float
    high: float
    source: str
    is_stated: bool


@functools.cache
def read_assumed(path: Path) -> Mapping[str, Mapping[str, Assumption]]:
    """The assumptions of a YAML file: by quantity, then by a GPU's name, target or family."""
    try:
        by_quantity = msgspec.convert(read_yaml(path), dict[str, dict[str, Assumption]])
    except msgspec.ValidationError as error:
        raise HardwareModelError(f"{path}: {error}.") from None
    for quantity, entries in by_quantity.items():
        if quantity not in QUANTITIES:
            raise HardwareModelError(f"{path}: {quantity}: unknown quantity. Known: {', '.join(QUANTITIES)}.")
        for key, entry in entries.items():
            if not entry.low <= entry.value <= entry.high:
                raise HardwareModelError(f"{path}: {quantity}.{key}: the value must lie between 'low' and 'high'.")
    return by_quantity


def assumption(gpu: GpuModel, quantity: str) -> Assumption | None:
    """The value that stands in: measured, of the GPU's own file; else of the vendor's by name, target or family."""
    measured = getattr(gpu.measured, quantity, None)
    if gpu.measured is not None and measured is not None:
        return Assumption(measured, measured, measured, gpu.sources[gpu.measured.sources[0]])
    entries = gpu.maker.assumed().get(quantity, {})
    return next((entries[key] for key in (gpu.name, gpu.arch.target, gpu.arch.family) if key in entries), None)


def sustained_matrix_fraction(gpu: GpuModel, dtype: str = "bf16") -> float:
    """The share of a dtype's matrix peak that a large GEMM keeps up: measured, else assumed, else all of it.

    Dtypes for which nothing of their own is assumed keep up the share of 16-bit ones.
    """
    of_dtype = assumption(gpu, SUSTAINED_OF[dtype]) if dtype in SUSTAINED_OF else None
    if of_dtype is not None:
        return of_dtype.value
    stated = gpu.compute.sustained_matrix_fraction
    if stated is not None:
        return stated
    assumed = assumption(gpu, SUSTAINED)
    return 1.0 if assumed is None else assumed.value


def l2_bandwidth(gpu: GpuModel, clock_hz: float) -> Bandwidth | None:
    """Bandwidth of the L2; None where it is neither stated nor assumed.

    Args:
        gpu: The hardware model.
        clock_hz: The clock that assumptions per clock are multiplied with.
    """
    return _bandwidth(gpu, gpu.memory.l2, L2, clock_hz)


def last_level_bandwidth(gpu: GpuModel, clock_hz: float) -> Bandwidth | None:
    """Bandwidth of the cache behind the L2; see `l2_bandwidth`."""
    return None if gpu.memory.last_level is None else _bandwidth(gpu, gpu.memory.last_level, LAST_LEVEL, clock_hz)


def _bandwidth(gpu: GpuModel, cache: CacheLevel, quantity: str, clock_hz: float) -> Bandwidth | None:
    if cache.bandwidth_bytes_per_s is not None:
        rate = cache.bandwidth_bytes_per_s
        return Bandwidth(rate, rate, rate, "", True)
    if cache.assumed_bandwidth_bytes_per_s is not None:
        rate = cache.assumed_bandwidth_bytes_per_s
        return Bandwidth(rate, rate, rate, gpu.sources[cache.sources[-1]], False)
    assumed = assumption(gpu, quantity)
    if assumed is None:
        return None
    scale = gpu.device.sm_count * clock_hz
    return Bandwidth(assumed.value * scale, assumed.low * scale, assumed.high * scale, assumed.source, False)
