"""The parameter spaces of the recurrent Triton kernels, forward and backward, for any modelled GPU.

They stand beside `kernel_forward.py` and `kernel_backward.py` so that a reviewer can check the rules against the code.
The two directions are separate kernels, each with parameters of its own.

Registers are terms with fitted weights. The estimate, of a layer without optional inputs, gives occupancy, and by a
curve the chance of spilling. Weights and curves per target or vendor, direction, and whether a head is split, are
fitted to the kernels of `benchmarks/resources/rnn.py`, by `benchmarks/registers.py fit --kernel rnn`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from constrint.hwmodels import GpuModel
from constrint.kernels.resources.registers import Family, RegisterModel, either, load_models, name_of_weights, weighted
from constrint.kernels.rnn.cells import BUILT_IN
from constrint.kernels.rnn.spec import SUFFIX, FusedSpec, with_sizes
from constrint.kernels.rnn.triton.cost import rnn_assumptions, rnn_cost
from constrint.kernels.rnn.triton.layer import (
    TritonLayer,
    at_least,
    by_slices,
    has_two_layouts,
    is_dealt_to_rows,
    is_exchanged,
    matrix_unit,
    padded_head_dim,
    pow2_at_least,
    smem_bytes,
)
from constrint.model import Expr, all_of, ceildiv, const, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse, Spilling
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.toolchain import rules_of, triton_version
from constrint.select.workload import Workload, size_class

if TYPE_CHECKING:
    from constrint.kernels.rnn.interface import RnnBackend
    from constrint.select.candidate import CompiledKernel


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


#: Sequences of a tile, and columns of a tile of a split head, the preferred ones first.
BATCH_TILES, NARROW_TILES = (8, 16, 32, 64), (16, 8, 32, 64, 128)


class TritonSpec(FusedSpec):
    """One direction of a recurrent layer, fused over time.

    A head is one tile of columns or is split over programs; no GPU runs enough programs at once for a larger one than
    `max_head_dim`.
    """

    name = "triton"
    step_language = "triton"
    how = "heads of head_dim, Triton"
    dtypes = ("bf16", "fp16", "fp32", "tf32")
    kernels = "the fused kernels"
    max_head_dim = 4096
    planned_batches = (16, 64, 256)
    #: The version of Triton that the rules are of; empty: the installed one.
    version = ""

    def under(self, version: str) -> TritonSpec:
        """The same spec with the resource rules of a version of Triton."""
        spec = copy(self)
        spec.version = version
        return spec

    def layer(self, workload: Workload) -> TritonLayer:
        """The layer, with the parameters as variables, for the resource expressions."""
        return TritonLayer.of(self.cell, self.direction, workload)

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Refuse dtypes that the GPU has no matrix instruction for."""
        matrix_unit(gpu, workload.dtype)

    def padded_dim(self, head_dim: int, dtype: str) -> int:
        """The next multiple of a matrix instruction's depth."""
        return padded_head_dim(head_dim)

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Batch tile, columns per program, how a head is split, warps, stages, where gates come from."""
        layer, traits = self.layer(workload), gpu.traits
        dim = layer.head_dim
        columns = tuple(c for c in NARROW_TILES if traits.smallest_dot_columns <= c < dim)
        rows = tuple(r for r in BATCH_TILES if r >= traits.smallest_dot_rows)
        deeper = "deeper ones gain nothing"
        power = "powers of two, as Triton's block shapes must be"
        splits = tuple(dict.fromkeys((1, *(-(-dim // c) for c in columns))))
        what = "1: gates are not stored, the backward pass computes them again"
        if self.direction == "backward":
            what = "1: gates are computed again by one GEMM over all steps"
        return (
            Param("tile_batch", rows, "sequences per program", power),
            Param("tile_out", (layer.padded_dim, *(c for c in columns if c != layer.padded_dim)), "columns", power),
            Param("row_split", splits, "programs that share a head", "head_dim over the columns of a program"),
            Param("num_warps", (8, 4, 2, 16, 1), "warps (waves) per program", "Triton takes powers of two", "w"),
            Param("num_stages", (3, 2, 4, 1), "steps whose inputs are in flight, and one", deeper, "st"),
            Param("split_depth", (0, 1), "1: each warp takes a share of the dot's depth", "a switch"),
            Param("recompute", (0, 1), what, "a switch"),
        )

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """Rules on splitting a head over programs and a dot over warps."""
        yield from self._split_rules(gpu, workload, v)
        yield from self._warp_rules(gpu, workload, v)

    def _split_rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        layer = self.layer(workload)
        exchanged = v["row_split"] > 1
        owned = v["row_split"] == ceildiv(layer.head_dim, v["tile_out"])
        yield Rule(owned, "columns_owned", because="every column of a head belongs to one program", kind=CERTAIN)
        whole = implies(v["row_split"] == 1, v["tile_out"] == layer.padded_dim)
        one_tile = f"a head in one program is one tile of {layer.padded_dim} columns"
        yield Rule(whole, "whole_head", because=one_tile, kind=CERTAIN)
        fit = f"programs that wait for each other run at once: {gpu.device.sm_count} fit, one on each {gpu.terms.sm}"
        yield Rule(v["row_split"] <= gpu.device.sm_count, "co_resident", because=fit, kind=CERTAIN)
        ahead = "a loop with a barrier is not pipelined; its inputs are loaded a step ahead instead"
        yield Rule(implies(exchanged, v["num_stages"] == 1), "no_pipeline", because=ahead, kind=REDUNDANT)
        read = "a state in registers is read by every warp anyway"
        yield Rule(implies(v["split_depth"] == 1, exchanged), "depth_of_exchange", because=read, kind=REDUNDANT)
        limit, padding = (
            max(16, pow2_at_least(workload.sizes["batch"])),
            "a larger tile would compute nothing but padding",
        )
        if limit < 64:
            yield Rule(v["tile_batch"] <= limit, "tile_batch_in_batch", because=padding, kind=REDUNDANT)

    def _warp_rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        layer = self.layer(workload)
        across = gpu.traits.smallest_dot_columns
        whole = f"each warp owns whole matrix instructions, {across} columns wide; more warps would repeat work"
        is_flat, width = v["split_depth"] == 0, layer.exchanged_slots * v["tile_out"]
        alone = implies(v["row_split"] == 1, across * v["num_warps"] <= v["tile_out"])
        yield Rule(alone, "warps_busy", because=whole, kind=REDUNDANT)
        together = implies(is_flat, across * v["num_warps"] <= maximum(across, width))
        yield Rule(together, "warps_busy_exchange", because=whole, kind=REDUNDANT)
        if gpu.traits.has_square_dots:
            beside = implies(all_of(v["tile_batch"] == 32, is_flat), 32 * v["num_warps"] <= maximum(32, width))
            wide = "instructions for 32 rows are 32 columns wide; more warps would each do all of the work"
            yield Rule(beside, "warps_side_by_side", because=wide, kind=REDUNDANT)
        depth = layer.head_dim * (1 if self.direction == "forward" else layer.cell.num_gates)
        filled = implies(v["split_depth"] == 1, 16 * v["num_warps"] <= depth)
        deep = "a warp's share of the depth fills a matrix instruction, 16 deep"
        yield Rule(filled, "slices_filled", because=deep, kind=REDUNDANT)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one program, as the installed version of Triton compiles it."""
        layer, compiler = self.layer(workload), rules_of(self.version or triton_version())
        again = compiler.reads_weights_again
        return BlockUse(
            warps=v["num_warps"],
            registers_per_thread=registers_per_thread(gpu, layer, v, REGISTER_MODELS, reads_again=again),
            smem_bytes=smem_bytes(gpu, layer, v, compiler=compiler),
            least_registers=least_registers(gpu, layer, v),
            least_smem_bytes=smem_bytes(gpu, layer, v, is_plain=True, compiler=compiler),
            spilling=spilling(gpu, layer, v, REGISTER_MODELS, reads_again=again),
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row: steps one after the other, each the latency of its parts."""
        return rnn_cost(gpu, self.layer(workload), workload, columns, blocks_per_sm)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Figures of this GPU that no source states and the model assumes."""
        return rnn_assumptions(gpu)

    def compiled_as(self, workload: Workload) -> Workload:
        """The workload with steps, sequences and heads replaced by representatives of the same divisibility."""
        return with_sizes(workload, **{name: size_class(workload.sizes[name]) for name in ("batch", "time", "heads")})

    def backend(self) -> RnnBackend:
        """Pads, launches and crops."""
        from constrint.kernels.rnn.triton.launch import TritonBackend

        return TritonBackend()

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """The time loop, in several launches where not all programs that wait for each other are resident at once."""
        from constrint.kernels.rnn.triton.launch import launches_of

        return launches_of(self.layer(workload), config, {**inputs, **outputs}, gpu)

    def compile(
        self, gpu: GpuModel, workload: Workload, config: Config, optional: Collection[str] = ()
    ) -> CompiledKernel:
        """Compile one configuration for a named GPU, as a layer with bias launches it; no GPU is needed.

        Args:
            gpu: The GPU compiled for.
            workload: Sizes and dtype.
            config: A point of the kernel's space.
            optional: Names of optional inputs that the launch has besides: `initial`, `rows`, `lengths`, `reset`;
                backward also `grad1`, `grad2`, `grad3`, `grad_last`.

        Raises:
            UsageError: When triton or torch is not installed, or the kernel has no such input.
            UnsupportedError: When the GPU lacks the dtype, or the compiler refuses.
        """
        from constrint.kernels.rnn.triton.launch import compile_with_inputs

        return compile_with_inputs(self, gpu, workload, config, optional)


SPECS = tuple(TritonSpec(cell, direction) for cell in BUILT_IN.values() for direction in SUFFIX)
