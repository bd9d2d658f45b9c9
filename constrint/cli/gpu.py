"""`constrint gpu`: one GPU model with its sources, as YAML or checked; or the devices of this machine, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from constrint.answers.table import EXTRA, Column, Page, Table
from constrint.answers.terminal import print_json, say, wrap
from constrint.cli.completion import complete_gpu
from constrint.cli.options import Json
from constrint.cli.output import Output
from constrint.errors import UsageError
from constrint.hwmodels import DetectedDevice, GpuModel, detect, gpu_names, load_gpu
from constrint.hwmodels.checks import target_note
from constrint.hwmodels.load import check_file
from constrint.hwmodels.numbers import numbers_of
from constrint.kernels.gemm.measured import held_file, held_of

SCHEMA = "constrint.gpu/1"
NAMES_SCHEMA = "constrint.gpu.names/1"
DETECT_SCHEMA = "constrint.gpu.detect/1"
WRITE_SCHEMA = "constrint.gpu.write/1"
CHECK_SCHEMA = "constrint.gpu.check/1"
BLOCKS = ("arch", "device", "sm", "memory", "compute", "matrix", "measured")


def gpu(
    name: Annotated[
        str | None,
        typer.Argument(help="GPU name or alias, or a path to a YAML file.", autocompletion=complete_gpu),
    ] = None,
    gpu_option: Annotated[
        str | None, typer.Option("--gpu", help="The same, as an option.", autocompletion=complete_gpu)
    ] = None,
    detect_: Annotated[bool, typer.Option("--detect", help="Show the GPUs of this machine instead.")] = False,
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="With --detect: measure what no source states, and write a model into your own folder."
        ),
    ] = False,
    names: Annotated[
        bool, typer.Option("--names", help="List its numbers by the names that rules and problems call them.")
    ] = False,
    yaml: Annotated[
        bool, typer.Option("--yaml", help="Print it as the YAML of a file of your own, which loads back.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Check a file of your own and list every broken rule; exit 1."),
    ] = None,
    json: Json = False,
) -> None:
    """Show one GPU model, with the source of every block and what is unconfirmed."""
    named = [text for text in (name, gpu_option) if text is not None]
    if len(named) + detect_ + (check is not None) != 1:
        raise UsageError(
            "name one GPU, for example `constrint gpu mi300x`, or ask for --detect, or for --check FILE; one of them."
        )
    if not named and (names or yaml):
        raise UsageError("--names and --yaml are about a model: name the GPU instead of --detect or --check.")
    if names + yaml + json * yaml > 1:
        raise UsageError("--yaml is a format of its own: leave --names and --json away.")
    if write and not detect_:
        raise UsageError("--write is about the GPU of this machine: add --detect.")
    if check is not None:
        _check(check, json)
        return
    if yaml:
        _print_yaml(load_gpu(named[0]))
        return
    if write:
        _write(json)
        return
    if not detect_:
        model = load_gpu(named[0])
        if names:
            Output("json" if json else "table").show(_names_page(model))
        elif json:
            print_json({"schema": SCHEMA, "gpu": as_document(model), "held_against": held_document(model)})
        else:
            _print(model)
        return
    devices = detect()
    if json:
        print_json({"schema": DETECT_SCHEMA, "devices": devices})
        return
    for device in devices:
        _print_device(device)


def _print_yaml(model: GpuModel) -> None:
    from constrint.hwmodels.write import yaml_of  # the usual forms of a model do without it

    typer.echo(yaml_of(model), nl=False)


def _check(path: Path, json: bool) -> None:
    """Print every broken rule of a file, and end with 1 where there is any."""
    model, broken = check_file(path.expanduser())
    if json:
        name = None if model is None else model.name
        print_json({"schema": CHECK_SCHEMA, "file": str(path), "gpu": name, "broken": broken})
    for sentence in () if json else broken:
        say(wrap(sentence))
    if broken or model is None:
        raise typer.Exit(1)
    if not json:
        unknown = f"{len(model.unconfirmed)} values are unconfirmed"
        say(wrap(f"{path}: {model.name} ({model.arch.family}, {model.arch.target}) breaks no rule; {unknown}"))


def _write(json: bool) -> None:
    """Measure the first device of this machine and write its model."""
    from constrint.kernels.measuring.session import measure_here

    written = measure_here()
    if json:
        print_json(
            {"schema": WRITE_SCHEMA, "gpu": written.gpu.name, "file": str(written.path), "measured": written.lines}
        )
        return
    for line in written.lines:
        say(wrap(line))
    say(wrap(f"{written.path}: the model of {written.gpu.name}; --gpu {written.gpu.name.lower()} is this file now"))


#: The columns of `--names`.
NAMES = (
    Column("name", is_text=True, importance=100),
    Column("value", importance=100, show=lambda value: f"{value:,}"),
    # Names end in their units.
    Column("unit", is_text=True, importance=EXTRA),
    Column("meaning", is_text=True, wraps=True, importance=70),
    Column("path", meaning="where it stands in the file", is_text=True, importance=EXTRA),
)


def _names_page(model: GpuModel) -> Page:
    """The page of the numbers that a rule or a problem may name."""
    numbers, named = numbers_of(model), gpu_names(model)
    rows = [[n.name, n.value, n.unit, n.meaning, n.path] for n in numbers if n.value is not None]
    without = [n.name for n in numbers if n.value is None and "no source" in str(named[n.name])]
    return Page(
        Table(NAMES, rows),
        lambda _: {"schema": NAMES_SCHEMA, "gpu": model.name, "names": [number._asdict() for number in numbers]},
        below=[
            *([f"unknown, since no source confirms them: {', '.join(without)}"] if without else []),
            'in a problem with --gpu, or in a rule: --where "tile_m * tile_k <= gpu.max_smem_bytes_per_block / 2"',
        ],
    )


def as_document(model: GpuModel) -> dict[str, Any]:
    """The model in the form of its YAML file, with all keys and sizes."""
    document: dict[str, Any] = msgspec.to_builtins(model)
    document.pop("schema")
    return document


def held_document(model: GpuModel) -> dict[str, Any]:
    """Published times that modelled times of products were held against; no rows where nobody published any."""
    rows = [msgspec.to_builtins(row) for row in held_of(model)]
    return {"made_by": held_file().made_by, "date": held_file().date, "products": rows}


def _print_held(model: GpuModel) -> None:
    rows = held_of(model)
    if not rows:
        say(wrap("modelled times of products were held against nothing: nobody published any of this GPU"))
        return
    say(wrap(f"modelled times of products over times measured elsewhere ({held_file().made_by}, {held_file().date})"))
    for row in rows:
        spread = f"{row.low:.2f} to {row.high:.2f} eight times in ten"
        say(wrap(f"{row.dtype}, {row.size}: {row.median:.2f} in the median, {spread}, n {row.n} ({row.source})", "  "))


def _print(model: GpuModel) -> None:
    document = as_document(model)
    say(f"{model.name} ({model.vendor}, {model.arch.family}, {model.arch.target})")
    say(wrap(f"also: {', '.join(model.aliases)}" if model.aliases else "no aliases"))
    if note := target_note(model):
        say(wrap(f"note: {note}"))
    unknown = {entry.partition(":")[0] for entry in model.unconfirmed}
    for block in (block for block in BLOCKS if document[block] is not None):
        say()
        _print_block(block, document[block], block, unknown)
    for title in ("unconfirmed", "disagreements", "notes"):
        if entries := getattr(model, title):
            say(f"\n{title}")
            for entry in entries:
                say(wrap(entry, "  "))
    say()
    _print_held(model)
    say("\nsources (after each block: the keys of its own)")
    for key, text in model.sources.items():
        say(wrap(f"{key}: {text}", "  "))


def _print_block(title: str, block: dict[str, Any], path: str, unknown: set[str], depth: int = 0) -> None:
    indent = "  " * depth
    say(f"{indent}{title}  [{', '.join(block['sources'])}]" if "sources" in block else f"{indent}{title}")
    for key, value in block.items():
        where = f"{path}.{key}"
        mark = " (unconfirmed)" if where in unknown else ""
        if key in ("sources", "vendor") or (value is None and where not in unknown):
            continue
        if isinstance(value, dict):
            _print_block(key + mark, value, where, unknown, depth + 1)
        elif key == "instructions":
            for row in value:
                say(f"{indent}  {_instruction(row)}")
        else:
            say(wrap(f"{key}: {_value(key, value)}{mark}", f"{indent}  "))


def _instruction(row: dict[str, Any]) -> str:
    size = f"{_sizes(row['m'])} x {_sizes(row['n'])} x {row['k']}"
    parts = [f"{row['name']}  {row['dtype']}  {size}"]
    if row["blocks"] > 1:
        parts.append(f"{row['blocks']} blocks")
    if row["num_ctas"] > 1:
        parts.append(f"{row['num_ctas']} CTAs")
    if row["cycles"] is not None:
        parts.append(f"{row['cycles']} cycles")
    return "  ".join(parts)


def _sizes(sizes: list[int]) -> str:
    return str(sizes[0]) if len(sizes) == 1 else f"{{{sizes[0]}..{sizes[-1]}, {len(sizes)} sizes}}"


def _value(key: str, value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, list | tuple):
        return ", ".join(f"{item:,}" if isinstance(item, int) else str(item) for item in value)
    if isinstance(value, float) and value >= 1e9:
        return f"{value / 1e12:,.6g}e12"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _print_device(device: DetectedDevice) -> None:
    model = device.model or "no model of this device; write one as a YAML file (`constrint gpus` lists what there is)"
    say(f"device {device.index}: {device.name} ({device.target}, through {device.source})")
    say(wrap(f"model: {model}", "  "))
    if device.model and not device.disagreements:
        say("  the device agrees with the model in all that it reports")
    for sentence in device.disagreements:
        say(wrap(f"disagrees: {sentence}", "  "))
