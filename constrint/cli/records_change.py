"""`constrint records export`, `import`, `publish` and `prune`: files of other tools, winners, removal of records."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from constrint.answers.table import counted
from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.completing import complete_dtype_name, complete_operation, complete_records_format
from constrint.cli.completion import complete_gpu, complete_kernel
from constrint.cli.options import Json
from constrint.cli.output import write_file
from constrint.cli.records_selection import Gpu, Selection, Store, gpu_name, numbers_of, opened, selecting
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.tune.store.record import TuningRecord
    from constrint.tune.store.store import RecordStore

IMPORT_SCHEMA = "constrint.records.import/1"
FORMATS = "jsonl, kernel-tuner, t1, t4, inductor, triton-config, c-header"


@selecting
def export(
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="NAME",
            help=f"{FORMATS} (`constrint docs records`).",
            autocompletion=complete_records_format,
        ),
    ] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to write; stdout by default.")
    ] = None,
    selection: Selection,
    store: Store = None,
) -> None:
    """Write records as a file of ours or of another tool."""
    from constrint.answers.formats.records import writer

    write = writer(form)
    with opened(store) as records_store:
        pieces = write(selection.find(records_store))
        if output is None:
            for piece in pieces:
                sys.stdout.write(piece)
        else:
            write_file(output, pieces)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to read.")],
    form: Annotated[
        str,
        typer.Option(
            "--format", metavar="NAME", help="jsonl, kernel-tuner or t4.", autocompletion=complete_records_format
        ),
    ] = "jsonl",
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="The GPU, where the file does not say it.", autocompletion=complete_gpu)
    ] = None,
    kernel: Annotated[
        str | None, typer.Option("--kernel", help="The kernel, likewise.", autocompletion=complete_kernel)
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option("--operation", help="The operation of the kernel, likewise.", autocompletion=complete_operation),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option("--dtype", help="The operand type, likewise.", autocompletion=complete_dtype_name)
    ] = None,
    workload: Annotated[str | None, typer.Option("--workload", metavar="m=1,n=2", help="The sizes, likewise.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="The run that the records will belong to.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add the records of a file, all or none."""
    from constrint.answers.formats.records import StatedFields, load, reader
    from constrint.tune.store.backends import shown

    read, name = reader(form), shown(str(file))
    stated = StatedFields(
        kernel or "", operation or "", gpu_name(gpu) or "", dtype or "", numbers_of(workload), run or ""
    )
    records = read(load(file, stated))
    with opened(store, is_made=True) as records_store:
        num_new = records_store.add(records)
        place = records_store.place
    if json:
        counts = {"num_records": len(records), "num_new": num_new}
        print_json({"schema": IMPORT_SCHEMA, "store": place, "file": name, "format": form, **counts})
    else:
        num_present = len(records) - num_new
        text = f"{counted(num_new, 'record')} of {name} added to {place}"
        say(wrap(f"{text}; {num_present:,} were there already." if num_present else f"{text}."))


PUBLISH_SCHEMA = "constrint.records.publish/1"


def publish(
    gpu: Gpu = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="Folder of the tables; look-ups read the cache folder.")
    ] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Write the winners as the tables that launches go by."""
    from constrint import cache
    from constrint.kernels.registry import code_of
    from constrint.select.winners import read_tuned
    from constrint.tune.store import choices

    chosen = folder or cache.user_folder()
    if chosen is None:
        raise UsageError("CONSTRINT_CACHE is 0, so there is no cache folder; say where with --folder.")
    with opened(store) as records_store:
        names = records_store.gpus()
        model = gpu_name(gpu)
        if model is not None and model not in names:
            raise UsageError(
                f"{records_store.place} has no records of {model}; it has those of: {', '.join(names) or 'none'}."
            )
        paths = [choices.publish(records_store, name, chosen, code_of) for name in ([model] if model else names)]
    tables = [(path, read_tuned(path)) for path in paths]
    if json:
        results = [{"gpu": t.gpu, "file": str(path), "num_entries": len(t.entries)} for path, t in tables]
        print_json({"schema": PUBLISH_SCHEMA, "results": results})
        return
    for path, table in tables:
        why = "" if table.entries else ": no record is ok and of the code that the kernels have here"
        say(wrap(f"{counted(len(table.entries), 'winner')} for {table.gpu} in {path}{why}."))
    if not tables:
        say("There are no records, so nothing was written.")


PRUNE_SCHEMA = "constrint.records.prune/1"
_SECONDS = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}


@selecting
def prune(
    *,
    stale: Annotated[
        bool, typer.Option("--stale", help="Records of other device code, or of another Triton, than here.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Records of failed trials.")] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Records older than this: 12h, 30d, 8w.")
    ] = None,
    unreadable: Annotated[bool, typer.Option("--unreadable", help="Only the records that cannot be read.")] = False,
    selection: Selection,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing: print the number of records.")] = False,
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
    with opened(store) as records_store:
        if unreadable:
            ids = records_store.unreadable_ids()
        else:
            chosen = (one for one in selection.find(records_store) if all(holds(one) for holds in conditions))
            ids = [one.id for one in chosen]
        num_removed = _remove(records_store, ids, is_dry=dry_run, is_sure=yes or json)
        _report(records_store, len(ids), num_removed, is_dry=dry_run, as_json=json)


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
    match = re.fullmatch(r"(\d{1,6})([hdw])", text.strip())
    if match is None:
        raise UsageError(f"--older-than {text!r} is no time; write 12h, 30d or 8w.")
    return int(match[1]) * _SECONDS[match[2]]


def _remove(store: RecordStore, ids: list[str], *, is_dry: bool, is_sure: bool) -> int:
    if is_dry or not ids:
        return 0
    if not is_sure:
        question = f"Remove {len(ids):,} of {counted(store.count(), 'record')} from {store.place}?"
        if not sys.stdin.isatty():
            raise UsageError(
                f"{counted(len(ids), 'record')} would be removed from {store.place}: say --yes, or --dry-run."
            )
        if not typer.confirm(question, err=True):
            say("Nothing was removed.")
            raise typer.Exit(1)
    return store.remove(ids)


def _report(store: RecordStore, num_found: int, num_removed: int, *, is_dry: bool, as_json: bool) -> None:
    left = store.count()
    if as_json:
        counts = {"num_found": num_found, "num_removed": num_removed, "num_left": left}
        print_json({"schema": PRUNE_SCHEMA, "store": store.place, "is_dry_run": is_dry, **counts})
    elif is_dry:
        say(wrap(f"{num_found:,} of {left:,} records in {store.place} would be removed."))
    else:
        say(wrap(f"{counted(num_removed, 'record')} removed from {store.place}, {left:,} are left."))


def is_stale(record: TuningRecord) -> bool:
    """Whether this machine has other code of the kernel, or another version of a compiler.

    A kernel or a tool that this machine lacks makes no record stale.
    """
    from constrint.select.toolchain import MAKERS, toolchain

    code, compilers = _here(record.kernel)
    tools = {**toolchain(), **compilers}
    if any(record.toolchain.get(name, version) != version for name, version in tools.items() if name in MAKERS):
        return True
    return bool(code and record.source_hash) and record.source_hash != code


@lru_cache(maxsize=256)
def _here(kernel: str) -> tuple[str | None, Mapping[str, str]]:
    """The hash of a kernel's device code, and its compilers; cached, since many records name few kernels."""
    from constrint.kernels.registry import code_of, spec_or_none

    spec = spec_or_none(kernel)
    return code_of(kernel), {} if spec is None else spec.compilers
