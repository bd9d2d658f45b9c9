"""Make the table of cuDNN's times that the planner reads of what `benchmarks.rnn.sweep` measured.

    python -m benchmarks.rnn.sweep --list cudnn --kinds nn cudnn --out sweep.csv
    python -m benchmarks.rnn.cudnn_table sweep.csv --gpu h200
    python -m benchmarks.rnn.cudnn_table sweep.csv --gpu h200 --keep    # adds to the table there is
    python -m benchmarks.rnn.cudnn_table fp32.csv --gpu h200 --keep --ours    # and to that of our layers

Takes the rows of `module cudnn`, which is what a module runs, and those of `torch.nn` where there are none, with the
projection of the same layer. Several files are joined; of two rows for a layer the later one counts. Prints how far
times are off that their neighbours predict.

`--ours` also keeps the rows of `rnn auto`, in tables of measured layers, one for each implementation that ran them,
with which cuDNN's are compared: for layers of which the model of a step does not say enough, such as short sequences.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from benchmarks.harness.table import read_rows, read_table
from benchmarks.rnn.entries import PROJECTION, TORCH_NN
from constrint.hwmodels import load_gpu
from constrint.kernels.rnn.cudnn.spec import MEASURED, left_out_error, measured
from constrint.kernels.rnn.measured import table_of

LAYER = ("cell", "dtype", "batch", "head_dim", "time")
COLUMNS = ("cell", "dtype", "batch", "dim", "time", "forward_ms", "both_ms")
PROJECTED = ("projection_forward_ms", "projection_both_ms")
#: Rows of our own layers.
OURS = "rnn auto"
#: Rows of a layer's time, the preferred ones last.
WHOLE = (TORCH_NN, "module cudnn")


def _layers(paths: list[Path]) -> dict[tuple[str, ...], dict[str, dict[str, str]]]:
    """Return the rows of each layer by the name of the contender."""
    found: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for path in paths:
        for row in read_rows(path):
            if row["outcome"] == "ok" and (row["heads"], row.get("layers", "1")) == ("1", "1"):
                found.setdefault(tuple(row[name] for name in LAYER), {})[row["implementation"]] = row
    return found


def rows_of_ours(paths: list[Path]) -> dict[str, list[list[str]]]:
    """The rows of our own layers by the implementation that ran them, sorted."""
    found: dict[str, list[list[str]]] = {}
    for layer, of in _layers(paths).items():
        if OURS in of and of[OURS].get("runs_on"):
            row = of[OURS]
            found.setdefault(row["runs_on"], []).append([*layer, row["forward_ms"], row["both_ms"]])
    return {implementation: sorted(rows, key=_place) for implementation, rows in found.items()}


def rows_of(paths: list[Path]) -> list[list[str]]:
    """The table's rows, sorted."""
    rows = []
    for layer, entries in _layers(paths).items():
        whole = [entries[name] for name in WHOLE if name in entries]
        if whole and PROJECTION in entries:
            times = [
                entry[f"{which}_ms"] for entry in (whole[-1], entries[PROJECTION]) for which in ("forward", "both")
            ]
            rows.append([*layer, *times])
    return sorted(rows, key=_place)


def _place(row: list[str]) -> tuple[str | int, ...]:
    return (row[0], row[1], *map(int, row[2:5]))


def write(path: Path, notes: list[str], rows: list[list[str]], more: tuple[str, ...] = PROJECTED) -> None:
    """Write the table with where it comes from."""
    path.parent.mkdir(exist_ok=True)
    with path.open("w", newline="") as file:
        for note in notes:
            file.write(f"# {note}\n")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *more])
        writer.writerows(rows)


def kept_rows(path: Path, rows: list[list[str]], made: list[str]) -> tuple[list[str], list[list[str]]]:
    """The notes of a table with those of a new one, and its rows with those of new layers in their places."""
    lines = path.read_text(encoding="utf-8").splitlines()
    older = [line.removeprefix("# ") for line in lines if line.startswith("#")]
    notes = [*older, *(note for note in made if note not in older)]
    old = list(csv.reader(line for line in lines if not line.startswith("#")))[1:]
    replaced = {tuple(row[: len(LAYER)]) for row in rows}
    kept = [row for row in old if tuple(row[: len(LAYER)]) not in replaced]
    return notes, sorted([*kept, *rows], key=_place)


def main() -> None:
    """Join the files and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweeps", nargs="+", type=Path, help="files of benchmarks.rnn.sweep")
    parser.add_argument("--gpu", required=True, help="the GPU that they were measured on, as `constrint gpus` names it")
    parser.add_argument("--out", type=Path, help="another file than the one that the planner reads")
    parser.add_argument("--keep", action="store_true", help="keep the planner's rows of layers that no sweep has")
    parser.add_argument("--ours", action="store_true", help="write the table of our own measured layers, too")
    args = parser.parse_args()
    name = load_gpu(args.gpu).name
    planners = MEASURED / f"{name.lower()}.csv"
    out = args.out or planners
    made = ["Made by benchmarks.rnn.cudnn_table of benchmarks.rnn.sweep, milliseconds per call from Python on:"]
    made += list(dict.fromkeys(read_table(path)[0] for path in args.sweeps))
    notes, rows = kept_rows(planners, rows_of(args.sweeps), made) if args.keep else (made, rows_of(args.sweeps))
    write(out, notes, rows)
    measured.cache_clear()
    print(f"{len(rows)} layers in {out}")
    if args.ours:
        for implementation, own in rows_of_ours(args.sweeps).items():
            path = table_of(implementation, name)
            path = path if args.out is None else out.with_name(f"{implementation}-{out.name}")
            notes = made
            if args.keep and path.is_file():
                notes, own = kept_rows(path, own, made)
            write(path, notes, own, ())
            print(f"{len(own)} layers of {implementation} in {path}")
    if args.out is None:
        print(f"times at sizes left out are off by up to {left_out_error(name):.0%}")


if __name__ == "__main__":
    main()
