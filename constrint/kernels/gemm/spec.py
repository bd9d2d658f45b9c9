"""The base of the GEMM's kernels as parameter spaces: sizes, rules on the grid and the epilogue, hardware limits.

Each implementation (`pointer/spec.py`, `descriptor/spec.py`, ...) adds its parameters, rules, resources and cost. No
implementation knows another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product as combinations
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnsupportedError
from constrint.hwmodels import GpuModel
from constrint.kernels.gemm.measured import sentence
from constrint.kernels.gemm.product import OPTIONS, SIZES, Product, has_tma, tma_refusal
from constrint.kernels.gemm.rules import (
    EXPRESSIONS,
    LEAST_ROWS,
    ROWS_IN_USE,
    Algebra,
    end_rules,
    end_smem_bytes,
    grid_rules,
)
from constrint.kernels.gemm.units import ELEMENT_BYTES, unit
from constrint.kernels.registry import load_kernel
from constrint.model import Problem, Var
from constrint.select.candidate import Config
from constrint.select.cost import CostColumns, cost_assumptions
from constrint.select.limits import BlockUse, add_block_limits
from constrint.select.spec import Columns, KernelSpec, Launch, Param, Rule, Vars
from constrint.select.workload import MAX_SIZE, Workload, size_class

if TYPE_CHECKING:
    from constrint.kernels.gemm.launch import GemmCall

#: Most stated problems in memory: a dozen dtypes and alignments on a few GPUs.
MAX_STATED = 64
#: Sides of a tile, in order of preference.
TILES = (128, 64, 256, 32, 16)
#: Sizes (m, n, k) that are tuned by default.
USUAL_SHAPES = (
    *((16, 4096, 4096), (16, 14336, 4096), (16, 4096, 14336), (64, 8192, 8192), (256, 4096, 4096)),
    *((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192)),
    *((512, 14336, 4096), (512, 4096, 14336), (1024, 3072, 768), (2048, 6144, 4096), (4096, 14336, 4096)),
    *((4096, 4096, 14336), (8192, 768, 768), (8192, 3072, 768), (8192, 768, 3072), (16384, 4096, 4096)),
)
POWER = "powers of two, as Triton's block shapes must be"


#: Shapes for which the best configurations are kept, first the better part of the space for a few, then the best of
#: those for many. Between them the best one changes little by little. The three lists after the grid hold shapes with a
#: side of one tile, where it changes most. Of 80 shapes drawn log-uniformly, 1372x17x16434 reaches 0.90 (A100), 0.91
#: (B200) and 0.96 (MI300X) of the whole space's best without the last list, and at least 0.96 with it; without all
#: three some shapes, 1x152x1 on an H200 say, have no valid row at all. `test_first_choice.py` draws others.
COARSE_SHAPES = (
    *combinations((16, 144, 1024, 8192), (16, 256, 2048, 16384), (512, 4096)),
    *((16, 16, 32), (256, 256, 64), (16, 4096, 64), (2048, 16, 64), (4096, 4096, 64), (16, 16, 8192)),
    *((2048, 48, 16384), (2048, 16, 16384), (64, 4096, 16), (2048, 1024, 16)),
    *((1408, 32, 16384), (800, 16, 8192), (5600, 16, 96), (5600, 32, 1024), (16, 16, 640), (16, 16, 16)),
)
FINE_SHAPES = (
    *combinations(
        (16, 48, 64, 128, 144, 272, 512, 1024, 2048, 4096, 16384),
        (16, 256, 1024, 3072, 4096, 12288),
        (256, 768, 2048, 8192),
    ),
    *COARSE_SHAPES,
)
COARSE_KEPT = 150
FINE_KEPT = 5
#: Stages of a table: shapes, and how many configurations are kept for each.
Shapes = tuple[tuple[int, int, int], ...]
Stages = tuple[tuple[Shapes, int], ...]
#: The shape whose space a table is made of: whatever is valid for some size is valid for it.
USUAL_SAMPLES: Shapes = ((1 << 16, 1 << 16, 1 << 16),)
USUAL_STAGES: Stages = ((COARSE_SHAPES, COARSE_KEPT), (FINE_SHAPES, FINE_KEPT))


def spread_shapes(number: int, first: int) -> tuple[tuple[int, int, int], ...]:
    """Shapes all over the range of sizes, evenly by their logarithms (Halton's sequence): m from 1, n and k from 8.

    For kernels whose best tile depends on the divisibility of sizes, which round shapes do not show.
    """
    drawn = (tuple(_halton(place, base) for base in (2, 3, 5)) for place in range(first, first + number))
    return tuple((round(2 ** (14 * m)), _multiple(3 + 11 * n), _multiple(3 + 12 * k)) for m, n, k in drawn)


def _multiple(exponent: float) -> int:
    """The multiple of 8 next to a power of two."""
    return max(8, 8 * round(2**exponent / 8))


def _halton(place: int, base: int) -> float:
    """The digits of a number behind the point, in reverse order."""
    value, weight = 0.0, 1.0
    while place:
        weight /= base
        value += weight * (place % base)
        place //= base
    return value


class _Stated(NamedTuple):
    """The space of a GPU and a kind of product before any rule on sizes. It keeps the GPU's model alive."""

    gpu: GpuModel
    problem: Problem
    variables: dict[str, Var]
    use: BlockUse


class GemmSpec(KernelSpec):
    """C[M, N] = A[M, K] @ B[K, N], accumulated in 32 bits."""

    operation = "gemm"
    sizes = SIZES
    options = OPTIONS
    # bf16 first: the default dtype where the GPU has it.
    dtypes = ("bf16", *(dtype for dtype in ELEMENT_BYTES if dtype != "bf16"))
    order_params: tuple[str, ...] = ("group_m", "xcd_chunk")
    free_params: tuple[str, ...] = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
    dtype_hints: ClassVar[Mapping[str, str]] = {
        "fp32": "`matmul` multiplies fp32 operands as tf32: ask for --dtype tf32, and for --three-pass 1 where fp32's "
        "precision is to be kept."
    }
    #: Values of parameters that other kernels of the operation have and this one lacks.
    fixed: ClassVar[Mapping[str, int]] = {}
    #: Whether the predicted time depends on the order of tiles.
    prices_order: ClassVar[bool] = False
    #: Whether one compiled kernel serves any number of rows.
    serves_any_rows: ClassVar[bool] = False
    #: Shapes whose spaces together are all that may be valid, of which the first choice's table is made.
    table_samples: ClassVar[Shapes] = USUAL_SAMPLES
    #: Shapes whose best configurations are all that the first choice looks at.
    table_shapes: ClassVar[Stages] = USUAL_STAGES
    #: Measured over predicted time of its first choices, in the median: 189 of Triton's kernels with a cold L2
    #: (`python -m benchmarks.gemm.library --gpu h200 --judge` prints it).
    optimism: ClassVar[float] = 1.10
    #: The same for batches (`python -m benchmarks.gemm.batches`); 0: as for single products.
    batch_optimism: ClassVar[float] = 0.0
    #: Whether `block_use` counts all that an epilogue takes; otherwise estimated rules add it.
    counts_ends: ClassVar[bool] = False
    #: Bytes an element of a matrix to add that a persistent block holds beside the next tile's loads, at most.
    source_bytes_beside: ClassVar[int] = 0
    #: Whether it has tiles to choose; a library has none.
    has_tiles: ClassVar[bool] = True
    #: Kind of the matrix instructions that it is written for; empty for any.
    instruction: ClassVar[str] = ""
    #: Targets that it is written for; empty for all that have the instructions.
    targets: ClassVar[tuple[str, ...]] = ()
    #: What `refusal` says to other GPUs, of which `{target}` is one, and to `{dtype}` on them.
    for_other_gpus: ClassVar[str] = ""
    #: What `refusal` says to operands of other types than `dtypes`; empty where the kernel takes all types of products.
    for_other_dtypes: ClassVar[str] = ""
    #: Whether it loads operands through a TMA unit, as they are or from a copy.
    needs_tma: ClassVar[bool] = False

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], _Stated] = {}

    # Stated by each kernel.

    @abstractmethod
    def tile_params(self, gpu: GpuModel, dtype: str) -> tuple[Param, ...]:
        """The tunable parameters on this GPU for a dtype."""

    @abstractmethod
    def tile_rules(self, gpu: GpuModel, product: Product, v: Vars) -> Iterator[Rule]:
        """Rules of the instruction and the kernel, which hold for all sizes with the same alignments."""

    @abstractmethod
    def block_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Resources of one block for a product without bias and matrix to add."""

    @abstractmethod
    def price(self, gpu: GpuModel, product: Product, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time of every row; without the order parameters, a lower bound over their values."""

    def size_rules(self, gpu: GpuModel, product: Product, v: Mapping[str, Any], algebra: Algebra) -> Iterator[Rule]:
        """The rules on sizes, over expressions or columns of numbers; those on the order of tiles come last."""
        yield from grid_rules(gpu, product.sizes, v, algebra, self.fixed, self.rows_in_use(gpu))

    def rows_in_use(self, gpu: GpuModel) -> int:
        """Rows of a tile that products with fewer rows may take: of one instruction, where the TMA kernel competes.

        This project's measured choices on these GPUs were made without larger ones.
        """
        return LEAST_ROWS if has_tma(gpu) else ROWS_IN_USE

    def table_options(self, product: Product) -> Mapping[str, int]:
        """Options for which the first choice has tables of their own; by default one table serves all."""
        return {}

    def stages(self, gpu: GpuModel) -> Stages:
        """Stages of the first choice's table on this GPU."""
        return self.table_shapes

    def serves(self, product: Product) -> bool:
        """Whether the first choice looks at the kernel's table for a product of such sizes."""
        return True

    def leading_rows(self, gpu: GpuModel, product: Product, columns: Columns) -> NDArray[np.int64] | None:
        """Configurations that others beat for no size, at which the first choice looks; None where nothing tells."""
        return None

    def optimism_of(self, product: Product) -> float:
        """Measured over predicted time of first choices for products like one."""
        return self.batch_optimism if product.batch > 1 and self.batch_optimism else self.optimism

    def uncalibrated(self) -> str:
        """Why `matmul` does not choose the kernel by its predicted times; empty where these rest on measurements.

        Such a kernel is solved, compiled and tuned like any, and launched where it was measured to be the fastest.
        """
        return ""

    def refusal(self, gpu: GpuModel, product: Product) -> str:
        """Why this kernel does not compute the product; empty if it does. `check_dtype` has spoken before.

        What the class declares of types and instructions is checked first, then `inability`.
        """
        if self.for_other_dtypes and product.dtype not in self.dtypes:
            return self.for_other_dtypes
        target = gpu.arch.target
        matrix = gpu.dot_unit(product.dtype) if self.instruction else None
        lacks_unit = self.instruction and (matrix is None or self.instruction not in (matrix.kind, matrix.fallback))
        if lacks_unit or (self.targets and target not in self.targets):
            return self.for_other_gpus.format(dtype=product.dtype, target=target)
        return (tma_refusal(gpu, product) if self.needs_tma else "") or self.inability(gpu, product)

    def inability(self, gpu: GpuModel, product: Product) -> str:
        """Why the kernel does not compute a product that passes what the class declares; empty if it does."""
        return ""

    # The interface to ranking (`KernelSpec`).

    def check_dtype(self, gpu: GpuModel, workload: Workload) -> None:
        """Raise UnsupportedError where the GPU has no unit for the dtype, or the kernel is not for the product."""
        unit(gpu, workload.dtype)
        reason = self.refusal(gpu, Product.of(workload))
        if reason:
            raise UnsupportedError(f"{self.full_name}: {reason}.")

    def params(self, gpu: GpuModel, workload: Workload) -> tuple[Param, ...]:
        """Tile sizes, warps, stages, block order and whatever else the kernel has."""
        return self.tile_params(gpu, workload.dtype)

    def rules(self, gpu: GpuModel, workload: Workload, v: Vars) -> Iterator[Rule]:
        """The rules of the instruction and the kernel, then those of the grid."""
        product = Product.of(workload)
        yield from self.tile_rules(gpu, product, v)
        yield from self.size_rules(gpu, product, v, EXPRESSIONS)

    def use(self, gpu: GpuModel, workload: Workload, v: Vars) -> BlockUse:
        """Warps, registers and shared memory of one block."""
        return self.product_use(gpu, Product.of(workload))

    def problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """State the space; every limit comes from the GPU model, every rule carries its reason."""
        return self.product_problem(gpu, Product.of(workload))

    def product_problem(self, gpu: GpuModel, product: Product) -> Problem:
        """State the space of a product, whose operands may have layouts that no workload describes."""
        stated = self._stated(gpu, product)
        problem = stated.problem.copy()
        for rule in self.size_rules(gpu, product, stated.variables, EXPRESSIONS):
            problem.add(rule.condition, name=rule.name, because=rule.because, kind=rule.kind)
        return problem

    def stated_problem(self, gpu: GpuModel, workload: Workload) -> Problem:
        """The space before any rule on sizes."""
        return self._stated(gpu, Product.of(workload)).problem

    def _stated(self, gpu: GpuModel, product: Product) -> _Stated:
        """Return the statement for all sizes with these alignments, from memory if it was stated before."""
        key = (id(gpu), *kind_of(product))
        if key not in self._known:
            if len(self._known) >= MAX_STATED:
                self._known.clear()
            self._known[key] = self._state(gpu, product)
        return self._known[key]

    def product_use(self, gpu: GpuModel, product: Product) -> BlockUse:
        """Resources of a block for a product, over the kernel's parameters."""
        return self._stated(gpu, product).use

    def _state(self, gpu: GpuModel, product: Product) -> _Stated:
        problem = Problem(self.full_name)
        v: dict[str, Var] = {}
        for param in self.tile_params(gpu, product.dtype):
            v[param.name] = problem.int_var(param.name, values=list(param.values), because=param.because)
        for rule in self.tile_rules(gpu, product, v):
            problem.add(rule.condition, name=rule.name, because=rule.because, kind=rule.kind)
        use = self._whole_use(gpu, product, {name: v[name] for name in v if name not in self.free_params})
        add_block_limits(problem, gpu, use)
        ends = () if self.counts_ends else end_rules(gpu, product, v)
        for rule in (*ends, *self.promise_rules(gpu, use, v)):
            problem.add(rule.condition, name=rule.name, because=rule.because, kind=rule.kind)
        return _Stated(gpu, problem, v, use)

    def promise_rules(self, gpu: GpuModel, use: BlockUse, v: Vars) -> Iterator[Rule]:
        """Rules on the promises to the compiler; they come after the hardware's limits."""
        yield from ()

    def _whole_use(self, gpu: GpuModel, product: Product, v: Vars) -> BlockUse:
        """Resources of a block with everything that the product's end may add to them."""
        plain = self.block_use(gpu, product, v)
        if self.counts_ends or not (product.has_bias or product.has_source or product.is_three_pass):
            return plain
        end = partial(end_smem_bytes, gpu, product, v, self.source_bytes_beside)
        exact = plain.smem_bytes_exact
        return replace(
            plain,
            smem_bytes=end(plain.smem_bytes),
            smem_bytes_exact=None if exact is None else end(exact),
            least_smem_bytes=plain.smem_needed,
        )

    def cost(self, gpu: GpuModel, workload: Workload, columns: Columns, blocks_per_sm: NDArray[Any]) -> CostColumns:
        """Predicted time per row; without `group_m` and `xcd_chunk`, the least over their values."""
        return self.price(gpu, Product.of(workload), columns, blocks_per_sm)

    def assumptions(self, gpu: GpuModel, workload: Workload) -> tuple[str, ...]:
        """Return the assumptions about this GPU that no source backs, a sentence each."""
        reason = self.uncalibrated()
        return (*cost_assumptions(gpu, workload.dtype), *([f"{self.full_name}: {reason}"] if reason else []))

    def evidence(self, gpu: GpuModel, workload: Workload) -> str:
        """Times that others published, which the model was held against."""
        return sentence(gpu, workload.dtype)

    def moved_bytes(self, workload: Workload) -> int:
        """Bytes of A, B and C, each counted once."""
        p = Product.of(workload)
        return p.batch * ((p.m * p.k + p.k * p.n) * ELEMENT_BYTES[p.dtype] + p.m * p.n * p.output_bytes)

    def usual_workloads(self, gpu: GpuModel) -> Iterator[Workload]:
        """Products of transformers of several widths, for few tokens and for many; weights by rows and by columns."""
        dtype = self.default_workload(gpu).dtype
        for transpose_b in (0, 1):
            options = {"transpose_b": 1} if transpose_b else {}
            for m, n, k in USUAL_SHAPES:
                yield Workload(self.operation, {"m": m, "n": n, "k": k}, dtype, options)

    def num_operations(self, workload: Workload) -> int:
        """2 x batch x M x N x K."""
        p = Product.of(workload)
        return 2 * p.batch * p.m * p.n * p.k

    def roofline_s(self, gpu: GpuModel, workload: Workload) -> float:
        """max(operations / the device's own peak, compulsory bytes / DRAM bandwidth), whatever unit the kernel uses."""
        p = Product.of(workload)
        peak = _stated(gpu, p.dtype, gpu.peak_flop_per_s(p.dtype))
        compute_s = 2.0 * p.batch * p.m * p.n * p.k / peak
        return float(np.maximum(compute_s, self.moved_bytes(workload) / gpu.memory.dram.bandwidth_bytes_per_s))

    # Launch and check.

    def inputs(self, gpu: GpuModel, workload: Workload, *, device: Any = "meta", seed: int = 0) -> dict[str, Any]:
        """A (batch, M, K), B (batch, K, N), and bias (N,) and source (batch, M, N) where the workload has them."""
        from constrint.kernels.gemm.operands import random_operands

        return random_operands(gpu, Product.of(workload), device=device, seed=seed)

    def unusual_inputs(self, workload: Workload, inputs: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Rows further apart, sums of one sign, hardly anything but zeros, small elements."""
        from constrint.kernels.gemm.operands import unusual_operands

        return unusual_operands(dict(inputs), number)

    def outputs(self, gpu: GpuModel, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C (batch, M, N), empty."""
        from constrint.kernels.gemm.operands import empty_result

        return {"c": empty_result(Product.of(workload), inputs["a"])}

    def launches(
        self, gpu: GpuModel, workload: Workload, config: Config, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Sequence[Launch]:
        """Copies of operands where the kernel needs them, then the kernel."""
        from constrint.kernels.gemm.launch import Epilogue, GemmCall, Machine, modelled_precision

        end = Epilogue(inputs.get("bias"), inputs.get("source"), beta=1.0 if "source" in inputs else 0.0)
        precision = modelled_precision(Product.of(workload))
        return self.call_launches(
            GemmCall(inputs["a"], inputs["b"], outputs["c"], Machine.of(gpu), end, precision), config
        )

    def compiled_as(self, workload: Workload) -> Workload:
        """The workload with sizes replaced by representatives of the same divisibility and width of addresses."""
        sizes = workload.sizes
        if max(sizes["m"] * sizes["k"], sizes["k"] * sizes["n"], sizes["m"] * sizes["n"]) > MAX_SIZE:
            return workload
        return replace(workload, sizes={name: size_class(size) for name, size in sizes.items()})

    @abstractmethod
    def call_launches(self, call: GemmCall, config: Config) -> Sequence[Launch]:
        """The launches of one call; see `launch.py`. Needs torch and triton."""

    def num_terms(self, workload: Workload) -> int:
        """K, the number of products in the sum of an element of C."""
        return workload.sizes["k"]

    def reference(self, workload: Workload, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """C in fp64 (integers exactly)."""
        from constrint.kernels.gemm.operands import exact_result

        return {"c": exact_result(dict(inputs))}


@lru_cache(maxsize=1)
def gemm_specs() -> tuple[GemmSpec, ...]:
    """The operation's implementations, preferred ones first."""
    return tuple(spec for spec in load_kernel("gemm").implementations if isinstance(spec, GemmSpec))


def gemm_spec(full_name: str) -> GemmSpec:
    """One implementation by its full name, `gemm.pointer`."""
    return next(spec for spec in gemm_specs() if spec.full_name == full_name)


def kind_of(p: Product) -> tuple[Any, ...]:
    """Return the facts of a product, beside the GPU, that a statement depends on."""
    ends = p.output_bytes, p.has_bias, p.has_source, p.is_three_pass, p.batch > 1
    copied = p.a.is_copied, p.b.is_copied
    return p.dtype, p.aligned, p.a.is_k_major, p.b.is_k_major, *copied, *ends, p.has_nvrtc


def matrix_peak_flop_per_s(gpu: GpuModel, dtype: str) -> float:
    """Dense peak of the unit that Triton uses for this dtype.

    Raises:
        UnsupportedError: When no source states it.
    """
    peak = gpu.vector_flop_per_s("fp32") if unit(gpu, dtype).kind == "fma" else gpu.peak_flop_per_s(dtype)
    return _stated(gpu, dtype, peak)


def _stated(gpu: GpuModel, dtype: str, peak: float | None) -> float:
    if peak is None:
        raise UnsupportedError(f"the peak rate of {gpu.name} for {dtype} is unconfirmed, so no time can be modelled.")
    return peak
