"""`constrint records`: what the store of tuning records holds, and what goes in and out of it."""

from __future__ import annotations

import typer

from constrint.cli.records.difference import diff
from constrint.cli.records.exchange import export, import_
from constrint.cli.records.listing import list_, show
from constrint.cli.records.proposing import proposals
from constrint.cli.records.pruning import prune
from constrint.cli.records.publishing import publish

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

__all__ = ["records"]
