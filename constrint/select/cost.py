"""A cost model for kernels whose blocks walk tiles through shared memory.

Every resource gets the time it would need if nothing else mattered; the largest one binds. On an SM these are the
matrix units, shared memory, the L2 port, and the latency that too shallow a pipeline exposes; on the device the L2,
the last-level cache and DRAM. Whole waves of blocks quantise the SM side. The figures are modelled, never measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.select.prepared import ByRow
from constrint.select.work import BlockWork, GridWork, TileWork

Column = NDArray[np.float64]

# Vendors publish none of the constants below. Those called fitted come from `python -m benchmarks.fit gemm.pointer`
# over configurations measured on one H200 (`benchmarks/results/h200/gemm_space_bf16.csv`).

#: Seconds to start a kernel, fill its first pipeline and drain it. Fitted.
LAUNCH_S = 5.4e-6
#: Clocks of a main-loop iteration that a block spends on barriers and branches; another block on the SM would use them
#: for its own work. Fitted.
ITERATION_CLK = 2.0
#: Seconds to put a new block in the place of a finished one. Fitted.
BLOCK_START_S = 0.38e-6
#: Clocks of an SM that one lane's load takes from everything else: address, predicate, issue slots. Fitted.
CLK_PER_LOAD = 0.278
#: Bytes per clock between the L2 and one SM or CU. Fitted; the port itself is 64 bytes wide on both vendors' parts.
L2_PORT_BYTES_PER_CLK = 38.7
#: The exponent p of the norm in `overlap` is 2**3 = 8. An infinite one means perfect overlap, 1 none at all. It was
#: chosen: large exponents fit the measurements best, and a finite one also orders configurations that share their
#: bottleneck.
OVERLAP_LOG2 = 3

#: What stands in where a model's clock or shared-memory banks are unconfirmed; `cost_assumptions` says so.
ASSUMED_CLOCK_HZ = 1.0e9
ASSUMED_BANKS = 32
ASSUMED_BANK_WIDTH_BYTES = 4

PARTS = (
    "matrix units",
    "shared memory",
    "L2 port",
    "load issue",
    "latency",
    "wave quantisation",
    "L2",
    "last-level cache",
    "DRAM",
)


class Later(Mapping[str, Any]):
    """A mapping that is computed when it is first read."""

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self._compute = compute

    @cached_property
    def _known(self) -> Mapping[str, Any]:
        return self._compute()

    def __getitem__(self, key: str) -> Any:
        """The value of a key."""
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        """The keys, in order."""
        return iter(self._known)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._known)


@dataclass(frozen=True)
class CostColumns:
    """Modelled seconds per row, and the parts of PARTS in seconds (scalars or columns).

    Args:
        seconds: Predicted times.
        parts_s: What each resource would need; `Later` where hardly anyone asks.
    """

    seconds: Column
    parts_s: Mapping[str, Any] = field(default_factory=dict)

    def parts_of(self, row: int) -> dict[str, float]:
        """What each resource would need for this row if nothing else mattered."""
        return {name: float(part[row] if np.ndim(part) else part) for name, part in self.parts_s.items()}

    def take(self, rows: NDArray[np.int64]) -> CostColumns:
        """These rows alone."""

        def parts() -> dict[str, Any]:
            return {name: np.broadcast_to(part, self.seconds.shape)[rows] for name, part in self.parts_s.items()}

        return CostColumns(self.seconds[rows], Later(parts))

    def bound_by(self, row: int) -> str:
        """Name of the resource that binds this row: the largest part, of equal ones the first."""
        parts_s = self.parts_of(row)
        return max(parts_s, key=lambda name: parts_s[name])


def cost_assumptions(gpu: GpuModel) -> list[str]:
    """What the model assumes about this GPU for want of a source, a sentence each."""
    lines = [f"{gpu.figure('dram_latency_s') * 1e6:.2f} us load latency, {LAUNCH_S * 1e6:.1f} us launch"]
    if gpu.device.boost_clock_hz is None:
        lines.append(f"clock unconfirmed: {ASSUMED_CLOCK_HZ / 1e9:.1f} GHz assumed")
    if gpu.sm.smem_banks is None or gpu.sm.smem_bank_width_bytes is None:
        lines.append(f"LDS banks unconfirmed: {ASSUMED_BANKS} of {ASSUMED_BANK_WIDTH_BYTES} bytes assumed")
    if gpu.memory.l2.bandwidth_bytes_per_s is None:
        lines.append("L2 bandwidth unconfirmed: only the SMs' ports to it are modelled")
    if gpu.compute.sustained_matrix_fraction is None:
        lines.append("sustained share of the peak unknown: the datasheet peak is used")
    return lines


def estimate(gpu: GpuModel, peak_flop_per_s: float, work: TileWork) -> CostColumns:
    """Predict the time of every row of `work`.

    Args:
        gpu: The hardware model.
        peak_flop_per_s: Dense peak of the unit that does the arithmetic, for the whole device.
        work: The grid, per configuration.
    """
    return BlockTimes(gpu, peak_flop_per_s, work).of_grid(work)


def overlap(*times_s: Any) -> Column:
    """Time of resources that work at once: their largest, and more the closer the others come to it (a p-norm)."""
    return _root(sum(_power(time_s) for time_s in times_s))


def _power(time_s: Any) -> Any:
    for _ in range(OVERLAP_LOG2):
        time_s = np.square(time_s)
    return time_s


def _root(total: Any) -> Column:
    for _ in range(OVERLAP_LOG2):
        total = np.sqrt(total)
    return np.asarray(total, dtype=np.float64)


class BlockTimes(ByRow):
    """Seconds that blocks take on one SM, per configuration; computed once for many grids of the same blocks.

    Args:
        gpu: The hardware model.
        peak_flop_per_s: Dense peak of the unit that does the arithmetic, for the whole device.
        work: What a block does.
    """

    def __init__(self, gpu: GpuModel, peak_flop_per_s: float, work: BlockWork) -> None:
        clock = gpu.device.boost_clock_hz or ASSUMED_CLOCK_HZ
        banks, width = gpu.sm.smem_banks or ASSUMED_BANKS, gpu.sm.smem_bank_width_bytes or ASSUMED_BANK_WIDTH_BYTES
        self.gpu, self.num_sms = gpu, gpu.device.sm_count
        self.flop, self.warps, self.is_async = work.flop, work.warps_per_block, work.is_async
        self.depth = np.asarray(work.stages_in_flight, dtype=np.float64)
        # The share of the peak that the device sustains under load, where a source states it.
        sm_flop_per_s = peak_flop_per_s * (gpu.compute.sustained_matrix_fraction or 1.0) / self.num_sms
        self.matrix_flop_per_s = sm_flop_per_s * work.matrix_efficiency
        self.resident = np.asarray(work.blocks_per_sm, dtype=np.float64)
        self.slots = self.num_sms * self.resident
        self.smem_s = work.smem_bytes / (banks * width * clock)
        self.port_s = work.load_bytes / (L2_PORT_BYTES_PER_CLK * clock)
        self.issue_s = work.load_instructions * CLK_PER_LOAD / clock
        # More than a warp per partition takes longer to meet at a barrier.
        warps = np.maximum(1.0, np.asarray(work.warps_per_block) / gpu.sm.num_partitions)
        self.overhead_s = ITERATION_CLK * warps / clock
        self.start_s = BLOCK_START_S * (1.0 - np.asarray(work.is_persistent, dtype=np.float64))
        self.store_s = work.store_bytes / (L2_PORT_BYTES_PER_CLK * clock)
        # One warp on its own loads fragments and then multiplies; other warps of its partition fill the gaps, and
        # matrix instructions that read shared memory themselves leave none.
        alone_s = self.matrix_s(1.0)
        self.serial_s = alone_s / warps + np.where(work.is_async, 0.0, self.smem_s + self.issue_s)
        self._serial_power = _power(self.serial_s)
        # Without a prefetch, a block waits for its own loads and then computes, in every iteration.
        self.alone_s = overlap(alone_s, self.smem_s, self.port_s, self.issue_s, self.serial_s)
        self._full_power = self._busy_power(self.resident)

    @cached_property
    def _usual(self) -> _Waits:
        """What blocks wait for where a load takes the vendor's mean."""
        return _Waits(self, self.gpu.figure("dram_latency_s"))

    def of_grid(self, grid: GridWork) -> CostColumns:
        """Predicted times of grids of these blocks."""
        waits = self._usual if grid.load_latency_s is None else _Waits(self, grid.load_latency_s)
        num_blocks = np.asarray(grid.num_blocks, dtype=np.float64)
        full = np.floor(num_blocks / self.slots)
        tail_blocks = np.ceil((num_blocks - full * self.slots) / self.num_sms)
        wave_s = grid.iterations * waits.full_step_s + waits.full_edge_s
        tail_s = np.where(tail_blocks > 0, self._wave_s(tail_blocks, grid.iterations, waits), 0.0)
        sm_s = full * wave_s + tail_s
        device = _device_parts(self.gpu, grid)
        seconds = LAUNCH_S + overlap(sm_s, *device.values()) + grid.extra_s

        def parts() -> dict[str, Any]:
            num_waves = num_blocks / self.slots
            named = {name: part * num_waves for name, part in self._parts(grid.iterations, waits).items()}
            return named | {"wave quantisation": np.maximum(sm_s - num_waves * wave_s, 0.0)} | device

        return CostColumns(seconds, Later(parts))

    def matrix_s(self, blocks: Any) -> Any:
        """Seconds of one iteration's matrix instructions of so many blocks on an SM."""
        busy = np.minimum(1.0, blocks * self.warps / self.gpu.sm.num_partitions)
        return blocks * self.flop / (self.matrix_flop_per_s * np.maximum(busy, 1e-9))

    def step_s(self, busy_power: Any, blocks: Any, waits: _Waits) -> Any:
        """Seconds of one iteration of so many blocks on an SM, from the powers of what they keep busy."""
        step_s = _root(busy_power + self._serial_power + waits.power)
        return step_s + self.overhead_s / blocks

    def full_step_s(self, waits: _Waits) -> Any:
        """Seconds of one iteration of as many blocks as reside on an SM."""
        return self.step_s(self._full_power, np.maximum(self.resident, 1.0), waits)

    def _busy_power(self, blocks: Any) -> Any:
        busy_s = (self.matrix_s(blocks), blocks * self.smem_s, blocks * self.port_s, blocks * self.issue_s)
        return sum(_power(time_s) for time_s in busy_s)

    def _wave_s(self, blocks: Any, iterations: Any, waits: _Waits) -> Any:
        """Seconds of a whole wave of so many blocks on an SM."""
        at_least_one = np.maximum(blocks, 1.0)
        step_s = self.step_s(self._busy_power(blocks), at_least_one, waits)
        return iterations * step_s + waits.edge_s / at_least_one

    def _parts(self, iterations: Any, waits: _Waits) -> dict[str, Any]:
        """Seconds of one full wave on one SM per resource."""
        serial_s = np.where(self.is_async, 0.0, self.serial_s)
        return {
            "matrix units": iterations * self.matrix_s(self.resident),
            "shared memory": iterations * self.resident * self.smem_s,
            "L2 port": iterations * self.resident * self.port_s,
            "load issue": iterations * self.resident * self.issue_s,
            "latency": iterations * np.maximum(waits.seconds, serial_s),
        }


class _Waits(ByRow):
    """What blocks wait for, if a load takes so long."""

    def __init__(self, blocks: BlockTimes, latency_s: Any) -> None:
        ahead_s = latency_s / np.maximum(blocks.depth, 1.0)
        self.seconds = np.where(blocks.depth > 0, ahead_s, latency_s + blocks.alone_s)
        self.power = _power(self.seconds)
        self.edge_s = blocks.start_s + latency_s + blocks.store_s
        self.full_step_s = blocks.full_step_s(self)
        self.full_edge_s = self.edge_s / np.maximum(blocks.resident, 1.0)


def _device_parts(gpu: GpuModel, work: GridWork) -> dict[str, Any]:
    """Seconds that each device-wide memory level needs for the grid's traffic."""
    memory = gpu.memory
    l2_rate = memory.l2.bandwidth_bytes_per_s
    if l2_rate is None:
        l2_rate = work.l2_bytes_per_s
    last_level_rate = memory.last_level.bandwidth_bytes_per_s if memory.last_level else None
    return {
        # A cache of unknown bandwidth cannot bind: the SMs' ports stand for the L2, DRAM for the last level.
        "L2": 0.0 if l2_rate is None else work.l2_bytes / l2_rate,
        "last-level cache": 0.0 if last_level_rate is None else work.last_level_bytes / last_level_rate,
        "DRAM": work.dram_bytes / memory.dram.bandwidth_bytes_per_s,
    }
