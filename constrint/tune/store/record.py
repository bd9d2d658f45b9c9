"""One trial as it is kept: what was tried, on what, with which tools, and what came of it."""

from __future__ import annotations

import hashlib

import msgspec

from constrint.select import Workload
from constrint.select.tuned import Value as Value


class Figures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was measured; times in seconds.

    Args:
        median_s: The median of the rounds.
        spread_s: The 80th less the 20th percentile.
        num_rounds: How many rounds.
        cache: `cold` where the L2 was overwritten before every call, else `warm`.
        is_final: Whether it was measured in turn with the other finalists of its run: only such figures compare.
        baseline_s: The competitor's median in the same rounds, if there is one.
    """

    median_s: float
    spread_s: float
    num_rounds: int
    cache: str = "cold"
    is_final: bool = False
    baseline_s: float | None = None


class Compiled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the compiler made of it."""

    registers: int
    spill_bytes: int
    smem_bytes: int


class TuningRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trial and its outcome.

    Args:
        kernel: The implementation's full name, `gemm.pointer`.
        operation: What it computes, `gemm`.
        gpu: The model's name, `H200`.
        dtype: Type of the operands.
        sizes: The workload's sizes.
        options: Those of its options that differ from their defaults.
        fixed: Parameters whose values the caller gave: the winner is the best with these.
        config: A value for each parameter.
        outcome: `ok`, or what went wrong: `compile_failed`, `launch_failed`, `wrong_result`, `timed_out`, `crashed`.
        message: What was said of it; empty where it is ok.
        source_hash: Of the device code.
        spec_hash: Of the space, rules and costs.
        toolchain: Versions by name: `triton`, `torch`, `cuda` or `rocm`, `driver`.
        run: Which run of the tuner it belongs to.
        created: Seconds since 1970.
        predicted_s: What the cost model said.
        error_over_bound: The largest error over the bound that rounding allows; right up to 1.
        figures: What was measured; None where nothing was.
        compiled: What the compiler made of it; None where it was not asked.
    """

    kernel: str
    operation: str
    gpu: str
    dtype: str
    sizes: dict[str, int]
    config: dict[str, Value]
    outcome: str
    run: str
    created: float
    source_hash: str = ""
    spec_hash: str = ""
    toolchain: dict[str, str] = {}
    options: dict[str, int] = {}
    fixed: dict[str, int] = {}
    message: str = ""
    predicted_s: float | None = None
    error_over_bound: float | None = None
    figures: Figures | None = None
    compiled: Compiled | None = None

    @property
    def workload(self) -> Workload:
        """What was computed."""
        return Workload(self.operation, self.sizes, self.dtype, self.options)

    @property
    def is_ok(self) -> bool:
        """Whether it ran and was right."""
        return self.outcome == "ok"

    @property
    def key(self) -> str:
        """What the record is of, without what came of it: kernel, code, GPU, workload, toolchain, configuration."""
        of_code = [self.kernel, self.source_hash, self.spec_hash, self.gpu, self.toolchain]
        of_work = [self.operation, self.dtype, self.sizes, self.options]
        return digest([*of_code, *of_work, self.config])

    @property
    def id(self) -> str:
        """What tells it from all others: its key, the run, what was given, and whether it is a finalist's figure."""
        told = [self.key, self.run, self.figures is not None and self.figures.is_final]
        return digest([*told, self.fixed] if self.fixed else told)


def digest(value: object) -> str:
    """32 hexadecimal digits of anything that JSON can hold; the order of names does not matter."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]
