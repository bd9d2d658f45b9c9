"""`constrint records diff`: which best configurations changed between two runs, or two stores, and by how much."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.kernel_options import Json
from constrint.cli.output import fitting, print_json, print_table, say, wrap
from constrint.cli.records.listing import config_text, counted, document_of, microseconds, sizes_text
from constrint.cli.records.selection import Dtype, Gpu, Kernel, Selection, Store, Workload, opened, printable
from constrint.errors import UnknownNameError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord

SCHEMA = "constrint.records.diff/1"
TEXT = ("GPU", "kernel", "dtype", "workload", "config")
SPARE = ("GPU", "dtype", "kernel")
Best = dict[str, "TuningRecord"]


def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A run, or a store: a file or a URL.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="Another one.")],
    gpu: Gpu = None,
    kernel: Kernel = None,
    dtype: Dtype = None,
    workload: Workload = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Compare the bests of two runs, or of two stores."""
    given = {"gpu": gpu, "kernel": kernel, "dtype": dtype, "workload": workload}
    first, second = (_best(name, given, store) for name in (before, after))
    pairs = [(first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]
    if json:
        results = [_document(*pair) for pair in pairs]
        names = {"before": printable(before), "after": printable(after)}
        print_json({"schema": SCHEMA, **names, "results": results})
    else:
        _print(pairs)


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


def _print(pairs: list[tuple[TuningRecord | None, TuningRecord | None]]) -> None:
    headers = ["GPU", "kernel", "dtype", "workload", "before us", "after us", "change", "config"]
    rows: list[list[object]] = []
    for before, after in pairs:
        shown = after or before
        assert shown is not None
        change = _change(before, after)
        named = [shown.gpu, shown.kernel, shown.dtype, sizes_text(shown), microseconds(before), microseconds(after)]
        rows.append([*named, None if change is None else f"{change:+.1%}", _verdict(before, after)])
    if rows:
        headers, rows, _ = fitting(headers, rows, SPARE)
        print_table(headers, rows, left=TEXT, whole=[title for title in TEXT if title not in ("workload", "config")])
        say()
    both = [(before, after) for before, after in pairs if before and after]
    for before, after in both:
        if not _is_same(before, after):
            say(wrap(f"{sizes_text(after)} {after.dtype} on {after.gpu}:"))
            say(wrap(f"was {before.kernel} {config_text(before)}", "  "))
            say(wrap(f"now {after.kernel} {config_text(after)}", "  "))
    new = sum(not _is_same(before, after) for before, after in both)
    say(wrap(f"{counted(len(pairs), 'workload')}, {len(both)} of them in both; another best configuration: {new}."))


def _verdict(before: TuningRecord | None, after: TuningRecord | None) -> str:
    if before is None or after is None:
        return "only after" if before is None else "only before"
    return "same" if _is_same(before, after) else "new"
