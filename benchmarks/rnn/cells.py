"""Layers of the cells in `examples/cells`: public calls of every back-end, in turn, beside the plain loop.

    python -m benchmarks.rnn.cells --out cells.csv                 # all cells, two shapes; needs a GPU
    python -m benchmarks.rnn.cells --only mgu rhn --rounds 3       # some of them

`auto` is what a layer runs, `staged` and `torch` are named back-ends, `plain` is `reference`: a loop over steps that
autograd differentiates, as one would write it. Every row has been called before it is timed. Wall time of a call, calls
of a round back to back, in bf16; `both` is the forward and the backward pass. Back-ends with kernels take turns with
each other, apart from those that call torch for every operation, which leave so much garbage that the next call waits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness.table import Table, attempt, described
from constrint.flashrnn import module
from constrint.kernels.rnn.language.graph import CellDefinition
from constrint.tune.measure import Timer

COLUMNS = ("cell", "units", "batch", "time", "who", "which", "median_ms", "spread_ms", "over_auto", "outcome")
#: (units, batch, time).
SHAPES = ((512, 16, 128), (1024, 64, 64))
BACKENDS = {"auto": "auto", "staged": "staged", "torch": "torch", "plain": "reference"}
#: Those that call torch for every operation.
BY_TORCH = ("torch", "plain")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "cells"


def cells() -> Iterator[CellDefinition]:
    """The definitions of the examples."""
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem != "loop":
            yield from import_module(f"examples.cells.{path.stem}").CELLS


def calls_of(cell: CellDefinition, shape: tuple[int, int, int], backend: str) -> dict[str, Callable[[], object]]:
    """A forward pass, and both passes, of one layer."""
    units, batch, time = shape
    torch.manual_seed(0)
    options: dict[str, Any] = {"device": DEVICE, "dtype": torch.bfloat16}
    layer = module(cell)(units, units, batch_first=True, backend=backend, **options)
    x = torch.randn(batch, time, units, **options).requires_grad_()
    inputs = {
        each.name: torch.rand(batch, time, *([units] if each.kind == "unit" else []), **options) for each in cell.inputs
    }
    gradient = torch.ones(batch, time, units, **options)

    def forward() -> object:
        with torch.no_grad():
            return layer(x, **inputs)

    def both() -> object:
        return layer(x, **inputs)[0].backward(gradient)

    return {"forward": forward, "both": both}


def _prepare(
    made: dict[str, Callable[[], object]], cell: CellDefinition, shape: tuple[int, int, int], backend: str
) -> None:
    """Add the calls of a back-end, each called once."""
    made.update(calls_of(cell, shape, backend))
    for call in made.values():
        call()


def measured(table: Table, cell: CellDefinition, shape: tuple[int, int, int], timer: Timer, rounds: int) -> None:
    """The rows of one cell and shape."""
    units, batch, time = shape
    ready: list[tuple[str, str, Callable[[], object]]] = []
    failed: list[tuple[str, str]] = []
    for who, backend in BACKENDS.items():
        made: dict[str, Callable[[], object]] = {}
        outcome = attempt(partial(_prepare, made, cell, shape, backend))["outcome"]
        if outcome == "ok":
            ready += [(who, which, call) for which, call in made.items()]
        else:
            failed.append((who, outcome))
    figures = [
        figure
        for _, group in groupby(ready, lambda one: one[0] in BY_TORCH)
        for figure in timer.from_python([call for _, _, call in group], rounds)
    ]
    of_auto = {which: figure.median_s for (who, which, _), figure in zip(ready, figures, strict=True) if who == "auto"}
    sizes = {"cell": cell.name, "units": units, "batch": batch, "time": time}
    for (who, which, _), figure in zip(ready, figures, strict=True):
        ratio = figure.median_s / of_auto[which] if which in of_auto else None
        row = {"median_ms": figure.median_s * 1e3, "spread_ms": figure.spread_s * 1e3, "over_auto": ratio}
        print(*table.add(**sizes, who=who, which=which, **row, outcome="ok").values(), flush=True)
    for who, outcome in failed:
        print(*table.add(**sizes, who=who, outcome=outcome).values())


def main() -> None:
    """Time all cells, or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="CSV file")
    parser.add_argument("--only", nargs="*", default=[], help="names of cells")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", type=int, nargs=3, action="append", metavar=("UNITS", "BATCH", "TIME"))
    args = parser.parse_args()
    print(described())
    with Table(args.out, COLUMNS, described()) as table:
        for units, batch, time in args.shape or SHAPES:
            for cell in cells():
                if not args.only or cell.name in args.only:
                    measured(table, cell, (units, batch, time), Timer(DEVICE), args.rounds)


if __name__ == "__main__":
    main()
