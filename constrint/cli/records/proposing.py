"""`constrint records proposals`: what was proposed, by whom and why, and which gates it passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from constrint.answers.table import Cell, Column, Page, Table
from constrint.cli.output import Output, printing
from constrint.cli.records.listing import config_column, counted, pairs_text, when
from constrint.cli.records.provenance import document_of
from constrint.cli.records.selection import Gpu, Run, Store, gpu_name, opened

if TYPE_CHECKING:
    from constrint.tune.store.proposals import ProposalRecord

SCHEMA = "constrint.records.proposals/1"
COLUMNS = (
    Column("run", is_text=True, importance=45),
    Column("round", importance=80),
    Column("origin", "from", meaning="who proposed it", is_text=True, importance=85),
    Column("kind", is_text=True, importance=40),
    Column("gpu", "GPU", is_text=True, importance=20),
    Column("kernel", is_text=True, importance=70),
    Column("workload", is_text=True, wraps=True, importance=55),
    Column("passed", meaning="the last gate that it passed", is_text=True, importance=90),
    Column("created", "when", meaning="in UTC", is_text=True, importance=10),
    config_column(75),
    Column("seconds", "us", meaning="its time in microseconds; ~ where it is modelled", importance=90),
    Column("because", meaning="its reason, or why it was refused", is_text=True, wraps=True, importance=60),
)


@printing
def proposals(
    gpu: Gpu = None,
    operation: Annotated[str | None, typer.Option("--operation", help="Only for this operation: gemm.")] = None,
    run: Run = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused, with the reasons.")] = False,
    store: Store = None,
    *,
    output: Output,
) -> None:
    """List what was proposed, who proposed it and why, and how far it came."""
    with opened(store) as found:
        kept = found.proposals(gpu=gpu_name(gpu), operation=operation, run=run)
        place = found.place
    kept = [one for one in kept if one.refusals or not refused]
    kept.sort(key=lambda one: (one.run, sorted(one.fixed.items()), one.round, one.place))
    page = Page(
        Table(COLUMNS, list(map(_row, kept)), kept),
        lambda shown: {"schema": SCHEMA, "store": place, "results": list(map(document_of, shown))},
        below=[f"{counted(len(kept), 'proposal')} in {place}."],
    )
    output.show(page)


def _row(one: ProposalRecord) -> list[object]:
    seconds = one.gates[-1].seconds if one.gates else None
    mark = "~" if one.gates and one.gates[-1].is_modelled else ""
    work = pairs_text({**one.sizes, **one.options}) + (f" with {pairs_text(one.fixed)}" if one.fixed else "")
    passed = one.passed or ("refused" if one.refusals else "")
    why = "; ".join(one.refusals) if one.refusals else one.because
    shown = None if seconds is None else Cell(seconds, f"{mark}{1e6 * seconds:.2f}")
    told = [one.run, one.round + 1, one.origin, one.kind, one.gpu, one.kernel, f"{one.operation} {work} {one.dtype}"]
    return [*told, passed, Cell(one.created, when(one.created)), pairs_text(one.config), shown, why]
