"""What writing for other tools shares: records of one workload, and what is said of them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from constrint.errors import UsageError
from constrint.export.text import one_line
from constrint.tune.store.choices import place_of, workload_key
from constrint.tune.store.record import TuningRecord, digest


def of_one_kernel(records: Iterable[TuningRecord], what: str) -> list[TuningRecord]:
    """Records of one kernel on one workload and GPU, with the same parameters.

    Raises:
        UsageError: When there are none, or they are of several.
    """
    kept = list(records)
    if not kept:
        raise UsageError("there are no records to export: `constrint records list --all` shows what there is.")
    if len({digest([workload_key(one), one.kernel, sorted(one.config)]) for one in kept}) > 1:
        kernels = sorted({f"{one.kernel} on {one.gpu}: {workload_text(one)}" for one in kept})
        raise UsageError(
            f"{what} holds one kernel on one workload and GPU, and these records are of {len(kernels)}, such as "
            f"{kernels[0]}. Choose with --kernel, --gpu, --dtype and --workload."
        )
    return kept


def best_of_each(records: Iterable[TuningRecord]) -> list[TuningRecord]:
    """The best record of every configuration, in the order of the records."""
    best: dict[str, TuningRecord] = {}
    for record in records:
        config = digest(record.config)
        if config not in best or _rank(record) < _rank(best[config]):
            best[config] = record
    return list(best.values())


def _rank(record: TuningRecord) -> tuple[object, ...]:
    """Measured ones first, then by place; of those that failed the latest."""
    if record.is_ok and record.figures is not None:
        return (0, *place_of(record))
    return (1, -record.created, record.id)


def workload_text(record: TuningRecord) -> str:
    """`bf16 m=4096 n=4096 k=4096`, in one line whatever the names are."""
    sizes = [f"{name}={value}" for name, value in {**record.sizes, **record.options, **record.fixed}.items()]
    return one_line(" ".join([record.dtype, *sizes]))


def timestamp(record: TuningRecord) -> str:
    """When it was measured, in ISO 8601; the beginning of 1970 where the record's time is beyond calendars."""
    try:
        when = datetime.fromtimestamp(record.created, timezone.utc)
    except (ValueError, OverflowError, OSError):
        when = datetime.fromtimestamp(0, timezone.utc)
    return when.isoformat(sep=" ")
