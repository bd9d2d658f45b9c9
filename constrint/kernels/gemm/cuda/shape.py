"""The tile of a CUDA GEMM configuration in terms of wgmma, its ring of slices, and the resources of one block.

All figures are arithmetic on the parameters, whether these are expressions, numbers or columns of numbers.
`source/kernel.cu` asserts the same at compile time. The kernel distributes registers itself (`setmaxnreg` in
`source/instructions.cuh`): a block is launched with an equal share for each thread, then the producer gives most of its
share to the consumers. `tile_rules` limits the registers that a consumer's sums take. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.hwmodels import GpuModel, assumed
from constrint.kernels.gemm.product import Product
from constrint.kernels.gemm.rules import Algebra
from constrint.kernels.gemm.units import ELEMENT_BYTES
from constrint.model import Expr, any_of, divides, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import BlockUse
from constrint.select.spec import Rule, Vars

#: Bytes of a slice along K, which is the width of the TMA unit's swizzle, and rows of an atom of that swizzle.
LINE_BYTES, ATOM_ROWS = 128, 8
#: Rows of wgmma, and its most columns.
ROWS, MAX_COLUMNS = 64, 256
#: Rows of the largest box that the TMA unit loads.
MAX_BOX = 256
#: Threads of a warpgroup, and their warps.
WARPGROUP, WARPGROUP_WARPS = 128, 4
#: Staging buffer of a consumer for results on their way to the TMA unit: 64 rows of 128 bytes.
BOX_BYTES = ROWS * LINE_BYTES
#: Bytes of the barriers in front of the ring, rounded up to the alignment of an atom.
BEFORE_BYTES = 1024
#: Blocks of the largest cluster.
MOST_BLOCKS = 4
#: Clusters of four that are lost to GPCs of different sizes.
UNEVEN_FOURS = 2
#: Step in which registers of a thread are granted.
REGISTER_STEP = 8
#: Registers of a thread as `source/instructions.cuh` distributes them: the producer's beside two consumers and beside
#: one or three, and the most of a consumer.
PRODUCER_REGISTERS, LARGEST_REGISTERS = (40, 32), 240
#: Registers that `source/parts.cuh` counts beside the sums, where these are stored unchanged and where an epilogue
#: follows; and sums of the other one of two parts that are loaded at once.
BESIDE_PLAIN_SUMS, BESIDE_SUMS, TWO_PARTS = 48, 64, 48
#: The most parts whose sums are loaded at once.
MOST_TOGETHER = 16


@dataclass(frozen=True)
class WgmmaTile:
    """A tile of C in terms of wgmma. Where `turned` is set, wgmma's rows are C's columns.

    Args:
        rows, columns: The block's tile.
        cluster_rows, cluster_columns: Blocks of a cluster along wgmma's rows and columns.
        sharing: Consumers that divide the rows among them; 1 where consumers take whole tiles in turns.
        by_columns: Consumers that divide the columns among them.
        consumers: Warpgroups that multiply.
    """

    rows: Any
    columns: Any
    cluster_rows: Any
    cluster_columns: Any
    sharing: Any
    by_columns: Any
    consumers: Any

    @staticmethod
    def of(v: Mapping[str, Any]) -> WgmmaTile:
        """Derive the tile from a configuration's parameters."""
        turned = v["turned"]
        wider, more = v["tile_n"] - v["tile_m"], v["cluster_n"] - v["cluster_m"]
        return WgmmaTile(
            rows=v["tile_m"] + turned * wider,
            columns=v["tile_n"] - turned * wider,
            cluster_rows=v["cluster_m"] + turned * more,
            cluster_columns=v["cluster_n"] - turned * more,
            sharing=v["consumers"] // v["by_columns"] - v["in_turns"],
            by_columns=v["by_columns"],
            consumers=v["consumers"],
        )

    @property
    def cluster(self) -> Any:
        """Blocks of a cluster."""
        return self.cluster_rows * self.cluster_columns

    @property
    def own_rows(self) -> Any:
        """Rows of the tile that one consumer computes."""
        return self.rows // self.sharing

    @property
    def own_columns(self) -> Any:
        """Columns of the tile that one consumer computes."""
        return self.columns // self.by_columns

    @property
    def sums(self) -> Any:
        """Accumulators of a consumer's thread."""
        return self.own_rows * self.own_columns // WARPGROUP


def promotes(dtype: str) -> bool:
    """Whether every slice's sums are added in fp32, because wgmma adds products of 8-bit floats in too few bits."""
    return dtype == "fp8"


def depth(dtype: str) -> int:
    """Elements of a slice along K."""
    return LINE_BYTES // ELEMENT_BYTES[dtype]


def column_step(dtype: str) -> int:
    """Return the step of wgmma's column counts: 8, but 16 for integers, which lack some multiples of 8."""
    return 16 if dtype == "int8" else 8


def slice_bytes(width: Any, dtype: str, *, is_k_major: bool) -> Any:
    """Bytes of one operand's slice: rows of 128 bytes along K, or slabs 128 bytes wide along M or N."""
    if is_k_major:
        return width * LINE_BYTES
    across = depth(dtype)  # elements of a slab's width, and its rows
    return (width + across - 1) // across * (across * LINE_BYTES)


def stage_bytes(v: Mapping[str, Any], dtype: str, *, a_is_k_major: bool, b_is_k_major: bool) -> Any:
    """Bytes of one stage of the ring: a slice of A and one of B."""
    of_a = slice_bytes(v["tile_m"], dtype, is_k_major=a_is_k_major)
    return of_a + slice_bytes(v["tile_n"], dtype, is_k_major=b_is_k_major)


def ring_bytes(v: Mapping[str, Any], dtype: str, *, a_is_k_major: bool, b_is_k_major: bool) -> Any:
    """Dynamic shared memory with one buffer of results for each consumer."""
    stage = stage_bytes(v, dtype, a_is_k_major=a_is_k_major, b_is_k_major=b_is_k_major)
    return v["num_stages"] * stage + BOX_BYTES * v["consumers"]


def second_buffers(gpu: GpuModel, ring: Any, consumers: Any) -> Any:
    """Return how many times the second buffers of all consumers fit beside a ring; 0 or less: they do not fit."""
    room = gpu.sm.max_smem_bytes_per_block - BEFORE_BYTES
    return (room - ring) // (BOX_BYTES * consumers)


def box_rows(width: int, shares: int) -> int:
    """Rows of a box of a slice that lies along K, of which each of the blocks that share it loads a part.

    Where parts would not be whole atoms, blocks load the whole slice in turns.
    """
    part = width // shares
    if width % (ATOM_ROWS * shares):
        return width
    return part // 2 if part > MAX_BOX else part


def cluster_slots(gpu: GpuModel, cluster: Any) -> Any:
    """Clusters of 1, 2 or 4 blocks that are resident at once, one block on an SM.

    A cluster lies in one GPC. SMs come in pairs, so that clusters of two fill a GPC, and those of four leave a pair
    over where the GPC has an odd number of pairs: 132 SMs in 8 GPCs as large as each other hold 32. GPCs differ, since
    SMs are left out where they fail: an H200 was seen to hold 30.
    """
    num_sms, num_gpcs = gpu.device.sm_count, int(assumed.gpcs(gpu).value)
    if num_sms < MOST_BLOCKS:
        return (num_sms + cluster - 1) // cluster  # none that is larger than the device is allowed
    even = num_gpcs * (num_sms // num_gpcs // 4)
    lost = min(num_sms // 4 - even + UNEVEN_FOURS * (num_gpcs > 1), num_sms // 4 - 1)
    return num_sms // cluster - lost * (cluster // 4)


def launched_registers(gpu: GpuModel, consumers: Expr) -> Expr:
    """Registers of a thread at the launch: an equal share of the SM's for a block that is alone on it."""
    return minimum(gpu.sm.max_registers_per_thread, _equal_share(gpu, consumers))


def _equal_share(gpu: GpuModel, consumers: Any) -> Any:
    """Registers of a thread where all threads of the one block of an SM have as many."""
    whole = gpu.sm.num_partitions * gpu.register_file.capacity // WARPGROUP
    return whole // (consumers + 1) // REGISTER_STEP * REGISTER_STEP


def turns_of_sums(
    gpu: GpuModel, consumers: NDArray[np.int64], sums: NDArray[np.int64], parts: NDArray[np.int64], *, is_plain: bool
) -> NDArray[np.int64]:
    """Return how often the block that adds a tile's parts waits for partial sums to arrive.

    `source/parts.cuh` loads a batch of sums at a time; this repeats its arithmetic.

    Args:
        gpu: The hardware model.
        consumers: Warpgroups that multiply.
        sums: Sums of a consumer's thread.
        parts: Parts of the tile.
        is_plain: Whether sums leave as they are.
    """
    share = _equal_share(gpu, consumers) * (consumers + 1)
    producer = np.where(consumers == 2, *PRODUCER_REGISTERS)
    own = np.minimum((share - producer) // consumers // REGISTER_STEP * REGISTER_STEP, LARGEST_REGISTERS)
    free = own - sums - (BESIDE_PLAIN_SUMS if is_plain else BESIDE_SUMS)
    batch = np.select([free < 32, free > 128], [8, 64], free // 16 * 8)
    # With two parts, one stays in registers. Otherwise two parts are loaded at once, more where a part has few sums.
    keeps = (parts == 2) & (free >= TWO_PARTS)
    together = np.where(sums > batch, 2, np.clip(free // (2 * sums), 2, MOST_TOGETHER))
    return np.where(keeps, -(-sums // TWO_PARTS), -(-sums // batch) * -(-parts // together))


def least_smem_bytes(product: Product, v: Vars) -> Any:
    """Shared memory of a block with one buffer for the results of each consumer."""
    majors = {"a_is_k_major": product.a.is_k_major, "b_is_k_major": product.b.is_k_major}
    return BEFORE_BYTES + ring_bytes(v, product.dtype, **majors)


def smem_bytes(gpu: GpuModel, least: Any, v: Vars) -> Any:
    """Shared memory of a block as it is launched: `least` bytes, and second buffers of results where these fit."""
    consumers = v["consumers"]
    has_second = maximum(0, minimum(1, second_buffers(gpu, least - BEFORE_BYTES, consumers)))
    return least + BOX_BYTES * consumers * has_second


def block_use(gpu: GpuModel, least: Any, v: Vars) -> BlockUse:
    """Warps with the producer's, registers and shared memory of one block; nothing of it is estimated.

    Args:
        gpu: The hardware model.
        least: Bytes of shared memory that it takes with one buffer for the results of each consumer.
        v: Its parameters.
    """
    registers = launched_registers(gpu, v["consumers"])
    return BlockUse(
        warps=WARPGROUP_WARPS * (v["consumers"] + 1),
        registers_per_thread=registers,
        smem_bytes=smem_bytes(gpu, least, v),
        least_registers=registers,
        spilling=None,
    )


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
    tiles = rows * columns * product.batch
    if -(-m // MIN_TILE) * -(-n // MIN_TILE) * MAX_PARTS * product.batch > MAX_UNITS:
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
