"""Registers of the recurrent Triton kernels as integer expressions of terms, with fitted weights.

The estimate, of a layer without optional inputs, gives occupancy, and by a curve the chance of spilling. Weights and
curves per target or vendor, direction, and whether a head is split, are fitted to the kernels of
`benchmarks/resources/rnn.py`, by `benchmarks/registers.py fit --kernel rnn`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from constrint.hwmodels import GpuModel
from constrint.kernels.resources.registers import Family, RegisterModel, either, load_models, name_of_weights, weighted
from constrint.kernels.rnn.triton.layer import (
    TritonLayer,
    Vars,
    at_least,
    by_slices,
    has_two_layouts,
    is_dealt_to_rows,
    is_exchanged,
)
from constrint.model import Expr, ceildiv, const, maximum, minimum
from constrint.select.limits import Spilling

#: Rows and columns that a matrix instruction yields at least: sixteen rows are computed where there are fewer.
MIN_ROWS, HALF_ROWS = 16, 8
#: Threads of a warp on CDNA; RDNA has half as many.
CDNA_LANES = 64
#: The fitted weights by name.
REGISTER_MODELS: Mapping[str, RegisterModel] = load_models("rnn")


def families(gpu: GpuModel, layer: TritonLayer, is_split: bool, *, reads_again: bool = False) -> tuple[Family, ...]:
    """Families of fitted weights: those of the target, or of its vendor's GPUs where kernels were too few.

    A compiler that reads recurrent weights from shared memory in every step has families of its own (`reads_again`).
    """
    kind = f"{layer.direction} {'split' if is_split else 'whole'}"
    how = "again " if reads_again and gpu.traits.has_async_copies else ""
    return (Family(f"{how}{gpu.vendor} {kind}", f"{how}{gpu.compiler_target} {kind}"),)


def models_of(
    gpu: GpuModel, layer: TritonLayer, models: Mapping[str, RegisterModel], *, reads_again: bool = False
) -> tuple[RegisterModel, RegisterModel]:
    """The weights of a head in one program, and of one that is split."""
    whole, split = (
        models[name_of_weights(families(gpu, layer, is_split, reads_again=reads_again), models)]
        for is_split in (False, True)
    )
    return whole, split


def registers_per_thread(
    gpu: GpuModel, layer: TritonLayer, v: Vars, models: Mapping[str, RegisterModel], *, reads_again: bool = False
) -> Expr:
    """Estimated 32-bit registers per thread of a layer without optional inputs, whichever way a head is dealt."""
    use = is_exchanged(v)
    whole, split = (
        weighted(model.estimate, register_terms(gpu, layer, v, bool(is_split)))
        for is_split, model in enumerate(models_of(gpu, layer, models, reads_again=reads_again))
    )
    return use * split + (1 - use) * whole


def spilling(
    gpu: GpuModel, layer: TritonLayer, v: Vars, models: Mapping[str, RegisterModel], *, reads_again: bool = False
) -> Spilling:
    """The spill thresholds of the estimate, for a head that is dealt over rows or not."""
    whole, split = (model.spilling for model in models_of(gpu, layer, models, reads_again=reads_again))
    return replace(either(is_exchanged(v), split, whole), figure="step_spill_exponent")


def least_registers(gpu: GpuModel, layer: TritonLayer, v: Vars) -> Expr:
    """Registers that a thread needs whatever the compiler does: the states that it keeps in fp32 from step to step.

    And one for an address. A program keeps all states of its tile but h, which passes from step to step in the
    element type, two of 16 bits in a register.
    """
    columns = v["tile_out"]
    threads = v["num_warps"] * gpu.sm.warp_size
    kept = (layer.cell.num_states - 1) * (v["tile_batch"] * columns // threads)
    return kept + 1


def register_terms(gpu: GpuModel, layer: TritonLayer, v: Vars, is_split: bool) -> dict[str, Expr]:
    """Terms of the estimate, in 32-bit registers or counts; terms that are zero for this layer are left out."""
    terms = _split_terms(gpu, layer, v) if is_split else _whole_terms(gpu, layer, v)
    states, own = layer.cell.num_states, terms["own"]
    terms |= {
        "base": const(1),
        "warps": v["num_warps"],
        "columns": layer.exchanged_slots * v["tile_out"] // 8,
        "loads": const(layer.num_loads),
        "slots": const(layer.cell.num_slots),
        "states": const(states),
        "own_slots": layer.cell.num_slots * own,
        "own_states": states * own,
        "own_loads": layer.num_loads * own,
    }
    if gpu.traits.smallest_dot_rows < MIN_ROWS:
        terms["half_rows"] = 1 - at_least(v["tile_batch"], MIN_ROWS)
    elif gpu.sm.warp_size < CDNA_LANES:
        terms |= {"rdna": const(1), "rdna_own": terms["own"], "rdna_weights": terms["weights"]}
        if gpu.arch.target.startswith("gfx11"):
            # Operands are there twice, once in each half of a warp.
            terms |= {f"doubled_{name}": terms[name] for name in ("weights", "gathered", "operand") if name in terms}
    if layer.head_dim & (layer.head_dim - 1):
        terms["padded"] = const(1)
    if layer.element_bytes == 4:
        terms |= {"wide": const(1), "wide_loads": terms["own_loads"]}
    if layer.cell.built_in in ("gru", "lstm"):
        terms[layer.cell.built_in] = const(1)
    if layer.direction == "forward":
        terms["saved"] = 1 - v["recompute"]
        terms["saved_own"] = (1 - v["recompute"]) * layer.cell.num_slots * own
    if layer.num_products > 1 and gpu.traits.wide_dot_dtype == "tf32":
        # Three products of tf32: each operand as two.
        terms |= {f"tripled_{name}": terms[name] for name in ("weights", "gathered", "flat_operand") if name in terms}
    return terms


def _whole_terms(gpu: GpuModel, layer: TritonLayer, v: Vars) -> dict[str, Expr]:
    """A head in one program: its weights, and tiles that are loaded steps ahead."""
    lanes, warps, rows = gpu.sm.warp_size, v["num_warps"], v["tile_batch"]
    dim, element = layer.padded_dim, layer.element_bytes
    matrices = layer.cell.num_gates * dim * dim * element
    threads = warps * lanes
    # Warps are dealt to columns and share the weights, or to rows and each have all of them.
    if is_dealt_to_rows(gpu, layer):
        own: Expr = maximum(MIN_ROWS, rows // warps) * dim // lanes
        weights: Expr = const(ceildiv_int(matrices, 4 * lanes))
    elif not gpu.traits.deals_tall_dots_to_rows:
        own, weights = maximum(1, rows * dim // threads), ceildiv(const(matrices), 4 * threads)
    else:
        by_rows = minimum(1, rows // dim)
        own = (1 - by_rows) * maximum(1, maximum(rows, HALF_ROWS) * dim // threads)
        own += by_rows * maximum(HALF_ROWS, rows // warps) * dim // lanes
        weights = (1 - by_rows) * ceildiv(const(matrices), 4 * threads) + by_rows * ceildiv_int(matrices, 4 * lanes)
    pipelined = minimum(1, v["num_stages"] - 1)
    again: dict[str, Expr] = {}
    if is_dealt_to_rows(gpu, layer):
        # Weights that wait in LDS are read again, and held for both the loop and what is peeled off it.
        second = has_two_layouts(gpu, layer, v) * weights
        again = {"again": second, "again_pipelined": second * pipelined}
    ahead = (v["num_stages"] - 1) * layer.num_loads
    loaded = ceildiv(rows * dim, threads)
    return {
        **again,
        "own": own,
        "weights": weights,
        "operand": ceildiv(dim * maximum(rows, MIN_ROWS) * element, 4 * lanes),
        "pipelined": pipelined,
        "ahead_loads": ahead,
        "ahead": ahead * loaded,
        "ahead_words": ahead * ceildiv(loaded * element, 4),
    }


def _split_terms(gpu: GpuModel, layer: TritonLayer, v: Vars) -> dict[str, Expr]:
    """A head dealt to several programs: exchanged states, and sums over slices, pass through registers."""
    lanes, sliced, rows = gpu.sm.warp_size, v["split_depth"], v["tile_batch"]
    element, threads = layer.element_bytes, v["num_warps"] * gpu.sm.warp_size
    flat, width, full = 1 - sliced, layer.exchanged_slots * v["tile_out"], maximum(rows, MIN_ROWS)
    main, depth = by_slices(layer, v, lambda parts: parts[0]), by_slices(layer, v, sum)
    each = ceildiv(rows * v["tile_out"], lanes)
    return {
        "own": ceildiv(maximum(rows, HALF_ROWS) * v["tile_out"], threads),
        "weights": ceildiv(depth * width * element, 4 * threads),
        "gathered": ceildiv(depth * rows * element, 4 * threads),
        "gathered_loads": ceildiv(depth * rows * element, 16 * threads),
        "gathered_full": ceildiv(depth * full * element, 4 * threads),
        "flat_operand": flat * ceildiv(depth * full * element, 4 * lanes),
        "flat_main": flat * ceildiv(main * rows * element, 4 * lanes),
        "flat_sums": flat * ceildiv(full * width, threads),
        "sliced": sliced,
        "sliced_sums": sliced * ceildiv(full * width, lanes),
        "sliced_slots": sliced * layer.cell.num_slots * each,
        "sliced_states": sliced * layer.cell.num_states * each,
        "sliced_loads": sliced * layer.num_loads * each,
        "rest": minimum(1, by_slices(layer, v, lambda parts: parts[1])),
    }


def ceildiv_int(value: int, divisor: int) -> int:
    """Division of integers, rounded up."""
    return -(-value // divisor)
