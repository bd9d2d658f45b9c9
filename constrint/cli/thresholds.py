"""Thresholds of `constrint compile` for continuous integration, and the comparison with an earlier output of its."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from constrint.answers.compiled import SCHEMA
from constrint.answers.table import Column, Page, Table, counted, pairs_text
from constrint.answers.terminal import printable
from constrint.errors import UsageError, printed_line

#: Longest baseline, in bytes.
MAX_BASELINE = 64 << 20
#: The compared figures of a compiled kernel with their titles; more of one is worse.
FIGURES = {
    "registers_per_thread": "registers",
    "spill_bytes_per_thread": "spilled bytes",
    "smem_bytes_per_block": "bytes of shared memory",
}
COLUMNS = (
    Column("gpu", "GPU", is_text=True, importance=100),
    Column("config", is_text=True, wraps=True, importance=90),
    Column("figure", is_text=True, importance=95),
    Column("before", importance=80, show="{:,}".format),
    Column("now", importance=85, show="{:,}".format),
    Column("difference", importance=80, show="{:+,}".format),
)


class BaselineKernel(msgspec.Struct):
    """A kernel of an earlier output; `compiled` is None where it was refused."""

    gpu: str
    constants: dict[str, Any]
    options: dict[str, Any]
    compiled: dict[str, Any] | None

    @property
    def key(self) -> str:
        """The GPU, the constants and the options, by which kernels are the same."""
        return key_of(self.gpu, self.constants, self.options)


class Baseline(msgspec.Struct):
    """An earlier output of `constrint compile --json`."""

    schema: str
    kernels: list[BaselineKernel]


@dataclass(frozen=True)
class Difference:
    """A figure of a kernel that is another one than in the baseline."""

    gpu: str
    config: str
    figure: str
    before: int
    now: int


@dataclass(frozen=True)
class JudgedPage(Page):
    """A page of compiled kernels with the thresholds that they break, and their differences from the baseline."""

    failures: Sequence[str] = ()
    differences: Sequence[Difference] = ()
    notes: Sequence[str] = ()

    @property
    def table_of_differences(self) -> Table:
        """The differences as a table."""
        rows = [
            [one.gpu, one.config, FIGURES[one.figure], one.before, one.now, one.now - one.before]
            for one in self.differences
        ]
        return Table(COLUMNS, rows)


@dataclass(frozen=True)
class Thresholds:
    """The thresholds; None is none.

    Args:
        max_spill: Most spilled bytes of a thread.
        min_occupancy: Least share of an SM's warps, 0 to 1.
        max_smem: Most bytes of shared memory of a block.
    """

    max_spill: int | None = None
    min_occupancy: float | None = None
    max_smem: int | None = None

    def judged(self, page: Page, baseline: Baseline | None) -> JudgedPage:
        """The page with what its kernels break."""
        kernels = list(page.table.items or ())
        failures = [
            f"{_name(kernel)} {fault}" for kernel in kernels if kernel["compiled"] for fault in self._faults(kernel)
        ]
        differences, notes = ([], []) if baseline is None else _compared(kernels, baseline)
        failures += [
            f"{one.gpu} {one.config} takes {one.now:,} {FIGURES[one.figure]}, {one.before:,} before (--baseline)"
            for one in differences
            if one.now > one.before
        ]
        more = {"failures": failures, "differences": [_difference_document(one) for one in differences], "notes": notes}

        def document(items: Sequence[Any]) -> dict[str, Any]:
            whole: dict[str, Any] = {} if page.document is None else page.document(items)
            return {**whole, **more} if baseline is not None or self != Thresholds() else whole

        return JudgedPage(
            page.table,
            document,
            page.above,
            page.answer,
            page.below,
            failures=failures,
            differences=differences,
            notes=notes,
        )

    def _faults(self, kernel: Mapping[str, Any]) -> list[str]:
        compiled = kernel["compiled"]
        spilled, share, smem = (
            compiled[name] for name in ("spill_bytes_per_thread", "occupancy", "smem_bytes_per_block")
        )
        faults = []
        if self.max_spill is not None and spilled > self.max_spill:
            faults.append(f"spills {spilled:,} bytes a thread, at most {self.max_spill:,} (--max-spill)")
        if self.min_occupancy is not None and share < self.min_occupancy:
            faults.append(f"has an occupancy of {share:.0%}, at least {self.min_occupancy:.0%} (--min-occupancy)")
        if self.max_smem is not None and smem > self.max_smem:
            faults.append(f"takes {smem:,} bytes of shared memory a block, at most {self.max_smem:,} (--max-smem)")
        return faults

    def report(self, page: JudgedPage) -> None:
        """Print on stderr what fails, where a log of continuous integration shows it whatever the format is."""
        for note in page.notes:
            print(printable(f"note: {note}"), file=sys.stderr)
        if page.failures:
            print(f"error: {counted(len(page.failures), 'threshold')} broken", file=sys.stderr)
        for failure in page.failures:
            print(printable(f"  {failure}"), file=sys.stderr)


def read_thresholds(max_spill: int | None, min_occupancy: str | None, max_smem: int | None) -> Thresholds:
    """The thresholds of the options.

    Raises:
        UsageError: When the occupancy is no share.
    """
    if min_occupancy is None:
        return Thresholds(max_spill, None, max_smem)
    text = min_occupancy.strip()
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"--min-occupancy takes a share, 0.5 or 50%, got {printed_line(min_occupancy, 40)!r}.")
    return Thresholds(max_spill, share, max_smem)


def read_baseline(path: Path) -> Baseline:
    """An earlier output of `constrint compile --json`.

    Raises:
        UsageError: When the file cannot be read, or is something else.
    """
    shown = printed_line(str(path), 200)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BASELINE + 1)
    except OSError as error:
        raise UsageError(f"--baseline {shown}: {error.strerror}.") from None
    if len(data) > MAX_BASELINE:
        raise UsageError(f"--baseline {shown}: the file has more than {MAX_BASELINE >> 20} MiB.")
    try:
        found = msgspec.json.decode(data, type=Baseline)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = printed_line(str(error), 200)
        raise UsageError(f"--baseline {shown}: it is no output of `constrint compile --json`: {why}.") from None
    if found.schema != SCHEMA:
        raise UsageError(f"--baseline {shown}: its schema is {printed_line(found.schema, 60)!r}, not {SCHEMA!r}.")
    for kernel in found.kernels:
        for figure in FIGURES if kernel.compiled is not None else ():
            if type((kernel.compiled or {}).get(figure)) is not int:
                raise UsageError(f"--baseline {shown}: a kernel has no {figure}.")
    return found


def key_of(gpu: str, constants: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The key of a kernel: its GPU, constants and options as they stand in a document."""
    return msgspec.json.encode([gpu, sorted(constants.items()), sorted(options.items())]).decode()


def _compared(kernels: Sequence[Mapping[str, Any]], baseline: Baseline) -> tuple[list[Difference], list[str]]:
    """The differences of what was compiled before and now, and what could not be compared."""
    before = {one.key: one for one in baseline.kernels}
    differences: list[Difference] = []
    new, others = 0, set[tuple[Any, Any]]()
    for kernel in kernels:
        known = before.pop(key_of(kernel["gpu"], kernel["constants"], kernel["options"]), None)
        if known is None or known.compiled is None or not kernel["compiled"]:
            new += known is None
            continue
        others.add((known.compiled.get("triton_version"), kernel["compiled"].get("triton_version")))
        config = pairs_text({**kernel["constants"], **kernel["options"]})
        differences += [
            Difference(kernel["gpu"], config, figure, known.compiled[figure], kernel["compiled"][figure])
            for figure in FIGURES
            if known.compiled[figure] != kernel["compiled"][figure]
        ]
    notes = [f"the baseline lacks {counted(new, 'kernel')}; write a new one with --json."] if new else []
    notes += [f"the baseline has {counted(len(before), 'kernel')} more."] if before else []
    notes += [f"the baseline is of triton {then}, this of {now}." for then, now in sorted(others) if then != now]
    return differences, notes


def _name(kernel: Mapping[str, Any]) -> str:
    return f"{kernel['gpu']} {pairs_text({**kernel['constants'], **kernel['options']})}".strip()


def _difference_document(one: Difference) -> dict[str, Any]:
    return {"gpu": one.gpu, "config": one.config, "figure": one.figure, "before": one.before, "now": one.now}
