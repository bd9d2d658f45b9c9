"""`constrint records list` and `show`: the best of each workload, every record, or all of one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.answers.table import EXTRA, Cell, Column, Page, Table
from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.asked.kernel_options import Json
from constrint.cli.output import Output, printing
from constrint.cli.records.provenance import document_of as proposal_document
from constrint.cli.records.provenance import told_of
from constrint.cli.records.selection import Selection, Store, opened, selecting
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord
    from constrint.tune.store.store import RecordStore

LIST_SCHEMA, SHOW_SCHEMA = "constrint.records.list/1", "constrint.records.show/1"
#: Digits of an id that are printed, and that `show` needs at least.
SHORT = 8
#: Columns for the titles of `show`.
TITLE_WIDTH = 15


@printing
@selecting
def list_(
    *,
    is_all: Annotated[bool, typer.Option("--all", help="One line for each record, not for each workload.")] = False,
    selection: Selection,
    limit: Annotated[int, typer.Option("--limit", min=0, help="With --all, records at most; 0: all of them.")] = 200,
    store: Store = None,
    output: Output,
) -> None:
    """List the best record of each workload, or every record."""
    with opened(store) as found:
        if is_all:
            output.show(_records_page(found, selection, limit))
        else:
            output.show(_workloads_page(found, selection))


def named_columns() -> tuple[Column, ...]:
    """The columns that say what a record is of."""
    return (
        Column("gpu", "GPU", is_text=True, importance=45),
        Column("kernel", is_text=True, importance=80),
        Column("dtype", is_text=True, importance=70),
        Column("workload", meaning="sizes and options", is_text=True, wraps=True, importance=85),
    )


def _id_column() -> Column:
    return Column("id", meaning="how `records show` takes it", is_text=True, show=lambda name: name[:SHORT])


def time_column(key: str = "median_s", title: str = "us") -> Column:
    """The column of measured times."""
    meaning = "median of the measured times, in microseconds here"
    return Column(key, title, meaning=meaning, importance=90, show=lambda seconds: f"{seconds * 1e6:.2f}")


def config_column(importance: int = 55) -> Column:
    """The column of configurations, in words."""
    return Column("config", meaning="every parameter", is_text=True, wraps=True, importance=importance)


def _workloads_page(store: RecordStore, selection: Selection) -> Page:
    from constrint.tune.store.choices import best_records, workload_key
    from constrint.tune.store.record import digest

    records = list(selection.find(store))
    tried: dict[str, list[TuningRecord]] = {}
    for record in records:
        tried.setdefault(digest(workload_key(record)), []).append(record)
    best = {digest(workload_key(one)): one for one in best_records(records)}
    items = [(best.get(key), of_key) for key, of_key in tried.items()]
    columns = (
        _id_column(),
        *named_columns(),
        time_column(),
        Column("num_records", "tried", meaning="records of this workload", importance=40),
        Column("num_ok", "ok", meaning="those of trials that ended well", importance=30),
        config_column(),
    )
    gpus = ", ".join(sorted({record.gpu for record in records}))
    runs = counted(len({record.run for record in records}), "run")
    where = f" on {gpus}" if gpus else ""
    place = store.place
    return Page(
        Table(columns, [_workload_row(*item) for item in items], items),
        lambda rows: {"schema": LIST_SCHEMA, "store": place, "results": [_document(*row) for row in rows]},
        below=[f"{counted(len(items), 'workload')}, {counted(len(records), 'record')} of {runs}{where} in {place}."],
    )


def _workload_row(best: TuningRecord | None, tried: list[TuningRecord]) -> list[object]:
    shown = best or tried[0]
    kernel = shown.kernel if best else shown.operation
    named = [best and best.id, shown.gpu, kernel, shown.dtype, sizes_text(shown), median_s(best)]
    return [*named, len(tried), sum(one.is_ok for one in tried), best and config_text(best)]


def _document(best: TuningRecord | None, tried: list[TuningRecord]) -> dict[str, Any]:
    shown = tried[0]
    asked = {name: getattr(shown, name) for name in ("operation", "gpu", "dtype", "sizes", "options", "fixed")}
    counts = {"num_records": len(tried), "num_ok": sum(one.is_ok for one in tried)}
    return asked | counts | {"best": best and document_of(best)}


def _records_page(store: RecordStore, selection: Selection, limit: int) -> Page:
    # One more than is shown tells whether there are more.
    records = list(islice(selection.find(store), limit + 1 if limit else None))
    is_cut = bool(limit) and len(records) > limit
    records = records[:limit] if is_cut else records
    columns = (
        _id_column(),
        *named_columns(),
        Column("outcome", meaning="what came of the trial", is_text=True, importance=40),
        time_column(),
        Column("created", "when", meaning="when it was measured, in UTC", is_text=True, importance=20),
        Column("run", meaning="the run of the tuner", is_text=True, importance=10),
        config_column(),
        Column("message", meaning="what a failed trial said", is_text=True, wraps=True, importance=EXTRA),
    )
    rows = [
        [one.id, one.gpu, one.kernel, one.dtype, sizes_text(one), one.outcome, median_s(one),
         Cell(one.created, when(one.created)), one.run, config_text(one), one.message or None]
        for one in records
    ]  # fmt: skip
    place = store.place
    more = f"; there are more: --limit {2 * limit}, or 0 for all" if is_cut else ""

    def document(shown: Sequence[TuningRecord]) -> dict[str, Any]:
        results = [document_of(one) for one in shown]
        return {"schema": LIST_SCHEMA, "store": place, "is_cut": is_cut, "results": results}

    table = Table(columns, rows, records)
    return Page(table, document, below=[f"{counted(len(records), 'record')} in {place}{more}."])


def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a record, or how it begins.")],
    store: Store = None,
    json: Json = False,
) -> None:
    """Show all that one record has."""
    with opened(store) as found:
        record = one_named(found, name)
        origins = found.proposals(run=record.run, record_key=record.key)
        place = found.place
    if json:
        document = {"schema": SHOW_SCHEMA, "store": place, "record": document_of(record)}
        print_json(document | {"proposals": [proposal_document(one) for one in origins]})
        return
    proposed = [("proposed by", told_of(one)) for one in origins]
    for title, value in [*_lines(record), *proposed]:
        say(f"{title + ':':{TITLE_WIDTH}}{wrap(str(value), ' ' * TITLE_WIDTH).lstrip()}")


def one_named(store: RecordStore, name: str) -> TuningRecord:
    """The record whose id begins so.

    Raises:
        UsageError: When there is none, or several.
    """
    ids = store.ids(name.lower()) if name.isalnum() and name.isascii() else []
    if not ids:
        raise UsageError(f"no record has an id that begins with {name!r}; `constrint records list --all` shows them.")
    if len(ids) > 1:
        shown = ", ".join(one[: max(SHORT, len(name) + 2)] for one in ids[:4])
        raise UsageError(f"{len(ids)} records have ids that begin with {name!r}, such as {shown}; give more digits.")
    for record in store.find(id=ids[0]):
        return record
    raise UsageError(f"the record {ids[0]} cannot be read; `constrint records prune --unreadable` removes such ones.")


def _lines(record: TuningRecord) -> list[tuple[str, object]]:
    """Titles and values, those left out that say nothing."""
    figures, compiled = record.figures, record.compiled
    lines: list[tuple[str, object]] = [
        ("id", record.id),
        ("kernel", record.kernel),
        ("GPU", record.gpu),
        ("workload", f"{record.dtype} {sizes_text(record)}"),
        ("config", config_text(record)),
        ("outcome", record.outcome),
        ("message", record.message.encode("unicode_escape").decode()),
    ]
    if figures is not None:
        how = "among the finalists" if figures.is_final else "not among the finalists"
        lines += [
            ("median", f"{microseconds(record)} us of {figures.num_rounds} rounds, L2 {figures.cache}, {how}"),
            ("spread", f"{figures.spread_s * 1e6:.3f} us between the 20th and the 80th percentile"),
            ("baseline", figures.baseline_s and f"{figures.baseline_s * 1e6:.2f} us in the same rounds"),
        ]
    lines += [
        ("predicted", record.predicted_s and f"{record.predicted_s * 1e6:.2f} us"),
        ("error / bound", record.error_over_bound),
    ]
    if compiled is not None:
        text = (
            f"{compiled.registers} registers, {compiled.spill_bytes} bytes spilled, {compiled.smem_bytes} bytes shared"
        )
        lines.append(("compiled", text))
    lines += [
        ("toolchain", pairs_text(record.toolchain)),
        ("source hash", record.source_hash),
        ("spec hash", record.spec_hash),
        ("run", record.run),
        ("measured", when(record.created)),
    ]
    return [(title, value) for title, value in lines if value not in (None, "")]


def document_of(record: TuningRecord) -> dict[str, Any]:
    """A record as JSON, with its id."""
    import msgspec

    return {"id": record.id, **msgspec.to_builtins(record)}


def counted(number: int, what: str) -> str:
    """`1 record`, `1,200 records`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def median_s(record: TuningRecord | None) -> float | None:
    """The median in seconds."""
    return None if record is None or record.figures is None else record.figures.median_s


def microseconds(record: TuningRecord | None) -> str | None:
    """The median in microseconds."""
    return None if record is None or record.figures is None else f"{record.figures.median_s * 1e6:.2f}"


def sizes_text(record: TuningRecord) -> str:
    """`m=4096 n=4096 k=4096`, options with it; values that were given stand behind `with`."""
    fixed = f" with {pairs_text(record.fixed)}" if record.fixed else ""
    return pairs_text({**record.sizes, **record.options}) + fixed


def config_text(record: TuningRecord | None) -> str:
    """`tile_m=128 tile_n=64`."""
    return "" if record is None else pairs_text(record.config)


def pairs_text(pairs: Any) -> str:
    """Names and values in a line; what is no printable character of one line is shown escaped."""
    return " ".join(f"{name}={value}" for name, value in pairs.items()).encode("unicode_escape").decode()


def when(seconds: float) -> str:
    """A time as `2026-11-22 13:05`, in UTC; `-` where it is unknown."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)) if seconds > 0 else "-"
    except (ValueError, OverflowError, OSError):
        return "-"
