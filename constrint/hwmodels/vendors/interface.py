"""The interface of a GPU vendor, the value types of its answers, and the vendors by name.

A vendor is one object of a class derived from `Vendor`. A method that it does not override raises an
UnsupportedError that names the GPU and the vendor; nothing is guessed.
"""

from __future__ import annotations

import functools
import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NoReturn

import msgspec

from constrint import plugins
from constrint.errors import HardwareModelError, UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels.banks import StatedPhases, read_banks
from constrint.hwmodels.files import read_yaml

if TYPE_CHECKING:
    from constrint.hwmodels.occupancy import KernelUse, ResourceLimits
    from constrint.hwmodels.schema import GpuModel, Sm

#: A broken rule of a GPU's file: the key's path, and the rule.
Finding = tuple[str, str]


@dataclass(frozen=True)
class Terms:
    """The vendor's own words in printed output.

    Args:
        sm: The processor that holds blocks, "SM".
        sms: Its plural.
        a_sm: The word with its article, "an SM".
        partition: The part of it that owns a share of the registers, "sub-partition".
        block: A group of threads that share memory, "block".
        blocks: Its plural.
        warp: Threads in lockstep, "warp".
        warps: Its plural.
        smem: The memory that a block shares, "shared memory".
        smem_column: The same as the title of a column, "smem".
    """

    sm: str
    sms: str
    a_sm: str
    partition: str
    block: str
    blocks: str
    warp: str
    warps: str
    smem: str
    smem_column: str


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Properties of a GPU beyond its sizes, by which kernels branch; they never branch by vendor.

    Args:
        has_async_copies: Loads of later iterations go into shared memory past the registers, in every loop that
            Triton pipelines. Elsewhere they wait in registers until their turn.
        has_tensor_descriptors: The GPU has a unit that moves whole tiles by a descriptor (TMA).
        has_inline_ptx: Kernels may write PTX instructions out.
        has_square_dots: Every matrix instruction yields as many columns as rows, and a compiler option chooses between
            sizes. Otherwise the smallest one is narrow.
        smallest_dot_rows: Rows of the sequence side that the smallest matrix instruction takes.
        smallest_dot_columns: Columns of a tile that one warp's smallest matrix instruction takes.
        wide_dot_dtype: Type of the matrix instructions that multiply operands of 32 bits: "tf32" or "fp32".
        deals_chained_dots_to_rows: Triton lays the warps of a dot that depends on other dots below each other, so
            that each warp reads all columns.
        deals_tall_dots_to_rows: Triton lays warps below each other where a tile has at least as many rows as columns.
        least_pipelined_bytes: Narrowest load of a thread, in bytes, that can run ahead of its use.
        pipeline_stages: Depths of a load pipeline worth trying, the usual one first.
        compiler_knobs: Options of the Triton back-end that a kernel's space may hold as parameters.
        product_library: Library of matrix products that torch calls: "cuBLAS", "hipBLASLt"; empty where none is known.
        code_family: GPUs of one family get register counts of one fit, such as "sm_9x".
    """

    has_async_copies: bool
    has_tensor_descriptors: bool
    has_inline_ptx: bool
    has_square_dots: bool
    smallest_dot_rows: int
    smallest_dot_columns: int
    wide_dot_dtype: str
    deals_chained_dots_to_rows: bool
    deals_tall_dots_to_rows: bool
    least_pipelined_bytes: int
    pipeline_stages: tuple[int, ...]
    compiler_knobs: tuple[str, ...] = ()
    product_library: str = ""
    code_family: str


@dataclass(frozen=True)
class RegisterFile:
    """The registers of one partition of an SM, in the unit in which the vendor gives them out.

    Args:
        capacity: Registers of one partition: of the whole partition, or of each lane.
        granularity: A warp is given a multiple of this many.
        counted: Unit of `capacity` in words, "registers per SM sub-partition".
        per_thread: Units of `capacity` per register of a thread that a warp takes: the warp's threads where the whole
            partition is counted, 1 where a lane is.
        shared_by_block: Registers of the SM that the compiler divides evenly among the threads of a block. None where
            it divides a partition's registers among the warps there, in steps of `granularity`.
        partitions_per_block: Partitions over which the warps of one block are spread; those of an SM if None.
        num_files: Files of this size that a thread's registers may lie in: two where matrix instructions can sum in
            a file of their own.
    """

    capacity: int
    granularity: int
    counted: str
    per_thread: int
    shared_by_block: int | None = None
    partitions_per_block: int | None = None
    num_files: int = 1


@dataclass(frozen=True)
class DotUnit:
    """The arithmetic unit that Triton's `tl.dot` reaches on a GPU for a dtype.

    Args:
        kind: "fma", "mma", "wgmma", "tcgen05", "mfma" or "wmma"; another vendor's may be named otherwise.
        shapes: Instruction shapes (m, n, k) to choose from.
        fallback: Kind used where the tile or the warps are too few for `kind` (mma on Hopper and later).
    """

    kind: str
    shapes: tuple[tuple[int, int, int], ...]
    fallback: str | None = None


@dataclass(frozen=True)
class DeviceFacts:
    """Values that libraries may report for a device of this model; several where they count differently."""

    sm_counts: frozenset[int]
    threads_per_sm: frozenset[int]
    smem_bytes_per_sm: frozenset[int]
    registers_per_sm: frozenset[int] = field(default_factory=frozenset)


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that holds for the vendor's GPUs in general, and where it comes from."""

    value: Annotated[float, msgspec.Meta(gt=0)]
    source: Annotated[str, msgspec.Meta(min_length=1)]


class Units(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most operations of one SM in a clock, by dtype; a dtype that is not listed is not checked."""

    matrix: dict[str, Annotated[float, msgspec.Meta(gt=0)]]
    vector: dict[str, Annotated[float, msgspec.Meta(gt=0)]]
    source: Annotated[str, msgspec.Meta(min_length=1)]
    packed_vector: dict[str, Annotated[float, msgspec.Meta(gt=0)]] = {}


class LimitRow(NamedTuple):
    """A line of `constrint limits`: key, unit, value, meaning."""

    key: str
    unit: str
    value: Any
    meaning: str


class BlockLimit(NamedTuple):
    """A block's demand for one resource (an argument of `occupancy`, in words), and the most that a block can have."""

    name: str
    unit: str
    asked: Any
    most: int


@functools.cache
def read_figures(path: Path) -> Mapping[str, Figure]:
    """The figures of a YAML file: a mapping of names to `value` and `source`."""
    try:
        return msgspec.convert(read_yaml(path), dict[str, Figure])
    except msgspec.ValidationError as error:
        raise HardwareModelError(f"{path}: {error}.") from None


@functools.cache
def read_units(path: Path) -> Mapping[str, Units]:
    """The units of a YAML file by target."""
    try:
        return msgspec.convert(read_yaml(path), dict[str, Units])
    except msgspec.ValidationError as error:
        raise HardwareModelError(f"{path}: {error}.") from None


class Vendor(ABC):
    """One GPU vendor.

    Attributes:
        name: Value of `vendor:` in the files of its GPUs.
        title: The name in sentences.
        terms: The vendor's words.
        sm_type: Struct of the file's `sm` block, tagged with `name`.
        targets: The family of each target that constrint knows.
        target_pattern: The form of a target, as a regular expression; empty if any text will do.
        target_form: The same in words, with an example.
        required_keys: Keys that every file of the vendor has; `null` where unknown.
        matrix_kinds: Kinds of its matrix instructions, as the files state them.
        occupancy_options: The optional arguments of `occupancy` that this vendor's GPUs take, of `KernelUse.options`.
        units_file: YAML file with what the units of an SM do in one clock, by target as compilers name it.
        triton_backend: Name of Triton's back-end, None where there is none.
        figures_file: YAML file of the vendor's figures.
        assumed_file: YAML file of the assumptions about its GPUs, by family.
        banks_file: YAML file of the lanes that shared memory serves together, by target or family.
        meanings: Meanings of the numbers that only its `sm_type` has, by their names in rules.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    terms: ClassVar[Terms]
    sm_type: ClassVar[type[Sm]]
    targets: ClassVar[Mapping[str, str]] = {}
    target_pattern: ClassVar[str] = ""
    target_form: ClassVar[str] = ""
    required_keys: ClassVar[tuple[str, ...]] = ()
    matrix_kinds: ClassVar[tuple[str, ...]] = ()
    occupancy_options: ClassVar[frozenset[str]] = frozenset()
    units_file: ClassVar[Path | None] = None
    triton_backend: ClassVar[str | None] = None
    figures_file: ClassVar[Path | None] = None
    assumed_file: ClassVar[Path | None] = None
    banks_file: ClassVar[Path | None] = None
    meanings: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def register_file(self, gpu: GpuModel) -> RegisterFile:
        """The registers that blocks compete for."""

    @abstractmethod
    def occupancy_limits(self, gpu: GpuModel, use: KernelUse) -> ResourceLimits:
        """Blocks of a kernel that each resource of one SM allows."""

    def findings(self, gpu: GpuModel) -> Iterator[Finding]:
        """Rules of the vendor that a GPU's file breaks."""
        return iter(())

    def target_number(self, target: str) -> int:
        """The number in a target's name, by which targets are near to each other."""
        return int("".join(filter(str.isdigit, target)) or 0)

    def block_limits(self, gpu: GpuModel, use: KernelUse) -> list[BlockLimit]:
        """A block's demand for each resource beside the most that one block can have."""
        sm = gpu.sm
        return [
            BlockLimit("threads_per_block", "threads", use.threads_per_block, sm.max_threads_per_block),
            BlockLimit(
                "registers_per_thread", "registers a thread", use.registers_per_thread, sm.max_registers_per_thread
            ),
            BlockLimit(
                "smem_bytes_per_block",
                f"bytes of {self.terms.smem}",
                use.smem_bytes_per_block,
                sm.max_smem_bytes_per_block,
            ),
        ]

    def limit_rows(self, gpu: GpuModel) -> list[LimitRow]:
        """Limits of one SM that `constrint limits` prints beside those that every vendor has."""
        return []

    def units(self) -> Mapping[str, Units]:
        """The most that the units of an SM do in one clock, by target; peak rates are held against it."""
        return {} if self.units_file is None else read_units(self.units_file)

    def figures(self) -> Mapping[str, Figure]:
        """Numbers for the vendor's GPUs in general, which models of time ask for by name."""
        return {} if self.figures_file is None else read_figures(self.figures_file)

    def banks(self) -> Mapping[str, Mapping[str, StatedPhases | None]]:
        """Lanes that shared memory serves together: by target, family or `any`, then by kind and width."""
        return {} if self.banks_file is None else read_banks(self.banks_file)

    def device_facts(self, gpu: GpuModel) -> DeviceFacts:
        """Values that a device of this model may report."""
        sm = gpu.sm
        return DeviceFacts(
            sm_counts=frozenset({gpu.device.sm_count}),
            threads_per_sm=frozenset({sm.max_threads_per_sm}),
            smem_bytes_per_sm=frozenset({sm.smem_bytes_per_sm}),
        )

    def compiler_target(self, gpu: GpuModel) -> str:
        """The target as compilers and devices name it: `sm_90` where the file says `sm_90a`."""
        return gpu.arch.target

    def triton_target(self, gpu: GpuModel) -> tuple[str, int | str, int]:
        """Arguments of Triton's GPUTarget: back-end, architecture, threads per warp."""
        if self.triton_backend is None:
            self.refuse(gpu, "a Triton back-end")
        return self.triton_backend, gpu.arch.target, gpu.sm.warp_size

    def traits(self, gpu: GpuModel) -> Traits:
        """The traits of the GPU by which kernels branch."""
        self.refuse(gpu, "the traits that kernels ask for")

    def dot_unit(self, gpu: GpuModel, dtype: str) -> DotUnit | None:
        """The unit that Triton's dot reaches for a dtype of which there are instructions; None if it reaches none."""
        self.refuse(gpu, "which matrix unit Triton's dot reaches")

    def refuse(self, gpu: GpuModel, what: str) -> NoReturn:
        """Raise the UnsupportedError for a property that the vendor does not state."""
        raise UnsupportedError(f"{gpu.name}: the vendor {self.name!r} does not state {what}.")


#: Folders beside this file; each has a `VENDOR`. In the order in which GPUs are listed.
BUILT_IN = ("nvidia", "amd")
#: Entry points of other distributions: each names a `Vendor` object.
GROUP = "constrint.vendors"

_registered: dict[str, Vendor] = {}


def register_vendor(vendor: Vendor) -> None:
    """Make a vendor known under its name; registering the same object again changes nothing.

    Raises:
        UsageError: When another vendor has the name, or its SM struct is not tagged with it or lacks keys.
    """
    struct: Any = vendor.sm_type
    missing = [key for key in struct.required_keys() if key not in struct.__struct_fields__]
    if missing:
        raise UsageError(f"the SM struct of the vendor {vendor.name!r} lacks {', '.join(missing)}.")
    if struct.__struct_config__.tag != vendor.name:
        raise UsageError(f"the SM struct of the vendor {vendor.name!r} needs tag_field='vendor', tag={vendor.name!r}.")
    if _registered.setdefault(vendor.name, vendor) is not vendor:
        raise UsageError(f"a vendor named {vendor.name!r} is registered already; choose another name.")


def get_vendor(name: str) -> Vendor:
    """The vendor of that name.

    Raises:
        UnknownNameError: When none is registered; lists those that are.
    """
    _load_built_in()
    if name not in _registered:
        _load()
    if name not in _registered:
        raise UnknownNameError("vendor", name, _registered, "`register_vendor` adds one.")
    return _registered[name]


def list_vendors() -> tuple[Vendor, ...]:
    """Every vendor: those of this distribution, then the others in the order of their registration."""
    _load()
    return tuple(sorted(_registered.values(), key=lambda v: (*BUILT_IN, v.name).index(v.name)))


@functools.cache
def _load_built_in() -> None:
    """Register what stands in the folders beside this file."""
    for name in BUILT_IN:
        register_vendor(importlib.import_module(f"{__package__}.{name}").VENDOR)


@functools.cache
def _load() -> None:
    """Register these and what stands behind the entry points."""
    _load_built_in()
    plugins.use_each(plugins.offered(GROUP), lambda _, vendor: register_vendor(vendor))
