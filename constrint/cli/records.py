"""`constrint records`: list, show and compare what the store of tuning records holds; the group of its sub-commands.

The sub-commands that change a store or write files are in `records_change`.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from constrint.answers.record import (
    SHORT,
    difference_page,
    origin_text,
    proposal_document,
    proposals_page,
    record_document,
    record_lines,
    records_page,
    workloads_page,
)
from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.completing import complete_operation
from constrint.cli.options import Json
from constrint.cli.output import Output, printing
from constrint.cli.records_change import export, import_, prune, publish
from constrint.cli.records_selection import (
    Dtype,
    Gpu,
    Kernel,
    Run,
    Selection,
    Store,
    Workload,
    gpu_name,
    opened,
    selecting,
)
from constrint.errors import UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord
    from constrint.tune.store.store import RecordStore

SHOW_SCHEMA = "constrint.records.show/1"
#: Width of the titles of `show`, in columns of the terminal.
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
    with opened(store) as records_store:
        if is_all:
            # One more than the limit tells whether there are more.
            records = list(islice(selection.find(records_store), limit + 1 if limit else None))
            is_cut = bool(limit) and len(records) > limit
            shown = records[:limit] if is_cut else records
            output.show(records_page(shown, records_store.place, limit=limit, is_cut=is_cut))
        else:
            output.show(workloads_page(list(selection.find(records_store)), records_store.place))


def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id of a record, or how it begins.")],
    store: Store = None,
    json: Json = False,
) -> None:
    """Show all that one record has."""
    with opened(store) as records_store:
        record = record_named(records_store, name)
        origins = records_store.proposals(run=record.run, record_key=record.key)
        place = records_store.place
    if json:
        document = {"schema": SHOW_SCHEMA, "store": place, "record": record_document(record)}
        print_json(document | {"proposals": [proposal_document(one) for one in origins]})
        return
    proposed = [("proposed by", origin_text(one)) for one in origins]
    for title, value in [*record_lines(record), *proposed]:
        say(f"{title + ':':{TITLE_WIDTH}}{wrap(str(value), ' ' * TITLE_WIDTH).lstrip()}")


def record_named(store: RecordStore, name: str) -> TuningRecord:
    """The record with an id that begins with `name`.

    Raises:
        UsageError: When no record or more than one matches.
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
    from constrint.tune.store.backends import shown

    filters = {"gpu": gpu, "kernel": kernel, "dtype": dtype, "workload": workload}
    first, second = (_best(name, filters, store) for name in (before, after))
    pairs = [(first.get(key), second.get(key)) for key in dict.fromkeys([*first, *second])]
    output.show(difference_page(pairs, shown(before), shown(after)))


def _best(name: str, filters: dict[str, str | None], store: str | None) -> dict[str, TuningRecord]:
    """The best record of each workload in a run or a store, by the digest of the workload."""
    from constrint.tune.store.backends import SCHEME
    from constrint.tune.store.choices import best_records, workload_key
    from constrint.tune.store.record import digest

    is_store = bool(SCHEME.match(name)) or Path(name).is_file()
    with opened(name if is_store else store) as records_store:
        if not is_store and not records_store.count(run=name):
            hint = "A file or a URL names a store."
            raise UnknownNameError("run", name, [run.run for run in records_store.runs()], hint)
        selection = Selection(**filters, run=None if is_store else name)
        best = best_records(selection.find(records_store))
    return {digest(workload_key(record)): record for record in best}


@printing
def proposals(
    gpu: Gpu = None,
    operation: Annotated[
        str | None,
        typer.Option("--operation", help="Only for this operation: gemm.", autocompletion=complete_operation),
    ] = None,
    run: Run = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only what was refused, with the reasons.")] = False,
    store: Store = None,
    *,
    output: Output,
) -> None:
    """List what was proposed, who proposed it and why, and how far it came."""
    with opened(store) as records_store:
        listed = records_store.proposals(gpu=gpu_name(gpu), operation=operation, run=run)
        place = records_store.place
    listed = [one for one in listed if one.refusals or not refused]
    listed.sort(key=lambda one: (one.run, sorted(one.fixed.items()), one.round, one.place))
    output.show(proposals_page(listed, place))


records = typer.Typer(
    help="List, compare, prune, export, import and publish what was measured.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _name, _command in (
    ("list", list_),
    ("show", show),
    ("diff", diff),
    ("proposals", proposals),
    ("prune", prune),
    ("export", export),
    ("import", import_),
    ("publish", publish),
):
    records.command(_name)(_command)
