"""The schema of a GPU's model: one frozen struct per block of its YAML file, with the same names and units.

The structs are the schema (`data/README.md` explains every key). They hold facts and look them up; nothing
here computes an occupancy or a time. A `None` is a value that no source confirms, or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from constrint.errors import UnknownNameError, UnsupportedError
from constrint.hwmodels.vendors import Vendor, get_vendor
from constrint.hwmodels.vendors.interface import DotUnit, RegisterFile, Terms, Traits

#: Upper bound on every quantity, so that absurd values in a file cannot overflow later arithmetic.
MAX_VALUE = 2**50
Positive = Annotated[int, Meta(ge=1, le=MAX_VALUE)]
NotNegative = Annotated[int, Meta(ge=0, le=MAX_VALUE)]
Rate = Annotated[float, Meta(gt=0)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]
Sources = Annotated[tuple[Text, ...], Meta(min_length=1)]
Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4", "b1"]
DTYPES: tuple[str, ...] = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp6", "fp4", "int8", "int4", "b1")

Rule = TypeVar("Rule")


class Block(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block of the file: unknown keys are refused, missing ones too."""


class Arch(Block, frozen=True):
    """The instruction set that kernels are compiled for."""

    target: Text
    family: Text
    sources: Sources
    compute_capability: Annotated[str, Meta(pattern=r"^\d+\.\d+$")] | None = None


class Device(Block, frozen=True):
    """The device as a whole. An SM is a CU on AMD."""

    sm_count: Positive
    boost_clock_hz: Positive | None
    sources: Sources
    max_clock_hz: Positive | None = None
    num_xcds: Positive = 1
    sms_per_xcd: Positive | None = None
    num_gpcs: Positive | None = None
    num_shader_engines: Positive | None = None
    max_cluster_blocks_portable: Positive | None = None
    max_cluster_blocks_nonportable: Positive | None = None


class Sm:
    """Keys of the `sm` block common to all vendors; a vendor's struct declares them and its own.

    An SM is a CU on AMD, a warp a wave, a block a workgroup.
    """

    __slots__ = ()
    warp_sizes: tuple[int, ...]
    num_partitions: int
    max_threads_per_block: int
    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    max_registers_per_thread: int
    smem_bytes_per_sm: int
    max_smem_bytes_per_block: int
    smem_alloc_granularity_bytes: int
    smem_reserved_bytes_per_block: int
    smem_banks: int | None
    smem_bank_width_bytes: int | None
    special_functions_per_clk: int | None
    sources: tuple[str, ...]

    @property
    def warp_size(self) -> int:
        """Threads per warp unless a kernel asks otherwise: 32 on NVIDIA and RDNA, 64 on CDNA."""
        return self.warp_sizes[0]

    @staticmethod
    def required_keys() -> tuple[str, ...]:
        """The keys above."""
        return tuple(Sm.__annotations__)


class CacheLevel(Block, frozen=True):
    """A cache: `size_bytes` is per SM for l1 and for the whole device for l2 and last_level.

    `assumed_bandwidth_bytes_per_s` replaces a bandwidth that no source of the vendor states; it comes from third-party
    measurements, and every user of it reports that.
    """

    size_bytes: Positive | None
    line_bytes: Positive | None
    bandwidth_bytes_per_s: Rate | None
    sources: Sources
    size_bytes_per_xcd: Positive | None = None
    sector_bytes: Positive | None = None
    assumed_bandwidth_bytes_per_s: Rate | None = None


class Dram(Block, frozen=True):
    """Device memory; `size_bytes` is the capacity on the data sheet, 1 GB being 10^9 bytes.

    `data_rate_bits_per_s` is that of one line of the bus.
    """

    size_bytes: Positive
    bandwidth_bytes_per_s: Rate
    kind: Text
    sources: Sources
    bus_width_bits: Positive | None = None
    data_rate_bits_per_s: Rate | None = None


class Memory(Block, frozen=True):
    """The levels between an SM and device memory."""

    l1: CacheLevel
    l2: CacheLevel
    dram: Dram
    last_level: CacheLevel | None = None


class Compute(Block, frozen=True):
    """Dense peak rates of the whole device. A dtype that the unit cannot do is absent; null is unknown."""

    matrix_flop_per_s: dict[Dtype, Rate | None]
    vector_flop_per_s: dict[Dtype, Rate | None]
    sources: Sources
    matrix_fp16_accumulate_flop_per_s: dict[Dtype, Rate] | None = None
    packed_vector_flop_per_s: dict[Dtype, Rate] | None = None
    sustained_matrix_fraction: Fraction | None = None


class MatrixInstruction(Block, frozen=True):
    """A matrix instruction: D[m, n] += A[m, k] B[k, n], `blocks` of them at once (4x4 and 16x16 MFMA)."""

    name: Text
    dtype: Dtype
    kind: Text
    m: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    n: Annotated[tuple[Positive, ...], Meta(min_length=1)]
    k: Positive
    cycles: Positive | None = None
    blocks: Positive = 1
    num_ctas: Positive = 1


class MatrixUnits(Block, frozen=True):
    """Every dense matrix instruction; those for structured sparsity are left out."""

    instructions: tuple[MatrixInstruction, ...]
    sources: Sources


class MeasuredHere(Block, frozen=True):
    """Measurements on a GPU of this model; they take the place of what would be assumed.

    Its keys are quantities of `assumed.py`: the share of the DRAM's rate on the data sheet, seconds to start and drain
    a kernel, and the shares of the matrix peaks that are not those of 16-bit operands.
    """

    sources: Sources
    dram_share: Fraction | None = None
    launch_s: Rate | None = None
    sustained_fp8_fraction: Fraction | None = None
    sustained_int8_fraction: Fraction | None = None


class GpuModel(Block, frozen=True):
    """One GPU, as its file states it."""

    schema: Literal[1]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")]
    vendor: Text
    aliases: tuple[Text, ...]
    arch: Arch
    device: Device
    sm: Sm
    memory: Memory
    compute: Compute
    matrix: MatrixUnits
    unconfirmed: tuple[Text, ...]
    disagreements: tuple[Text, ...]
    sources: dict[str, Text]
    notes: tuple[Text, ...] = ()
    measured: MeasuredHere | None = None

    def __repr__(self) -> str:
        return f"<GpuModel {self._summary()}>"

    def _summary(self) -> str:
        size = f"{self.memory.dram.size_bytes / 1e9:,.0f} GB of {self.memory.dram.kind}"
        arch = f"{self.arch.target}, {self.arch.family}"
        return f"{self.name} ({arch}): {self.device.sm_count} {self.terms.sms}, {size}"

    def _repr_html_(self) -> str:
        """Render the limits and the matrix peaks as a table for notebooks; a dash where no source states a value."""
        from constrint.frames import html_table  # loaded when a notebook shows the model

        cells = [(title, key, None if value is None else _shown(value)) for title, key, value in self._headline()]
        return html_table(self._summary(), ["", "key", "value"], cells, left=1)

    def _headline(self) -> list[tuple[str, str, Any]]:
        """Limits of a block and of an SM, and the matrix peaks: title, key of the GPU's file, value."""
        sm, terms, dram = self.sm, self.terms, self.memory.dram
        peaks = self.compute.matrix_flop_per_s
        return [
            (f"threads per {terms.block}", "max_threads_per_block", sm.max_threads_per_block),
            (f"{terms.warp} size", "warp_size", sm.warp_size),
            (f"{terms.smem} per {terms.block}, bytes", "max_smem_bytes_per_block", sm.max_smem_bytes_per_block),
            ("registers per thread", "max_registers_per_thread", sm.max_registers_per_thread),
            (f"{terms.warps} per {terms.sm}", "max_warps_per_sm", sm.max_warps_per_sm),
            (f"{terms.blocks} per {terms.sm}", "max_blocks_per_sm", sm.max_blocks_per_sm),
            ("L2, bytes", "l2.size_bytes", self.memory.l2.size_bytes),
            ("DRAM, bytes/s", "dram.bandwidth_bytes_per_s", dram.bandwidth_bytes_per_s),
            *((f"matrix units, {dtype}, FLOP/s", "matrix_flop_per_s", rate) for dtype, rate in peaks.items()),
        ]

    @property
    def maker(self) -> Vendor:
        """The vendor's object, for all that differs between vendors."""
        return get_vendor(self.vendor)

    @property
    def terms(self) -> Terms:
        """The vendor's words: an SM or a CU, a warp or a wave."""
        return self.maker.terms

    @property
    def traits(self) -> Traits:
        """The traits of the GPU, by which kernels branch instead of by vendor.

        Raises:
            UnsupportedError: When the vendor states none.
        """
        return self.maker.traits(self)

    @property
    def register_file(self) -> RegisterFile:
        """The registers of one partition, and the steps in which a warp is given its share."""
        return self.maker.register_file(self)

    @property
    def compiler_target(self) -> str:
        """The target as compilers and devices name it: `sm_90` where `arch.target` is `sm_90a`."""
        return self.maker.compiler_target(self)

    def figure(self, name: str) -> float:
        """A number that the vendor states for its GPUs in general, such as `dram_latency_s`.

        Raises:
            UnsupportedError: When the vendor states no figure of that name.
        """
        if not self.has_figure(name):
            self.maker.refuse(self, f"the figure {name!r}, which a model of time needs")
        return self.maker.figures()[name].value

    def has_figure(self, name: str) -> bool:
        """Whether the vendor states a figure of that name."""
        return name in self.maker.figures()

    def dot_unit(self, dtype: str) -> DotUnit | None:
        """The unit that Triton's `tl.dot` reaches for a dtype of `matrix_shapes`; None where it reaches none.

        Raises:
            UnsupportedError: When the vendor does not state which.
        """
        return self.maker.dot_unit(self, dtype) if self.matrix_shapes(dtype) else None

    def of_triton_backend(self, rules: Mapping[str, Rule], what: str) -> Rule:
        """The entry of a table that is keyed by Triton's back-ends.

        Args:
            rules: The entries by `Vendor.triton_backend`.
            what: Name of the table's content in the error.

        Raises:
            UnsupportedError: When it has no entry for the GPU's back-end.
        """
        backend = self.maker.triton_backend
        if backend is None or backend not in rules:
            backends = ", ".join(rules)
            raise UnsupportedError(f"{self.name}: {what} are known for the Triton back-ends {backends}, not {backend}.")
        return rules[backend]

    def matrix_shapes(self, dtype: str) -> tuple[MatrixInstruction, ...]:
        """Instructions for operands of `dtype` that compute one tile, issued by a single block."""
        check_dtype(dtype)
        return tuple(i for i in self.matrix.instructions if i.dtype == dtype and i.blocks == i.num_ctas == 1)

    def peak_flop_per_s(self, dtype: str) -> float | None:
        """Dense peak of the device: of the matrix units, or of the vector units where those cannot do it.

        Accumulation is in fp32 (int32, fp64). None when the GPU cannot, or when no source confirms a rate.
        """
        if dtype in self.compute.matrix_flop_per_s:
            return self.matrix_flop_per_s(dtype)
        return self.vector_flop_per_s(dtype)

    def matrix_flop_per_s(self, dtype: str) -> float | None:
        """Dense peak of the matrix units; None when they cannot, or when no source confirms a rate."""
        return _rate(self.compute.matrix_flop_per_s, dtype)

    def vector_flop_per_s(self, dtype: str) -> float | None:
        """Peak of the plain (not matrix) units for fp64 and fp32; a fused multiply-add counts as two."""
        return _rate(self.compute.vector_flop_per_s, dtype)


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _rate(rates: Mapping[Any, float | None], dtype: str) -> float | None:
    check_dtype(dtype)
    return rates.get(dtype)


def check_dtype(dtype: str) -> None:
    """Raise UnknownNameError unless `dtype` is one of DTYPES."""
    if dtype not in DTYPES:
        raise UnknownNameError("dtype", str(dtype), DTYPES)
