"""Cost models: blocks that walk tiles through shared memory, and (simpler) kernels that stream data through DRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.hwmodels.assumed import (
    DRAM_SHARE,
    L2_PORT,
    LAUNCH,
    LAUNCH_IN_ROW,
    SUSTAINED,
    SUSTAINED_OF,
    TMA_PORT,
    WRITE_COST,
    Bandwidth,
    assumption,
    l2_bandwidth,
    last_level_bandwidth,
    sustained_matrix_fraction,
)
from constrint.hwmodels.checks import target_note
from constrint.select.tile_work import BlockWork, ByRow, GridWork, TileWork

Column = NDArray[np.float64]

# Vendors publish none of the constants below. Those called fitted come from `python -m benchmarks.fit gemm.pointer`
# over configurations measured on one H200 (`benchmarks/results/h200/gemm_space_bf16.csv`).

#: Seconds to start a kernel, fill its first pipeline and drain it. Fitted; `launch_s` has those of other GPUs.
LAUNCH_S = 5.4e-6
#: Clocks per main-loop iteration for barriers and branches, during which other blocks on the SM can work. Fitted.
ITERATION_CLK = 2.0
#: Seconds to replace a finished block by a new one. Fitted.
BLOCK_START_S = 0.38e-6
#: SM clocks per lane and load for address, predicate and issue slots. Fitted.
CLK_PER_LOAD = 0.278
#: Bytes per clock between the L2 and one SM or CU. Fitted; the port itself is 64 bytes wide on both vendors' parts.
L2_PORT_BYTES_PER_CLK = 38.7
#: Sustained share of the matrix peak of the GPU on which the constants were fitted, as its file states it.
FITTED_SHARE = 0.786
#: Share that data movement adds to the power of the best products (tiles of 256x256x64 in 16 bits), whose shares of
#: the peak are measured. See `BlockWork.flop_of_moves`.
BEST_MOVES = 0.22
#: log2 of the exponent p = 8 of the norm in `overlap`. p = infinity is perfect overlap, p = 1 none. Chosen, not fitted:
#: large exponents fit the measurements best, and a finite one also orders configurations with the same bottleneck.
OVERLAP_LOG2 = 3

#: Quantities that are stated for a GPU or its family, and their words in an answer.
READ_OFF = {
    LAUNCH: "a launch of {:.1e} s, one after another",
    DRAM_SHARE: "{:.0%} of the DRAM's rate",
    WRITE_COST: "{:g} times as long in DRAM for a byte written as for one read",
    L2_PORT: "{:g} bytes per clock from the L2 to an SM",
    TMA_PORT: "{:g} bytes per clock from the L2 to an SM through the TMA unit",
}

PARTS = (
    "matrix units",
    "vector units",
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
    def _computed(self) -> Mapping[str, Any]:
        return self._compute()

    def __getitem__(self, key: str) -> Any:
        """The value of a key."""
        return self._computed[key]

    def __iter__(self) -> Iterator[str]:
        """The keys, in order."""
        return iter(self._computed)

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._computed)


@dataclass(frozen=True)
class CostColumns:
    """Modelled seconds per row, and the parts of PARTS in seconds (scalars or columns).

    Args:
        seconds: Predicted times.
        parts_s: Seconds per resource alone; a `Later` computes rarely needed ones on demand.
    """

    seconds: Column
    parts_s: Mapping[str, Any] = field(default_factory=dict)

    def parts_of(self, row: int) -> dict[str, float]:
        """Seconds that each resource alone would need for this row."""
        return {name: float(part[row] if np.ndim(part) else part) for name, part in self.parts_s.items()}

    def take(self, rows: NDArray[np.int64]) -> CostColumns:
        """Select rows."""

        def parts() -> dict[str, Any]:
            return {name: np.broadcast_to(part, self.seconds.shape)[rows] for name, part in self.parts_s.items()}

        return CostColumns(self.seconds[rows], Later(parts))

    def slowed(self, factors: Any) -> CostColumns:
        """These columns with all times multiplied by `factors`: the expected cost of registers that may spill."""

        def parts() -> dict[str, Any]:
            return {**self.parts_s, "spilling": self.seconds * (factors - 1.0)}

        return CostColumns(self.seconds * factors, Later(parts))

    def bound_by(self, row: int) -> str:
        """Name of the resource that binds this row: the largest part, of equal ones the first."""
        parts_s = self.parts_of(row)
        return max(parts_s, key=lambda name: parts_s[name])


def cost_assumptions(gpu: GpuModel, dtype: str = "bf16", *, has_matrix_units: bool = True) -> list[str]:
    """Assumptions of the cost model about this GPU where no source states a value, one sentence each.

    Args:
        gpu: The hardware model.
        dtype: Type of the operands.
        has_matrix_units: Whether matrix units do the arithmetic; their sustained share matters only then.
    """
    lines = [f"{gpu.figure('dram_latency_s') * 1e6:.2f} us load latency, {launch_s(gpu) * 1e6:.1f} us launch"]
    lines += filter(None, [target_note(gpu)])
    for quantity, words in READ_OFF.items():
        found = assumption(gpu, quantity)
        if found is not None:
            lines.append(f"{words.format(found.value)} ({found.source})")
    lines += assumed.lines_of(
        gpu, assumed.clock_hz, assumed.smem_bytes_per_clk, assumed.l2_bytes, assumed.last_level_bytes
    )
    lines += _cache_lines(gpu)
    of_dtype = assumption(gpu, SUSTAINED_OF[dtype]) if dtype in SUSTAINED_OF else None
    if has_matrix_units and (of_dtype is not None or gpu.compute.sustained_matrix_fraction is None):
        sustained = of_dtype or assumption(gpu, SUSTAINED)
        if sustained is None:
            lines.append("sustained share of the peak unknown: the datasheet peak is used")
        else:
            band = f"{sustained.low:.0%} to {sustained.high:.0%}"
            lines.append(f"{sustained.value:.0%} of the matrix peak is sustained, assumed ({band}; {sustained.source})")
    return lines


def _cache_lines(gpu: GpuModel) -> list[str]:
    """Assumptions about the caches' bandwidths."""
    lines = []
    l2, last = l2_bandwidth(gpu, _clock_hz(gpu)), last_level_bandwidth(gpu, _clock_hz(gpu))
    if l2 is None:
        lines.append("L2 bandwidth unconfirmed: only the SMs' ports to it are modelled")
    for name, rate in (("L2", l2), ("last-level cache", last)):
        if rate is not None and not rate.is_stated:
            band = "" if rate.low == rate.high else f"{rate.low / 1e12:.1f} to {rate.high / 1e12:.1f}; "
            binds = "" if rate is last or l2_bytes_per_s(gpu) is not None else ", more than the SMs' ports take"
            lines.append(f"{name} of {rate.value / 1e12:.1f} TB/s assumed{binds} ({band}{rate.source})")
    return lines


def l2_bytes_per_s(gpu: GpuModel) -> float | None:
    """Bandwidth at which the L2 itself can bind; None where it is unknown, or assumed and above that of all ports.

    The ports' rate was fitted with the L2 behind them, so it covers an L2 that delivers at least as much.
    """
    bandwidth: Bandwidth | None = l2_bandwidth(gpu, _clock_hz(gpu))
    if bandwidth is None or bandwidth.is_stated:
        return None if bandwidth is None else bandwidth.value
    ports = port_bytes_per_clk(gpu) * _clock_hz(gpu) * gpu.device.sm_count
    return bandwidth.value if bandwidth.value < ports else None


def loaded_clock_hz(gpu: GpuModel, dtype: str = "bf16") -> float:
    """Clock of an SM under the load of the best products, relative to the GPU of the fit.

    A GPU that sustains a smaller share of its peak than the fitted one is power-limited: its clock falls, and all units
    of an SM slow down with the matrix units.
    """
    return _clock_hz(gpu) * min(1.0, sustained_matrix_fraction(gpu, dtype) / FITTED_SHARE)


def sustained_shares(gpu: GpuModel, work: BlockWork) -> tuple[Any, Any]:
    """Shares of the matrix peak: what an SM reaches, and what the GPU's power allows all of them together.

    A GPU that sustains less than the one of the fit is limited by power. The stated share holds for the best products,
    whose tiles are large: a kernel that moves more bytes per operation spends more of the power on them. A kernel that
    waits for something else takes less power, so that its clock does not fall.
    """
    if not work.has_matrix_units:
        return 1.0, 1.0
    share = sustained_matrix_fraction(gpu, work.dtype)
    if share >= FITTED_SHARE:
        return share, share
    spent = 1.0 + work.flop_of_moves / work.flop
    return FITTED_SHARE, np.minimum(FITTED_SHARE, share * (1.0 + BEST_MOVES) / spent)


def launch_s(gpu: GpuModel) -> float:
    """Seconds to start a kernel and to drain it: of the GPU or its family where stated, else of the fitted GPU."""
    assumed = assumption(gpu, LAUNCH)
    return LAUNCH_S if assumed is None else assumed.value


def launch_in_row_s(gpu: GpuModel) -> float:
    """The same among launches one after another."""
    assumed = assumption(gpu, LAUNCH_IN_ROW)
    return launch_s(gpu) if assumed is None else assumed.value


def launch_offset_s(gpu: GpuModel) -> float:
    """Seconds by which a launch differs from one on the GPU on which a kernel's own launch time was fitted."""
    return launch_s(gpu) - LAUNCH_S


def dram_bytes_per_s(gpu: GpuModel, fitted_share: float = 1.0) -> float:
    """The DRAM's rate that kernels reach: that of the data sheet times a share.

    Args:
        gpu: The hardware model.
        fitted_share: The share that holds where none is stated for the GPU or its family: that of the fitted GPU.
    """
    share = assumption(gpu, DRAM_SHARE)
    return gpu.memory.dram.bandwidth_bytes_per_s * (fitted_share if share is None else share.value)


def dram_write_cost(gpu: GpuModel) -> float:
    """Time that DRAM takes for a byte written over that for one read: of the GPU or its family where stated, else 1."""
    assumed = assumption(gpu, WRITE_COST)
    return 1.0 if assumed is None else assumed.value


def port_bytes_per_clk(gpu: GpuModel) -> float:
    """Bytes per clock between the L2 and one SM: of the GPU or its family where stated, else of the fitted GPU."""
    assumed = assumption(gpu, L2_PORT)
    return L2_PORT_BYTES_PER_CLK if assumed is None else assumed.value


def _clock_hz(gpu: GpuModel) -> float:
    return assumed.clock_hz(gpu).value


def estimate(gpu: GpuModel, peak_flop_per_s: float, work: TileWork) -> CostColumns:
    """Predict the time of every row of `work`.

    Args:
        gpu: The hardware model.
        peak_flop_per_s: Dense peak of the unit that does the arithmetic, for the whole device.
        work: The grid, per configuration.
    """
    return BlockTimes(gpu, peak_flop_per_s, work).of_grid(work)


def overlap(*times_s: Any) -> Column:
    """Time of resources that work concurrently: the p-norm of their times, at least the largest."""
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
        work: Work of one block.
    """

    def __init__(self, gpu: GpuModel, peak_flop_per_s: float, work: BlockWork) -> None:
        reached, powered = sustained_shares(gpu, work)
        clock = _clock_hz(gpu)
        self.gpu, self.num_sms, self.launch_s = gpu, gpu.device.sm_count, launch_s(gpu)
        self.flop, self.warps, self.is_async = work.flop, work.warps_per_block, work.is_async
        self.depth = np.asarray(work.stages_in_flight, dtype=np.float64)
        self.unit = "matrix units" if work.has_matrix_units else "vector units"
        sm_flop_per_s = peak_flop_per_s / self.num_sms
        self.matrix_flop_per_s = sm_flop_per_s * reached * work.matrix_efficiency
        # Seconds for which one iteration of a block takes an SM's part of the power; 0 where power does not limit.
        self.power_s = np.where(np.less(powered, reached), self.flop / (sm_flop_per_s * powered), 0.0)
        self.resident = np.asarray(work.blocks_per_sm, dtype=np.float64)
        self.slots = self.num_sms * self.resident
        self.smem_s = work.smem_bytes / (assumed.smem_bytes_per_clk(gpu).value * clock)
        port = port_bytes_per_clk(gpu) * clock
        self.port_s = work.load_bytes / port
        self.issue_s = work.load_instructions * CLK_PER_LOAD / clock
        # More than one warp per partition: barriers take longer.
        warps = np.maximum(1.0, np.asarray(work.warps_per_block) / gpu.sm.num_partitions)
        self.overhead_s = ITERATION_CLK * warps / clock
        self.start_s = BLOCK_START_S * (1.0 - np.asarray(work.is_persistent, dtype=np.float64))
        self.store_s = work.store_bytes / port
        # A single warp alternates between loading fragments and multiplying; other warps of its partition fill the
        # gaps, and matrix instructions that read shared memory themselves leave none.
        alone_s = self.matrix_s(1.0)
        self.serial_s = alone_s / warps + np.where(work.is_async, 0.0, self.smem_s + self.issue_s)
        self._serial_power = _power(self.serial_s)
        # Without a prefetch, a block waits for its own loads and then computes, in every iteration.
        self.alone_s = overlap(alone_s, self.smem_s, self.port_s, self.issue_s, self.serial_s)
        self._full_power = self._busy_power(self.resident)

    @cached_property
    def _usual(self) -> _Waits:
        """Waits of blocks where a load takes the vendor's mean latency."""
        return _Waits(self, self.gpu.figure("dram_latency_s"))

    def of_grid(self, grid: GridWork) -> CostColumns:
        """Predicted times of grids of these blocks."""
        waits = self._usual if grid.load_latency_s is None else _Waits(self, grid.load_latency_s)
        num_blocks = np.asarray(grid.num_blocks, dtype=np.float64)
        full = np.floor(num_blocks / self.slots)
        tail_blocks = np.ceil((num_blocks - full * self.slots) / self.num_sms)
        wave_s = grid.iterations * waits.full_step_s + waits.full_edge_s
        # Blocks of an incomplete wave also have the power of the missing ones.
        working = (num_blocks - full * self.slots) / np.maximum(tail_blocks * self.num_sms, 1.0)
        tail_s = np.where(tail_blocks > 0, self._wave_s(tail_blocks, working, grid.iterations, waits), 0.0)
        sm_s = full * wave_s + tail_s
        device = _device_parts(self.gpu, grid)
        seconds = self.launch_s + overlap(sm_s, *device.values()) + grid.extra_s

        def parts() -> dict[str, Any]:
            num_waves = num_blocks / self.slots
            named = {name: part * num_waves for name, part in self._parts(grid.iterations, waits).items()}
            named = dict.fromkeys(PARTS[:2], 0.0) | named
            return named | {"wave quantisation": np.maximum(sm_s - num_waves * wave_s, 0.0)} | device

        return CostColumns(seconds, Later(parts))

    def matrix_s(self, blocks: Any) -> Any:
        """Seconds of one iteration's arithmetic for `blocks` resident on an SM."""
        busy = np.minimum(1.0, blocks * self.warps / self.gpu.sm.num_partitions)
        return blocks * self.flop / (self.matrix_flop_per_s * np.maximum(busy, 1e-9))

    def step_s(self, busy_power: Any, blocks: Any, waits: _Waits) -> Any:
        """Seconds of one iteration for `blocks` resident on an SM, from the p-norm terms of the busy units."""
        step_s = _root(busy_power + self._serial_power + waits.power)
        return step_s + self.overhead_s / blocks

    def full_step_s(self, waits: _Waits) -> Any:
        """Seconds of one iteration with all resident blocks of an SM."""
        return self.step_s(self._full_power, np.maximum(self.resident, 1.0), waits)

    def _busy_power(self, blocks: Any, working: Any = 1.0) -> Any:
        """p-norm terms of the busy units for `blocks` on each of the share of SMs that work."""
        each_s = (self.smem_s, self.port_s, self.issue_s, working * self.power_s)
        return _power(self.matrix_s(blocks)) + sum(_power(blocks * one_s) for one_s in each_s)

    def _wave_s(self, blocks: Any, working: Any, iterations: Any, waits: _Waits) -> Any:
        """Seconds of a whole wave of `blocks` on each of the share of SMs that work."""
        at_least_one = np.maximum(blocks, 1.0)
        step_s = self.step_s(self._busy_power(blocks, working), at_least_one, waits)
        return iterations * step_s + waits.edge_s / at_least_one

    def _parts(self, iterations: Any, waits: _Waits) -> dict[str, Any]:
        """Seconds of one full wave on one SM per resource."""
        serial_s = np.where(self.is_async, 0.0, self.serial_s)
        return {
            self.unit: iterations * np.maximum(self.matrix_s(self.resident), self.resident * self.power_s),
            "shared memory": iterations * self.resident * self.smem_s,
            "L2 port": iterations * self.resident * self.port_s,
            "load issue": iterations * self.resident * self.issue_s,
            "latency": iterations * np.maximum(waits.seconds, serial_s),
        }


class _Waits(ByRow):
    """Waits of blocks for a given latency of a load."""

    def __init__(self, blocks: BlockTimes, latency_s: Any) -> None:
        ahead_s = latency_s / np.maximum(blocks.depth, 1.0)
        self.seconds = np.where(blocks.depth > 0, ahead_s, latency_s + blocks.alone_s)
        self.power = _power(self.seconds)
        self.edge_s = blocks.start_s + latency_s + blocks.store_s
        self.full_step_s = blocks.full_step_s(self)
        self.full_edge_s = self.edge_s / np.maximum(blocks.resident, 1.0)


def _device_parts(gpu: GpuModel, work: GridWork) -> dict[str, Any]:
    """Seconds that each device-wide memory level needs for the grid's traffic."""
    l2_rate = work.l2_bytes_per_s
    last_level = last_level_bandwidth(gpu, _clock_hz(gpu))
    last_level_rate = None if last_level is None else last_level.value
    if l2_rate is None:
        l2_rate = l2_bytes_per_s(gpu)
    else:
        # One rate stands for both caches.
        last_level_rate = None
    return {
        # A cache of unknown bandwidth cannot bind: the SMs' ports stand for the L2, DRAM for the last level.
        "L2": 0.0 if l2_rate is None else work.l2_bytes / l2_rate,
        "last-level cache": 0.0 if last_level_rate is None else work.last_level_bytes / last_level_rate,
        "DRAM": work.dram_bytes / dram_bytes_per_s(gpu),
    }


#: Bytes of the widest load of one thread, on both vendors' parts.
WIDEST_LOAD_BYTES = 16


def streaming_cost(gpu: GpuModel, moved_bytes: float, threads_per_sm: Any) -> CostColumns:
    """Predict the time of kernels bound by streaming bytes through DRAM.

    By Little's law the bandwidth is reached when the bytes in flight are at least latency x bandwidth. Every resident
    thread is assumed to have one load of 16 bytes in flight.

    Args:
        gpu: The hardware model.
        moved_bytes: Bytes to and from DRAM.
        threads_per_sm: Threads that reside on one SM, per configuration.
    """
    bandwidth = dram_bytes_per_s(gpu)
    in_flight = gpu.device.sm_count * np.asarray(threads_per_sm, dtype=np.float64) * WIDEST_LOAD_BYTES
    latency_s = gpu.figure("dram_latency_s")
    share = np.minimum(1.0, np.maximum(in_flight, 1.0) / (bandwidth * latency_s))
    dram_s = np.full_like(share, moved_bytes / bandwidth)
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0) | {"DRAM": dram_s, "latency": dram_s / share - dram_s}
    return CostColumns(launch_s(gpu) + dram_s / share, parts)


@dataclass(frozen=True)
class GridLoad:
    """Load of a grid, known for any kernel: bytes and operations in total, and the number of blocks.

    Args:
        moved_bytes: Bytes to and from DRAM.
        num_operations: Floating or integer operations, a multiply-add being two; 0 where they are not counted.
        dtype: Type of the operands.
        num_blocks: Blocks of the grid, per configuration.
        threads_per_block: Threads of a block, per configuration.
    """

    moved_bytes: float
    num_operations: float
    dtype: str
    num_blocks: Any
    threads_per_block: Any


def grid_cost(gpu: GpuModel, load: GridLoad, blocks_per_sm: Any) -> CostColumns:
    """Predict the time of a kernel from its load alone.

    The load is divided evenly among blocks. Few blocks leave SMs idle and have few bytes in flight; the last, partial
    wave takes as long as a whole one; starting a block takes time.

    Args:
        gpu: The hardware model.
        load: Bytes, operations and blocks of the kernel.
        blocks_per_sm: Blocks that reside on one SM at once, per configuration.
    """
    num_blocks = np.maximum(np.asarray(load.num_blocks, dtype=np.float64), 1.0)
    per_sm = np.asarray(blocks_per_sm, dtype=np.float64)
    at_once = gpu.device.sm_count * per_sm
    resident = np.minimum(num_blocks, at_once)
    streamed = streaming_cost(gpu, load.moved_bytes, resident * load.threads_per_block / gpu.device.sm_count)
    peak = gpu.peak_flop_per_s(load.dtype) if load.num_operations else None
    busy = np.minimum(num_blocks, gpu.device.sm_count) / gpu.device.sm_count
    arithmetic_s = load.num_operations / peak / busy if peak else np.zeros_like(busy)
    work_s = np.maximum(streamed.seconds - launch_s(gpu), arithmetic_s)
    waves = np.ceil(num_blocks / at_once)
    quantisation_s = work_s * np.where(waves > 1, waves * at_once / num_blocks - 1.0, 0.0)
    quantisation_s = quantisation_s + (waves - 1) * BLOCK_START_S / per_sm
    units = "matrix units" if load.dtype in gpu.compute.matrix_flop_per_s else "vector units"
    parts = {**streamed.parts_s, units: arithmetic_s, "wave quantisation": quantisation_s}
    return CostColumns(launch_s(gpu) + work_s + quantisation_s, parts)
