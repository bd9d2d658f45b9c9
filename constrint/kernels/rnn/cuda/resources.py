"""Registers of the recurrent CUDA kernels: what must be live at once, and what the compiler makes of it.

Weights, sums and polled vectors are arrays of the source whose elements are all live at the same time: that part is
certain. What the compiler adds for addresses and the pointwise part is estimated, by weights that are fitted to the
kernels of `sample.py` (`benchmarks/registers.py fit --kernel rnn.cuda`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from constrint.hwmodels import GpuModel
from constrint.kernels.resources.registers import Family, RegisterModel, load_models, name_of_weights, weighted
from constrint.kernels.rnn.cuda.shape import BLOCK, CLUSTER, GRID, MOST_ASKED, Shape
from constrint.model import Expr, const, maximum, minimum
from constrint.select.limits import BlockUse

#: GPCs of a GPU whose file does not say how many it has.
USUAL_GPCS = 8
#: The fitted weights by name.
REGISTER_MODELS: Mapping[str, RegisterModel] = load_models("rnn.cuda")


def families(gpu: GpuModel, shape: Shape) -> tuple[Family, ...]:
    """Whose weights a layer may take: those of its target, else those of all targets."""
    return (Family(shape.direction, f"{gpu.arch.target} {shape.direction}"),)


def block_use(gpu: GpuModel, shape: Shape) -> BlockUse:
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


def groups_at_once(gpu: GpuModel, shape: Shape) -> Expr:
    """Groups of blocks that share a head which run at the same time, where one block fits an SM.

    Blocks of the grid may be anywhere; those of a cluster are on one GPC, and one GPC is taken to have fewer SMs than
    the others (seen on an H200: 7 clusters of 16 blocks, 15 of 8).
    """
    sms, gpcs = gpu.device.sm_count, gpu.device.num_gpcs or USUAL_GPCS
    in_grid, in_clusters = sms // shape.blocks, gpcs * (sms // gpcs // shape.blocks) - 1
    shared = shape.where(shape.is_in(GRID), in_grid) + shape.where(shape.is_in(CLUSTER), in_clusters)
    return maximum(1, shared + shape.where(shape.is_in(BLOCK), sms))


def kept_weights(shape: Shape) -> Expr:
    """Registers of a thread that hold weights for the whole sequence: a matrix instruction takes four a lane."""
    return 4 * shape.eights * minimum(shape.pairs, shape.v["register_pairs"])


def sums(shape: Shape) -> Expr:
    """Registers of a thread that hold sums of a product: four for every 16 rows and 8 columns."""
    return 4 * shape.chains * shape.row_tiles * shape.column_tiles


def window(shape: Shape) -> Expr:
    """Registers of a thread that hold what it asked the grid for: whole pairs, up to a window of vectors."""
    at_once = minimum(shape.pairs, maximum(1, shape.window // shape.column_tiles))
    return 4 * shape.where(shape.is_in(GRID), at_once * shape.column_tiles)


def asked(shape: Shape) -> Expr:
    """Registers of a thread that hold weights on their way from global memory."""
    return 8 * minimum(MOST_ASKED, shape.streamed_tiles)


def least_registers(shape: Shape) -> Expr:
    """Registers that a thread needs whatever the compiler does.

    While the last vectors of a step are waited for, all kept weights are live, and sums where the wait is not the
    first one; in other placements the sums are live beside one operand of four registers. Weights from global memory
    are asked for before a step is waited for.
    """
    waits_again = shape.polled > shape.window
    in_grid = shape.where(shape.is_in(GRID), window(shape) + shape.where(waits_again, sums(shape)))
    return kept_weights(shape) + asked(shape) + maximum(sums(shape), in_grid) + 1


def register_terms(shape: Shape) -> dict[str, Expr]:
    """What a thread holds, in registers or counts."""
    cell, v = shape.cell, shape.v
    grid, cluster = shape.where(shape.is_in(GRID), 1), shape.where(shape.is_in(CLUSTER), 1)
    several = shape.where(v["num_tiles"] > 1, 1)
    # Of three products of tf32 each operand is there twice.
    triple = int(shape.num_products > 1)
    return {
        "base": const(1),
        "grid": grid,
        "cluster": cluster,
        "several": several,
        "kept": kept_weights(shape),
        "from_shared": shape.where(shape.shared_pairs > 0, shape.row_tiles),
        "sums": sums(shape),
        "window": window(shape),
        "asked": asked(shape),
        "streams": shape.where(v["streamed_pairs"] > 0, 1),
        # Backward a warp's share of the depth may be of several gates, so that each of its places is computed.
        "places": shape.where(shape.is_in(GRID), 0 if shape.is_forward else shape.pairs),
        "doubled": shape.where(shape.is_doubled, 1),
        "columns": shape.column_tiles,
        "items": shape.items,
        f"{cell.name}_items": shape.items,
        "single_items": (1 - several) * shape.items,
        "copies": shape.copies,
        "single_copies": (1 - several) * shape.copies,
        "prefetch": v["prefetch"],
        "triple": const(triple),
        "triple_columns": triple * shape.column_tiles,
        "sum_items": shape.where(shape.has_sums, shape.items),
    }
