"""`constrint records export` and `import`: files of ours and of other tools."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.asked.kernel_options import Json
from constrint.cli.output import write_file
from constrint.cli.records.listing import counted
from constrint.cli.records.selection import Selection, Store, gpu_name, numbers_of, opened, printable, selecting

SCHEMA = "constrint.records.import/1"
FORMATS = "jsonl, kernel-tuner, t1, t4, inductor, triton-config, c-header"


@selecting
def export(
    *,
    form: Annotated[
        str, typer.Option("--format", metavar="NAME", help=f"{FORMATS} (`constrint docs records`).")
    ] = "jsonl",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it is written; stdout if left out.")
    ] = None,
    selection: Selection,
    store: Store = None,
) -> None:
    """Write records as a file of ours or of another tool."""
    from constrint.answers.formats.records import writer

    write = writer(form)
    with opened(store) as found:
        pieces = write(selection.find(found))
        if output is None:
            for piece in pieces:
                sys.stdout.write(piece)
        else:
            write_file(output, pieces)


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What is read.")],
    form: Annotated[str, typer.Option("--format", metavar="NAME", help="jsonl, kernel-tuner or t4.")] = "jsonl",
    gpu: Annotated[str | None, typer.Option("--gpu", help="The GPU, where the file does not say it.")] = None,
    kernel: Annotated[str | None, typer.Option("--kernel", help="The kernel, likewise.")] = None,
    operation: Annotated[str | None, typer.Option("--operation", help="What the kernel computes, likewise.")] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="The operand type, likewise.")] = None,
    workload: Annotated[str | None, typer.Option("--workload", metavar="m=1,n=2", help="The sizes, likewise.")] = None,
    run: Annotated[str | None, typer.Option("--run", help="The run that the records will belong to.")] = None,
    store: Store = None,
    json: Json = False,
) -> None:
    """Add the records of a file, all or none."""
    from constrint.answers.formats.records import Said, load, reader

    read = reader(form)
    said = Said(kernel or "", operation or "", gpu_name(gpu) or "", dtype or "", numbers_of(workload), run or "")
    records = read(load(file, said))
    with opened(store, is_made=True) as found:
        num_new = found.add(records)
        place = found.place
    if json:
        counts = {"num_records": len(records), "num_new": num_new}
        print_json({"schema": SCHEMA, "store": place, "file": printable(str(file)), "format": form, **counts})
    else:
        known = len(records) - num_new
        text = f"{counted(num_new, 'record')} of {printable(str(file))} added to {place}"
        say(wrap(f"{text}; {known:,} were there already." if known else f"{text}."))
