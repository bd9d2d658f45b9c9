"""What was measured of whole layers by an implementation: what its specs say, or a table in its folder.

`<implementation>/measured/<gpu>.csv` holds one row for each measured layer of one head: its cell, dtype, batch, units,
steps, and the milliseconds of a forward pass and of a forward and a backward pass on projected inputs.
`benchmarks/rnn/cudnn_table.py` writes them of the same runs as cuDNN's times, so that a plan compares what was measured
with what was measured.
"""

from __future__ import annotations

import csv
from functools import lru_cache
from pathlib import Path

from constrint.hwmodels import GpuModel
from constrint.kernels.rnn.layer_spec import LayerSpec
from constrint.kernels.rnn.measured import Between, Points, add_point, between
from constrint.kernels.rnn.spec import RnnSpec
from constrint.select.workload import Workload

IMPLEMENTATIONS = Path(__file__).parent


def table_of(implementation: str, gpu: str) -> Path:
    """Where the layers of an implementation that were measured on a GPU are, by both names; there may be none."""
    return IMPLEMENTATIONS / implementation / "measured" / f"{gpu.lower()}.csv"


def known(implementation: str, spec: RnnSpec, gpu: GpuModel, workload: Workload) -> Between | None:
    """Time of one direction of a layer with all that runs around its loop; None where it was not measured.

    Args:
        implementation: What runs the layer; its backward pass may be that of another one.
        spec: Its spec of this direction.
        gpu: The hardware model.
        workload: The layer, in the terms of this direction.
    """
    said = spec.measured(gpu, workload)
    if said is not None:
        return said
    batch, time, heads, dim = (workload.sizes[name] for name in spec.size_names)
    if heads != 1 or isinstance(spec, LayerSpec):  # a library's own table says what it takes
        return None
    layers = _layers(table_of(implementation, gpu.name))
    return between(layers.get((spec.cell.name, workload.dtype, spec.direction), {}), time, batch, dim)


@lru_cache(maxsize=64)
def _layers(table: Path) -> dict[tuple[str, str, str], Points]:
    """Measured seconds by cell, dtype and direction; nothing where there is no table."""
    found = dict[tuple[str, str, str], Points]()
    if table.is_file():
        with table.open(newline="") as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                forward, both = (1e-3 * float(row[f"{which}_ms"]) for which in ("forward", "both"))
                time, batch, dim = (int(row[name]) for name in ("time", "batch", "dim"))
                for direction, seconds in (("forward", forward), ("backward", both - forward)):
                    points = found.setdefault((row["cell"], row["dtype"], direction), {})
                    add_point(points, time, batch, dim, seconds)
    return found


def forget() -> None:
    """Read tables anew."""
    _layers.cache_clear()
