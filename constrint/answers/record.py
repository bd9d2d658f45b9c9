"""Tuning records and proposals as tables and as JSON: the best of each workload, every record, a comparison.

A record itself is typed: `constrint.tune.store.record.TuningRecord`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from constrint.answers.table import EXTRA, Cell, Column, Page, Table, counted, pairs_text

if TYPE_CHECKING:
    from constrint.tune.store.proposals import ProposalRecord
    from constrint.tune.store.record import TuningRecord

LIST_SCHEMA, DIFF_SCHEMA = "constrint.records.list/1", "constrint.records.diff/1"
PROPOSALS_SCHEMA = "constrint.records.proposals/1"
#: Printed digits of an id.
SHORT = 8
#: The best record of a workload in two runs or stores; None where one of them has none.
Pair = tuple["TuningRecord | None", "TuningRecord | None"]


def record_document(record: TuningRecord) -> dict[str, Any]:
    """A record as JSON, with its id."""
    return {"id": record.id, **msgspec.to_builtins(record)}


def proposal_document(proposal: ProposalRecord) -> dict[str, Any]:
    """A proposal as JSON, with its id."""
    document = msgspec.to_builtins(proposal)
    for name in ("proposal", "verdict"):
        document[name] = msgspec.json.decode(document[name]) if document[name] else None
    return {"id": proposal.id, **document}


def workloads_page(records: Sequence[TuningRecord], place: str) -> Page:
    """The page of the best record of each workload.

    Args:
        records: The records.
        place: The store, as printed.
    """
    from constrint.tune.store.choices import best_records, workload_key
    from constrint.tune.store.record import digest

    tried: dict[str, list[TuningRecord]] = {}
    for record in records:
        tried.setdefault(digest(workload_key(record)), []).append(record)
    best = {digest(workload_key(one)): one for one in best_records(records)}
    items = [(best.get(key), of_key) for key, of_key in tried.items()]
    columns = (
        _id_column(),
        *_workload_columns(),
        _time_column(),
        Column("num_records", "tried", meaning="records of this workload", importance=40),
        Column("num_ok", "ok", meaning="those of trials that ended well", importance=30),
        _config_column(),
    )
    gpus = ", ".join(sorted({record.gpu for record in records}))
    runs = counted(len({record.run for record in records}), "run")
    where = f" on {gpus}" if gpus else ""
    return Page(
        Table(columns, [_workload_row(*item) for item in items], items),
        lambda rows: {"schema": LIST_SCHEMA, "store": place, "results": [_workload_document(*row) for row in rows]},
        below=[f"{counted(len(items), 'workload')}, {counted(len(records), 'record')} of {runs}{where} in {place}."],
    )


def records_page(records: Sequence[TuningRecord], place: str, *, limit: int, is_cut: bool) -> Page:
    """The page of every record.

    Args:
        records: The records to show.
        place: The store, as printed.
        limit: The value of `--limit`.
        is_cut: Whether the store has more records than `limit`.
    """
    columns = (
        _id_column(),
        *_workload_columns(),
        Column("outcome", meaning="what came of the trial", is_text=True, importance=40),
        _time_column(),
        Column("created", "when", meaning="when it was measured, in UTC", is_text=True, importance=20),
        Column("run", meaning="the run of the tuner", is_text=True, importance=10),
        _config_column(),
        Column("message", meaning="what a failed trial said", is_text=True, wraps=True, importance=EXTRA),
    )
    rows = [
        [one.id, one.gpu, one.kernel, one.dtype, sizes_text(one), one.outcome, _median_s(one),
         Cell(one.created, when(one.created)), one.run, pairs_text(one.config), one.message or None]
        for one in records
    ]  # fmt: skip
    more = f"; there are more: --limit {2 * limit}, or 0 for all" if is_cut else ""

    def document(shown: Sequence[TuningRecord]) -> dict[str, Any]:
        results = [record_document(one) for one in shown]
        return {"schema": LIST_SCHEMA, "store": place, "is_cut": is_cut, "results": results}

    below = [f"{counted(len(records), 'record')} in {place}{more}."]
    return Page(Table(columns, rows, records), document, below=below)


def record_lines(record: TuningRecord) -> list[tuple[str, object]]:
    """The titles and values of `records show`, without empty values."""
    figures, compiled = record.figures, record.compiled
    lines: list[tuple[str, object]] = [
        ("id", record.id),
        ("kernel", record.kernel),
        ("GPU", record.gpu),
        ("workload", f"{record.dtype} {sizes_text(record)}"),
        ("config", pairs_text(record.config)),
        ("outcome", record.outcome),
        ("message", record.message),
    ]
    if figures is not None:
        how = "among the finalists" if figures.is_final else "not among the finalists"
        median = f"{figures.median_s * 1e6:.2f} us of {figures.num_rounds} rounds, L2 {figures.cache}, {how}"
        lines += [
            ("median", median),
            ("spread", f"{figures.spread_s * 1e6:.3f} us between the 20th and the 80th percentile"),
            ("baseline", figures.baseline_s and f"{figures.baseline_s * 1e6:.2f} us in the same rounds"),
        ]
    lines += [
        ("predicted", record.predicted_s and f"{record.predicted_s * 1e6:.2f} us"),
        ("error / bound", record.error_over_bound),
    ]
    if compiled is not None:
        spilled = f"{compiled.spill_bytes} bytes spilled, {compiled.smem_bytes} bytes shared"
        lines.append(("compiled", f"{compiled.registers} registers, {spilled}"))
    lines += [
        ("toolchain", pairs_text(record.toolchain)),
        ("source hash", record.source_hash),
        ("spec hash", record.spec_hash),
        ("run", record.run),
        ("measured", when(record.created)),
    ]
    return [(title, value) for title, value in lines if value not in (None, "")]


def origin_text(proposal: ProposalRecord) -> str:
    """Who proposed a configuration, when and why, in a sentence."""
    at = f" at {proposal.host}" if proposal.host else ""
    how = " (from a transcript)" if proposal.is_replayed else ""
    because = f": {proposal.because}" if proposal.because else ""
    return f"{proposal.origin}{at}{how}, round {proposal.round + 1}{because}"


def proposals_page(proposals: Sequence[ProposalRecord], place: str) -> Page:
    """The page of proposals, with the last gate that each passed or the reason why it was refused."""
    columns = (
        Column("run", is_text=True, importance=45),
        Column("round", importance=80),
        Column("origin", "from", meaning="who proposed it", is_text=True, importance=85),
        Column("kind", is_text=True, importance=40),
        Column("gpu", "GPU", is_text=True, importance=20),
        Column("kernel", is_text=True, importance=70),
        Column("workload", is_text=True, wraps=True, importance=55),
        Column("passed", meaning="the last gate that it passed", is_text=True, importance=90),
        Column("created", "when", meaning="in UTC", is_text=True, importance=10),
        _config_column(75),
        Column("seconds", "us", meaning="its time in microseconds; ~ where it is modelled", importance=90),
        Column("because", meaning="its reason, or why it was refused", is_text=True, wraps=True, importance=60),
    )
    return Page(
        Table(columns, list(map(_proposal_row, proposals)), proposals),
        lambda shown: {"schema": PROPOSALS_SCHEMA, "store": place, "results": list(map(proposal_document, shown))},
        below=[f"{counted(len(proposals), 'proposal')} in {place}."],
    )


def difference_page(pairs: Sequence[Pair], before: str, after: str) -> Page:
    """The page that compares the best records of two runs or stores, a row for each workload.

    Args:
        pairs: The best records of each workload.
        before, after: Names of the runs or stores.
    """
    columns = (
        *_workload_columns(),
        _time_column("before_median_s", "before us"),
        _time_column("after_median_s", "after us"),
        Column("change", meaning="how much longer it takes, as a share", importance=90, show="{:+.1%}".format),
        Column("config", meaning="whether the best configuration is the same", is_text=True, importance=85),
    )

    def document(shown: Sequence[Pair]) -> dict[str, Any]:
        results = [_difference_document(*pair) for pair in shown]
        return {"schema": DIFF_SCHEMA, "before": before, "after": after, "results": results}

    both = [(old, new) for old, new in pairs if old and new]
    changed = [(old, new) for old, new in both if not _is_same(old, new)]
    below = []
    for old, new in changed:
        below.append(f"{sizes_text(new)} {new.dtype} on {new.gpu}:")
        below.append(f"was {old.kernel} {pairs_text(old.config)}")
        below.append(f"now {new.kernel} {pairs_text(new.config)}")
    counts = f"{counted(len(pairs), 'workload')}, {len(both)} of them in both"
    below.append(f"{counts}; another best configuration: {len(changed)}.")
    return Page(Table(columns, [_difference_row(*pair) for pair in pairs], pairs), document, below=below)


def _workload_columns() -> tuple[Column, ...]:
    return (
        Column("gpu", "GPU", is_text=True, importance=45),
        Column("kernel", is_text=True, importance=80),
        Column("dtype", is_text=True, importance=70),
        Column("workload", meaning="sizes and options", is_text=True, wraps=True, importance=85),
    )


def _id_column() -> Column:
    return Column("id", meaning="how `records show` takes it", is_text=True, show=lambda name: name[:SHORT])


def _time_column(key: str = "median_s", title: str = "us") -> Column:
    meaning = "median of the measured times, in microseconds here"
    return Column(key, title, meaning=meaning, importance=90, show=lambda seconds: f"{seconds * 1e6:.2f}")


def _config_column(importance: int = 55) -> Column:
    return Column("config", meaning="every parameter", is_text=True, wraps=True, importance=importance)


def _workload_row(best: TuningRecord | None, tried: Sequence[TuningRecord]) -> list[object]:
    shown = best or tried[0]
    kernel = shown.kernel if best else shown.operation
    named = [best and best.id, shown.gpu, kernel, shown.dtype, sizes_text(shown), _median_s(best)]
    return [*named, len(tried), sum(one.is_ok for one in tried), best and pairs_text(best.config)]


def _workload_document(best: TuningRecord | None, tried: Sequence[TuningRecord]) -> dict[str, Any]:
    fields = ("operation", "gpu", "dtype", "sizes", "options", "fixed")
    workload = {name: getattr(tried[0], name) for name in fields}
    counts = {"num_records": len(tried), "num_ok": sum(one.is_ok for one in tried)}
    return workload | counts | {"best": best and record_document(best)}


def _proposal_row(one: ProposalRecord) -> list[object]:
    gate = one.gates[-1] if one.gates else None
    seconds = None
    if gate is not None and gate.seconds is not None:
        seconds = Cell(gate.seconds, f"{'~' if gate.is_modelled else ''}{1e6 * gate.seconds:.2f}")
    passed = one.passed or ("refused" if one.refusals else "")
    why = "; ".join(one.refusals) if one.refusals else one.because
    workload = f"{one.operation} {sizes_text(one)} {one.dtype}"
    named = [one.run, one.round + 1, one.origin, one.kind, one.gpu, one.kernel, workload, passed]
    return [*named, Cell(one.created, when(one.created)), pairs_text(one.config), seconds, why]


def _difference_row(before: TuningRecord | None, after: TuningRecord | None) -> list[object]:
    shown = after or before
    assert shown is not None
    named = [shown.gpu, shown.kernel, shown.dtype, sizes_text(shown), _median_s(before), _median_s(after)]
    if before is None or after is None:
        return [*named, None, "only after" if before is None else "only before"]
    return [*named, _change(before, after), "same" if _is_same(before, after) else "new"]


def _difference_document(before: TuningRecord | None, after: TuningRecord | None) -> dict[str, Any]:
    return {
        "before": before and record_document(before),
        "after": after and record_document(after),
        "change": _change(before, after),
        "is_same_config": _is_same(before, after),
    }


def _change(before: TuningRecord | None, after: TuningRecord | None) -> float | None:
    """The relative change of the median; None if one of the records is missing."""
    old, new = _median_s(before), _median_s(after)
    return None if old is None or new is None else new / old - 1


def _is_same(before: TuningRecord | None, after: TuningRecord | None) -> bool:
    return before is not None and after is not None and (before.kernel, before.config) == (after.kernel, after.config)


def _median_s(record: TuningRecord | None) -> float | None:
    return None if record is None or record.figures is None else record.figures.median_s


def sizes_text(record: TuningRecord | ProposalRecord) -> str:
    """`m=4096 n=4096 k=4096`: sizes and options; parameters that the caller gives stand behind `with`."""
    fixed = f" with {pairs_text(record.fixed)}" if record.fixed else ""
    return pairs_text({**record.sizes, **record.options}) + fixed


def when(seconds: float) -> str:
    """A time as `2026-11-22 13:05`, in UTC; `-` if it is unknown."""
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds)) if seconds > 0 else "-"
    except (ValueError, OverflowError, OSError):
        return "-"
