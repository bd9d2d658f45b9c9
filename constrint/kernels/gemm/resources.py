"""What one block of the Triton GEMM takes - shared memory and registers - as integer expressions.

The shared-memory rules state how Triton 3.9 lays out the operand buffers of `kernel_triton.py`; the register figures
are fitted. Both are checked against compiled kernels (`tests/data/triton_gemm_resources.csv`, written by
`benchmarks/compile_gemm.py`). They never under-predict shared memory there; they may move with Triton's version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.register_weights import REGISTER_MODELS
from constrint.kernels.gemm.registers import FRAGMENT_BYTES
from constrint.model import Expr, ceildiv, const, maximum, minimum

#: Bytes of one element of A and B.
ELEMENT_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "fp8": 1, "tf32": 4, "int8": 1}
#: Bytes of one element of C: 16-bit results for 16- and 8-bit floats, full width for tf32 and int8.
OUTPUT_BYTES: Mapping[str, int] = {"fp16": 2, "bf16": 2, "fp8": 2, "tf32": 4, "int8": 4}
#: Partial sums of a split-K grid are stored in 32 bits.
PARTIAL_BYTES = 4
#: An asynchronous copy moves at least four bytes per thread; a smaller operand tile is not pipelined.
MIN_COPY_BYTES = 4

#: Triton knows that a size or stride is a multiple of 16, or nothing; only then are loads 16 bytes wide.
ALIGNED_ELEMENTS = 16

Vars = Mapping[str, Expr]


def is_aligned(size: int) -> bool:
    """Whether the compiler may rely on this size or stride for wide loads."""
    return size % ALIGNED_ELEMENTS == 0


@dataclass(frozen=True)
class Unit:
    """The arithmetic unit that Triton's `tl.dot` reaches on a GPU for a dtype.

    Args:
        kind: "fma", "mma", "wgmma", "tcgen05", "mfma" or "wmma".
        shapes: Instruction shapes (m, n, k) to choose from.
        fallback: Kind used where the tile or the warps are too few for `kind` (mma on Hopper and later).
    """

    kind: str
    shapes: tuple[tuple[int, int, int], ...]
    fallback: str | None = None


def unit(gpu: GpuModel, dtype: str) -> Unit:
    """Find the unit that a Triton kernel uses on this GPU.

    Raises:
        UnsupportedError: When the GPU has no instruction for the dtype.
    """
    known = gpu.matrix_shapes(dtype)
    kinds = {instruction.kind for instruction in known}
    if not known:
        usable = [d for d in ELEMENT_BYTES if gpu.matrix_shapes(d)]
        raise UnsupportedError(
            f"{gpu.name} has no matrix instruction for {dtype} ({gpu.arch.target}). "
            f"It has them for: {', '.join(usable)}."
        )
    if gpu.vendor == "nvidia" and _capability(gpu) < 80:
        # Triton 3.9 has no tensor-core code for Volta and Turing: tl.dot becomes plain FMA in fp32.
        if dtype != "fp16":
            raise UnsupportedError(f"Triton does not compile a {dtype} GEMM for {gpu.arch.target}. Use fp16.")
        return Unit("fma", ((1, 1, 1),))
    if gpu.vendor == "amd":
        square = sorted({(i.m[0], i.n[0], i.k) for i in known if i.m[0] in (16, 32) and i.m == i.n}, reverse=True)
        # Of several instructions of one size, the one with the smallest k decides which tiles can use any.
        shapes = {shape[0]: shape for shape in square}
        return Unit("mfma" if "mfma" in kinds else "wmma", tuple(shapes[m] for m in sorted(shapes)))
    k = 32 // ELEMENT_BYTES[dtype]
    for kind in ("wgmma", "tcgen05"):
        if kind in kinds:
            return Unit(kind, ((64, 8, k),), fallback="mma")
    return Unit("mma", ((16, 8, max(i.k for i in known)),))


def _capability(gpu: GpuModel) -> int:
    major, _, minor = (gpu.arch.compute_capability or "0.0").partition(".")
    return int(major) * 10 + int(minor)


def async_share(found: Unit, v: Vars) -> Expr:
    """1 where the tile uses wgmma or tcgen05, 0 where it falls back to mma.

    Both need 64 rows and four warps; Triton uses tcgen05 with at most eight.
    """
    if found.fallback is None:
        return const(1)
    share = minimum(1, v["tile_m"] // 64) * minimum(1, v["num_warps"] // 4)
    return share * (1 - minimum(1, v["num_warps"] // 16)) if found.kind == "tcgen05" else share


def threads(gpu: GpuModel, v: Vars) -> Expr:
    """Threads per block."""
    return v["num_warps"] * gpu.sm.warp_size


def smem_bytes(gpu: GpuModel, dtype: str, v: Vars) -> Expr:
    """Shared memory (LDS) of one block in bytes: the operand pipeline, or the store's staging if that is larger."""
    found = unit(gpu, dtype)
    element = ELEMENT_BYTES[dtype]
    a, b = v["tile_m"] * v["tile_k"] * element, v["tile_n"] * v["tile_k"] * element
    stages = v["num_stages"]
    if found.kind == "fma":
        # Operands pass through shared memory one after the other, widened to fp32.
        return maximum(maximum(a, b) * (4 // element), v["tile_m"] * v["tile_n"] * OUTPUT_BYTES[dtype])
    if gpu.vendor == "amd":
        return _amd_smem(gpu, found, a, b, stages, threads(gpu, v))
    copies_a, copies_b = (minimum(1, operand // (MIN_COPY_BYTES * threads(gpu, v))) for operand in (a, b))
    # mma.sync keeps the stage being computed in registers; wgmma and tcgen05 read it from shared memory.
    behind = maximum(1, stages - 1)
    pipeline = _buffers(copies_a, behind) * a + _buffers(copies_b, behind) * b
    direct: Expr = const(0)
    if found.kind == "tcgen05":
        direct = stages * (a + b) + 8 * minimum(2, stages)  # and its mbarriers
        if element == 1:
            pipeline = pipeline + b  # a second copy of B may be needed on the way to mma.sync
    elif found.kind == "wgmma":
        # 8-bit row-major B has to be transposed on the way into wgmma, through one buffer.
        stages_b: Expr = const(1) if element == 1 else _buffers(copies_b, stages)
        direct = _buffers(copies_a, stages) * a + stages_b * b
    if found.fallback is not None:
        use = async_share(found, v)
        pipeline = use * direct + (1 - use) * pipeline
    return maximum(pipeline, _store_staging(gpu, dtype, found, v))


def _buffers(is_copied: Expr, stages: Expr) -> Expr:
    """Buffers of an operand: one per stage where it is copied asynchronously, else a single one."""
    return is_copied * stages + (1 - is_copied)


def _amd_smem(gpu: GpuModel, found: Unit, a: Expr, b: Expr, stages: Expr, num_threads: Expr) -> Expr:
    behind = maximum(1, stages - 1)
    copied: Expr = const(1)
    if gpu.arch.target == "gfx950":
        # Direct-to-LDS copies keep every stage, padded by at most a sixteenth; no exact form is known.
        both = ceildiv((stages * (a + b)) * 17, 16)
    elif found.kind == "wmma":
        both = behind * (a + b)
    else:
        copies_a, copies_b = (minimum(1, operand // (MIN_COPY_BYTES * num_threads)) for operand in (a, b))
        both = _buffers(copies_a, behind) * a + _buffers(copies_b, behind) * b
        copied = maximum(copies_a, copies_b)
    # One stage, or nothing to pipeline: A and B share one buffer.
    is_pipelined = minimum(1, stages - 1) * copied
    return is_pipelined * both + (1 - is_pipelined) * maximum(a, b)


def _store_staging(gpu: GpuModel, dtype: str, found: Unit, v: Vars) -> Expr:
    """Bytes in which the accumulator is re-ordered so that the store to C is coalesced (NVIDIA).

    The conversion is done in passes over the rows that one thread holds both before and after it; `wgmma` with
    16-bit results uses stmatrix and gets by with fewer bytes per pass.
    """
    splits = minimum(1, v["split_k"] - 1)
    wide = OUTPUT_BYTES[dtype] == PARTIAL_BYTES
    output = const(PARTIAL_BYTES) if wide else OUTPUT_BYTES[dtype] * (1 - splits) + PARTIAL_BYTES * splits
    num_threads = threads(gpu, v)
    vector = maximum(1, minimum(16 // output, v["tile_m"] * v["tile_n"] // num_threads))
    rows_stored = maximum(1, num_threads * vector // v["tile_n"])
    rows_computed = 16 * minimum(v["num_warps"], v["tile_m"] // 16)
    common = (1 + minimum(1, 8 // rows_stored)) * maximum(1, v["tile_m"] // maximum(rows_computed, rows_stored))
    if found.kind == "wgmma" and not wide:
        stmatrix = async_share(found, v) * (1 - splits)
        vectorised = stmatrix + (1 - stmatrix) * (4 - 2 * splits)
    else:
        vectorised = const(2) if wide else 4 - 2 * splits
    passes = maximum(1, common // vectorised)
    return ceildiv(v["tile_m"] * v["tile_n"] * output, passes)


def registers_per_thread(gpu: GpuModel, dtype: str, v: Vars) -> Expr:
    """Estimated 32-bit registers per thread (on CDNA the total of the unified file)."""
    found = unit(gpu, dtype)
    key = found.kind if gpu.vendor == "nvidia" else gpu.arch.target
    if found.fallback is None:
        return _registers(gpu, dtype, key, v)
    use = async_share(found, v)
    return use * _registers(gpu, dtype, key, v) + (1 - use) * _registers(gpu, dtype, found.fallback, v)


def _registers(gpu: GpuModel, dtype: str, key: str, v: Vars) -> Expr:
    model = REGISTER_MODELS[key]
    element = ELEMENT_BYTES[dtype]
    num_threads = threads(gpu, v)
    accumulators = ceildiv(v["tile_m"] * v["tile_n"], num_threads)
    if key == "fma":
        operands = v["tile_k"] * (16 + accumulators)
        return (model.base + model.accumulators * accumulators + model.fragment * operands) // 100
    words_a, words_b = (ceildiv(v[t] * v["tile_k"] * element, 4 * num_threads) for t in ("tile_m", "tile_n"))
    depth = minimum(v["tile_k"], FRAGMENT_BYTES // element)
    fragment = ceildiv(minimum(v["tile_m"], v["tile_n"]) * depth * element, 4 * gpu.sm.warp_size)
    hundredths = (
        model.base
        + model.accumulators * accumulators
        + model.words_a * words_a
        + model.words_b * words_b
        + model.fragment * fragment
        + model.persistent * v["persistent"]
    )
    return hundredths // 100
