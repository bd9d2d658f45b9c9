"""`constrint gpus`: the GPU models that ship with constrint and the user's own, one line each, or a family's."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from constrint.answers.table import Column, Page, Table
from constrint.answers.terminal import printable
from constrint.cli.completion import complete_family
from constrint.cli.output import Output, printing
from constrint.errors import UnknownNameError
from constrint.hwmodels import GpuModel, load_all
from constrint.hwmodels.files import fold
from constrint.hwmodels.load import load_user_gpus

SCHEMA = "constrint.gpus/1"


def _scaled(unit: float) -> Any:
    """A function that shows a value in a larger unit with four digits."""
    return lambda value: f"{value / unit:,.4g}" if value / unit < 1000 else f"{value / unit:,.0f}"


#: The keys are those of the JSON document.
COLUMNS = (
    Column("name", "GPU", is_text=True, importance=100),
    Column("vendor", importance=0, is_text=True),
    Column("target", meaning="what compilers call its architecture", is_text=True, importance=80),
    Column("family", importance=0, is_text=True, meaning="the vendor's name of the architecture"),
    Column("sm_count", "SM/CU", meaning="streaming multiprocessors, or compute units", importance=70),
    Column(
        "max_smem_bytes_per_block", "smem KiB", "shared memory (LDS) per block", importance=70, show=_scaled(2**10)
    ),
    Column("l2_bytes", "L2 MiB", meaning="all of the level 2 cache", importance=40, show=_scaled(2**20)),
    Column("dram_bytes", "mem GB", meaning="device memory", importance=60, show=_scaled(1e9)),
    Column(
        "dram_bandwidth_bytes_per_s", "GB/s", meaning="bandwidth of device memory", importance=60, show=_scaled(1e9)
    ),
    Column("fp16_flop_per_s", "fp16 TF", "dense peak", importance=50, show=_scaled(1e12)),
    Column(
        "num_unconfirmed", "unsure", "values that no good source confirms (`constrint gpu NAME` lists them)",
        importance=20,
    ),
    Column("file", is_text=True, importance=0, meaning="where your own model stands; empty for one that ships"),
)  # fmt: skip


@printing
def gpus(
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family",
            metavar="NAME",
            help="List those of an architecture, such as hopper, cdna3, or rdna for all that begin so; repeatable.",
            autocompletion=complete_family,
        ),
    ] = None,
    group: Annotated[bool, typer.Option("--group", help="Order them by vendor and architecture.")] = False,
    *,
    output: Output,
) -> None:
    """List the GPU models; `constrint gpu NAME` shows one with its sources."""
    loaded, refused = load_user_gpus()
    for sentence in refused:
        typer.echo(f"warning: a GPU of yours is left out: {printable(sentence)}", err=True)
    own = {model.name: (path, model) for path, model in loaded.items()}
    models = [model for model in load_all() if model.name not in own] + [model for _, model in own.values()]
    if family:
        models = of_families(models, family)
    if group:
        models.sort(key=lambda model: (-len(model.vendor), model.maker.target_number(model.arch.target)))
    items = [as_row(model, str(own[model.name][0]) if model.name in own else None) for model in models]
    table = Table(COLUMNS, [[item[column.key] for column in COLUMNS] for item in items], items=items)
    shown = [f"{name} is your own: {path}" for name, (path, model) in own.items() if model in models]
    output.show(Page(table, lambda items: {"schema": SCHEMA, "gpus": list(items)}, below=shown))


def of_families(models: list[GpuModel], families: list[str]) -> list[GpuModel]:
    """The models whose architecture begins with one of the names.

    Raises:
        UnknownNameError: When no model's does; lists the families.
    """
    known = dict.fromkeys(model.arch.family for model in models)
    for name in families:
        if not fold(name) or not any(fold(family).startswith(fold(name)) for family in known):
            raise UnknownNameError("family", name, known)
    return [m for m in models if any(fold(m.arch.family).startswith(fold(name)) for name in families)]


def as_row(model: GpuModel, file: str | None = None) -> dict[str, Any]:
    """One GPU in the form that `constrint docs json` describes; `file` is where the user's own model stands."""
    return {
        "name": model.name,
        "vendor": model.vendor,
        "aliases": list(model.aliases),
        "target": model.arch.target,
        "family": model.arch.family,
        "sm_count": model.device.sm_count,
        "max_smem_bytes_per_block": model.sm.max_smem_bytes_per_block,
        "l2_bytes": model.memory.l2.size_bytes,
        "dram_bytes": model.memory.dram.size_bytes,
        "dram_bandwidth_bytes_per_s": model.memory.dram.bandwidth_bytes_per_s,
        "fp16_flop_per_s": model.peak_flop_per_s("fp16"),
        "num_unconfirmed": len(model.unconfirmed),
        "file": file,
    }
