"""Draw predicted over measured time against measured time, a panel per GPU; needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.elsewhere.judge import OFF, Judged, by_gpu_and_type, groups

#: Colour-blind safe colours and symbols of types.
MARKS = {"bf16": ("#0072b2", "o"), "fp16": ("#009e73", "s"), "fp8": ("#d55e00", "^"), "int8": ("#cc79a7", "D")}
COLUMNS = 3
#: Products of a GPU up to which marks are large.
FEW = 100
#: Ends of the axis of predicted over measured; what lies beyond is drawn at the end.
LEAST, MOST = 0.25, 4.0


def draw(rows: Sequence[Judged], path: Path) -> None:
    """Write the picture as a PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    by_gpu = groups(sorted(rows, key=lambda row: row.gpu), lambda row: row.gpu)
    lines = -(-len(by_gpu) // COLUMNS)
    size = 4.2 * COLUMNS, 2.7 * lines + 0.6
    figure, axes = plt.subplots(lines, COLUMNS, figsize=size, sharex=True, sharey=True, squeeze=False)
    for panel, (gpu, of_gpu) in zip(axes.flat, by_gpu.items(), strict=False):
        panel.axhspan(1 / OFF, OFF, color="#e8e8e8", zorder=0)
        panel.axhline(1.0, color="black", linewidth=0.8)
        for (_, dtype), of_type in by_gpu_and_type(of_gpu).items():
            colour, mark = MARKS[dtype]
            x, y = [row.time.us for row in of_type], [min(max(row.ratio, LEAST), MOST) for row in of_type]
            panel.scatter(
                x,
                y,
                s=7 if len(of_gpu) > FEW else 20,
                c=colour,
                marker=mark,
                alpha=0.5,
                linewidths=0,
                label=f"{dtype} ({len(of_type)})",
            )
        panel.set(xscale="log", yscale="log", ylim=(LEAST * 0.93, MOST / 0.93), title=gpu)
        panel.set_yticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"])
        panel.minorticks_off()
        panel.legend(loc="lower right", fontsize=7, markerscale=2)
    for panel in axes.flat[len(by_gpu) :]:
        panel.set_axis_off()
    for panel in axes[:, 0]:
        panel.set_ylabel("predicted / measured")
    for column in range(COLUMNS):
        shown = [panel for panel in axes[:, column] if panel.axison]
        shown[-1].set_xlabel("measured elsewhere, us")
        shown[-1].tick_params(labelbottom=True)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)
