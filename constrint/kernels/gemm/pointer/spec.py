"""The parameter space of the pointer kernel of `kernel.py`, for any modelled GPU.

Shared memory (LDS) is the operand pipeline, or the staging of the store to C if that is larger. Its rules are read off
the layouts of Triton 3.9 and checked against kernels compiled by 3.6 to 3.9 (`tests/data/triton_gemm_space*.csv`;
`benchmarks/attacks/lds.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from constrint.hwmodels import DotUnit, GpuModel
from constrint.kernels.gemm.pointer.cost import pointer_assumptions, pointer_cost
from constrint.kernels.gemm.product import Product, has_tma
from constrint.kernels.gemm.rules import (
    LEAST_ROWS,
    ROWS_IN_USE,
    XCD_CHUNKS,
    Algebra,
    instruction_rules,
    least_registers,
    registers_per_thread,
    spilling,
)
from constrint.kernels.gemm.spec import POWER, TILES, GemmSpec, Stages
from constrint.kernels.gemm.units import (
    ELEMENT_BYTES,
    MIN_COPY_BYTES,
    PARTIAL_BYTES,
    PASS_BYTES,
    WIDEST_BYTES,
    async_share,
    is_upcast,
    store_staging,
    threads,
    unit,
)
from constrint.model import Expr, Var, any_of, ceildiv, const, implies, maximum, minimum
from constrint.model.constraint import CERTAIN, ESTIMATED, REDUNDANT
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns
from constrint.select.limits import BlockUse
from constrint.select.spec import Columns, Launch, Param, Rule, Vars
from constrint.select.toolchain import rules_of, triton_version
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall


#: Rows of tiles that experts take for up to 16 rows where Triton fills the rest of an instruction's.
PADDED_ROWS = (8, 4)
#: Shapes without which 303x50x15808 reaches 0.84 (A100) and 0.92 (MI355X) of the whole space's best.
LONG_SUMS = ((304, 48, 16384), (304, 64, 12288))


class PointerSpec(GemmSpec):
    """The kernel that loads tiles through pointers and asynchronous copies."""

    name = "pointer"
    summary = "C[M,N] = A[M,K] @ B[K,N] through pointers, Triton"
    prices_order = True

    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """Tile sizes, warps, stages, split-K, persistence, block order; on AMD also the compiler's knobs.

        Where the compiler has knobs, its users' best configurations take depths of up to 1024 and any split of K.
        """
        stages, knobs = gpu.traits.pipeline_stages, gpu.traits.compiler_knobs
        depths: tuple[int, ...] = (64, 32, 128, 16, 256)
        splits: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
        groups: tuple[int, ...] = (8, 4, 16, 1, 2, 32)
        parts = "powers of two up to 32"
        if not has_tma(gpu):
            groups = (*groups, 64)
        if knobs:
            depths, splits, parts = (*depths, 512, 1024), (*splits, 3, 5, 6, 7, 12, 14), f"{parts}, and others in use"
        common = (
            Param("tile_m", TILES + (PADDED_ROWS if _pads_rows(gpu, dtype) else ()), "rows of C per block", POWER),
            Param("tile_n", TILES, "columns of C per block", POWER),
            Param("tile_k", depths, "depth of one main-loop iteration", POWER),
            Param("num_warps", (4, 8, 2, 16, 1), "warps (waves) per block", "Triton takes powers of two", "w"),
            Param("num_stages", stages, "depth of the load pipeline", "deeper ones do not fit anywhere", "st"),
            Param("split_k", splits, "blocks that share one tile's K", parts, "sk"),
            Param("persistent", (0, 1), "1: one block per slot walks many tiles", "the kernel has both loops", "p"),
            Param("group_m", groups, "rows of tiles walked together", f"powers of two up to {max(groups)}", "gm"),
        )
        return common + (_compiler_knobs(gpu, dtype) if knobs else ())

    def stages(self, gpu: GpuModel) -> Stages:
        """The usual shapes; where no TMA kernel takes them, also some with few columns and a long sum."""
        usual = super().stages(gpu)
        return usual if has_tma(gpu) else tuple(((*shapes, *LONG_SUMS), kept) for shapes, kept in usual)

    def rows_in_use(self, gpu: GpuModel) -> int:
        """As many as others found best for fewer rows, on every GPU: wgmma and tcgen05 take 64 at least."""
        return ROWS_IN_USE

    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the matrix instruction."""
        pads = _pads_rows(gpu, product.dtype)
        yield from instruction_rules(gpu, unit(gpu, product.dtype), v, pads_rows=pads)
        if product.dtype == "tf32" and "kpack" in v and rules_of(triton_version()).fails_on_one_pack:
            why = "Triton 3.8 fails on a tf32 tile that is no deeper than the slices that are read together"
            for m, _, k in unit(gpu, product.dtype).shapes:
                deep = implies(v["matrix_instr_nonkdim"] == m, any_of(v["kpack"] == 1, v["tile_k"] > 2 * k))
                yield Rule(deep, f"one_pack{m}", why, CERTAIN)

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """See `GemmSpec.size_rules`; tiles of less rows than an instruction are for few rows."""
        if _pads_rows(gpu, product.dtype) and product.m > LEAST_ROWS:
            padded = f"the matrix instruction takes {LEAST_ROWS} rows: a tile of fewer multiplies as long"
            yield Rule(v["tile_m"] >= LEAST_ROWS, "rows_of_instruction", padded, REDUNDANT)
        yield from super().size_rules(gpu, product, v, algebra)

    def promise_rules(self, gpu: GpuModel, use: BlockUse, v: Vars) -> Iterator[Rule]:
        """AMD: the registers that the compiler spills to keep `waves_per_eu` waves resident."""
        if "waves_per_eu" not in v or use.spilling is None:
            return
        capacity, what = gpu.register_file.capacity, gpu.register_file.counted
        fits = 100 * v["waves_per_eu"] * use.registers_per_thread <= use.spilling.clear_percent * capacity
        yield Rule(
            any_of(v["waves_per_eu"] <= 1, fits),
            "waves_per_eu",
            f"to keep a promise of waves the compiler spills what exceeds their share of {capacity} {what}",
            ESTIMATED,
        )

    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        dtype, aligned = product.dtype, product.aligned
        exact = None
        if gpu.arch.target == "gfx950":
            # The instruction's rows decide how LDS is padded.
            exact = smem_bytes(gpu, product, {**v, "matrix_instr_nonkdim": Var("matrix_instr_nonkdim")})
        return BlockUse(
            v["num_warps"],
            registers_per_thread(gpu, dtype, v, aligned),
            smem_bytes(gpu, product, v),
            smem_bytes_exact=exact,
            least_registers=least_registers(gpu, dtype, v),
            spilling=spilling(gpu, dtype, v, aligned),
        )

    def table_options(self, product: Product) -> Mapping[str, int]:
        """For fp32 operands: passes, and whether both lie along K, which decide how long matrix instructions take."""
        if product.dtype != "tf32":
            return {}
        is_along = product.a.is_k_major and product.b.is_k_major
        return {"transpose_b": int(is_along), "three_pass": int(product.is_three_pass)}

    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; without `group_m` and `xcd_chunk`, the least over their values."""
        return pointer_cost(gpu, product, columns, blocks_per_sm)

    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call. Needs torch and triton."""
        from constrint.kernels.gemm.pointer.launch import pointer_launches

        return pointer_launches(call, config)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """See `GemmSpec.assumptions`."""
        lines = pointer_assumptions(gpu, workload.dtype)
        if unit(gpu, workload.dtype).kind == "fma":
            lines.append(f"Triton has no tensor-core code for {gpu.arch.target}: plain FMA in fp32")
        return tuple(lines)


def _pads_rows(gpu: GpuModel, dtype: str) -> bool:
    """Whether Triton fills a matrix instruction of 16 rows where a tile has fewer: on CDNA."""
    return unit(gpu, dtype).kind == "mfma"


def _compiler_knobs(gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
    matrix = unit(gpu, dtype)
    rows = tuple(m for m, _, _ in matrix.shapes)
    most = getattr(gpu.sm, "max_waves_per_simd", 8)
    knobs = [
        Param("matrix_instr_nonkdim", rows, "rows of the matrix instruction", f"what {gpu.arch.target} has", "mi"),
        Param(
            "waves_per_eu",
            (0, *(w for w in (1, 2, 3, 4, 6, 8) if w <= most)),
            "waves per SIMD the compiler must leave registers for; 0: it decides",
            f"a SIMD of {gpu.arch.target} holds at most {most} waves",
            "eu",
        ),
    ]
    # Packing two k-slices per LDS read exists in Triton for the CDNA generations before gfx950 only.
    if matrix.kind == "mfma":
        packs = (1, 2) if gpu.arch.target != "gfx950" else (1,)
        knobs.append(Param("kpack", packs, "k-slices per LDS read", "Triton takes 1 or 2, on gfx950 only 1", "kp"))
    if gpu.device.num_xcds > 1:
        meaning = "neighbouring tiles that an XCD takes at a time; 0: none"
        knobs.append(Param("xcd_chunk", XCD_CHUNKS, meaning, "a few sizes between none and all", "xcd"))
    return tuple(knobs)


#: gfx950 pads LDS once per copy of a whole wave: 64 lanes of 16 bytes.
PAD_INTERVAL_BYTES = 1024
WAVE_LANES = 64


class _Operand(NamedTuple):
    """A or B in a block.

    Args:
        side: Rows of A's tile, columns of B's.
        tile_bytes: Bytes of one stage.
        width: Bytes of the widest load that its rows in memory allow.
        is_along_k: Whether these rows run along K.
        is_copied: 1 where its loads can run ahead of their use.
    """

    side: Expr
    tile_bytes: Expr
    width: int
    is_along_k: bool
    is_copied: Expr


def pointer_smem_bytes(gpu: GpuModel, product: Product, matrix: DotUnit, v: Vars) -> Expr:
    """Bytes per block of the pointer-load kernel."""
    dtype, output, c_width = product.dtype, product.output_bytes, product.aligned.c
    element = ELEMENT_BYTES[dtype]
    a, b = (
        _operand(gpu, element, side, layout.width_bytes, v, is_along_k=layout.is_k_major)
        for side, layout in ((v["tile_m"], product.a), (v["tile_n"], product.b))
    )
    if matrix.kind == "fma":
        # Operands pass through shared memory one after the other, widened to fp32.
        stored = output + minimum(1, v["split_k"] - 1) * (PARTIAL_BYTES - output)
        widened = maximum(a.tile_bytes, b.tile_bytes) * (4 // element)
        return maximum(widened, v["tile_m"] * v["tile_n"] * stored)
    is_vectorised = c_width == WIDEST_BYTES
    if matrix.kind in ("mfma", "wmma"):
        if gpu.arch.target != "gfx950":
            pipeline = _amd(matrix, v, a, b)
        elif rules_of(triton_version()).copies_on_cdna4:
            pipeline = _gfx950(dtype, v, a, b)
        else:
            pipeline = _amd(matrix, v, *(each._replace(is_copied=const(1)) for each in (a, b)))
        return maximum(pipeline, _amd_staging(gpu, element, output, v, is_vectorised=is_vectorised))
    staging = store_staging(gpu, output, matrix, v, is_vectorised=is_vectorised)
    return maximum(_nvidia(dtype, matrix, v, a, b), staging)


def _operand(gpu: GpuModel, element: int, side: Expr, width: int, v: Vars, *, is_along_k: bool) -> _Operand:
    tile_bytes = side * v["tile_k"] * element
    is_copied = _is_copied(gpu, element, tile_bytes, v, width=width)
    return _Operand(side, tile_bytes, width, is_along_k, is_copied)


def _is_copied(gpu: GpuModel, element: int, operand: Expr, v: Vars, *, width: int) -> Expr:
    """1 where an operand's loads can run ahead of their use: each thread loads at least four contiguous bytes."""
    if element >= MIN_COPY_BYTES or width < MIN_COPY_BYTES:
        return const(int(element >= MIN_COPY_BYTES))
    return minimum(1, operand // (MIN_COPY_BYTES * threads(gpu, v)))


def _buffers(is_copied: Expr, stages: Expr, otherwise: Expr | int = 1) -> Expr:
    """Buffers of an operand: one per stage where it is copied asynchronously, else as many as stated."""
    return is_copied * stages + (1 - is_copied) * otherwise


def _nvidia(dtype: str, matrix: DotUnit, v: Vars, a: _Operand, b: _Operand) -> Expr:
    """The operand pipeline: mma.sync holds the stage it computes in registers, wgmma and tcgen05 read it in place."""
    stages, is_widened = v["num_stages"], int(is_upcast(matrix, dtype))
    behind = maximum(1, stages - 1)
    is_byte = ELEMENT_BYTES[dtype] == 1
    # fp8 that is multiplied as fp16 is widened, for which it takes twice the buffer where it is not pipelined; so does
    # A only if its rows run across K.
    row_each = [_is_row_each(v, each) if is_byte else const(0) for each in (a, b)]
    pipeline = _buffers(a.is_copied * (1 - row_each[0]), behind, 1 + is_widened * row_each[0]) * a.tile_bytes
    pipeline = pipeline + _buffers(b.is_copied * (1 - row_each[1]), behind, 1 + is_widened) * b.tile_bytes
    if is_widened:
        # Without a pipeline both are converted on the way, one after the other.
        has_pipeline = minimum(1, stages - 1) * maximum(a.is_copied, b.is_copied)
        pipeline = has_pipeline * pipeline + (1 - has_pipeline) * maximum(a.tile_bytes, b.tile_bytes)
    if matrix.fallback is None:
        return pipeline
    if matrix.kind == "tcgen05":
        two = minimum(2, stages)
        direct: Expr = 8 * two  # its mbarriers
        for each in (a, b):
            direct = direct + _buffers(each.is_copied, stages, two) * each.tile_bytes
    else:
        # 8-bit operands that do not run along K have to be transposed on the way into wgmma, through one buffer.
        direct = const(0)
        for each in (a, b):
            is_turned = is_byte and not each.is_along_k
            direct = direct + (1 if is_turned else _buffers(each.is_copied, stages)) * each.tile_bytes
    use = async_share(matrix, v)
    return use * direct + (1 - use) * pipeline


def _is_row_each(v: Vars, operand: _Operand) -> Expr:
    """1 where each thread has one row of 16 bytes, across K, of an operand of 8 bits: mma.sync does not pipeline it."""
    if operand.is_along_k or operand.width < WIDEST_BYTES:
        return const(0)
    num_threads = v["num_warps"] * 32
    rows_fit = minimum(1, v["tile_k"] // num_threads) * minimum(1, num_threads // v["tile_k"])
    return rows_fit * minimum(1, 16 // operand.side)


def _amd(matrix: DotUnit, v: Vars, a: _Operand, b: _Operand) -> Expr:
    """All stages but the one that is computed; one stage, or nothing to pipeline: A and B share one buffer."""
    behind, is_pipelined = maximum(1, v["num_stages"] - 1), minimum(1, v["num_stages"] - 1)
    both = behind * (a.tile_bytes + b.tile_bytes)
    if matrix.kind == "mfma":
        both = _buffers(a.is_copied, behind) * a.tile_bytes + _buffers(b.is_copied, behind) * b.tile_bytes
        is_pipelined = is_pipelined * maximum(a.is_copied, b.is_copied)
    return is_pipelined * both + (1 - is_pipelined) * maximum(a.tile_bytes, b.tile_bytes)


def _gfx950(dtype: str, v: Vars, a: _Operand, b: _Operand) -> Expr:
    """Direct-to-LDS copies keep every stage; the copied data are padded against bank conflicts.

    The padding depends on the instruction's rows, `matrix_instr_nonkdim`; without it, the larger of both.
    """
    if "matrix_instr_nonkdim" not in v:
        return maximum(*(_gfx950(dtype, {**v, "matrix_instr_nonkdim": const(rows)}, a, b) for rows in (16, 32)))
    stages = v["num_stages"]
    is_pipelined = minimum(1, stages - 1)
    sizes = []
    for each in (a, b):
        num_bytes = stages * each.tile_bytes
        padding = _padding(dtype, v, each) * (ceildiv(num_bytes, PAD_INTERVAL_BYTES) - 1)
        sizes.append(num_bytes + each.is_copied * padding)
    # The larger one comes first, the other one at a multiple of 16.
    both = 16 * ceildiv(maximum(*sizes), 16) + minimum(*sizes)
    return is_pipelined * both + (1 - is_pipelined) * maximum(a.tile_bytes, b.tile_bytes)


def _padding(dtype: str, v: Vars, operand: _Operand) -> Expr:
    """Bytes of padding per interval of an operand as it lies in memory.

    Where each thread copies one whole row of 16 bytes, the other axis counts as the contiguous one.
    """
    pads = [_padding_along_k(dtype, v, operand.side), _padding_across_k(dtype, v, operand.side)]
    rows, columns = pads if operand.is_along_k else reversed(pads)
    if ELEMENT_BYTES[dtype] > 1 or operand.width < WIDEST_BYTES:
        return rows
    copies = WAVE_LANES * v["num_warps"]
    length, others = (v["tile_k"], operand.side) if operand.is_along_k else (operand.side, v["tile_k"])
    is_flat = (1 - minimum(1, length // 32)) * minimum(1, others // copies) * minimum(1, copies // others)
    return (1 - is_flat) * rows + is_flat * columns


def _padding_along_k(dtype: str, v: Vars, side: Expr) -> Expr:
    """Bytes of padding per interval where K is contiguous.

    The rule of Triton 3.9's padded layout for asynchronous copies on CDNA4, with its widths in bytes: what is read
    16 bytes at a time or transposed sees 64 banks of 4 bytes, anything else 32. A layout is used only if the tile
    has enough rows to stagger.
    """
    tile_k, is_32 = v["tile_k"], v["matrix_instr_nonkdim"] // 32
    # One lane holds 16 bytes of K where the instruction with the larger k fits the tile, else 8.
    k_16 = {"fp8": 128, "int8": 64}.get(dtype, 32)
    k_32 = {"fp8": 64, "int8": 32}.get(dtype, 16)
    is_wide = minimum(1, is_32 * (tile_k // k_32) + (1 - is_32) * (tile_k // k_16))
    row_bytes = tile_k * ELEMENT_BYTES[dtype]
    wide = 32 - 16 * is_32
    # Rows that one interval holds, times the rows that are staggered within it.
    rows_per_interval = PAD_INTERVAL_BYTES // row_bytes
    rows_wide = rows_per_interval * (minimum(row_bytes, 256) // wide)
    rows_narrow = rows_per_interval * (minimum(row_bytes, 128) // 8)
    fits_wide = minimum(1, side // maximum(1, rows_wide)) * minimum(1, row_bytes // wide)
    fits_narrow = minimum(1, 2 * side // maximum(1, rows_narrow))
    return is_wide * fits_wide * wide + (1 - is_wide) * fits_narrow * 8


def _padding_across_k(dtype: str, v: Vars, side: Expr) -> Expr:
    """Bytes of padding per interval where rows or columns are contiguous, so that K is read transposed."""
    row_bytes = side * ELEMENT_BYTES[dtype]
    pad = 16 * ELEMENT_BYTES[dtype] * (1 + v["matrix_instr_nonkdim"] // 32)
    staggered = minimum(row_bytes, 256) // pad
    rows = maximum(1, PAD_INTERVAL_BYTES // row_bytes * staggered)
    fits = minimum(1, v["tile_k"] // rows) * minimum(1, staggered)
    # Two-way conflicts are accepted, at the cost of half the stagger.
    fits_halved = minimum(1, 2 * v["tile_k"] // rows) * minimum(1, staggered // 2)
    return pad * maximum(fits, fits_halved)


def _amd_staging(gpu: GpuModel, element: int, output: int, v: Vars, *, is_vectorised: bool) -> Expr:
    """Bytes in which a finished split-K tile is re-ordered for the store to C: an upper bound.

    The sums come back from the workspace in another layout than the one in which they are stored, if rows of C are not
    known to be aligned, and at times if operands have 8 bits.
    """
    if is_vectorised and element > 1:
        return const(0)
    tile_bytes = v["tile_m"] * v["tile_n"] * output
    return minimum(1, v["split_k"] - 1) * minimum(tile_bytes, PASS_BYTES * threads(gpu, v))


#: Expressions for plain variables, by everything that decides them: building one takes as long as solving.
_KNOWN: dict[tuple[Hashable, ...], Expr] = {}


def smem_bytes(gpu: GpuModel, product: Product, v: Vars) -> Expr:
    """Shared memory (LDS) of one block in bytes: the operand pipeline, or the store's staging if that is larger."""
    matrix = unit(gpu, product.dtype)
    if not all(isinstance(variable, Var) and variable.name == name for name, variable in v.items()):
        return pointer_smem_bytes(gpu, product, matrix, v)
    lying = product.aligned, product.a.is_k_major, product.b.is_k_major, product.output_bytes
    key = (triton_version(), gpu.arch.target, gpu.sm.warp_size, product.dtype, matrix, *lying, tuple(v))
    if key not in _KNOWN:
        _KNOWN[key] = pointer_smem_bytes(gpu, product, matrix, v)
    return _KNOWN[key]


SPECS = (PointerSpec(),)
