"""Recorded loops of the recurrent CUDA kernels as tables that a search chooses from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.harness.space import Measured
from benchmarks.harness.table import read_rows
from benchmarks.rnn.fit_cuda import KEYS, LAYER, workload_of_row
from benchmarks.tuning.recorded import Recorded
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel

#: Tables of fewer configurations say nothing of a search.
LEAST_ROWS = 16


def recorded_layers(gpu: GpuModel, path: Path) -> Iterator[Recorded]:
    """Every layer and direction of which enough configurations were timed that do not spill."""
    by_layer: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, str]]] = defaultdict(dict)
    for row in read_rows(path):
        if int(row["spill_bytes"]) == 0:
            # Of a configuration that was timed twice, the later figure.
            by_layer[tuple(row[name] for name in LAYER)][tuple(row[key] for key in KEYS)] = row
    for layer, rows in by_layer.items():
        if len(rows) < LEAST_ROWS:
            continue
        workload = workload_of_row(dict(zip(LAYER, layer, strict=True)))
        kernel = next(s for s in load_kernel(workload.operation).implementations if s.name == "cuda").full_name
        columns = {key: np.array([int(row[key]) for row in rows.values()]) for key in KEYS}
        times = {"cold_us": np.array([float(row["loop_ms"]) * 1e3 for row in rows.values()])}
        yield Recorded(gpu, Measured(workload, np.full(len(rows), kernel, dtype=object), columns, times))
