"""Predicted time of the CUDA GEMM: rounds of tiles on the busiest SM, each the sum of its slices and its epilogue.

The time of a slice is the largest of five: its matrix instructions, the bytes that arrive at the SM, the lines that the
L2 delivers (a cluster loads shared slices once), the load latency that the ring does not hide, and the time between two
slices of one consumer. The epilogue stores boxes through the TMA unit, stores results by threads, or hands partial sums
over to another block. DRAM reads operands and writes results in parallel. `constants.json` states the source of each
constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.hwmodels.assumed import sustained_matrix_fraction
from constrint.kernels.gemm.cuda.shape import (
    LINE_BYTES,
    ROWS,
    WARPGROUP,
    WARPGROUP_WARPS,
    WgmmaTile,
    cluster_slots,
    depth,
    leaves_plainly,
    promotes,
    slice_bytes,
    turns_of_sums,
)
from constrint.kernels.gemm.epilogue.compiled import SUMS_BESIDE_SOURCE
from constrint.kernels.gemm.measured import read_constants
from constrint.kernels.gemm.product import MatrixLayout, Product, activation_clk, end_clk
from constrint.kernels.gemm.spec import matrix_peak_flop_per_s
from constrint.kernels.gemm.units import ELEMENT_BYTES, PARTIAL_BYTES
from constrint.select.candidate import Config
from constrint.select.cost import (
    FITTED_SHARE,
    PARTS,
    CostColumns,
    Later,
    dram_bytes_per_s,
    launch_offset_s,
    loaded_clock_hz,
    overlap,
)
from constrint.select.spec import Columns
from constrint.select.tile_work import derived

FILE = Path(__file__).with_name("constants.json")


@dataclass(frozen=True)
class CudaConstants:
    """The constants of `constants.json`, which states the meaning and the source of each; units are suffixes."""

    measured: str
    launch_s: float
    cluster_s: float
    latency_s: float
    matrix_share: float
    instruction_read_clk: float
    column_read_clk: float
    step_clk: float
    instruction_clk: float
    cluster_step_clk: float
    port_bytes_per_clk: float
    l2_bytes_per_clk: float
    straddle_share: float
    tile_clk: float
    box_clk: float
    odd_clk: float
    partial_share: float
    hand_over_s: float
    hand_over_bytes_per_clk: float
    sum_turn_s: float
    dram_share: float
    batch_dram_share: float
    result_share: float
    batch_result_share: float
    boundary_bytes: float
    kept_share: float


CONSTANTS = read_constants(CudaConstants, FILE)
ASSUMED = read_constants(CudaConstants, FILE, assumed=True)

#: Vectors of results that threads could store in the time in which they load one of the source matrix, element by
#: element (168x128 turned with c: 181 us where none takes 61, 8192x3072x768 bf16 on an H100).
SOURCE_TURNS = 4
#: Bytes of a result that the TMA unit stores.
BOX_ELEMENT_BYTES = 2
#: Bytes that L2 and DRAM write at once, and bytes that the TMA unit stores at once.
SECTOR_BYTES, ROW_BYTES = 32, 16
#: Matrix instructions of a slice along K: each takes 32 of its 128 bytes.
INSTRUCTIONS = 4
#: Epilogue by threads: rows of wgmma of a warp, columns that a warp stores at a time (where turned, all warps of a
#: consumer store them together), and results of one vector store.
WARP_ROWS, WARP_COLUMNS, VECTOR = ROWS // WARPGROUP_WARPS, 24, 4
#: `group_m` of configurations whose order of tiles is still open.
USUAL_GROUP = 8.0
#: Parameters that the time of a product depends on beside the time of a step.
TIMING_PARAMS = ("tile_m", "tile_n", "cluster_m", "cluster_n", "in_turns", "split_k", "only_last", "turned")


def cuda_cost(
    gpu: GpuModel,
    product: Product,
    columns: Columns,
    blocks_per_sm: NDArray[Any],
    constants: CudaConstants = CONSTANTS,
) -> CostColumns:
    """Predicted time of every configuration; the order of tiles makes no difference here."""

    def model(columns: Columns, blocks_per_sm: NDArray[Any]) -> CudaModel:
        return CudaModel(gpu, product, columns, constants)

    key = "cuda", product.dtype, product.a, product.b, leaves_plainly(product), product.batch > 1, id(constants)
    return derived(columns, blocks_per_sm, key, model).cost(product)


def leading_rows(gpu: GpuModel, product: Product, columns: Columns) -> NDArray[np.int64]:
    """Return the rows with the shortest step among configurations that differ only in how consumers share a tile.

    For products of any size, all other times of the model are equal in such configurations.
    """
    model = CudaModel(gpu, product, columns, CONSTANTS)
    ends = model.store_clk, model.stored_turns, model.sum_turns
    same = np.stack([*(np.asarray(columns[name], dtype=np.float64) for name in TIMING_PARAMS), *ends])
    order = np.lexsort([model.step_clk, *same])
    sorted_ = same[:, order]
    is_first = np.concatenate([[True], (sorted_[:, 1:] != sorted_[:, :-1]).any(axis=0)])
    return np.sort(order[is_first])


class CudaModel:
    """Predicted times of configurations on a GPU, for all products with one dtype and equal layouts.

    Args:
        gpu: The hardware model.
        product: Any of these products; its dtype, layouts and epilogue count.
        columns: Parameters, per configuration.
        constants: The constants.
    """

    def __init__(self, gpu: GpuModel, product: Product, columns: Columns, constants: CudaConstants) -> None:
        whole = {name: np.asarray(column, dtype=np.int64) for name, column in columns.items()}
        # Numbers stay far below 2^53, so that ceilings of quotients of floats are exact; integers divide slowly.
        c = {name: column.astype(np.float64) for name, column in whole.items()}
        self.gpu, self.dtype, self.constants = gpu, product.dtype, constants
        self.clock = loaded_clock_hz(gpu, product.dtype)
        is_batch = product.batch > 1
        self.dram_rate = dram_bytes_per_s(gpu, constants.batch_dram_share if is_batch else constants.dram_share)
        self.result_share = constants.batch_result_share if is_batch else constants.result_share
        self.l2_size = max(1.0, assumed.l2_bytes(gpu).value)
        self.shape = WgmmaTile.of(whole)
        self.parts = c["split_k"]
        self.over_m, self.over_n = c["tile_m"] * c["cluster_m"], c["tile_n"] * c["cluster_n"]
        self.cluster = self.shape.cluster.astype(np.float64)
        self.slots = np.asarray(cluster_slots(gpu, self.shape.cluster), dtype=np.float64)
        self.in_turns, self.only_last = whole["in_turns"] > 0, whole["only_last"] > 0
        self.is_turned = whole["turned"] > 0
        self.group = c.get("group_m", USUAL_GROUP)
        self.is_split = self.parts > 1
        self.has_turns, self.has_splits = bool(self.in_turns.any()), bool(self.is_split.any())
        sums = c["tile_m"] * c["tile_n"]
        self.matrix_clk = self._matrix_clk()
        sides = (("m", "n", product.a), ("n", "m", product.b))
        taken = [_slice_bytes(c[f"tile_{own}"], operand, product.dtype, constants) for own, _, operand in sides]
        self.port_clk = sum(bytes_ for bytes_, _ in taken) / constants.port_bytes_per_clk
        # Blocks side by side in a cluster share A's slice; blocks above each other share B's slice.
        l2_bytes = sum(lines / c[f"cluster_{other}"] for (_, lines), (_, other, _) in zip(taken, sides, strict=True))
        self.l2_clk = l2_bytes / constants.l2_bytes_per_clk
        self.latency_clk = (constants.latency_s * self.clock + self.port_clk) / np.maximum(1, c["num_stages"] - 1)
        self.step_clk = np.maximum(overlap(self.matrix_clk, self.port_clk, self.l2_clk), self.latency_clk)
        self.step_clk = self.step_clk + constants.cluster_step_clk * (self.cluster > 1)
        # Each part of a split tile stores its sums. The last one reads all of them in batches, each an L2 latency.
        self.part_clk = sums * PARTIAL_BYTES / constants.hand_over_bytes_per_clk
        self.is_plain = leaves_plainly(product)
        own = whole["consumers"], np.asarray(self.shape.sums), whole["split_k"]
        self.sum_turns = turns_of_sums(gpu, *own, is_plain=self.is_plain).astype(np.float64)
        self.finish_clk = self.parts * self.part_clk + self.sum_turns * (constants.sum_turn_s * self.clock)
        # A consumer stores boxes of 64 by 64 results in sequence.
        blocks = self.shape.own_rows // ROWS
        boxes = blocks * -(-self.shape.own_columns // ROWS)
        self.tile_n = c["tile_n"]
        partial = self.tile_n * 2 % SECTOR_BYTES > 0
        self.store_clk = boxes * constants.box_clk * (1 + constants.partial_share * partial)
        # Without boxes, its threads store one result at a time each.
        by_warp = -(-self.shape.own_columns // WARP_COLUMNS) * (ROWS * WARP_COLUMNS // WARPGROUP)
        by_all = self.shape.own_columns * (ROWS / WARPGROUP)
        self.stored_turns = blocks * np.where(self.is_turned, by_all, by_warp)
        self.tile, self.sums = sums, sums * self.cluster
        self.start_s = constants.launch_s + launch_offset_s(gpu) + constants.cluster_s * (self.cluster > 1)

    def _matrix_clk(self) -> Any:
        """Clocks of the matrix instructions of one slice: of all consumers, or of one consumer's chain if longer.

        A consumer waits for a slice, issues its instructions and releases the slice. Other consumers of the tile
        compute in the meantime.
        """
        constants, own = self.constants, self.shape.own_columns
        share = constants.matrix_share * (sustained_matrix_fraction(self.gpu, self.dtype) / FITTED_SHARE)
        peak = matrix_peak_flop_per_s(self.gpu, self.dtype) / self.gpu.device.sm_count / self.clock
        multiply = 2 * ROWS * own * (depth(self.dtype) // INSTRUCTIONS) / (peak * share)
        read = constants.instruction_read_clk + constants.column_read_clk * own
        number = INSTRUCTIONS * (self.shape.rows // ROWS) * self.shape.by_columns
        at_once = self.shape.sharing * self.shape.by_columns
        clk = overlap(
            number * np.maximum(multiply, read), constants.step_clk + number / at_once * constants.instruction_clk
        )
        if promotes(self.dtype):
            # While one consumer promotes its sums, another one may use the matrix units.
            clk = clk * np.where((self.shape.consumers > 1) & ~self.in_turns, 1.1, 1.6)
        return clk

    def _tiles(self, p: Product) -> tuple[Any, Any]:
        """Rows and columns of tiles of one product."""
        return np.ceil(p.m / self.over_m), np.ceil(p.n / self.over_n)

    def cost(self, p: Product) -> CostColumns:
        """Predicted time of every configuration for one product."""
        constants = self.constants
        steps = float(-(-p.k // depth(self.dtype)))
        rows, columns = self._tiles(p)
        tiles = rows * columns * p.batch
        store = self._store_clk(p) + constants.tile_clk
        bytes_ = p.batch * (self._again_bytes(p, rows, columns) + self._boundary_bytes(p, columns))
        dram_clk = self._dram_clk(p) + bytes_ * (self.clock / self.dram_rate)
        full = tiles / self.slots
        if self.has_splits:
            whole = np.where(self.is_split, np.where(self.only_last, np.floor(full), 0.0) * self.slots, tiles)
            rounds = np.ceil(whole / self.slots)
            part_rounds = np.ceil((tiles - whole) * self.parts / self.slots)
            main = (rounds * steps + part_rounds * np.ceil(steps / self.parts)) * self.step_clk
            # In each round of parts one block finishes a tile: it reads the sums of all parts and stores the result.
            # Blocks of the next tile wait for it.
            hand_over = self.part_clk + constants.hand_over_s * self.clock
            finish = np.where(self.is_split, self.finish_clk + store, 0.0)
            ends = rounds * store + part_rounds * (hand_over + finish)
            # Sums that the L2 does not hold go to the DRAM and come back.
            left = (tiles - whole) * self.parts * self.sums * PARTIAL_BYTES
            dram_clk = dram_clk + 2 * np.maximum(left - self.l2_size, 0.0) * (self.clock / self.dram_rate)
            units = rounds + part_rounds
        else:
            units = np.ceil(full)
            main, ends = units * (steps * self.step_clk), units * store
        sm_clk = main + ends
        if self.has_turns:
            # One consumer stores while the other multiplies, so that only the last epilogue or the longer part counts.
            each = (main + ends) / units
            turns = np.maximum(main + ends / units, np.ceil(units / 2) * each)
            # What is done with sums is not hidden: instructions of one consumer keep the matrix units of the other one
            # from its registers (gelu on 128x128 in turns took 13 us more, 8192x3072x768 bf16 on an H100).
            turns = turns + np.maximum(units - 1, 0.0) * (self.tile * activation_clk(self.gpu, p))
            sm_clk = np.where(self.in_turns, turns, sm_clk)
        sm_clk = overlap(sm_clk, dram_clk) + constants.latency_s * self.clock
        sm_s = sm_clk / self.clock
        seconds = self.start_s + sm_s

        def parts() -> dict[str, Any]:
            # Seconds of each resource if the grid's steps were spread evenly over all SMs.
            each = tiles * self.shape.cluster * steps / self.gpu.device.sm_count / self.clock
            clks = {"matrix units": self.matrix_clk, "L2 port": self.port_clk, "latency": self.latency_clk}
            shared = {name: each * clk for name, clk in clks.items()} | {"L2": each * self.l2_clk}
            busiest = np.maximum.reduce(list(shared.values()))
            rest = {"wave quantisation": np.maximum(sm_s - busiest, 0.0), "DRAM": dram_clk / self.clock}
            return dict.fromkeys(PARTS, 0.0) | shared | rest

        return CostColumns(np.asarray(seconds, dtype=np.float64), Later(parts))

    def _again_bytes(self, p: Product, row_tiles: Any, column_tiles: Any) -> Any:
        """Bytes that DRAM delivers again because the L2 has evicted them between two groups of rows of tiles.

        Every group reads the whole operand of wgmma's columns. Between two reads of a line, the group reads the rest of
        that operand and its share of the other one, and writes its results.
        """
        groups = np.ceil(np.where(self.is_turned, column_tiles, row_tiles) / self.group)
        element = ELEMENT_BYTES[p.dtype]
        of_a, of_b, results = (float(x) for x in (p.m * p.k * element, p.n * p.k * element, p.m * p.n * p.output_bytes))
        again = np.where(self.is_turned, of_a, of_b)
        between = again + (of_a + of_b - again + results) / groups
        missed = np.clip(between / (self.l2_size * self.constants.kept_share) - 1, 0.0, 1.0)
        return (groups - 1) * again * missed

    def _store_clk(self, p: Product) -> Any:
        """Clocks in which a consumer stores a tile: in boxes through the TMA unit, or by its threads.

        Boxes and vectors need rows of C that are multiples of 16 bytes. Threads skip rows of a tile beyond C's last.
        What is done with sums takes instructions that no matrix instruction of the same tile covers.
        """
        is_odd = p.n * p.output_bytes % ROW_BYTES > 0
        activated = self.tile * activation_clk(self.gpu, p)
        in_boxes = p.output_bytes == BOX_ELEMENT_BYTES and not is_odd
        if in_boxes and not p.has_source:
            return self.store_clk + self.tile * end_clk(self.gpu, p)
        rows = np.where(self.is_turned, np.minimum(1.0, p.m / self.shape.own_columns), min(1.0, p.m / WARP_ROWS))
        turns = self.stored_turns * rows * (1 + SOURCE_TURNS * p.has_source)
        by_threads = turns * (self.constants.odd_clk / (1 if is_odd else VECTOR)) + activated
        if not in_boxes:
            return by_threads
        # A source matrix is added to sums in the order of wgmma where its rows lie as C's do and registers are left.
        is_full = np.asarray(self.shape.sums) > SUMS_BESIDE_SOURCE
        return np.where(self.is_turned | is_full, by_threads, self.store_clk + self.tile * end_clk(self.gpu, p))

    def _boundary_bytes(self, p: Product, column_tiles: Any) -> Any:
        """Extra bytes of DRAM where two tiles or two rows of C meet within one sector."""
        is_within = (self.tile_n * p.output_bytes % SECTOR_BYTES > 0) | (p.n * p.output_bytes % SECTOR_BYTES > 0)
        return is_within * column_tiles * (p.m * self.constants.boundary_bytes)

    def _dram_clk(self, p: Product) -> float:
        """Clocks of DRAM to read the operands and to write the share of results that reaches it."""
        rows_read = sum(size * (1 if side.is_shared else p.batch) for size, side in ((p.m, p.a), (p.n, p.b)))
        operands = float(rows_read * p.k * ELEMENT_BYTES[p.dtype])
        results = float(p.batch * p.m * p.n * p.output_bytes)
        bytes_ = operands + results * (self.result_share + p.has_source)
        return bytes_ / self.dram_rate * self.clock


def _slice_bytes(width: Any, operand: MatrixLayout, dtype: str, constants: CudaConstants) -> tuple[Any, Any]:
    """Return the bytes of one operand's slice, and the bytes of L2 lines that hold it.

    A row of 128 bytes that does not start at a line of the L2 lies in two lines.
    """
    bytes_ = slice_bytes(width, dtype, is_k_major=operand.is_k_major)
    if operand.is_k_major:
        return bytes_, bytes_
    start = np.gcd(np.asarray(width, np.int64) * ELEMENT_BYTES[dtype], operand.step_bytes)
    return bytes_, bytes_ * (1 + constants.straddle_share * (1 - start / LINE_BYTES))


def figures_of(gpu: GpuModel, p: Product, config: Config) -> dict[str, float]:
    """Return figures that explain a configuration's time, by names with units; shares are fractions of 1.

    `rounds`: tiles, or parts of tiles, that the busiest SM computes in sequence. `results_share`: the share of all
    computed elements that belongs to C. `l2_slice_bytes`: bytes that the L2 delivers for a slice of a block, with
    slices that a cluster shares counted once.
    """
    shape = WgmmaTile.of(config)
    over_m, over_n = config["tile_m"] * config["cluster_m"], config["tile_n"] * config["cluster_n"]
    tiles = -(-p.m // over_m) * -(-p.n // over_n) * p.batch
    slots = int(cluster_slots(gpu, shape.cluster))
    whole = tiles if config["split_k"] == 1 else tiles // slots * slots if config["only_last"] else 0
    units = whole + (tiles - whole) * config["split_k"]
    rounds = -(-units // slots)
    # A round of parts of tiles takes a share of one of tiles.
    in_tiles = -(-whole // slots) + -(-(units - whole) // slots) / config["split_k"]
    of_a = slice_bytes(config["tile_m"], p.dtype, is_k_major=p.a.is_k_major)
    of_b = slice_bytes(config["tile_n"], p.dtype, is_k_major=p.b.is_k_major)
    one = {name: np.array([value]) for name, value in config.items()}
    model = CudaModel(gpu, p, one, CONSTANTS)
    clks = {"matrix": model.matrix_clk, "l2": model.l2_clk, "port": model.port_clk, "latency": model.latency_clk}
    return {
        "clusters": tiles,
        "clusters_at_once": slots,
        "rounds": rounds,
        "results_share": p.batch * p.m * p.n / (in_tiles * slots * over_m * over_n),
        "slice_bytes": of_a + of_b,
        "l2_slice_bytes": of_a / config["cluster_n"] + of_b / config["cluster_m"],
        "num_stages": config["num_stages"],
        **{f"{name}_clk_per_slice": float(clk[0]) for name, clk in clks.items()},
    }
