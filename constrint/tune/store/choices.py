"""Which record of a workload is the best, and the file of winners that look-ups read.

The answer depends on the records alone, not on their order: all processes and ranks with the same store decide alike.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from constrint.errors import StoreError
from constrint.select.winners import TunedEntry, TunedTable, read_tuned, table_of, tuned_path, write_tuned
from constrint.tune.store.alone import alone_in
from constrint.tune.store.record import Figures, TuningRecord

if TYPE_CHECKING:
    from constrint.tune.store.store import RecordStore

#: The hash of a kernel's device code by its full name; None where it is unknown. Rules and costs may have changed since
#: a measurement: it holds as long as its device code is today's, as for look-ups.
CodeOf = Callable[[str], str | None]


class LostWinnersWarning(UserWarning):
    """Issued where a table that is replaced has winners of workloads of which the store has no record."""


def best_records(records: Iterable[TuningRecord], *, per_toolchain: bool = False) -> list[TuningRecord]:
    """The best record of every GPU, operation, dtype and workload that has one that was right and measured.

    Within a run its finalists are compared, which were measured in turn; a run without finalists is compared by all its
    medians. Then the winners of the runs are compared, first those with a cold L2, of these first the finalists, by
    their medians. Equal ones are told apart by the kernel's name and the configuration.

    Args:
        records: Any records, in any order.
        per_toolchain: Whether toolchains are kept apart, too.

    Returns:
        One record each, in the order of operation, dtype, workload, GPU (and toolchain).
    """
    groups: dict[bytes, dict[str, list[TuningRecord]]] = {}
    for record in records:
        if record.is_ok and record.figures is not None and record.figures.median_s > 0:
            of_group = [*workload_key(record), record.toolchain if per_toolchain else None]
            runs = groups.setdefault(_text(of_group), {})
            runs.setdefault(record.run, []).append(record)
    return [min(map(_winner, groups[group].values()), key=place_of) for group in sorted(groups)]


def workload_key(record: TuningRecord) -> tuple[Any, ...]:
    """The key of a workload: only records of one operation, dtype, sizes, options, fixed values and GPU compete."""
    return (record.operation, record.dtype, record.sizes, record.options, record.fixed, record.gpu)


def of_one_code(records: Iterable[TuningRecord], code_of: CodeOf) -> list[TuningRecord]:
    """Records of one version of each kernel; measurements of other code are left out.

    Args:
        records: Any records.
        code_of: The hash of a kernel's device code today; for an unknown kernel that of its latest record counts.
    """
    listed = list(records)
    latest: dict[str, TuningRecord] = {}
    for record in listed:
        other = latest.get(record.kernel)
        if other is None or (record.created, record.id) > (other.created, other.id):
            latest[record.kernel] = record
    code = {kernel: code_of(kernel) or record.source_hash for kernel, record in latest.items()}
    return [record for record in listed if record.source_hash == code[record.kernel]]


def publish(store: RecordStore, gpu: str, folder: Path, code_of: CodeOf = lambda kernel: None) -> Path:
    """Write the winners for a GPU, one entry for each workload and toolchain, where look-ups find them.

    Args:
        store: The store of the records.
        gpu: The model's name, as in the records.
        folder: The folder of the file, created if it is missing.
        code_of: See `of_one_code`. Look-ups use no entry of other code than the kernel has.

    Returns:
        The file, `tuned-<gpu>.json`. The same records give the same bytes.

    Raises:
        StoreError: When the file cannot be written; the old one stays.
    """
    path = tuned_path(folder, gpu)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A process that read the store earlier must not overwrite the table of a process that read it later.
        with alone_in(folder):
            records = of_one_code(store.find(gpu=gpu, outcome="ok"), code_of)
            table = TunedTable(gpu, tuple(map(_entry, best_records(records, per_toolchain=True))))
            _, before = table_of(folder, gpu)
            _keep_of_another(path, gpu)
            write_tuned(table, path)
            _warn_of_lost(before, table, code_of, store.place)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}; the table before it, if any, stays.") from error
    return path


def _keep_of_another(path: Path, gpu: str) -> None:
    """Rename the table of another GPU, to which an earlier version gave the same file."""
    table = read_tuned(path)
    other = tuned_path(path.parent, table.gpu)
    if table.gpu and table.gpu != gpu and not other.exists():
        os.replace(path, other)


def _warn_of_lost(before: TunedTable, now: TunedTable, code_of: CodeOf, place: str) -> None:
    of_now = {_workload(entry) for entry in now.entries}
    lost = [entry for entry in before.entries if _workload(entry) not in of_now]
    num_lost = sum(code_of(entry.kernel) in (None, entry.source_hash) for entry in lost)
    if num_lost:
        warnings.warn(
            f"{num_lost} winners of the table before are gone: {place} has no record of their workloads. A table has "
            "the winners of one store; `constrint records import` brings records of another one.",
            LostWinnersWarning,
            stacklevel=3,
        )


def _workload(entry: TunedEntry) -> bytes:
    return _text([entry.operation, entry.dtype, entry.sizes, entry.options, entry.fixed])


def _winner(records: list[TuningRecord]) -> TuningRecord:
    """The best of one run."""
    finalists = [record for record in records if record.figures is not None and record.figures.is_final]
    return min(finalists or records, key=place_of)


def place_of(record: TuningRecord) -> tuple[Any, ...]:
    """The sort key of the measured records of one workload, the best record first."""
    figures: Any = record.figures
    rank = (figures.cache != "cold", not figures.is_final, figures.median_s)
    return (*rank, record.kernel, _text(record.config), record.created, record.id)


def _entry(record: TuningRecord) -> TunedEntry:
    assert isinstance(record.figures, Figures)  # `best_records` gives no other
    return TunedEntry(
        kernel=record.kernel,
        operation=record.operation,
        dtype=record.dtype,
        sizes=record.sizes,
        options=record.options,
        config=record.config,
        seconds=record.figures.median_s,
        source_hash=record.source_hash,
        spec_hash=record.spec_hash,
        toolchain=record.toolchain,
        run=record.run,
        created=record.created,
        fixed=record.fixed,
    )


def _text(value: object) -> bytes:
    return msgspec.json.encode(value, order="sorted")
