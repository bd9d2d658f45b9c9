"""Predicted time of the descriptor (TMA) GEMM kernel.

A block's step takes what its matrix instructions take, or what its loads' latency leaves exposed; steps, epilogues
and waves add up to the grid's time, beside which DRAM works. The constants are fitted to kernels measured on one H200
(`benchmarks/fit_descriptor_cost.py`); on other GPUs they are scaled by clock, SMs and bandwidth alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.descriptor import ROW_ALIGNMENT_BYTES, needs_k_major, promotion_interval, rest_columns
from constrint.kernels.gemm.producer import sums_in_turns
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    LINE_BYTES,
    OUTPUT_BYTES,
    PARTIAL_BYTES,
    SECTOR_BYTES,
    row_major,
    unit,
)
from constrint.select.cost import ASSUMED_CLOCK_HZ, PARTS, CostColumns
from constrint.select.spec import Columns, Workload


@dataclass(frozen=True)
class DescriptorConstants:
    """What no vendor publishes; fitted, except where a line says otherwise.

    Args:
        launch_s: Start of the kernel, its first loads and its drain.
        latency_s: From a TMA load's issue to its arrival, under load.
        wave_s: To replace finished blocks by new ones and fill their pipelines.
        load_bytes_per_clk: Operand bytes that the TMA unit brings to one SM per clock.
        line_bytes: A shorter row of an operand tile takes as long as one of this length: a line of the L2, not fitted.
        warpgroup_clk: Clocks per step for every warpgroup beyond the first to meet the others.
        epilogue_bytes_per_clk: Output that a persistent block stores per clock between two tiles.
        subtile_epilogue: How much slower that is in two halves.
        hand_over_s: Atomic and re-read of a split-K tile.
        hand_over_bytes_per_clk: Partial sums that an SM stores or reads per clock.
        matrix_share: Share of the data sheet's peak that wgmma and tcgen05 would reach on tiles of endless rows.
        fallback_share: What mma.sync reaches of that, on any tile.
        read_columns: Tile columns whose arithmetic takes wgmma as long as to read A's slice, which it does beside it.
        dram_share: Share of the data sheet's bandwidth.
        short_rows: How it falls with rows of a tile shorter than 256 bytes: the exponent of their length.
        pack_s: To start the copy of misaligned operands.
        pack_share: Share of the data sheet's bandwidth that the copy reaches.
        split_sectors: How much longer loads of rows take that start at odd multiples of 16 bytes. Measured, like the
            next one and the two before, not fitted (1000^3 with padded and unpadded rows).
        split_lines: The same for rows that start within lines of the L2, but not within sectors.
        promoted_share: What wgmma reaches of its rate where a block alone on its SM waits for each step's sums to add
            them up. Set by a few kernels of fp8 on the same H200 (`gemm_candidates_fp8_tf32.csv`).
        producer_s: To start a producer warp and its consumers. Fitted, like the next three, to measurements of its
            own (the same H200; `benchmarks/results/h200/gemm_producer_tiles.csv`).
        producer_read_columns: `read_columns` beside a producer.
        producer_share: `matrix_share` beside a producer.
        producer_bytes_per_clk: Output stored per clock between two tiles that the consumers share.
    """

    launch_s: float = 5.84e-6
    latency_s: float = 0.692e-6
    wave_s: float = 2.32e-6
    load_bytes_per_clk: float = 107.0
    line_bytes: float = 128.0
    warpgroup_clk: float = 88.9
    epilogue_bytes_per_clk: float = 57.0
    subtile_epilogue: float = 1.47
    hand_over_s: float = 1.1e-6
    hand_over_bytes_per_clk: float = 29.7
    matrix_share: float = 1.11
    fallback_share: float = 0.249
    read_columns: float = 26.5
    dram_share: float = 0.79
    short_rows: float = 0.126
    pack_s: float = 2.1e-6
    pack_share: float = 0.8
    split_sectors: float = 2.2
    split_lines: float = 1.35
    promoted_share: float = 0.6
    producer_s: float = 0.54e-6
    producer_read_columns: float = 9.0
    producer_share: float = 0.978
    producer_bytes_per_clk: float = 42.3

    def straddling(self, step_bytes: int) -> float:
        """How much longer loads of rows take whose starts are multiples of no more than so many bytes."""
        if step_bytes >= self.line_bytes:
            return 1.0
        return self.split_lines if step_bytes >= SECTOR_BYTES else self.split_sectors


MEASURED = DescriptorConstants()


@dataclass(frozen=True)
class Packing:
    """Bytes of the operands that have to be copied before the TMA unit can load them."""

    num_bytes: int = 0

    @staticmethod
    def of(workload: Workload) -> Packing:
        """What row-major operands of this workload need."""
        m, n, k = (workload.sizes[s] for s in ("m", "n", "k"))
        element = ELEMENT_BYTES[workload.dtype]
        is_a_packed = k * element % ROW_ALIGNMENT_BYTES != 0
        is_b_packed = n * element % ROW_ALIGNMENT_BYTES != 0 or needs_k_major(workload.dtype)
        return Packing(element * (m * k * is_a_packed + k * n * is_b_packed))


def row_major_steps(workload: Workload) -> tuple[int, int]:
    """What rows of row-major A and B start at multiples of, up to a line: as they are, or as they are copied."""
    a_step, b_step = row_major(workload).steps
    is_b_copied = needs_k_major(workload.dtype) or b_step % ROW_ALIGNMENT_BYTES
    return LINE_BYTES if a_step % ROW_ALIGNMENT_BYTES else a_step, LINE_BYTES if is_b_copied else b_step


def descriptor_cost(
    gpu: GpuModel,
    workload: Workload,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    *,
    batch: int = 1,
    packing: Packing | None = None,
    is_a_k_major: bool = True,
    is_b_k_major: bool = False,
    steps: tuple[int, int] | None = None,
    constants: DescriptorConstants = MEASURED,
) -> CostColumns:
    """Predicted time of every configuration of the descriptor kernel; the order of tiles makes no difference here.

    Args:
        gpu: The hardware model.
        workload: Sizes of one product, and the dtype.
        columns: Parameters, per configuration.
        blocks_per_sm: Blocks that reside on one SM.
        batch: Products in one launch.
        packing: What is copied first; what row-major operands need if None.
        is_a_k_major, is_b_k_major: Whether A, whether B is contiguous along K.
        steps: Bytes, up to a line of 128, that all rows of A, of B start at multiples of; as copied, or as they are in
            row-major operands, if None.
        constants: The fitted figures.
    """
    dtype = workload.dtype
    peak = gpu.peak_flop_per_s(dtype)
    if peak is None:
        raise UnsupportedError(
            f"the peak rate of {gpu.name} for {workload.dtype} is unconfirmed: no time can be modelled."
        )
    k_major = (is_a_k_major or needs_k_major(dtype), is_b_k_major or needs_k_major(dtype))
    a_step, b_step = steps or row_major_steps(workload)
    straddling = (constants.straddling(a_step), constants.straddling(b_step))
    work = _Work(gpu, workload, columns, blocks_per_sm, batch, constants, peak, k_major, straddling)
    sm_s = work.sm_s()
    bandwidth = gpu.memory.dram.bandwidth_bytes_per_s
    dram_s = work.moved_bytes / (bandwidth * constants.dram_share)
    packed = (packing or Packing.of(workload)).num_bytes * batch
    pack_s = constants.pack_s + 2 * packed / (bandwidth * constants.pack_share) if packed else 0.0
    launch_s = constants.launch_s + work.has_producer * constants.producer_s
    seconds = launch_s + _overlap(sm_s, dram_s) + work.hand_over_s() + pack_s
    parts: dict[str, Any] = dict.fromkeys(PARTS, 0.0)
    shared = {"matrix units": work.shared_s(work.matrix), "L2 port": work.shared_s(work.load)}
    parts |= shared | {"latency": work.shared_s(work.latency / work.resident), "DRAM": dram_s}
    busiest = np.maximum(np.maximum(*shared.values()), parts["latency"])
    parts["wave quantisation"] = np.maximum(sm_s - busiest, 0.0)
    return CostColumns(seconds, parts)


def _overlap(*times: Any) -> Any:
    """Time of resources that work at once: a p-norm, p = 3 (chosen, not fitted)."""
    return np.cbrt(sum(time * time * time for time in times))


class _Work:
    """Clocks of one block and seconds of the grid, per configuration."""

    def __init__(
        self,
        gpu: GpuModel,
        workload: Workload,
        columns: Columns,
        blocks_per_sm: NDArray[Any],
        batch: int,
        constants: DescriptorConstants,
        peak: float,
        k_major: tuple[bool, bool],
        straddling: tuple[float, float],
    ) -> None:
        c = {name: np.asarray(column, dtype=np.float64) for name, column in columns.items()}
        m, n, k, dtype = *(workload.sizes[s] for s in ("m", "n", "k")), workload.dtype
        self.constants, self.clock, self.num_sms = (
            constants,
            gpu.device.boost_clock_hz or ASSUMED_CLOCK_HZ,
            gpu.device.sm_count,
        )
        self.area, self.splits = c["tile_m"] * c["tile_n"], c["split_k"]
        self.tiles = np.ceil(m / c["tile_m"]) * np.ceil(n / c["tile_n"]) * batch
        self.blocks = self.tiles * self.splits
        self.steps = np.ceil(np.ceil(k / c["tile_k"]) / self.splits)
        self.is_persistent = c["persistent"] > 0
        self.resident = np.where(self.is_persistent, 1.0, np.maximum(blocks_per_sm, 1.0))
        most_warps = 8 if unit(gpu, workload.dtype).kind == "tcgen05" else 16
        is_direct = (c["tile_m"] >= 64) & (c["num_warps"] >= 4) & (c["num_warps"] <= most_warps)
        rest = rest_columns(c["tile_n"])
        parts = (c["tile_n"] - rest, rest)
        self.has_producer = c.get("producer", np.zeros_like(self.area)) > 0
        # Every part of a tile reads A's slice again.
        read = np.where(self.has_producer, constants.producer_read_columns, constants.read_columns)
        busy = sum(np.where(part > 0, part + read, 0.0) for part in parts)
        share = np.where(self.has_producer, constants.producer_share, constants.matrix_share)
        clk = 2 * c["tile_m"] * c["tile_k"] / (peak / self.num_sms / self.clock * share)
        self.matrix = clk * np.where(is_direct, busy, c["tile_n"] / constants.fallback_share)
        if promotion_interval(gpu, dtype, 1) is not None:
            # Another block multiplies meanwhile.
            waited = constants.promoted_share ** (1 / np.minimum(self.resident, 2.0))
            self.matrix /= np.where(self.has_producer, 1.0, waited)
        # A producer's consumers do not meet.
        meeting = np.where(self.has_producer, 0.0, np.maximum(0.0, c["num_warps"] / 4 - 1))
        self.matrix += constants.warpgroup_clk * meeting
        element = ELEMENT_BYTES[workload.dtype]
        loaded: Any = 0.0
        of_b = ((part, n, k_major[1], straddling[1]) for part in parts)
        for width, size, is_k_major, longer in ((c["tile_m"], m, k_major[0], straddling[0]), *of_b):
            rows = np.minimum(width, size)
            line = (c["tile_k"] if is_k_major else np.maximum(rows, 1.0)) * element
            loaded = loaded + longer * rows * np.maximum(1.0, constants.line_bytes / line)
        self.moved_bytes: Any = batch * m * n * OUTPUT_BYTES[workload.dtype]
        for width, size, is_k_major in ((c["tile_m"], m, k_major[0]), (parts[0], n, k_major[1])):
            line = (c["tile_k"] if is_k_major else np.minimum(width, size)) * element
            slow = np.maximum(1.0, 2 * constants.line_bytes / line) ** constants.short_rows
            self.moved_bytes = self.moved_bytes + batch * size * k * element * slow
        self.load = c["tile_k"] * element * loaded / constants.load_bytes_per_clk
        # A stage's round trip, in which its bytes take their turn, is covered by the stages ahead of it.
        self.latency = (constants.latency_s * self.clock + self.load) / np.maximum(1.0, c["num_stages"] - 1)
        # Fewer warps than the SM has partitions leave some idle, unless other blocks use them.
        self.alone = np.maximum(1.0, 4 / c["num_warps"])
        subtile = np.where(c["epilogue_subtile"] > 1, constants.subtile_epilogue, 1.0)
        rate = np.where(self.has_producer, constants.producer_bytes_per_clk, constants.epilogue_bytes_per_clk / subtile)
        # Where consumers take turns, one stores while the other multiplies.
        is_hidden = self.has_producer & (self.area <= sums_in_turns(dtype))
        self.between = np.where(is_hidden, 0.0, self.area * OUTPUT_BYTES[dtype] / rate)

    def sm_s(self) -> Any:
        """Seconds of the busiest SM: whole waves and the rest, or the tiles of a persistent block."""
        slots = self.num_sms * self.resident
        full = np.floor(self.blocks / slots)
        rest = np.ceil((self.blocks - full * slots) / self.num_sms)
        tail = np.where(rest > 0, self._wave(np.maximum(rest, 1.0)), 0.0)
        waves = full * (self._wave(self.resident) + self.constants.wave_s * self.clock) + tail
        walked = np.ceil(self.tiles / self.num_sms) * (
            self.steps * _overlap(self.alone * self.matrix, self.load, self.latency) + self.between
        )
        return np.where(self.is_persistent, walked, waves) / self.clock

    def _wave(self, resident: Any) -> Any:
        matrix = np.maximum(resident, self.alone) * self.matrix
        return self.steps * _overlap(matrix, resident * self.load, self.latency)

    def hand_over_s(self) -> Any:
        """Seconds for partial sums to go out and come back, where K is split."""
        rate = self.constants.hand_over_bytes_per_clk * self.clock
        partial = self.area * PARTIAL_BYTES
        moved_s = 2 * self.blocks * partial / (rate * self.num_sms) + self.splits * partial / rate
        return np.where(self.splits > 1, self.constants.hand_over_s + moved_s, 0.0)

    def shared_s(self, clocks: Any) -> Any:
        """Seconds if every step took these clocks of an SM, nothing else mattered and all SMs had the same to do."""
        return self.blocks * self.steps * clocks / self.num_sms / self.clock
