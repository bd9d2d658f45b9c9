"""Numbers that stand in for what no source states of a GPU, each with the sentence that an answer resting on it prints.

A cost model that needs a value which a GPU's file leaves null asks here, and its assumptions repeat the sentences: a
null never becomes a number silently. What cannot be modelled without a value, such as the peak rate of a dtype, is
refused instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from constrint.hwmodels.schema import GpuModel

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
