"""Assumptions about a GPU, in place of what its own file leaves null. What the file states always comes first.

Assumptions about speeds are data: each vendor's `assumed.yaml` has them by quantity, for one GPU, a target or a family.
Numbers that stand in for other nulls (`clock_hz`, `gpcs`, ...) come with the sentence that an answer resting on them
prints: a null never becomes a number silently. What cannot be modelled without a value, such as the peak rate of a
dtype, is refused instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from constrint.errors import HardwareModelError
from constrint.hwmodels.files import read_yaml

if TYPE_CHECKING:
    from constrint.hwmodels.schema import CacheLevel, GpuModel


#: Quantities that may be assumed: a share of the matrix peak, for 16-bit operands and for others; bytes that a cache
#: gives each SM per clock, and those that kernels load through the port of one SM, by threads and by the TMA unit; a
#: share of the DRAM's rate on the data sheet, and DRAM's time for a byte written over that for one read; seconds to
#: start a kernel and to drain it, alone and among launches one after another.
SUSTAINED = "sustained_matrix_fraction"
SUSTAINED_OF = {"fp8": "sustained_fp8_fraction", "int8": "sustained_int8_fraction"}
L2 = "l2_bytes_per_clk_per_sm"
LAST_LEVEL = "last_level_bytes_per_clk_per_sm"
L2_PORT, TMA_PORT = "l2_port_bytes_per_clk", "tma_bytes_per_clk"
DRAM_SHARE, WRITE_COST = "dram_share", "dram_write_cost"
LAUNCH, LAUNCH_IN_ROW = "launch_s", "launch_in_row_s"
QUANTITIES = (
    *(SUSTAINED, *SUSTAINED_OF.values(), L2, LAST_LEVEL, L2_PORT, TMA_PORT),
    *(DRAM_SHARE, WRITE_COST, LAUNCH, LAUNCH_IN_ROW),
)

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


def assumptions_of(gpu: GpuModel) -> Mapping[str, Mapping[str, Assumption]]:
    """Assumptions about GPUs of the vendor: by quantity, then by a GPU's name, target or family."""
    file = gpu.maker.assumed_file
    return {} if file is None else read_assumed(file)


def assumption(gpu: GpuModel, quantity: str) -> Assumption | None:
    """The value that stands in: measured, of the GPU's own file; else of the vendor's by name, target or family."""
    measured = getattr(gpu.measured, quantity, None)
    if gpu.measured is not None and measured is not None:
        return Assumption(measured, measured, measured, gpu.sources[gpu.measured.sources[0]])
    entries = assumptions_of(gpu).get(quantity, {})
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


#: Hertz of a GPU without any relative, banks and bytes of a bank, special functions an SM computes per clock, and GPCs.
LONE_CLOCK_HZ, BANKS, BANK_WIDTH_BYTES, SPECIALS, GPCS = 1.5e9, 32, 4, 16, 8


class StandIn(NamedTuple):
    """A value, and the sentence that says what was assumed; empty where the GPU's file states the value."""

    value: float
    line: str


def clock_hz(gpu: GpuModel) -> StandIn:
    """The boost clock, else the largest one, else the median of GPUs of the family, else of all."""
    device = gpu.device
    if device.boost_clock_hz is not None:
        return StandIn(float(device.boost_clock_hz), "")
    if device.max_clock_hz is not None:
        return StandIn(float(device.max_clock_hz), f"boost clock unconfirmed: the largest, {_ghz(device.max_clock_hz)}")
    value, whose = _clock_of_relatives(gpu.arch.family)
    return StandIn(value, f"clock unconfirmed: {_ghz(value)} assumed, {whose}")


def most_clock_hz(gpu: GpuModel) -> StandIn:
    """The largest clock, else as `clock_hz`."""
    most = gpu.device.max_clock_hz
    return clock_hz(gpu) if most is None else StandIn(float(most), "")


def smem_bytes_per_clk(gpu: GpuModel) -> StandIn:
    """Bytes of all banks of an SM's shared memory per clock."""
    banks, width = gpu.sm.smem_banks, gpu.sm.smem_bank_width_bytes
    if banks is not None and width is not None:
        return StandIn(float(banks * width), "")
    banks, width = banks or BANKS, width or BANK_WIDTH_BYTES
    return StandIn(float(banks * width), f"{gpu.terms.smem} banks unconfirmed: {banks} of {width} bytes assumed")


def specials_per_clk(gpu: GpuModel) -> StandIn:
    """Special functions of an SM per clock."""
    stated = gpu.sm.special_functions_per_clk
    if stated is not None:
        return StandIn(float(stated), "")
    return StandIn(SPECIALS, f"rate of special functions unconfirmed: {SPECIALS} per clock and {gpu.terms.sm} assumed")


def l2_bytes(gpu: GpuModel) -> StandIn:
    """Bytes of the L2, all parts together; a cache of unknown size keeps nothing."""
    stated = gpu.memory.l2.size_bytes
    return StandIn(float(stated or 0), "" if stated is not None else "size of the L2 unconfirmed: it keeps nothing")


def last_level_bytes(gpu: GpuModel) -> StandIn:
    """Bytes of the cache behind the L2; 0 where there is none."""
    cache = gpu.memory.last_level
    if cache is None or cache.size_bytes is not None:
        return StandIn(float(0 if cache is None or cache.size_bytes is None else cache.size_bytes), "")
    return StandIn(0.0, "size of the last-level cache unconfirmed: it keeps nothing")


def gpcs(gpu: GpuModel) -> StandIn:
    """GPCs, in one of which a cluster of blocks lies."""
    stated = gpu.device.num_gpcs
    line = "" if stated is not None else f"number of GPCs unconfirmed: {GPCS} assumed"
    return StandIn(float(stated or GPCS), line)


def lines_of(gpu: GpuModel, *values: Callable[[GpuModel], StandIn]) -> Iterator[str]:
    """The sentences of these values, for those that the GPU's file leaves null."""
    yield from filter(None, (value(gpu).line for value in values))


@functools.cache
def _clock_of_relatives(family: str) -> tuple[float, str]:
    from constrint.hwmodels.load import load_all  # reads every shipped file: only where a clock is null

    stated = [gpu for gpu in load_all() if gpu.device.boost_clock_hz is not None]
    for whose, of in (
        (f"the median of {family}", [gpu for gpu in stated if gpu.arch.family == family]),
        ("the median of all GPUs", stated),
    ):
        if of:
            return float(median(gpu.device.boost_clock_hz or 0 for gpu in of)), whose
    return LONE_CLOCK_HZ, "that of no particular GPU"


def _ghz(hertz: float) -> str:
    return f"{hertz / 1e9:.2f} GHz"
