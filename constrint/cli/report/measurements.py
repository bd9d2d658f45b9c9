"""What was measured of what a report is about: the record store's, where there is one, and what is published."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from constrint.answers.facts import MeasuredFacts
from constrint.report import GpuQuestion
from constrint.report.facts.measured import in_order, measured_facts, published

if TYPE_CHECKING:
    from constrint.tune.store.store import RecordStore

Measured = Callable[[GpuQuestion], Sequence[MeasuredFacts]]


@contextmanager
def measurements(place: str | None) -> Iterator[Measured]:
    """Looks up what was measured; a store that nobody has made yet is not made.

    Args:
        place: The store that is named, or None for the user's own.

    Raises:
        UsageError: When a named file is missing.
    """
    from constrint.cli.records.selection import opened
    from constrint.tune.store.place import url_of

    url = url_of(place)
    if place is None and url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        yield lambda question: _all(question, None)
        return
    with opened(place) as store:
        yield lambda question: _all(question, store)


def _name(place: str) -> str:
    """A store as a page names it, which may be handed on: a file's name without its folder."""
    return place if "://" in place else f"the store {Path(place).name}"


def _all(question: GpuQuestion, store: RecordStore | None) -> list[MeasuredFacts]:
    """Those of one question: those of the store and those that are published, the fastest first."""
    from constrint.kernels.registry import code_of

    workload = question.workload
    if workload is None:
        return []
    found: list[MeasuredFacts] = []
    if store is not None:
        preset = {option.name: option.default for option in question.operation.options}
        asked = {name: value for name, value in workload.options.items() if preset.get(name) != value}
        kept = store.find(gpu=question.gpu.name, operation=workload.operation, dtype=workload.dtype, outcome="ok")
        kernels = {spec.full_name for spec in question.operation.implementations}
        records = (
            record
            for record in kept
            if record.sizes == dict(workload.sizes) and record.options == asked and record.kernel in kernels
        )
        found += measured_facts(records, _name(store.place), code_of)
    return in_order([*found, *published(question.operation, question.gpu.name, workload)])
