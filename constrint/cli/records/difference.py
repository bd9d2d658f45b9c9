"""`constrint records diff`: which best configurations changed between two runs, or two stores, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.answers.table import Column, Page, Table
from constrint.cli.output import Output, printing
from constrint.cli.records.listing import (
    config_text,
    counted,
    document_of,
    median_s,
    named_columns,
    sizes_text,
    time_column,
)  # fmt: skip
from constrint.cli.records.selection import Dtype, Gpu, Kernel, Selection, Store, Workload, opened, printable
from constrint.errors import UnknownNameError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord

SCHEMA = "constrint.records.diff/1"
Best = dict[str, "TuningRecord"]
Pair = tuple["TuningRecord | None", "TuningRecord | None"]


@printing
def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A run, or a store: a file or a URL.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another one.")],
    gpu: Gpu = None,
    kernel: Kernel = None,
    dtype: Dtype = None,
    workload: Workload = None,
    store: Store = None,
    *,
    output: Output,
) -> None:
    """Compare the bests of two runs, or of two stores."""
    given = {"gpu": gpu, "kernel": kernel, "dtype": dtype, "workload": workload}
    first, second = (_best(name, given, store) for name in (before, after))
    pairs = [(first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]
    names = {"before": printable(before), "after": printable(after)}

    def document(shown: Sequence[Pair]) -> dict[str, Any]:
        return {"schema": SCHEMA, **names, "results": [_document(*pair) for pair in shown]}

    output.show(replace(_page(pairs), document=document))


def _best(name: str, given: dict[str, str | None], store: str | None) -> Best:
    """The best records of a run or a store, by workload."""
    from constrint.tune.store.choices import best_records, workload_key
    from constrint.tune.store.record import digest

    is_store = "://" in name or Path(name).is_file()
    with opened(name if is_store else store) as found:
        if not is_store and not found.count(run=name):
            hint = "A file or a URL names a store."
            raise UnknownNameError("run", name, [run.run for run in found.runs()], hint)
        selection = Selection(**given, run=None if is_store else name)
        best = best_records(selection.find(found))
    return {digest(workload_key(record)): record for record in best}


def _change(before: TuningRecord | None, after: TuningRecord | None) -> float | None:
    """How much longer it takes than before, as a share; None where one of them is missing."""
    if before is None or after is None or before.figures is None or after.figures is None:
        return None
    return after.figures.median_s / before.figures.median_s - 1


def _is_same(before: TuningRecord | None, after: TuningRecord | None) -> bool:
    return before is not None and after is not None and (before.kernel, before.config) == (after.kernel, after.config)


def _document(before: TuningRecord | None, after: TuningRecord | None) -> dict[str, Any]:
    return {
        "before": before and document_of(before),
        "after": after and document_of(after),
        "change": _change(before, after),
        "is_same_config": _is_same(before, after),
    }


def _page(pairs: list[Pair]) -> Page:
    columns = (
        *named_columns(),
        time_column("before_median_s", "before us"),
        time_column("after_median_s", "after us"),
        Column("change", meaning="how much longer it takes, as a share", importance=90, show="{:+.1%}".format),
        Column("config", meaning="whether the best configuration is the same", is_text=True, importance=85),
    )
    rows: list[list[object]] = []
    for before, after in pairs:
        shown = after or before
        assert shown is not None
        named = [shown.gpu, shown.kernel, shown.dtype, sizes_text(shown), median_s(before), median_s(after)]
        rows.append([*named, _change(before, after), _verdict(before, after)])
    both = [(before, after) for before, after in pairs if before and after]
    below = []
    for before, after in both:
        if not _is_same(before, after):
            below.append(f"{sizes_text(after)} {after.dtype} on {after.gpu}:")
            below.append(f"was {before.kernel} {config_text(before)}")
            below.append(f"now {after.kernel} {config_text(after)}")
    new = sum(not _is_same(before, after) for before, after in both)
    below.append(f"{counted(len(pairs), 'workload')}, {len(both)} of them in both; another best configuration: {new}.")
    return Page(Table(columns, rows, pairs), below=below)


def _verdict(before: TuningRecord | None, after: TuningRecord | None) -> str:
    if before is None or after is None:
        return "only after" if before is None else "only before"
    return "same" if _is_same(before, after) else "new"
