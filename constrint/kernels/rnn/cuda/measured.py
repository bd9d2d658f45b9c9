"""Times of whole layers on the CUDA kernels where the model of a step was seen to be off: measured, interpolated.

`measured/<gpu>.csv` holds one row for each measured layer of one head: its cell, dtype, batch, units, steps, and the
milliseconds of a forward pass and of a forward and a backward pass on projected inputs, with everything that runs
before and after the loops. `benchmarks/rnn/cudnn_table.py` writes it of the same runs as cuDNN's times, so that a plan
compares what was measured with what was measured. Steps beyond the most that were measured are left to the model.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path

from constrint.kernels.rnn.measured import Between, Points, add_point, between

MEASURED = Path(__file__).parent / "measured"


@lru_cache(maxsize=16)
def measured(gpu: str) -> dict[tuple[str, str, str], Points]:
    """The measured times of a GPU's model, by cell, dtype and direction; nothing where there are none."""
    path, found = MEASURED / f"{gpu.lower()}.csv", dict[tuple[str, str, str], Points]()
    if path.is_file():
        with path.open(newline="") as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                forward, both = (1e-3 * float(row[name]) for name in ("forward_ms", "both_ms"))
                time, batch, dim = (int(row[name]) for name in ("time", "batch", "dim"))
                for direction, seconds in (("forward", forward), ("backward", both - forward)):
                    points = found.setdefault((row["cell"], row["dtype"], direction), {})
                    add_point(points, time, batch, dim, seconds)
    return found


def measured_layer(gpu: str, layer: tuple[str, str, str], sizes: tuple[int, int, int]) -> Between | None:
    """Seconds of one direction of a layer of one head; None where nothing around it was measured.

    Args:
        gpu: The name of the GPU's model.
        layer: Cell, dtype and direction.
        sizes: Batch, steps and units.
    """
    batch, time, dim = sizes
    return between(measured(gpu).get(layer, {}), time, batch, dim)
