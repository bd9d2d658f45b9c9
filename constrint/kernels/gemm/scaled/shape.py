"""The tile of a configuration in terms of wgmma, its ring, the rules that follow, and a block's resources. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import WARPGROUP_WARPS, launched_registers
from constrint.model import any_of, ceildiv, implies
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Depth of a slice, which is that of a block of scales, and rows of a consumer.
DEPTH, OWN_ROWS = 128, 64
#: Columns of C that share a scale of B.
BLOCK = 128
#: Alignment of the ring, and static memory of barriers and flags.
RING_ALIGNMENT, STATIC_BYTES = 1024, 256
#: The deepest ring.
MOST_STAGES = 8
#: Sums of a thread and their products take as many registers as a slice's columns: with up to two consumers, and three.
MOST_COLUMNS, MOST_COLUMNS_OF_THREE = 192, 128
#: Columns with scales of their own, which take registers for this slice and the next: with two consumers, and three.
MOST_SCALED_COLUMNS, MOST_SCALED_OF_THREE = 64, 48
#: Most blocks of a cluster.
MOST_BLOCKS = 2
MAX_UNITS = 2**31 - 1


def columns_of(v: Mapping[str, Any]) -> Any:
    """Columns of wgmma in a tile: columns of C, or rows of C where the kernel is turned."""
    return v["tile_n"] + v["turned"] * (v["tile_m"] - v["tile_n"])


def rows_of(v: Mapping[str, Any]) -> Any:
    """Rows of wgmma in a tile."""
    return v["tile_m"] + v["turned"] * (v["tile_n"] - v["tile_m"])


def clusters_of(v: Mapping[str, Any]) -> tuple[Any, Any]:
    """Blocks of a cluster across wgmma's rows, which share columns, and across its columns, which share rows."""
    over_rows = v["cluster_m"] + v["turned"] * (v["cluster_n"] - v["cluster_m"])
    return over_rows, v["cluster_n"] + v["turned"] * (v["cluster_m"] - v["cluster_n"])


def stage_bytes(v: Mapping[str, Any]) -> Any:
    """Bytes of a stage."""
    return (rows_of(v) + columns_of(v)) * DEPTH


def dynamic_smem_bytes(v: Mapping[str, Any]) -> Any:
    """Dynamic shared memory of a block."""
    return RING_ALIGNMENT + v["num_stages"] * stage_bytes(v)


def block_use(gpu: GpuModel, v: Vars) -> BlockUse:
    """Warps with the producer's, registers and shared memory of one block; nothing of it is estimated."""
    registers = launched_registers(gpu, v["consumers"])
    return BlockUse(
        warps=WARPGROUP_WARPS * (v["consumers"] + 1),
        registers_per_thread=registers,
        smem_bytes=dynamic_smem_bytes(v) + STATIC_BYTES,
        least_registers=registers,
        spilling=None,
    )


def rules(gpu: GpuModel, sizes: Mapping[str, int], v: Vars, *, in_blocks: bool) -> Iterator[Rule]:
    """Every rule of the kernel."""
    columns, rows = columns_of(v), rows_of(v)
    m, n, slices = sizes["m"], sizes["n"], -(-sizes["k"] // DEPTH)
    yield Rule(rows == OWN_ROWS * v["consumers"], "instruction_rows", f"a consumer has {OWN_ROWS} rows", CERTAIN)
    yield Rule(columns % 8 == 0, "instruction_columns", "wgmma has columns in steps of 8", CERTAIN)
    held = f"sums and products of a slice fit registers: up to {MOST_COLUMNS} columns, {MOST_COLUMNS_OF_THREE} of three"
    yield Rule(columns <= MOST_COLUMNS, "most_columns", held, CERTAIN)
    yield Rule(any_of(v["consumers"] < 3, columns <= MOST_COLUMNS_OF_THREE), "columns_of_three", held, CERTAIN)
    if in_blocks:
        shared = f"a tile's columns of C share scales of B: they divide {BLOCK}, or come in steps of {BLOCK // 2}"
        divide = any_of(v["turned"] == 1, BLOCK % columns == 0, columns % (BLOCK // 2) == 0)
        yield Rule(divide, "block_columns", shared, CERTAIN)
        few = f"columns with scales of their own: up to {MOST_SCALED_COLUMNS}, {MOST_SCALED_OF_THREE} of three"
        yield Rule(implies(v["turned"] == 1, columns <= MOST_SCALED_COLUMNS), "scaled_columns", few, CERTAIN)
        of_three = any_of(v["turned"] == 0, v["consumers"] < 3, columns <= MOST_SCALED_OF_THREE)
        yield Rule(of_three, "scaled_columns_of_three", few, CERTAIN)
    over_rows, over_columns = clusters_of(v)
    pairs = "blocks of a cluster share one side: their slices of it are loaded once"
    yield Rule(over_rows * over_columns <= MOST_BLOCKS, "cluster_size", pairs, CERTAIN)
    halves = "a side that two blocks share is loaded by halves, in steps of 8 rows"
    yield Rule(any_of(over_rows == 1, columns % 16 == 0), "shared_columns", halves, CERTAIN)
    full = f"a block is alone on its SM: fewer stages than fit, up to {MOST_STAGES}, load less far ahead for nothing"
    more = dynamic_smem_bytes(v) + STATIC_BYTES + stage_bytes(v) > gpu.sm.max_smem_bytes_per_block
    yield Rule(any_of(v["num_stages"] == MOST_STAGES, more), "ring_full", full, REDUNDANT)
    padding = "a larger tile would compute nothing but padding"
    for size, name, is_columns in ((m, "tile_m", 1), (n, "tile_n", 0)):
        narrow = implies(v["turned"] == is_columns, v[name] <= max(16, -(-size // 16) * 16))
        yield Rule(narrow, f"{name}_columns_in_size", padding, REDUNDANT)
        tall = implies(v["turned"] != is_columns, v[name] <= -(-size // OWN_ROWS) * OWN_ROWS)
        yield Rule(tall, f"{name}_rows_in_size", padding, REDUNDANT)
    yield Rule(v["split_k"] <= slices, "split_k_in_k", "every part of K has a slice", CERTAIN)
    over_m, over_n = v["tile_m"] * v["cluster_m"], v["tile_n"] * v["cluster_n"]
    tiles = ceildiv(m, over_m) * ceildiv(n, over_n) * v["cluster_m"] * v["cluster_n"]
    yield Rule(tiles * v["split_k"] <= MAX_UNITS, "units", "tiles and parts are counted in 32 bits", CERTAIN)
    lone = "blocks of a cluster have tiles of their own"
    yield Rule(any_of(v["cluster_m"] == 1, m > v["tile_m"]), "cluster_m_in_m", lone, REDUNDANT)
    yield Rule(any_of(v["cluster_n"] == 1, n > v["tile_n"]), "cluster_n_in_n", lone, REDUNDANT)
    filled = "tiles that fill the GPU twice are not split"
    yield Rule(any_of(v["split_k"] == 1, tiles < 2 * gpu.device.sm_count), "split_fills", filled, REDUNDANT)
