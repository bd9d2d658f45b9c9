"""Measured winners, looked up before the model is consulted: the user's own table, then the shipped one.

An entry holds for exactly its workload as long as the device code is the measured one and the space allows the
configuration. With the tools of the measurement it is evidence of the first rank, `measured here`. With other versions
of Triton, CUDA, NVRTC or driver it is a strong candidate, `measured elsewhere`: the choice rests on it, and its kernel
is compiled and examined before the launch, as every choice is. Where no entry holds, the model chooses, and the reason
is said once. A process reads the tables once.
"""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from constrint import cache
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.select.fingerprint import source_hash
from constrint.select.spec import KernelSpec
from constrint.select.toolchain import differences, missing, toolchain, toolchain_of
from constrint.select.tuned import TunedEntry, table_of
from constrint.select.workload import Workload
from constrint.solve.explain.conflict import rule_text

#: Folder of the tables that come with the package.
SHIPPED = Path(__file__).parents[1] / "kernels" / "tuned"
#: Evidence of a winner, in the words of `constrint.choose.Evidence`.
MEASURED, ELSEWHERE = "measured here", "measured elsewhere"
#: Error of a time that was measured with other tools, as a share of it, nine times in ten, and the source. No
#: configuration was measured with two toolchains yet: replace it by the spread once there are two such tables.
ELSEWHERE_ERROR = 0.15
ELSEWHERE_SOURCE = (
    "assumed: releases of Triton and NVRTC differ in registers and in the order of instructions, not in tiles and "
    "traffic; kernels that spill with the new tools are passed over"
)
_LOG = logging.getLogger("constrint")
Forget = TypeVar("Forget", bound=Callable[[], None])
_KEEPERS: list[Callable[[], None]] = []


class StaleTableWarning(UserWarning):
    """Given once where a measured winner is not used, since the kernel or the tools have changed."""


class Winner(TunedEntry, frozen=True, kw_only=True):
    """The entry of a table that holds for a workload today.

    Args:
        evidence: `MEASURED` for an entry of this process's tools. `ELSEWHERE` for one of other tools: look at the
            compiled kernel before it is launched, and let a kernel that spills give way.
        table: File name and owner of the table: "tuned-h200-sxm.json, shipped" or "..., own".
        changes: Differences of the tools in words, "triton 3.6.0, now 3.9.0"; empty for `MEASURED`.
        error: Error of `seconds` as a share, nine times in ten; None for `MEASURED`, whose error is the clock's.
        error_source: Source of `error`; empty without one.
    """

    evidence: str = MEASURED
    table: str = ""
    changes: tuple[str, ...] = ()
    error: float | None = None
    error_source: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether it was measured with the tools of this process."""
        return self.evidence == MEASURED


class TableRow(NamedTuple):
    """An entry and the table that has it.

    Args:
        entry: The measured winner.
        table: File name of the table and whose it is: "tuned-h200-sxm.json, shipped".
        is_own: Whether it is the user's own.
    """

    entry: TunedEntry
    table: str
    is_own: bool


class _Rows(NamedTuple):
    """The entries for one GPU by workload, and a stamp that identifies the tables."""

    by_workload: Mapping[tuple[object, ...], Sequence[TableRow]]
    stamp: str


def winner(
    specs: Sequence[KernelSpec], gpu: GpuModel, workload: Workload, fixed: Mapping[str, int] | None = None
) -> Winner | None:
    """Return the measured best configuration for a workload, with its evidence; None where no entry holds.

    Entries of this process's tools come first, then those with the fewest differences, the newest first. Of entries of
    the same rank the user's own come before shipped ones, and the fastest first.

    Args:
        specs: The implementations that may run it.
        gpu: The model of the device.
        workload: The workload; options may be stated or left out where they have their defaults.
        fixed: Values of parameters that the caller prescribes.
    """
    entries = _rows(gpu.name, _place()).by_workload.get(_key(specs[0], workload, fixed or {}), ())
    now = toolchain() if entries else {}
    if not {"cuda", "rocm"} & now.keys():
        return None  # nothing can be launched from here
    tools = {spec.full_name: (spec, toolchain_of(spec, now)) for spec in specs}
    rows = [(row, *tools[row.entry.kernel]) for row in entries if row.entry.kernel in tools]
    problems = []
    for row, spec, own in sorted(rows, key=lambda each: _rank(each[0], each[2])):
        problem = missing(row.entry.toolchain, own) or _changed(spec, row.entry)
        problem = problem or _invalid(spec, gpu, workload, row.entry)
        if not problem:
            return _winner(row, differences(row.entry.toolchain, own))
        problems.append((problem, row.is_own))
    for problem, is_own in problems[:1]:
        _say_once(gpu.name, problem, is_own)
    return None


def listed(spec: KernelSpec, gpu: GpuModel, workload: Workload, fixed: Mapping[str, int]) -> TableRow | None:
    """Return the fastest entry of the tables for a workload, whatever tools measured it and whether it holds today."""
    found = _rows(gpu.name, _place()).by_workload.get(_key(spec, workload, fixed), ())
    return min(found, key=lambda row: row.entry.seconds, default=None)


def stamp(gpu: GpuModel) -> str:
    """Identify the tables that look-ups for a GPU use: a choice on disk holds for these alone."""
    return _rows(gpu.name, _place()).stamp


def reload() -> None:
    """Read the tables again at the next look-up, since they were published anew; choices are made again, too."""
    _rows.cache_clear()
    for forget in _KEEPERS:
        forget()


def when_reloaded(forget: Forget) -> Forget:
    """Register a function that runs when the tables are read again: it forgets the choices of its module."""
    _KEEPERS.append(forget)
    return forget


def _place() -> str:
    return os.environ.get("CONSTRINT_CACHE", "")


@lru_cache(maxsize=64)
def _rows(gpu: str, _place: str) -> _Rows:
    by_workload: dict[tuple[object, ...], list[TableRow]] = {}
    stamps = []
    for folder, is_own in ((cache.user_folder(), True), (SHIPPED, False)):
        if folder is None:
            continue
        path, table = table_of(folder, gpu)
        if table.problem:
            warnings.warn(table.problem, StaleTableWarning, stacklevel=4)
        if table.gpu != gpu:
            continue
        stamps.append(hashlib.sha256(repr(table.entries).encode()).hexdigest()[:16])
        name = f"{path.name}, {'own' if is_own else 'shipped'}"
        for entry in table.entries:
            key = (entry.operation, entry.dtype, _items(entry.sizes), _items(entry.options), _items(entry.fixed))
            by_workload.setdefault(key, []).append(TableRow(entry, name, is_own))
    return _Rows(by_workload, ",".join(stamps))


def _key(spec: KernelSpec, workload: Workload, fixed: Mapping[str, int]) -> tuple[object, ...]:
    preset = {option.name: option.default for option in spec.options}
    options = {name: value for name, value in workload.options.items() if preset.get(name) != value}
    return spec.operation, workload.dtype, _items(workload.sizes), _items(options), _items(fixed)


def _items(numbers: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(numbers.items()))


def _rank(row: TableRow, now: Mapping[str, str]) -> tuple[float, ...]:
    """Order of entries: the nearest tools, the user's own, then the fastest; of other tools the newest."""
    changes = len(differences(row.entry.toolchain, now))
    return changes, not row.is_own, -row.entry.created if changes else row.entry.seconds


def _winner(row: TableRow, changes: Sequence[str]) -> Winner:
    facts: dict[str, Any] = msgspec.structs.asdict(row.entry) | {"table": row.table}
    if changes:
        facts |= {"evidence": ELSEWHERE, "changes": tuple(changes)}
        facts |= {"error": ELSEWHERE_ERROR, "error_source": ELSEWHERE_SOURCE}
    return Winner(**facts)


def _changed(spec: KernelSpec, entry: TunedEntry) -> str:
    return "" if entry.source_hash == source_hash(spec) else f"the device code of {spec.full_name} has changed"


def _invalid(spec: KernelSpec, gpu: GpuModel, workload: Workload, entry: TunedEntry) -> str:
    """Return the rule of the space that forbids a measured configuration; empty for a valid one."""
    try:
        problem = spec.problem(gpu, workload)
    except ConstrintError as error:
        return f"{spec.full_name} takes no measured configuration: {error}"
    config, domains = entry.config, problem.variables
    wrong = [f"it lacks {name}" for name in domains if name not in config]
    wrong += [f"there is no parameter {name!a}" for name in config if name not in domains]
    # True is no 1, and 2.0 no 2: what is launched is what was measured.
    wrong += [f"{name} is {value!a}" for name, value in config.items() if type(value) is not int]
    if wrong:
        return f"{spec.full_name} takes no measured configuration: {wrong[0]}"
    values = {name: value for name, value in config.items() if isinstance(value, int)}
    wrong = [f"{name} in {domain}" for name, domain in domains.items() if values[name] not in domain]
    if not wrong:
        rules = [rule for rule in problem.constraints if rule.kind not in ("redundant", "estimated")]
        wrong = [rule_text(rule) for rule in rules if not rule.holds(values)]
    return f"the space of {spec.full_name} has no measured configuration: {wrong[0]}" if wrong else ""


@lru_cache(maxsize=64)
def _say_once(gpu: str, problem: str, is_own: bool) -> None:
    """Say why a measured winner is not used: a warning for the user's own table, a log message for a shipped one."""
    text = f"measured winners for {gpu} are not used, the model chooses: {problem}. `constrint tune` measures anew."
    if is_own:
        warnings.warn(text, StaleTableWarning, stacklevel=5)
    else:
        _LOG.info(text)
