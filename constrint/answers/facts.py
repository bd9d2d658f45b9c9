"""Typed facts about kernels on GPUs: `constrint report --json` prints them, and every figure is drawn from them.

`ParamFacts`, `RuleFacts` and `KernelFacts` state the space of an implementation.

Times are in seconds, sizes in bytes, rates per second. Modelled, compiled and measured figures are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from constrint.select import KernelSpec

SCHEMA = "constrint.report/1"
#: The value of a parameter: an integer in constrint's kernels, any JSON scalar in a user's kernel.
Value = int | float | str | bool | None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The base of all facts."""


class ParamFacts(Facts, frozen=True):
    """A tunable parameter: its values, the preferred ones first, its meaning, and the reason of the values."""

    name: str
    values: tuple[Value, ...]
    meaning: str
    because: str


class RuleFacts(Facts, frozen=True):
    """A rule of a kernel's space, and the configurations that it removes.

    Args:
        name: The name; the text of a nameless rule.
        rule: The text.
        kind: `certain`, `redundant`, `estimated`, `yours`, or empty.
        because: The reason.
        prunes: Whether the rule excludes configurations; an estimated rule only ranks.
        removes_alone: Configurations of the full product that break the rule; None if they were not counted.
        removes_only: Configurations that break this rule alone.
        left: Configurations left after this rule and all rules before it; None for an estimated rule.
    """

    name: str
    rule: str
    kind: str
    because: str
    prunes: bool = True
    removes_alone: int | None = None
    removes_only: int | None = None
    left: int | None = None


class BrokenFacts(Facts, frozen=True):
    """A rule of a conflict with its numbers: `seen` is `20480 <= 16384 is false`.

    `name` is empty for a parameter's domain; `seen` is empty if no configuration breaks this rule alone.
    """

    name: str
    rule: str
    seen: str
    because: str


class CellFacts(Facts, frozen=True):
    """The best configuration of a cell of the heat map, or the conflict of an empty cell.

    Args:
        x, y: Values of the two parameters.
        num_valid: Valid configurations in the cell.
        seconds: The least modelled time; None for an empty cell.
        bound_by: The resource that binds the best configuration.
        config: The best configuration.
        broken: The rules in conflict, those with numbers first.
    """

    x: Value
    y: Value
    num_valid: int = 0
    seconds: float | None = None
    bound_by: str = ""
    config: dict[str, Value] = {}
    broken: tuple[BrokenFacts, ...] = ()


class HeatFacts(Facts, frozen=True):
    """The best modelled time over two parameters.

    Args:
        x, y: The parameters' names.
        x_values, y_values: The shown values in ascending order.
        is_thinned: Whether a parameter has further values.
        is_asked: Whether the user named the parameters.
        share: Share of the variance of log time that the two parameters explain, from 0 to 1.
        best: Index of the cell of the kernel's best configuration.
        cells: A cell per pair of values, by rows of `y_values`.
    """

    x: str
    y: str
    x_values: tuple[Value, ...]
    y_values: tuple[Value, ...]
    is_thinned: bool
    is_asked: bool
    share: float
    best: int
    cells: tuple[CellFacts, ...]


class FigureFacts(Facts, frozen=True):
    """Time and resources of a configuration: modelled, or modelled with a compiler's resources.

    Args:
        seconds: The modelled time.
        bound_by: The resource that binds it.
        parts_s: The time of each resource alone.
        roofline_share: Share of the roofline, from 0 to 1.
        registers_per_thread, smem_bytes, blocks_per_sm: None for a composition of kernels.
        warps_per_sm: Resident warps (waves).
        limited_by: The limits of an SM's blocks.
        spill_chance: Chance of a spill, from 0 to 1; 0 or 1 for a compiled kernel.
        registers_error_percent: Error that one register estimate in ten exceeds; 0 without an estimate.
    """

    seconds: float
    bound_by: str
    parts_s: dict[str, float]
    roofline_share: float
    registers_per_thread: int | None = None
    smem_bytes: int | None = None
    blocks_per_sm: int | None = None
    warps_per_sm: int | None = None
    limited_by: str = ""
    spill_chance: float = 0.0
    registers_error_percent: int = 0


class CompiledFacts(Facts, frozen=True):
    """A configuration as compiled; `problem` is the reason why it cannot run or spills, or empty."""

    figures: FigureFacts
    compiler: str = ""
    target: str = ""
    spill_bytes: int = 0
    instruction: str = ""
    problem: str = ""


class MeasuredFacts(Facts, frozen=True):
    """The measurement of a configuration, with its source.

    Args:
        kernel, config: The configuration.
        median_s: The median of the rounds.
        spread_s: The 80th less the 20th percentile; None if it was not stored.
        source: The store or the table.
        id: The record's id; empty for an entry of a table.
        run: The run of the tuner.
        created: The time in seconds since 1970.
        toolchain: Versions by name.
        how: Cache and rounds, in words.
        is_stale: Whether the kernel's code has changed since.
    """

    kernel: str
    config: dict[str, Value]
    median_s: float
    source: str
    spread_s: float | None = None
    id: str = ""
    run: str = ""
    created: float = 0.0
    toolchain: dict[str, str] = {}
    how: str = ""
    is_stale: bool = False


class CandidateFacts(Facts, frozen=True):
    """A configuration of the ranking.

    Args:
        place: The place in the ranking, from 1.
        place_modelled: The place before compilation.
        kernel: The implementation's full name.
        config: A value for each parameter.
        num_variants: Number of configurations, this one included, that the model cannot distinguish.
        threads_per_block: None for a composition of kernels.
        op_per_s, bytes_per_s: Rates that follow from the time; `op_per_s` is None without counted operations.
        op_per_byte: Operations per byte of modelled DRAM traffic; None without counted operations.
        modelled: Figures of the model.
        compiled: Figures with the compiler's resources; None if it was not compiled.
        measured: The measurement; None without one.
    """

    place: int
    place_modelled: int
    kernel: str
    config: dict[str, Value]
    num_variants: int
    threads_per_block: int | None
    op_per_s: float | None
    bytes_per_s: float
    op_per_byte: float | None
    modelled: FigureFacts
    compiled: CompiledFacts | None = None
    measured: MeasuredFacts | None = None

    @property
    def figures(self) -> FigureFacts:
        """The figures of the ranking: compiled if available, else modelled."""
        return self.modelled if self.compiled is None else self.compiled.figures


class StepFacts(Facts, frozen=True):
    """Blocks and warps that reside on an SM, up to an amount of a resource per thread or block."""

    up_to: int
    blocks_per_sm: int
    warps_per_sm: int


class CurveFacts(Facts, frozen=True):
    """The occupancy of blocks of a size over one resource alone: steps that end in cliffs.

    Args:
        resource: `registers` a thread, or `smem`: bytes a block.
        threads_per_block: Threads of a block.
        steps: The steps in ascending order; the last one ends at the resource's limit.
    """

    resource: str
    threads_per_block: int
    steps: tuple[StepFacts, ...]


class BankLayoutFacts(Facts, frozen=True):
    """How the banks serve the worst phase of an access to a tile in one layout.

    Args:
        layout: Its text: `none`, `xor(...)`, `pad(...)`.
        formula: The address as an expression of the offset.
        num_bytes: Bytes of shared memory of the tile.
        degree: Clocks of the phase; 1 without a conflict.
        lanes: The lanes that are served together.
        banks: The first bank of each cell.
        served: For each cell the lanes that it serves, a clock behind the other.
    """

    layout: str
    formula: str
    num_bytes: int
    degree: int
    lanes: str
    banks: tuple[int, ...]
    served: tuple[tuple[str, ...], ...]


class BankFacts(Facts, frozen=True):
    """Conflicts of the best tile of A when the matrix unit reads it, where its K is contiguous.

    Args:
        access: The access, as `constrint banks` names it.
        tile: Rows, elements of a row and their type.
        arguments: The words that ask `constrint banks` the same.
        layouts: The tile row by row, and the solved layout, if there is one.
    """

    access: str
    tile: str
    arguments: str
    layouts: tuple[BankLayoutFacts, ...]


class RooflineFacts(Facts, frozen=True):
    """The roofline of a dtype.

    Args:
        unit: `matrix` or `vector`.
        peak_op_per_s: The dense peak of the data sheet.
        sustained_op_per_s: The sustained rate; None without a source.
        is_sustained_assumed: Whether the sustained rate is assumed.
        bandwidths_bytes_per_s: Known bandwidths by memory level.
        least_op_per_byte: Operations per byte that has to move once.
    """

    unit: str
    peak_op_per_s: float
    sustained_op_per_s: float | None
    is_sustained_assumed: bool
    bandwidths_bytes_per_s: dict[str, float]
    least_op_per_byte: float | None


class KernelFacts(Facts, frozen=True):
    """One implementation: its space, what each rule removes, and the heat map.

    Args:
        kernel: The full name.
        summary: The function and the algorithm in a line.
        num_product: Configurations in the full product.
        num_valid: Valid configurations.
        refusal: The reason why it cannot take the workload; empty if it can.
        params: The parameters.
        rules: The pruning rules in the order of the waterfall, then the estimated rules.
        heat: The heat map; None if fewer than two parameters vary or nothing is valid.
        conflict: The rules in conflict if nothing is valid.
        reason: The conflict as text.
        ways_out: The nearest changes that help.
    """

    kernel: str
    summary: str
    num_product: int = 0
    num_valid: int = 0
    refusal: str = ""
    params: tuple[ParamFacts, ...] = ()
    rules: tuple[RuleFacts, ...] = ()
    heat: HeatFacts | None = None
    conflict: tuple[BrokenFacts, ...] = ()
    reason: str = ""
    ways_out: tuple[str, ...] = ()


class TermFacts(Facts, frozen=True):
    """The vendor's words: an SM or a CU, a warp or a wave, shared memory or LDS."""

    sm: str
    sms: str
    a_sm: str
    warp: str
    warps: str
    smem: str


class GpuFacts(Facts, frozen=True):
    """The facts of one GPU.

    Args:
        gpu: The model's name.
        asked: The name or the file that the user typed.
        title: The request in a line.
        target: The compilation target.
        sm_count: Number of SMs.
        max_warps_per_sm, max_registers_per_thread, max_smem_bytes_per_block: Limits of occupancy.
        terms: The vendor's words.
        sizes, options, dtype: The workload.
        arguments: The words that ask a command the same question.
        refusal: The reason why the GPU has no answer; empty with one.
        rate_unit: `TFLOP/s`, `TOP/s` or `GB/s`.
        roofline_s: The time that no implementation can beat.
        kernels: Every implementation, in the operation's order.
        candidates: The best configurations, the best one first; empty if nothing fits.
        curves: Occupancy over registers and over shared memory.
        roofline: None without a known peak of the dtype.
        banks: None where no configuration has a tile of A, or no source states how its reads are served.
        measured: Measurements of the workload, the best first, of candidates and others.
        assumptions, evidence, notes: Sentences.
    """

    gpu: str
    asked: str
    title: str
    target: str
    sm_count: int
    max_warps_per_sm: int
    max_registers_per_thread: int
    max_smem_bytes_per_block: int
    terms: TermFacts
    sizes: dict[str, int] = {}
    options: dict[str, int] = {}
    dtype: str = ""
    arguments: tuple[str, ...] = ()
    refusal: str = ""
    rate_unit: str = ""
    roofline_s: float | None = None
    kernels: tuple[KernelFacts, ...] = ()
    candidates: tuple[CandidateFacts, ...] = ()
    curves: tuple[CurveFacts, ...] = ()
    roofline: RooflineFacts | None = None
    banks: BankFacts | None = None
    measured: tuple[MeasuredFacts, ...] = ()
    assumptions: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def num_product(self) -> int:
        """Configurations in the full products of all implementations."""
        return sum(kernel.num_product for kernel in self.kernels)

    @property
    def num_valid(self) -> int:
        """Configurations that satisfy every rule of their implementation."""
        return sum(kernel.num_valid for kernel in self.kernels)

    def rate_of(self, candidate: CandidateFacts) -> float:
        """A candidate's rate, in `rate_unit`."""
        if self.rate_unit == "GB/s" or candidate.op_per_s is None:
            return candidate.bytes_per_s / 1e9
        return candidate.op_per_s / 1e12


class Report(Facts, frozen=True):
    """A whole report.

    Args:
        schema: The schema's name and version.
        version: The version of constrint.
        operation: The operation.
        command: The command that makes the report.
        gpus: The GPUs in the order of the command.
    """

    schema: str
    version: str
    operation: str
    command: str
    gpus: tuple[GpuFacts, ...]


def shown_config(spec: KernelSpec, config: Mapping[str, int]) -> dict[str, Value]:
    """A configuration with the values behind its codes; a value that JSON lacks is written as text."""
    decoded = {**config, **spec.values_of(config)}
    return {name: plain(decoded[name]) for name in config}


def shown_value(spec: KernelSpec, name: str, code: int) -> Value:
    """The value behind one parameter's code."""
    return shown_config(spec, {name: code})[name]


def plain(value: object) -> Value:
    """A value as a JSON scalar."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
