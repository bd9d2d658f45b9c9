"""Resources and rules of the recurrent CUDA kernels.

Weights, sums and polled vectors are arrays of the source whose elements are all live at the same time: that part is
certain. The registers that the compiler adds for addresses and the pointwise part are estimated, by weights that are
fitted to a sample of compiled kernels (`benchmarks/registers.py fit --kernel rnn.cuda`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from constrint.hwmodels import GpuModel
from constrint.kernels.resources.registers import Family, RegisterModel, load_models, name_of_weights, weighted
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID, MOST_STREAMING, CudaLoop, groups_at_once
from constrint.model import Expr, any_of, ceildiv, const, divides, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.limits import UNFITTED, BlockUse, most_registers
from constrint.select.spec import Rule
from constrint.select.workload import Workload

#: Most tiles that a block computes in turn.
MOST_TILES = 16
#: The fitted weights by name.
REGISTER_MODELS: Mapping[str, RegisterModel] = load_models("rnn.cuda")


def families(gpu: GpuModel, shape: CudaLoop) -> tuple[Family, ...]:
    """Families of fitted weights of a layer: those of its target, else those of all targets."""
    return (Family(shape.direction, f"{gpu.arch.target} {shape.direction}"),)


def block_use(gpu: GpuModel, shape: CudaLoop) -> BlockUse:
    """Warps, registers and shared memory of one block."""
    model = REGISTER_MODELS[name_of_weights(families(gpu, shape), REGISTER_MODELS)]
    estimate = weighted(model.estimate, register_terms(shape))
    return BlockUse(
        warps=shape.warps,
        registers_per_thread=maximum(estimate, least_registers(shape)),
        smem_bytes=shape.smem_bytes,
        least_registers=least_registers(shape),
        spilling=replace(model.spilling, figure="step_spill_exponent"),
        together=shape.where(shape.v["placement"] != BLOCK, shape.blocks),
    )


def resident_weights(shape: CudaLoop) -> Expr:
    """Registers of a thread that hold weights for the whole sequence: a matrix instruction takes four a lane."""
    return 4 * shape.eights * minimum(shape.pairs, shape.v["register_pairs"])


def sums(shape: CudaLoop) -> Expr:
    """Registers of a thread that hold sums of a product: four for every 16 rows and 8 columns."""
    return 4 * shape.chains * shape.row_tiles * shape.column_tiles


def window(shape: CudaLoop) -> Expr:
    """Registers of a thread for vectors requested from the grid: whole pairs, up to a window."""
    at_once = minimum(shape.pairs, maximum(1, shape.window // shape.column_tiles))
    return 4 * shape.where(shape.is_in(GRID), at_once * shape.column_tiles)


def streaming_weights(shape: CudaLoop) -> Expr:
    """Registers of a thread that hold weights on their way from global memory."""
    return 8 * minimum(MOST_STREAMING, shape.streamed_tiles)


def least_registers(shape: CudaLoop) -> Expr:
    """Least registers of a thread, whatever the compiler does.

    While the last vectors of a step are waited for, all resident weights are live, and sums where the wait is not the
    first one; in other placements the sums are live beside one operand of four registers. Weights from global memory
    are requested before the wait for a step.
    """
    waits_again = shape.polled > shape.window
    in_grid = shape.where(shape.is_in(GRID), window(shape) + shape.where(waits_again, sums(shape)))
    return resident_weights(shape) + streaming_weights(shape) + maximum(sums(shape), in_grid) + 1


def register_terms(shape: CudaLoop) -> dict[str, Expr]:
    """Terms of the register estimate: registers, or counts."""
    cell, v = shape.cell, shape.v
    grid, cluster = shape.where(shape.is_in(GRID), 1), shape.where(shape.is_in(CLUSTER), 1)
    several = shape.where(v["num_tiles"] > 1, 1)
    # With three tf32 products each operand has two parts.
    triple = int(shape.num_products > 1)
    return {
        "base": const(1),
        "grid": grid,
        "cluster": cluster,
        "several": several,
        "kept": resident_weights(shape),
        "from_shared": shape.where(shape.shared_pairs > 0, shape.row_tiles),
        "sums": sums(shape),
        "window": window(shape),
        "asked": streaming_weights(shape),
        "streams": shape.where(v["streamed_pairs"] > 0, 1),
        # Backward a warp's share of the depth may be of several gates, so that each of its places is computed.
        "places": shape.where(shape.is_in(GRID), 0 if shape.is_forward else shape.pairs),
        "doubled": shape.where(shape.is_doubled, 1),
        "columns": shape.column_tiles,
        "items": shape.items,
        f"{cell.built_in}_items": shape.items,
        "single_items": (1 - several) * shape.items,
        "copies": shape.copies,
        "single_copies": (1 - several) * shape.copies,
        "prefetch": v["prefetch"],
        "triple": const(triple),
        "triple_columns": triple * shape.column_tiles,
        "sum_items": shape.where(shape.has_sums, shape.items),
    }


def rules_of(gpu: GpuModel, shape: CudaLoop, workload: Workload, use: BlockUse) -> Iterator[Rule]:
    """All rules but the limits of a block."""
    yield from _placement_rules(gpu, shape)
    yield from _warp_rules(shape)
    yield from _batch_rules(gpu, shape, workload)
    yield from _weight_rules(gpu, shape, use)


def _placement_rules(gpu: GpuModel, shape: CudaLoop) -> Iterator[Rule]:
    v, dim = shape.v, shape.head_dim
    in_block, in_cluster, in_grid = (shape.is_in(place) for place in (BLOCK, CLUSTER, GRID))
    whole = "one block has the whole head, several share it"
    yield Rule(implies(in_block, v["units"] == dim), "whole_head", because=whole, kind=CERTAIN)
    several = implies(v["placement"] > 0, v["units"] < dim)
    yield Rule(several, "shared_head", because=whole, kind=REDUNDANT)
    most = gpu.device.max_cluster_blocks_nonportable or gpu.device.max_cluster_blocks_portable
    if most:
        fit = f"a cluster of {gpu.name} has at most {most} blocks"
        yield Rule(implies(in_cluster, shape.blocks <= most), "cluster", because=fit, kind=CERTAIN)
    fit = f"blocks that wait for each other run at once: {gpu.device.sm_count} fit, one on each {gpu.terms.sm}"
    yield Rule(implies(in_grid, shape.blocks <= gpu.device.sm_count), "co_resident", because=fit, kind=CERTAIN)


def _warp_rules(shape: CudaLoop) -> Iterator[Rule]:
    v = shape.v
    halves = shape.is_paired or not shape.is_forward
    width = 8 if halves else 16
    tiles = "a tile of 16 rows has 16 units"
    if halves:
        tiles = "a half of a tile of 16 rows has 8 units" + (" of one gate" if shape.is_forward else "")
    yield Rule(divides(width, v["units"]), "whole_tiles", because=tiles, kind=CERTAIN)
    unit = "each warp has all gates of its units"
    yield Rule(divides(width * v["warps_rows"], v["units"]), "whole_units", because=unit, kind=CERTAIN)
    if not shape.is_forward:
        filled = any_of(divides(16 * v["warps_rows"], v["units"]), v["units"] > 16 * v["warps_rows"])
        idle = "half a matrix instruction is idle only beside whole ones"
        yield Rule(filled, "filled_tiles", because=idle, kind=REDUNDANT)
    busy = (v["warps_depth"] - 1) * shape.pairs < shape.num_pairs
    yield Rule(busy, "warps_of_depth", because="each warp has a share of the depth; more would wait", kind=REDUNDANT)


def _batch_rules(gpu: GpuModel, shape: CudaLoop, workload: Workload) -> Iterator[Rule]:
    v, batch, heads = shape.v, workload.sizes["batch"], workload.sizes["heads"]
    padding = "a larger tile would compute nothing but padding"
    limit = max(8, 1 << (batch - 1).bit_length())
    if limit < 32:
        yield Rule(v["tile_batch"] <= limit, "tile_batch_in_batch", because=padding, kind=REDUNDANT)
    tiles = ceildiv(const(batch), v["tile_batch"])
    yield Rule(v["num_tiles"] <= tiles, "tiles_in_batch", because=padding, kind=REDUNDANT)
    alone = "blocks that wait for nobody take tiles of their own, one after the other"
    yield Rule(implies(v["num_tiles"] > 1, v["placement"] > 0), "tiles_that_wait", because=alone, kind=REDUNDANT)
    at_once = groups_at_once(gpu, shape)
    full = "blocks take tiles in turn only where not all of them run at once"
    crowded = heads * ceildiv(tiles, maximum(1, v["num_tiles"] - 1)) > at_once
    yield Rule(any_of(v["num_tiles"] == 1, crowded), "tiles_in_turn", because=full, kind=REDUNDANT)
    fit = any_of(heads * ceildiv(tiles, v["num_tiles"]) <= at_once, v["num_tiles"] == minimum(MOST_TILES, tiles))
    rounds = "blocks of the grid take as many tiles as lets all of them run at once; those of clusters may share an SM"
    yield Rule(implies(shape.is_in(GRID), fit), "tiles_at_once", because=rounds, kind=REDUNDANT)


def _weight_rules(gpu: GpuModel, shape: CudaLoop, use: BlockUse) -> Iterator[Rule]:
    v = shape.v
    few = "a warp has no more weights than its share of the depth"
    yield Rule(v["register_pairs"] + v["streamed_pairs"] <= shape.pairs, "pairs_in_depth", because=few, kind=REDUNDANT)
    alone = "a head whose weights do not fit the chip is shared by the grid"
    yield Rule(implies(v["streamed_pairs"] > 0, shape.is_in(GRID)), "streamed_in_grid", because=alone, kind=REDUNDANT)
    one_more = shape.smem_bytes + shape.pair_bytes
    full = any_of(v["streamed_pairs"] == 0, one_more > gpu.sm.max_smem_bytes_per_block)
    because = "weights are read again in every step only where shared memory is full"
    yield Rule(full, "streamed_last", because=because, kind=REDUNDANT)
    near = "weights stay in registers as long as that is not likely to spill"
    clear = most_registers(gpu, use.warps) * (use.spilling or UNFITTED).clear_percent // 100
    more = use.registers_per_thread + 4 * shape.eights > clear
    kept = any_of(v["register_pairs"] == shape.pairs, more)
    yield Rule(kept, "registers_used", because=near, kind=REDUNDANT)
