"""`constrint records prune`: remove records that are stale, old, failed or unreadable, after asking."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import typer

from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.asked.kernel_options import Json
from constrint.cli.records.listing import counted
from constrint.cli.records.selection import Selection, Store, opened, selecting
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord
    from constrint.tune.store.store import RecordStore

SCHEMA = "constrint.records.prune/1"
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@selecting
def prune(
    *,
    stale: Annotated[
        bool, typer.Option("--stale", help="Of other code of the kernel, or of another Triton, than there is here.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Of trials that did not end well.")] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Measured before: 12h, 30d, 8w.")
    ] = None,
    unreadable: Annotated[bool, typer.Option("--unreadable", help="Those that cannot be read, and no others.")] = False,
    selection: Selection,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing: say how many there are.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    store: Store = None,
    json: Json = False,
) -> None:
    """Remove the records that agree with everything that is named."""
    conditions = _conditions(stale, failed, older_than)
    if unreadable and (conditions or not selection.is_all):
        raise UsageError("--unreadable takes no other condition: nothing is known of what such a record says.")
    if not unreadable and not conditions and selection.is_all:
        raise UsageError("say which records: --stale, --failed, --older-than 30d, --unreadable, --run NAME, --gpu ...")
    with opened(store) as found:
        if unreadable:
            ids = found.unreadable_ids()
        else:
            chosen = (one for one in selection.find(found) if all(holds(one) for holds in conditions))
            ids = [one.id for one in chosen]
        num_removed = _remove(found, ids, is_dry=dry_run, is_sure=yes or json)
        _report(found, len(ids), num_removed, is_dry=dry_run, as_json=json)


def _conditions(stale: bool, failed: bool, older_than: str | None) -> list[Callable[[TuningRecord], bool]]:
    conditions: list[Callable[[TuningRecord], bool]] = []
    if failed:
        conditions.append(lambda record: not record.is_ok)
    if older_than is not None:
        before = time.time() - _seconds(older_than)
        conditions.append(lambda record: record.created < before)
    if stale:
        conditions.append(is_stale)
    return conditions


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if found is None:
        raise UsageError(f"--older-than {text!r} is no time; write 12h, 30d or 8w.")
    return int(found[1]) * _SECONDS[found[2]]


def _remove(store: RecordStore, ids: list[str], *, is_dry: bool, is_sure: bool) -> int:
    if is_dry or not ids:
        return 0
    if not is_sure:
        asked = f"Remove {len(ids):,} of {counted(store.count(), 'record')} from {store.place}?"
        if not sys.stdin.isatty():
            raise UsageError(
                f"{counted(len(ids), 'record')} would be removed from {store.place}: say --yes, or --dry-run."
            )
        if not typer.confirm(asked, err=True):
            say("Nothing was removed.")
            raise typer.Exit(1)
    return store.remove(ids)


def _report(store: RecordStore, num_found: int, num_removed: int, *, is_dry: bool, as_json: bool) -> None:
    left = store.count()
    if as_json:
        found = {"num_found": num_found, "num_removed": num_removed, "num_left": left}
        print_json({"schema": SCHEMA, "store": store.place, "is_dry_run": is_dry, **found})
    elif is_dry:
        say(wrap(f"{num_found:,} of {left:,} records in {store.place} would be removed."))
    else:
        say(wrap(f"{counted(num_removed, 'record')} removed from {store.place}, {left:,} are left."))


def is_stale(record: TuningRecord) -> bool:
    """Whether this machine has other code of the kernel, or another version of a tool that makes code.

    A kernel or a tool that is not here tells nothing.
    """
    from constrint.select.toolchain import MAKERS, toolchain

    code, compilers = _here(record.kernel)
    tools = {**toolchain(), **compilers}
    if any(record.toolchain.get(name, version) != version for name, version in tools.items() if name in MAKERS):
        return True
    recorded = (record.source_hash, record.spec_hash)
    return code is not None and all(recorded) and recorded != code


@lru_cache(maxsize=256)
def _here(kernel: str) -> tuple[tuple[str, str] | None, Mapping[str, str]]:
    """What tells a kernel's code, and what compiles it; records name few kernels, and many times."""
    from constrint.kernels.registry import code_of, known_spec

    spec = known_spec(kernel)
    return code_of(kernel), {} if spec is None else spec.compilers
