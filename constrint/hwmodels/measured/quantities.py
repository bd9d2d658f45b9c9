"""The quantities that are measured, each by a small function of a bench and a model.

A bench runs one thing on a device and says how long it took; tests give one whose device is made up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from constrint.hwmodels.schema import GpuModel

#: Bytes of a copy at least: far more than any cache holds; and its share of the device's memory at most.
COPY_BYTES = 2**31
COPY_SHARE = 1 / 8
#: Share of the L2 (of one die's, where there are several) that is read again and again.
L2_SHARE = 1 / 4
#: Bytes that all SMs together read in one call, so that its start does not count.
READ_BYTES = 2**34
#: Sizes of the square products, and the dtypes whose shares cost models ask for.
SIZES = (4096, 8192)
DTYPES = ("bf16", "fp16", "fp8", "int8")
#: Most that a share may be: a card may clock higher than its data sheet says, but not by so much.
MOST_SHARE = 1.4


class Bench(Protocol):
    """Runs on a device, each method in seconds."""

    def copy_s(self, num_bytes: int) -> float:
        """Copy bytes to another place of device memory."""

    def read_s(self, num_bytes: int, repeats: int) -> float:
        """Read the same bytes as often, with all SMs and past their L1, by one kernel."""

    def product_s(self, dtype: str, size: int) -> float | None:
        """A product of square matrices by the vendor's library; None where it has none of the dtype."""

    def launch_s(self) -> float:
        """Start a kernel that does next to nothing behind another one, and drain it."""


@dataclass
class DeviceRates:
    """The measurements of a device; None where one could not be made.

    Args:
        dram_bytes_per_s: Rate of a long copy, bytes read and bytes written counted.
        l2_bytes_per_s: Rate at which all SMs read what the L2 holds.
        launch_s: Time of a kernel that does next to nothing.
        matrix_share: Share of the matrix peak by dtype.
        remarks: Why a quantity is missing, a sentence each.
    """

    dram_bytes_per_s: float | None = None
    l2_bytes_per_s: float | None = None
    launch_s: float | None = None
    matrix_share: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def measure(bench: Bench, gpu: GpuModel) -> DeviceRates:
    """Measure every quantity; about half a minute on a device."""
    found = DeviceRates(
        dram_bytes_per_s=dram_bytes_per_s(bench, gpu),
        l2_bytes_per_s=l2_bytes_per_s(bench, gpu),
        launch_s=bench.launch_s(),
    )
    if found.l2_bytes_per_s is None:
        found.remarks.append("L2 rate: the size of the L2 is unknown")
    for dtype in DTYPES:
        share = matrix_share(bench, gpu, dtype)
        if share is None:
            found.remarks.append(f"share of the {dtype} peak: no peak is stated, or the library has no such product")
        elif share > MOST_SHARE:
            found.remarks.append(f"share of the {dtype} peak: {share:.2f} of the stated peak, which cannot be right")
        else:
            found.matrix_share[dtype] = share
    return found


def dram_bytes_per_s(bench: Bench, gpu: GpuModel) -> float:
    """Rate of device memory: a copy reads every byte once and writes it once."""
    num_bytes = min(COPY_BYTES, int(gpu.memory.dram.size_bytes * COPY_SHARE))
    return 2 * num_bytes / bench.copy_s(num_bytes)


def l2_bytes_per_s(bench: Bench, gpu: GpuModel) -> float | None:
    """Rate of the L2: data that a part of it holds, read by all SMs. None where its size is unknown."""
    size = gpu.memory.l2.size_bytes_per_xcd or gpu.memory.l2.size_bytes
    if size is None:
        return None
    num_bytes = int(size * L2_SHARE) // 4096 * 4096
    repeats = max(1, READ_BYTES // num_bytes)
    return num_bytes * repeats / bench.read_s(num_bytes, repeats)


def matrix_share(bench: Bench, gpu: GpuModel, dtype: str) -> float | None:
    """The largest share of the matrix peak over the sizes; None without a peak or a product of the dtype."""
    peak = gpu.matrix_flop_per_s(dtype)
    if peak is None:
        return None
    times = [(size, bench.product_s(dtype, size)) for size in SIZES]
    rates = [2 * size**3 / seconds for size, seconds in times if seconds is not None]
    return max(rates) / peak if rates else None
