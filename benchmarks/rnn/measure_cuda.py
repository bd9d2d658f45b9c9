"""Measure the loops of the table of the recurrent CUDA kernels again, after their code has changed; needs a GPU.

    python -m benchmarks.rnn.measure_cuda benchmarks/results/h200/rnn_cuda_space.csv --gpu h200 --out new.csv
    python -m benchmarks.rnn.fit_cuda new.csv --gpu h200 --write

By default those are measured whose step streams weights, asks the grid for more than a window of vectors, or rounds to
tf32; `--all` measures every row. `--first 6` adds the model's first configurations of each of these layers. A loop that
does not compile or does not run is told of and left out, and so is what the time did not suffice for: the table that is
written has no loop of older code among those that were to be measured. Compiles in `--jobs` processes at first.
"""

from __future__ import annotations

import argparse
import csv
import time as clock
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.harness.loops import LAYER, workload_of_row
from benchmarks.harness.table import read_rows, read_table
from benchmarks.rnn.fit_cuda import KEYS, RESULTS
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import load_spec
from constrint.kernels.rnn.cuda.shape import BLOCK, GRID, CudaLoop, shape_of
from constrint.kernels.rnn.cuda.spec import CudaRnnSpec
from constrint.select import rank
from constrint.select.candidate import CompiledKernel

Row = dict[str, str]
#: Launches whose median counts, and those before them that do not.
ROUNDS, UNCOUNTED = 5, 2


def spec_of(row: Row) -> CudaRnnSpec:
    """The kernel of a row."""
    spec = load_spec(f"{workload_of_row(row).operation}.cuda")
    assert isinstance(spec, CudaRnnSpec)
    return spec


def config_of(row: Row) -> dict[str, int]:
    """The configuration of a row."""
    return {key: int(row[key]) for key in KEYS}


def is_concerned(row: Row) -> bool:
    """Whether a row's step streams weights, asks for several windows, or rounds to tf32."""
    config = config_of(row)
    shape: CudaLoop = shape_of(spec_of(row).cell, row["direction"], int(row["head_dim"]), row["dtype"], config)
    in_windows = config["placement"] == GRID and shape.polled.value({}) > shape.window.value({})
    is_rounded = row["dtype"] == "fp32" or (row["dtype"] == "tf32" and config["placement"] in (BLOCK, GRID))
    return config["streamed_pairs"] > 0 or in_windows or is_rounded


def first_ones(gpu: GpuModel, rows: Sequence[Row], count: int) -> Iterator[Row]:
    """The model's first configurations of the layers of rows, as rows without results."""
    for layer in dict.fromkeys(tuple(row[name] for name in LAYER) for row in rows):
        row = dict(zip(LAYER, layer, strict=True))
        try:
            best = rank(spec_of(row), gpu, workload_of_row(row), top=2 * count).candidates
        except ConstrintError:
            continue
        stored = [one.config for one in best if one.config["recompute"] == int(row["direction"] == "forward")]
        for config in stored[:count]:
            yield row | {key: str(config[key]) for key in KEYS}


def place(row: Row) -> tuple[str, ...]:
    """Return the columns that identify a row."""
    return tuple(row[name] for name in (*LAYER, *KEYS))


def compiled(job: tuple[str, Row]) -> CompiledKernel | str:
    """Compile a row's kernel onto the disk; return the compiler's figures or its refusal."""
    name, row = job
    try:
        return spec_of(row).compile(load_gpu(name), workload_of_row(row), config_of(row))
    except ConstrintError as error:
        return str(error).partition("\n")[0]


def compiled_all(jobs: int, gpu: str, rows: Sequence[Row]) -> list[CompiledKernel | str]:
    """Compile the kernels of all rows in `jobs` processes."""
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(compiled, [(gpu, row) for row in rows], chunksize=4))


class Loops:
    """Times the loops of one layer after the other on the GPU of this machine."""

    def __init__(self, gpu: GpuModel) -> None:
        self.gpu = gpu
        self._layer: tuple[str, ...] = ()
        self._tensors: tuple[dict[str, Any], dict[str, Any]] = {}, {}

    def ms(self, row: Row) -> float:
        """Median milliseconds of a row's launches."""
        from benchmarks.harness.timing import median_ms  # needs torch

        spec, workload = spec_of(row), workload_of_row(row)
        layer = tuple(row[name] for name in LAYER)
        if layer != self._layer:
            self._tensors = {}, {}
            inputs = spec.inputs(self.gpu, workload, device="cuda")
            self._layer, self._tensors = layer, (inputs, spec.outputs(self.gpu, workload, inputs))
        launches = spec.launches(self.gpu, workload, config_of(row), *self._tensors)
        return median_ms(launches, ROUNDS, UNCOUNTED)


def measured(gpu: GpuModel, rows: Sequence[Row], facts: Sequence[CompiledKernel | str], until: float) -> Iterator[Row]:
    """The rows with what was measured of them."""
    loops = Loops(gpu)
    for row, fact in zip(rows, facts, strict=True):
        name = " ".join(row[key] for key in (*LAYER, *KEYS))
        if clock.monotonic() > until:
            print(f"not measured, the time is over: {name}", flush=True)
            continue
        try:
            if isinstance(fact, str):
                raise ConstrintError(fact)
            ms = loops.ms(row)
        except ConstrintError as error:
            print(f"left out: {name}: {str(error)[:160]}", flush=True)
            continue
        taken = fact.registers_per_thread, fact.spill_bytes, fact.smem_bytes, f"{ms:.4f}"
        before = f", was {row['loop_ms']}" if row.get("loop_ms") else ""
        print(f"{name}: {ms:.4f} ms{before}", flush=True)
        yield row | dict(zip(RESULTS, map(str, taken), strict=True))


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--out", type=Path, help="the table that is written; without it, rows are counted alone")
    parser.add_argument("--all", action="store_true", help="measure every row")
    parser.add_argument("--first", type=int, default=0, help="also the model's first N configurations of each layer")
    parser.add_argument("--jobs", type=int, default=12, help="processes that compile")
    parser.add_argument("--limit", type=float, default=400.0, help="seconds for everything")
    args = parser.parse_args()
    until, gpu = clock.monotonic() + args.limit, load_gpu(args.gpu)
    old = list(read_rows(args.table))
    asked = {place(row): row for row in old if args.all or is_concerned(row)}
    kept = [row for row in old if place(row) not in asked]
    added = {place(row): row for row in first_ones(gpu, list(asked.values()), args.first)}
    rows = [*asked.values(), *(row for key, row in added.items() if key not in asked)]
    rows.sort(key=lambda row: tuple(row[name] for name in LAYER))
    print(f"{len(rows)} loops to measure ({len(rows) - len(asked)} new ones), {len(kept)} stay as they are", flush=True)
    if args.out is None:
        return
    facts = compiled_all(args.jobs, args.gpu, rows)
    print(f"compiled; {until - clock.monotonic():.0f} s are left", flush=True)
    found = list(measured(gpu, rows, facts, until))
    with args.out.open("w", newline="") as file:
        file.write(f"# {read_table(args.table)[0]}; {len(found)} loops measured again by benchmarks.rnn.measure_cuda\n")
        writer = csv.DictWriter(file, (*LAYER, *KEYS, *RESULTS), lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows([*kept, *found])


if __name__ == "__main__":
    main()
