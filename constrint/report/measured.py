"""Measurements of a workload: records of a store, and the winners published with the package.

The caller opens the store and passes its records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from constrint.answers.facts import MeasuredFacts, Value, plain
from constrint.select import Operation, Workload
from constrint.select.fingerprint import source_hash
from constrint.select.winners import SHIPPED, TunedEntry, read_tuned, tuned_path

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord

#: The hash of a kernel's device code by its full name; None for an unknown kernel.
CodeOf = Callable[[str], str | None]


def of_config(measured: Sequence[MeasuredFacts], kernel: str, config: Mapping[str, Value]) -> MeasuredFacts | None:
    """The first and best measurement of a configuration; None without one."""
    return next((one for one in measured if one.kernel == kernel and one.config == dict(config)), None)


def measured_facts(records: Iterable[TuningRecord], place: str, code_of: CodeOf) -> list[MeasuredFacts]:
    """The best measurement of each configuration whose result was right.

    Args:
        records: Records of one workload on one GPU.
        place: The store, as printed.
        code_of: The hash of a kernel's device code today.
    """
    facts: dict[tuple[str, str], MeasuredFacts] = {}
    for record in records:
        if not record.is_ok or record.figures is None or record.figures.median_s <= 0:
            continue
        figures = record.figures
        one = MeasuredFacts(
            kernel=record.kernel,
            config={name: plain(value) for name, value in record.config.items()},
            median_s=figures.median_s,
            spread_s=figures.spread_s,
            source=place,
            id=record.id,
            run=record.run,
            created=record.created,
            toolchain=dict(record.toolchain),
            how=f"{figures.num_rounds} rounds, {figures.cache} L2" + (", finalist" if figures.is_final else ""),
            is_stale=bool(record.source_hash) and code_of(record.kernel) not in (None, record.source_hash),
        )
        key = (one.kernel, repr(sorted(one.config.items())))
        if key not in facts or _order(one) < _order(facts[key]):
            facts[key] = one
    return list(facts.values())


def published(operation: Operation, gpu: str, workload: Workload) -> Iterator[MeasuredFacts]:
    """The winners of a workload published with the package."""
    path = tuned_path(SHIPPED, gpu)
    table = read_tuned(path)
    if table.gpu != gpu:
        return
    specs = {spec.full_name: spec for spec in operation.implementations}
    for entry in table.entries:
        if entry.kernel in specs and _is_of(entry, operation, workload):
            yield MeasuredFacts(
                kernel=entry.kernel,
                config={name: plain(value) for name, value in entry.config.items()},
                median_s=entry.seconds,
                source=f"{path.name}, published with constrint",
                run=entry.run,
                created=entry.created,
                toolchain=dict(entry.toolchain),
                how="the winner of its run"
                + "".join(f", with {name} = {value} given" for name, value in entry.fixed.items()),
                is_stale=entry.source_hash != source_hash(specs[entry.kernel]),
            )


def _is_of(entry: TunedEntry, operation: Operation, workload: Workload) -> bool:
    preset = {option.name: option.default for option in operation.options}
    options = {name: value for name, value in workload.options.items() if preset.get(name) != value}
    return (
        entry.operation == workload.operation
        and entry.dtype == workload.dtype
        and entry.sizes == dict(workload.sizes)
        and entry.options == options
    )


def in_order(measured: Iterable[MeasuredFacts]) -> list[MeasuredFacts]:
    """Current measurements before stale ones, the fastest first."""
    return sorted(measured, key=_order)


def _order(one: MeasuredFacts) -> tuple[bool, float, str, str]:
    """The sort key of `in_order`."""
    return one.is_stale, one.median_s, one.kernel, one.id
