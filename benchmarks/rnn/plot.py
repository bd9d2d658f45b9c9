"""Draw the recurrent benchmark: time against head dimension, batch and time for every implementation.

python -m benchmarks.rnn.plot benchmarks/results/h200/rnn.csv --out rnn.png       # needs matplotlib
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.harness.table import read_rows

MARKS = {
    "triton": "o-",
    "triton kernels": "o:",
    "nxai": "v--",
    "alternating": "s--",
    "cudnn": "^:",
    "vanilla": "x",
    "floor": "k-",
}


def read(path: Path) -> list[dict[str, Any]]:
    """Rows with a time; sizes as integers, times as floats in ms."""
    rows: list[dict[str, Any]] = []
    for row in read_rows(path):
        try:
            times = {key: float(row[key]) for key in ("forward_ms", "both_ms", "floor_forward_ms", "floor_both_ms")}
        except ValueError:
            continue  # an implementation that does not take the layer
        rows.append(row | {key: int(row[key]) for key in ("heads", "head_dim", "batch", "time")} | times)
    return rows


def curves(rows: list[dict[str, Any]], key: str, time_key: str) -> dict[str, list[tuple[int, float]]]:
    """Points (size, ms) of every implementation, by size; and the floor's."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        name = row["implementation"] if row["cell"] == "lstm" else f"{row['implementation']} {row['cell']}"
        found[name][row[key]] = row[time_key]
        if row["cell"] == "lstm":
            found["floor"][row[key]] = row[f"floor_{time_key}"]
    return {name: sorted(points.items()) for name, points in found.items()}


def select(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Rows with these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def panels(rows: list[dict[str, Any]]) -> list[tuple[str, str, list[dict[str, Any]]]]:
    """(title, horizontal axis, rows) of every panel."""
    at = [r for r in rows if r["batch"] == 16 and r["time"] == 1024 and r["dtype"] == "bf16"]
    swept = select(rows, what="sweep", dtype="bf16", cell="lstm")
    result = [("B=16, T=1024, bf16", "head_dim", at)]
    for heads, dim in ((12, 64), (1, 768)):
        here = [r for r in swept if (r["heads"], r["head_dim"]) == (heads, dim)]
        result.append((f"LSTM {heads}x{dim}, T=1024, bf16", "batch", select(here, time=1024)))
        result.append((f"LSTM {heads}x{dim}, B=16, bf16", "time", select(here, batch=16)))
    return result


def main() -> None:
    """Draw one row of panels per direction."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="a PNG file")
    args = parser.parse_args()
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = panels(read(args.results))
    figure, axes = pyplot.subplots(2, len(shown), figsize=(4.2 * len(shown), 7.5), squeeze=False)
    for line, (time_key, label) in enumerate((("forward_ms", "forward"), ("both_ms", "forward + backward"))):
        for axis, (title, key, rows) in zip(axes[line], shown, strict=True):
            for name, points in curves(rows, key, time_key).items():
                axis.plot(
                    *zip(*points, strict=True),
                    MARKS.get(name) or MARKS.get(name.split()[0], "."),
                    label=name,
                    markersize=4,
                )
            axis.set(xscale="log", yscale="log", xlabel=key, ylabel=f"{label}, ms", title=title)
            axis.grid(visible=True, which="both", alpha=0.2)
            ticks = sorted({row[key] for row in rows})
            axis.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=7)
            axis.minorticks_off()
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="lower center", ncols=7)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(args.out, dpi=120)
    print(args.out)


if __name__ == "__main__":
    main()
