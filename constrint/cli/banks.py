"""`constrint banks`: how a GPU serves shared memory, the conflicts of a tile's accesses, and layouts without any."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from constrint.answers.table import Column, Page, Table, counted
from constrint.answers.terminal import say, wrap
from constrint.cli.completing import complete_access, complete_dtype_name, one_of
from constrint.cli.completion import complete_gpu
from constrint.cli.output import Output, printing
from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.hwmodels.bank_accesses import TileAccess, access_names, check_tile, tile_access
from constrint.hwmodels.banks import BankAccess, BankConflicts, known_accesses
from constrint.select.layouts import SharedLayout, parse_layout, solve_layout
from constrint.select.layouts.layout import FORMS as LAYOUTS
from constrint.select.layouts.picture import lanes_text, worst_phase
from constrint.select.layouts.solve import FORMS

SCHEMA = "constrint.banks/1"
#: Cells of a drawn line; each has a lane's number.
CELLS, CELL_WIDTH = 16, 4
_TILE = re.compile(r"(\d{1,5})[xX](\d{1,5})")
FACTS = (
    Column("kind", meaning="read or write", is_text=True),
    Column("width_bits", "bits", meaning="bits of each lane in one instruction"),
    Column("banks", meaning="banks that the access sees; none where no source states how it is served"),
    Column("phases", meaning="lanes that are served together, phase by phase", is_text=True, wraps=True),
    Column("source", meaning="where that is stated", is_text=True, wraps=True),
)
COLUMNS = (
    Column("access", meaning="the access", is_text=True),
    Column("phase", meaning="the phase, of those in which a warp is served"),
    Column("lanes", meaning="lanes that are served together", is_text=True),
    Column("clocks", meaning="most clocks of the phase in any instruction; 1 without a conflict"),
    Column("conflicts", "in", meaning="instructions in which it takes more than one clock"),
    Column("instructions", "of", meaning="instructions of a warp that cover the tile"),
)


@dataclass(frozen=True)
class ShownAccess:
    """An access to a tile in a layout, with its clocks."""

    access: TileAccess
    layout: SharedLayout
    found: BankConflicts


@printing
def banks(
    gpu: Annotated[str, typer.Option("--gpu", help="GPU name or YAML file.", autocompletion=complete_gpu)],
    tile: Annotated[
        str | None, typer.Option("--tile", metavar="RxC", help="A tile: rows x elements of a row, such as 64x32.")
    ] = None,
    dtype: Annotated[
        str, typer.Option("--dtype", help="Type of its elements.", autocompletion=complete_dtype_name)
    ] = "bf16",
    access: Annotated[
        list[str] | None,
        typer.Option(
            "--access",
            metavar="NAME[,NAME]",
            help="Accesses; without --tile their names are listed.",
            autocompletion=complete_access,
        ),
    ] = None,
    layout: Annotated[str | None, typer.Option("--layout", help=f"Its layout: {LAYOUTS}.")] = None,
    solve: Annotated[
        bool, typer.Option("--solve", help="Find the layout of least memory in which no access has a conflict.")
    ] = False,
    form: Annotated[
        str,
        typer.Option("--form", help=f"With --solve, the unknowns: {', '.join(FORMS)}.", autocompletion=one_of(*FORMS)),
    ] = "any",
    interval: Annotated[
        int | None, typer.Option("--interval", help="With --form padding, the bytes between padding, such as 1024.")
    ] = None,
    *,
    output: Output,
) -> None:
    """Show the banks that the lanes of a warp meet in shared memory, or solve for a layout without conflicts.

    Without --tile it lists how the GPU serves reads and writes of each width, and the names of its accesses. Ends with
    exit code 1 where a layout is solved for and none exists.
    """
    model = load_gpu(gpu)
    names = [name.strip() for text in access or () for name in text.split(",")]
    if tile is None:
        if names or layout is not None or solve:
            raise UsageError("--access, --layout and --solve are about a tile: give its size, such as --tile 64x32.")
        output.show(_facts(model, dtype))
        return
    if not (hit := _TILE.fullmatch(tile)):
        raise UsageError(f"--tile {tile}: give rows x elements of a row, such as --tile 64x32.")
    checked = check_tile(int(hit[1]), int(hit[2]), dtype)
    if not names:
        raise UsageError(f"--access: name what the kernel does: {', '.join(access_names(model, dtype))}.")
    if solve and layout is not None:
        raise UsageError("--solve finds a layout and --layout names one; leave one out.")
    if not solve and (form != "any" or interval is not None):
        raise UsageError("--form and --interval are about the layout that --solve finds; add --solve.")
    if solve:
        found = solve_layout(model, checked.rows, checked.columns, dtype, names, form=form, interval=interval)
        chosen = found.layout
    else:
        chosen = parse_layout(layout or "none", checked)
    accesses = [tile_access(model, name, checked) for name in dict.fromkeys(names)]
    output.show(
        _conflicts(model, chosen, [ShownAccess(each, chosen, chosen.conflicts(model, each)) for each in accesses])
    )


def _facts(gpu: GpuModel, dtype: str) -> Page:
    """How the GPU serves each kind and width."""
    known = known_accesses(gpu)
    rows = [
        [kind, width, *((each.banks, _phases(each), each.source) if each else (None, "no source states it", None))]
        for kind, width, each in known
    ]
    document = {
        "schema": SCHEMA,
        "gpu": gpu.name,
        "target": gpu.arch.target,
        "bank_width_bytes": gpu.sm.smem_bank_width_bytes,
        "accesses": [_document_of(kind, width, each) for kind, width, each in known],
        "names": access_names(gpu, dtype),
    }
    head = f"{gpu.name} ({gpu.arch.target}): {gpu.terms.smem} in phases of lanes that are served together"
    below = f"accesses of a tile of {dtype}: {', '.join(access_names(gpu, dtype))}"
    return Page(Table(FACTS, rows), lambda _: document, above=[head], below=[below])


def _document_of(kind: str, width: int, access: BankAccess | None) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": kind, "width_bits": width, "banks": None, "phases": None, "source": None}
    if access is not None:
        document |= {"banks": access.banks, "phases": access.phases, "source": access.source}
    return document


def _phases(access: BankAccess) -> str:
    return "; ".join(map(lanes_text, access.phases))


def _conflicts(gpu: GpuModel, layout: SharedLayout, every: list[ShownAccess]) -> Page:
    """The clocks of each phase of each access, and a picture of the worst one."""
    rows = [
        [
            shown.access.name,
            phase,
            lanes_text(shown.found.access.phases[phase]),
            int(clocks.max()),
            int((clocks > 1).sum()),
            len(clocks),
        ]
        for shown in every
        for phase, clocks in enumerate(shown.found.clocks.T)
    ]
    table = Table(COLUMNS, rows)
    document = {
        "schema": SCHEMA,
        "gpu": gpu.name,
        "target": gpu.arch.target,
        "tile": {"rows": layout.tile.rows, "columns": layout.tile.columns, "dtype": layout.tile.dtype},
        "layout": str(layout),
        "formula": layout.formula,
        "num_bytes": layout.num_bytes,
        "accesses": [_access_document(shown) for shown in every],
    }

    def drawn(print_table: Callable[[Table], None]) -> None:
        say(wrap(f"{gpu.name}: {layout.tile}, layout {layout}: {layout.num_bytes:,} bytes of {gpu.terms.smem}"))
        if str(layout) != "none":
            what = "offset in the tile, its rows reordered" if layout.row_bits else "offset in the tile"
            say(wrap(f"address of the {what}, o: {layout.formula}"))
        for shown in every:
            say()
            for line in picture(shown):
                say(line)
        say()
        print_table(table)

    return Page(table, lambda _: document, draw=drawn)


def _access_document(shown: ShownAccess) -> dict[str, Any]:
    served = shown.found.access
    phases = zip(served.phases, shown.found.clocks.max(axis=0).tolist(), strict=True)
    return {
        "name": shown.access.name,
        "kind": served.kind,
        "width_bits": served.width_bits,
        "banks": served.banks,
        "degree": int(shown.found.degree.max()),
        "instructions": len(shown.access.rows),
        "phases": [{"lanes": lanes, "clocks": clocks} for lanes, clocks in phases],
        "source": served.source,
    }


def picture(shown: ShownAccess) -> Iterator[str]:
    """The worst phase of an access: a line per clock, in which each bank has the number of the lane that it serves."""
    served, clocks = shown.found.access, shown.found.clocks
    worst = worst_phase(shown.layout, shown.access, shown.found)
    degree, warps = worst.degree, counted(len(clocks), "instruction")
    yield wrap(
        f"{shown.access.name}: {served.kind}s of {served.width_bits} bits by {served.lanes} lanes in "
        f"{counted(len(served.phases), 'phase')}, {served.banks} banks, {warps}: "
        + (f"{degree}-way conflicts" if degree > 1 else "no conflict")
    )
    place = f"phase {worst.phase} of instruction {worst.instruction}"
    yield wrap(f"{place}, lanes {lanes_text(worst.lanes)}: {counted(degree, 'clock')}")
    for first in range(0, len(worst.banks), CELLS):
        here = range(first, min(len(worst.banks), first + CELLS))
        yield "  bank   " + "".join(f"{worst.banks[cell]:>{CELL_WIDTH}}" for cell in here)
        for clock in range(degree):
            texts = [worst.served[cell][clock] if clock < len(worst.served[cell]) else "." for cell in here]
            yield f"  clock {clock + 1:<2}" + "".join(f"{text:>{CELL_WIDTH}}" for text in texts)
