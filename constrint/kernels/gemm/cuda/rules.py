"""The rules of the CUDA GEMM, each stated once: limits of wgmma, registers and the TMA unit, and rules on sizes.

Rules on sizes are stated over expressions or over columns of numbers (`Algebra`), as in the other kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.cuda.shape import (
    ATOM_ROWS,
    LINE_BYTES,
    MAX_BOX,
    MAX_COLUMNS,
    MOST_BLOCKS,
    ROWS,
    WgmmaTile,
    cluster_slots,
    column_step,
    depth,
    promotes,
    stage_bytes,
)
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import any_of, divides, implies, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.spec import Rule, Vars

#: Registers of a consumer's thread that its sums may take: with one or two consumers, and with three. A kernel at the
#: limit compiles without spilling, whatever its epilogue (`tests/kernels/gemm/test_cuda_compiled.py`).
SUM_REGISTERS, SUM_REGISTERS_OF_THREE = 184, 96
#: The limit where sums of a slice are promoted to fp32: no other instruction is in flight then that needs registers.
PROMOTED_REGISTERS = 192
#: Registers of that limit that an epilogue takes: addresses of the bias, of the source matrix and of results.
END_REGISTERS = 16
#: The deepest ring: more stages cover no more of a load's latency.
MOST_STAGES = 16
#: The narrowest and the widest tile, and the most parts of K; `spec.py` has all values.
MIN_TILE, MAX_TILE, MAX_PARTS = 8, 384, 32
#: Tiles of clusters and their parts, numbered by 32-bit integers.
MAX_UNITS = 2**31 - 1


def tile_rules(gpu: GpuModel, product: Product, v: Vars, smem_bytes: Any) -> Iterator[Rule]:
    """The rules that hold for all sizes with the same alignments.

    Args:
        gpu: The hardware model.
        product: Its dtype, layouts and epilogue count.
        v: The parameters.
        smem_bytes: Shared memory of a block with one buffer for the results of each consumer.
    """
    shape, dtype = WgmmaTile.of(v), product.dtype
    yield from _schedule_rules(v)
    num_sms = gpu.device.sm_count
    if num_sms < MOST_BLOCKS:
        resident = f"blocks of a cluster run at the same time, and the device has {num_sms} SMs"
        yield Rule(v["cluster_m"] * v["cluster_n"] <= num_sms, "cluster_resident", resident, CERTAIN)
    rows = f"wgmma has {ROWS} rows, and consumers share whole blocks of them"
    yield Rule(shape.rows % (ROWS * shape.sharing) == 0, "instruction_rows", rows, CERTAIN)
    step = column_step(dtype)
    columns = f"wgmma has columns in steps of {step}, and consumers share whole ones"
    yield Rule(shape.columns % (step * shape.by_columns) == 0, "instruction_columns", columns, CERTAIN)
    most = f"wgmma has up to {MAX_COLUMNS} columns"
    yield Rule(shape.columns <= MAX_COLUMNS * shape.by_columns, "most_columns", most, CERTAIN)
    yield _sums_rule(product, v, shape)
    yield from _slice_rules(product, v, shape)
    stage = stage_bytes(v, dtype, a_is_k_major=product.a.is_k_major, b_is_k_major=product.b.is_k_major)
    full = any_of(v["num_stages"] == MOST_STAGES, smem_bytes + stage > gpu.sm.max_smem_bytes_per_block)
    deepest = f"a block is alone on its SM: fewer stages than fit, up to {MOST_STAGES}, load less far ahead for nothing"
    yield Rule(full, "ring_full", deepest, REDUNDANT)


def _schedule_rules(v: Vars) -> Iterator[Rule]:
    """Rules on the work that consumers share."""
    dealt = "consumers beside each other are dealt whole rows of consumers"
    yield Rule(divides(v["by_columns"], v["consumers"]), "consumers_dealt", dealt, CERTAIN)
    pair = "two consumers take tiles in turns, each a whole one"
    alone = implies(v["in_turns"] == 1, v["consumers"] == 2)
    yield Rule(alone, "turns_of_two", pair, CERTAIN)
    yield Rule(implies(v["in_turns"] == 1, v["by_columns"] == 1), "turns_whole", pair, CERTAIN)
    once = "where no tile is split there is no last one to split"
    yield Rule(implies(v["split_k"] == 1, v["only_last"] == 0), "split_last", once, REDUNDANT)


def _sums_rule(product: Product, v: Vars, shape: WgmmaTile) -> Rule:
    """Limit the sums of a consumer's thread to the registers that the producer leaves it."""
    is_promoted = promotes(product.dtype)
    most = PROMOTED_REGISTERS if is_promoted else SUM_REGISTERS
    # 1, 2 and 3 consumers: most, most and SUM_REGISTERS_OF_THREE.
    fewer = most - SUM_REGISTERS_OF_THREE
    left = minimum(most, most + 2 * fewer - fewer * v["consumers"]) - END_REGISTERS * (not leaves_plainly(product))
    taken = 2 * shape.sums if is_promoted else shape.sums
    because = (
        f"a consumer's thread has up to {most} registers for sums, {SUM_REGISTERS_OF_THREE} where three consumers "
        "share the register file" + ("; promoted sums count twice" if is_promoted else "")
    )
    return Rule(taken <= left, "sums", because, CERTAIN)


def leaves_plainly(product: Product) -> bool:
    """Whether results are stored as 16 bits without bias or source matrix."""
    return product.output_bytes == 2 and not product.has_bias and not product.has_source


def _slice_rules(product: Product, v: Vars, shape: WgmmaTile) -> Iterator[Rule]:
    """Rules on slices that the TMA unit loads, and on the place where a consumer's part of one begins."""
    parts = any_of(shape.columns % (ATOM_ROWS * shape.cluster_rows) == 0, shape.columns <= MAX_BOX)
    box = f"the TMA unit loads boxes of up to {MAX_BOX} rows, and blocks that share a slice load whole atoms of 8"
    yield Rule(parts, "box", box, CERTAIN)
    slab = LINE_BYTES // ELEMENT_BYTES[product.dtype]
    held = (
        "of four blocks each loads a part of every slice: one that loads nothing keeps no neighbour from running ahead"
    )
    for name, operand in (("tile_m", product.a), ("tile_n", product.b)):
        dealt = v[name] % (2 * ATOM_ROWS) == 0 if operand.is_k_major else v[name] > slab
        yield Rule(any_of(v["cluster_m"] * v["cluster_n"] < MOST_BLOCKS, dealt), f"{name}_dealt", held, CERTAIN)
    begins = f"across K slices lie in slabs of {slab} elements, of which a consumer's columns begin one"
    # Columns of wgmma are B's columns, or A's rows where the kernel is turned.
    for turned, operand in ((0, product.b), (1, product.a)):
        if not operand.is_k_major:
            whole = any_of(v["by_columns"] == 1, shape.columns % (slab * 2) == 0)
            yield Rule(implies(v["turned"] == turned, whole), f"slabs{turned}", begins, CERTAIN)


def size_rules(gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
    """The rules on sizes, over expressions or columns; those on the order of tiles come last."""
    m, n, steps = product.m, product.n, -(-product.k // depth(product.dtype))
    padding = "a larger tile would compute nothing but padding"
    beyond = "the second block of a cluster has results, too"
    for size, name in ((m, "tile_m"), (n, "tile_n")):
        # Rules that hold for every tile are not stated.
        if size > MAX_TILE:
            continue
        yield Rule(v[name] <= _up(size, ROWS), f"{name}_in_size", padding, REDUNDANT)
        is_columns = v["turned"] == int(name == "tile_m")
        narrow = algebra.implies(is_columns, v[name] <= _up(size, 2 * column_step(product.dtype)))
        yield Rule(narrow, f"{name}_columns_in_size", padding, REDUNDANT)
        blocks = v["cluster_" + name[-1]]
        yield Rule((blocks - 1) * v[name] < size, f"cluster_in_{name[-1]}", beyond, REDUNDANT)
    if steps < MAX_PARTS:
        filled = "every part of K has a slice, from which its sums are set"
        yield Rule(v["split_k"] <= steps, "split_k_in_k", filled, CERTAIN)
    rows = algebra.ceildiv(m, v["tile_m"] * v["cluster_m"])
    columns = algebra.ceildiv(n, v["tile_n"] * v["cluster_n"])
    tiles = rows * columns
    if -(-m // MIN_TILE) * -(-n // MIN_TILE) * MAX_PARTS > MAX_UNITS:
        counted = f"tiles and their parts are counted in 32 bits: up to {MAX_UNITS}"
        yield Rule(tiles * v["split_k"] <= MAX_UNITS, "units", counted, CERTAIN)
    slots = cluster_slots(gpu, v["cluster_m"] * v["cluster_n"])
    last = "tiles of the last wave are split apart from others where there are full waves, and a rest"
    yield Rule(algebra.implies(v["only_last"] == 1, tiles > slots), "last_of_many", last, REDUNDANT)
    yield Rule(algebra.implies(v["only_last"] == 1, tiles % slots > 0), "last_unfilled", last, REDUNDANT)
    if "group_m" in v:
        # Rows of wgmma, which are columns of C where the kernel is turned.
        walked = rows + v["turned"] * (columns - rows)
        group = algebra.any_of(v["group_m"] == 1, v["group_m"] < 2 * walked)
        repeats = "a group of more rows than the grid has repeats a smaller one"
        yield Rule(group, "group_in_grid", repeats, REDUNDANT)


def _up(size: int, step: int) -> int:
    return -(-size // step) * step
