"""`constrint records publish`: write the winners of a store where look-ups find them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.asked.kernel_options import Json
from constrint.cli.records.listing import counted
from constrint.cli.records.selection import Gpu, Store, gpu_name, opened
from constrint.errors import UsageError

SCHEMA = "constrint.records.publish/1"


def publish(
    gpu: Gpu = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Where the tables are written; look-ups read the cache folder.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Write the winners as the tables that launches go by."""
    from constrint import cache
    from constrint.kernels.registry import code_of
    from constrint.select.tuned import read_tuned
    from constrint.tune.store import choices

    chosen = folder or cache.user_folder()
    if chosen is None:
        raise UsageError("CONSTRINT_CACHE is 0, so there is no cache folder; say where with --folder.")
    with opened(store) as found:
        names = found.gpus()
        asked = gpu_name(gpu)
        if asked is not None and asked not in names:
            raise UsageError(f"{found.place} has no records of {asked}; it has those of: {', '.join(names) or 'none'}.")
        paths = [choices.publish(found, name, chosen, code_of) for name in ([asked] if asked else names)]
    tables = [(path, read_tuned(path)) for path in paths]
    if json:
        results = [{"gpu": t.gpu, "file": str(path), "num_entries": len(t.entries)} for path, t in tables]
        print_json({"schema": SCHEMA, "results": results})
        return
    for path, table in tables:
        why = "" if table.entries else ": no record is ok and of the code that the kernels have here"
        say(wrap(f"{counted(len(table.entries), 'winner')} for {table.gpu} in {path}{why}."))
    if not tables:
        say("There are no records, so nothing was written.")
