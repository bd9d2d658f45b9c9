"""Measured winners, looked up before the model is consulted: the user's own table, then the shipped one.

A table is a file for one GPU, `tuned-<gpu>.json`; look-ups read it instead of the store of records, and
`constrint.tune.store.choices` decides who wins where it is published.

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
import re
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec

from constrint import cache
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.select.fingerprint import source_hash
from constrint.select.spec import KernelSpec
from constrint.select.toolchain import differences, missing, toolchain, toolchain_of
from constrint.select.workload import Workload
from constrint.solve.explain.conflict import rule_text

SCHEMA = "constrint.tuned/1"
#: A larger file is no table of winners: an entry has some 600 bytes.
MAX_BYTES = 64 * 2**20
#: A parameter's value: whole numbers in our kernels, anything that JSON has in others'.
Value = int | float | str | bool | None
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


class TunedEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The measured best of one workload with one toolchain.

    Args:
        kernel: The implementation's full name, `gemm.pointer`.
        operation: Name of the operation, `gemm`.
        dtype: Type of the operands.
        sizes: The workload's sizes.
        options: Options that differ from their defaults.
        config: A value for each parameter.
        seconds: The measured median.
        source_hash: Hash of the device code.
        spec_hash: Hash of the space, rules and costs; it tells where an entry comes from, and decides nothing.
        toolchain: Versions by name: `triton`, `torch`, `cuda` or `rocm`, `driver`.
        run: Identifier of the tuner's run that measured it.
        created: Time of the measurement, in seconds since 1970.
        fixed: Values of parameters that the tuning fixed; the configuration is the best among those with these values.
        same_code_as: Left out where `source_hash` is of the code that was measured. Otherwise each time that it was
            carried over to device code with the same machine code: the hash before, its commit, and the compilers that
            both were compiled with (`python -m benchmarks.remake --same`).
    """

    kernel: str
    operation: str
    dtype: str
    sizes: dict[str, int]
    options: dict[str, int]
    config: dict[str, Value]
    seconds: Annotated[float, msgspec.Meta(gt=0)]
    source_hash: str
    spec_hash: str
    toolchain: dict[str, str]
    run: str
    created: float
    fixed: dict[str, int] = {}
    same_code_as: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: str
    gpu: str
    entries: tuple[TunedEntry, ...]


@dataclass(frozen=True)
class TunedTable:
    """The winners for one GPU.

    Args:
        gpu: The model's name; empty where the file could not be read.
        entries: In the order of the file.
        problem: Why there are no entries; empty where the file was read, or where there is no file.
    """

    gpu: str = ""
    entries: tuple[TunedEntry, ...] = ()
    problem: str = ""


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


def tuned_path(folder: Path, gpu: str) -> Path:
    """The file of a GPU, `tuned-h200-sxm.json` for `H200-SXM`; two names have two files, on every file system.

    Capitals, digits and single hyphens are spelt in small letters. Any other name is followed by its hash.
    """
    plain = _plain(gpu)
    if plain.upper() != gpu:
        plain = f"{plain[:100]}_{hashlib.sha256(gpu.encode(errors='surrogatepass')).hexdigest()[:12]}"
    return folder / f"tuned-{plain}.json"


def _plain(gpu: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")


def table_of(folder: Path, gpu: str) -> tuple[Path, TunedTable]:
    """The table of a GPU in a folder and its file, also one under the name that earlier versions gave it."""
    path = tuned_path(folder, gpu)
    table = read_tuned(path)
    if not (table.gpu or table.problem):
        earlier = folder / f"tuned-{_plain(gpu)}.json"
        found = read_tuned(earlier) if earlier != path else table
        if found.gpu == gpu:
            return earlier, found
    return path, table


def read_tuned(path: Path) -> TunedTable:
    """Read a table; for a torn or foreign file it is empty and states the problem. Nothing is raised."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            return TunedTable(problem=f"{path} has more than {MAX_BYTES} bytes: it is no table of tuned kernels.")
        table = msgspec.json.decode(text, type=_File)
    except FileNotFoundError:
        return TunedTable()
    except (OSError, ValueError, RecursionError) as error:
        return TunedTable(problem=f"{path} is left aside: {error}. Publish it again with `constrint tune`.")
    if table.schema != SCHEMA:
        return TunedTable(problem=f"{path} is left aside: its schema is {table.schema!r}, this version reads {SCHEMA}.")
    return TunedTable(table.gpu, table.entries)


def write_tuned(table: TunedTable, path: Path) -> None:
    """Write a table; other processes see the old file or the new one, whole.

    Raises:
        OSError: When the folder cannot be written to, or is full; the old file stays as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = _File(schema=SCHEMA, gpu=table.gpu, entries=table.entries)
    text = msgspec.json.format(msgspec.json.encode(whole, order="deterministic"), indent=1)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.stem, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # as readable as other files: a temporary file is created for its owner alone
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
