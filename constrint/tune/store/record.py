"""The record of a trial: configuration, workload, GPU, tools, outcome and figures."""

from __future__ import annotations

import hashlib

import msgspec

from constrint.select import Workload
from constrint.select.winners import Value as Value


class Figures(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured times, in seconds.

    Args:
        median_s: The median of the rounds.
        spread_s: The 80th less the 20th percentile.
        num_rounds: Number of rounds.
        cache: `cold` where the L2 was overwritten before every call, else `warm`.
        is_final: Whether it was measured in turn with the other finalists of its run; only such figures compare.
        baseline_s: Median of a baseline in the same rounds; None without one.
    """

    median_s: float
    spread_s: float
    num_rounds: int
    cache: str = "cold"
    is_final: bool = False
    baseline_s: float | None = None


class Compiled(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources of the compiled kernel: registers and spilled bytes per thread, shared memory per block."""

    registers: int
    spill_bytes: int
    smem_bytes: int


class TuningRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trial and its outcome.

    Args:
        kernel: The implementation's full name, `gemm.pointer`.
        operation: The operation, `gemm`.
        gpu: The model's name, `H200`.
        dtype: Type of the operands.
        sizes: The workload's sizes.
        options: Options that differ from their defaults.
        fixed: Parameters that the caller fixed; the winner is the best with these values.
        config: A value for each parameter.
        outcome: `ok`, or what went wrong: `compile_failed`, `launch_failed`, `wrong_result`, `timed_out`, `crashed`,
            `implausible` (timed below what the GPU's bandwidth and peak rates allow).
        message: The fault; empty where the outcome is ok.
        source_hash: Hash of the device code.
        spec_hash: Hash of the space, rules and costs.
        toolchain: Versions by name: `triton`, `torch`, `cuda` or `rocm`, `driver`.
        run: Name of the run.
        created: Seconds since 1970.
        predicted_s: Predicted time.
        error_over_bound: Largest error over the bound that rounding allows; correct up to 1.
        figures: Measured times; None where nothing was measured.
        compiled: Resources of the compiled kernel; None where they are unknown.
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
        """The workload."""
        return Workload(self.operation, self.sizes, self.dtype, self.options)

    @property
    def is_ok(self) -> bool:
        """Whether it ran with a correct result."""
        return self.outcome == "ok"

    @property
    def key(self) -> str:
        """Identity of the trial: kernel, code, GPU, workload, toolchain and configuration, without the outcome."""
        of_code = [self.kernel, self.source_hash, self.spec_hash, self.gpu, self.toolchain]
        of_work = [self.operation, self.dtype, self.sizes, self.options]
        return digest([*of_code, *of_work, self.config])

    @property
    def id(self) -> str:
        """Identity of the record: key, run, fixed parameters, and whether its figures are final."""
        parts = [self.key, self.run, self.figures is not None and self.figures.is_final]
        return digest([*parts, self.fixed] if self.fixed else parts)


def digest(value: object) -> str:
    """32 hexadecimal digits of a JSON value, independent of the order of names."""
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:32]


def time_text(seconds: float) -> str:
    """A time in the unit that fits: `12.3 us`, `1.23 ms`."""
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"
