"""The facts of a report: what `constrint report --json` prints and what every figure is drawn from.

Times are in seconds, sizes in bytes, rates per second. Modelled, compiled and measured figures are kept apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from constrint.select import KernelSpec

SCHEMA = "constrint.report/1"
#: What a parameter's value may be: whole numbers in our kernels, anything that JSON has in others'.
Value = int | float | str | bool | None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A record of facts."""


class ParamFacts(Facts, frozen=True):
    """A tunable parameter, its values (the preferred ones first) and why it has these."""

    name: str
    values: tuple[Value, ...]
    meaning: str
    because: str


class RuleFacts(Facts, frozen=True):
    """A rule of a kernel's space and what it removes.

    Args:
        name: Its name, or its text where it has none.
        rule: Its text.
        kind: `certain`, `redundant`, `estimated`, `yours`, or empty.
        because: Its reason.
        prunes: Whether it leaves configurations out; an estimated rule only ranks.
        removes_alone: Configurations of the full product that break it; None where they were not counted.
        removes_only: Configurations that break no other rule.
        left: What is left after it and all rules before it; None for a rule that leaves nothing out.
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
    """A rule that keeps configurations out, with the numbers in it: `seen` is `20480 <= 16384 is false`.

    `name` is empty for a parameter's domain, and `seen` where no configuration breaks that rule alone.
    """

    name: str
    rule: str
    seen: str
    because: str


class CellFacts(Facts, frozen=True):
    """The best configuration of a cell of the heat map; or why there is none.

    Args:
        x, y: Values of the two parameters.
        num_valid: Valid configurations in the cell.
        seconds: The least modelled time; None where nothing is valid.
        bound_by: What binds it.
        config: The configuration.
        broken: The rules that cannot hold together in this cell, those with numbers first.
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
        x_values, y_values: The values that are shown, in ascending order.
        is_thinned: Whether a parameter has more values than are shown.
        is_asked: Whether the user named the two.
        share: The share of the variance of log time that the two explain, 0 to 1.
        best: The place among the cells of the kernel's best configuration.
        cells: A cell for each pair of values, by rows of `y_values`.
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
    """What a configuration takes and how long: all modelled, or modelled with what a compiler says.

    Args:
        seconds: The modelled time.
        bound_by: The resource that binds it.
        parts_s: What each resource would need if nothing else mattered.
        roofline_share: The share of the roofline, 0 to 1.
        registers_per_thread, smem_bytes, blocks_per_sm: None for what is no single kernel.
        warps_per_sm: Resident warps (waves).
        limited_by: What limits the blocks of an SM.
        spill_chance: The chance of a spill, 0 to 1; once compiled it is 0 or 1.
        registers_error_percent: What one register estimate in ten is off by at least; 0 where nothing is estimated.
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
    """What a compiler made of a configuration; `problem` says what is wrong with it, or is empty."""

    figures: FigureFacts
    compiler: str = ""
    target: str = ""
    spill_bytes: int = 0
    instruction: str = ""
    problem: str = ""


class MeasuredFacts(Facts, frozen=True):
    """What was measured of a configuration, and where that comes from.

    Args:
        kernel, config: What was measured.
        median_s: The median of the rounds.
        spread_s: The 80th less the 20th percentile; None where it is not kept.
        source: Which store or table it is from.
        id: The record's id; empty for an entry of a table.
        run: The run of the tuner.
        created: When, in seconds since 1970.
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
        place: Its place, from 1.
        place_modelled: Its place before anything was compiled.
        kernel: The implementation's full name.
        config: A value for each parameter.
        num_variants: How many configurations it stands for that the model cannot tell apart.
        threads_per_block: None for what is no single kernel.
        op_per_s, bytes_per_s: Rates that follow from the time; `op_per_s` is None where operations are not counted.
        op_per_byte: Operations per byte of modelled DRAM traffic; None where operations are not counted.
        modelled: Figures of the model.
        compiled: Figures with what the compiler says; None where it was not asked.
        measured: What was measured of it; None where nothing was.
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
        """The figures that it is ranked by: those with what a compiler says, where it was asked."""
        return self.modelled if self.compiled is None else self.compiled.figures


class StepFacts(Facts, frozen=True):
    """Up to so much of a resource per thread or block, so many blocks and warps reside on an SM."""

    up_to: int
    blocks_per_sm: int
    warps_per_sm: int


class CurveFacts(Facts, frozen=True):
    """What one resource alone leaves of the occupancy of blocks of so many threads: steps that end in cliffs.

    Args:
        resource: `registers` a thread, or `smem`: bytes a block.
        threads_per_block: Threads of a block.
        steps: In ascending order; the last one ends at the most that there may be.
    """

    resource: str
    threads_per_block: int
    steps: tuple[StepFacts, ...]


class RooflineFacts(Facts, frozen=True):
    """The roofline of a dtype.

    Args:
        unit: `matrix` or `vector`.
        peak_op_per_s: The dense peak of the data sheet.
        sustained_op_per_s: What is kept up of it; None where no source says.
        is_sustained_assumed: Whether that share is assumed.
        bandwidths_bytes_per_s: By memory level; levels of unknown bandwidth are left out.
        least_op_per_byte: Operations per byte that have to move once.
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
        kernel: Its full name.
        summary: What it computes and how.
        num_product: Configurations in the full product.
        num_valid: Those that satisfy every rule.
        refusal: Why it cannot take the workload; empty where it can.
        params: Its parameters.
        rules: Its rules; those that prune in the order of the waterfall, then the estimated ones.
        heat: The best time over two parameters; None where fewer than two vary or nothing is valid.
        conflict: Where nothing is valid, the rules that cannot hold together.
        reason: The same as text.
        ways_out: What would help.
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
    """All that is said of one GPU.

    Args:
        gpu: The model's name.
        asked: What the user called it: a name or a file.
        title: What was asked, in a line.
        target: What is compiled for.
        sm_count: Its SMs.
        max_warps_per_sm, max_registers_per_thread, max_smem_bytes_per_block: Limits of occupancy.
        terms: The vendor's words.
        sizes, options, dtype: The workload.
        arguments: What was asked as arguments of a command.
        refusal: Why nothing can be said of it; else empty.
        rate_unit: `TFLOP/s`, `TOP/s` or `GB/s`.
        roofline_s: The time that no implementation can beat.
        kernels: Every implementation, in the operation's order.
        candidates: The best configurations, the best one first; none where nothing fits.
        curves: What registers and shared memory leave of the occupancy.
        roofline: None where no peak is known for the dtype.
        measured: What was measured of the workload, the best first, whether among the candidates or not.
        assumptions, notes: Sentences.
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
    measured: tuple[MeasuredFacts, ...] = ()
    assumptions: tuple[str, ...] = ()
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
        schema: Version of this form.
        version: Of constrint.
        operation: What was asked for.
        command: The command that made it.
        gpus: In the order in which they were asked about.
    """

    schema: str
    version: str
    operation: str
    command: str
    gpus: tuple[GpuFacts, ...]


def shown_config(spec: KernelSpec, config: Mapping[str, int]) -> dict[str, Value]:
    """A configuration in values; what is neither a number nor a text is written as a text."""
    decoded = {**config, **spec.values_of(config)}
    return {name: plain(decoded[name]) for name in config}


def shown_value(spec: KernelSpec, name: str, code: int) -> Value:
    """What one parameter's number stands for."""
    return shown_config(spec, {name: code})[name]


def plain(value: object) -> Value:
    """A value as JSON has it."""
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
