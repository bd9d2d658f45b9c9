"""A sample of compiled kernels: drawn from a kernel's space, compiled without a GPU, kept as a table, read again.

What is drawn, and what a row of the table means, the kernel says in its `Sample`.
"""

from __future__ import annotations

import csv
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.kernels.resources.fit import Method
from constrint.kernels.resources.scores import NEAR_LIMIT, SampledKernel
from constrint.select.spec import Config, KernelSpec, Workload
from constrint.tune.processes import Beat, Processes
from constrint.tune.trial import Outcome

if TYPE_CHECKING:
    from constrint.tune.compile import CompiledKernel

#: What the compiler says of a row; `error` if it refuses.
RESULTS = ("smem_bytes", "registers", "agprs", "spill_bytes", "instruction", "error")
#: Seconds after which a kernel, one that spills without end, is given up.
PATIENCE_S = 45
GIVEN_UP = f"takes more than {PATIENCE_S} s to compile"
#: A spill of so few bytes a thread (16 registers) is light.
LIGHT_SPILL_BYTES = 64
#: The cells of a row by column, read from a table or drawn.
Row = Mapping[str, Any]


class Request(NamedTuple):
    """The configuration that a row stands for."""

    gpu: GpuModel
    spec: KernelSpec
    workload: Workload
    config: Config


class Wanted(NamedTuple):
    """What to draw.

    Args:
        target: A target of the sample.
        number: How many rows.
        rng: The source of chance.
        fix: Parameters that are not drawn.
        table: A table to choose from, for draws that need one.
    """

    target: str
    number: int
    rng: random.Random
    fix: Mapping[str, int]
    table: Path | None = None


@dataclass(frozen=True)
class Sample:
    """What a kernel tells the kit.

    Args:
        tables: Names of the recorded tables; the first is of the compiler that estimates are for.
        targets: A GPU for each target that is compiled for.
        draws: By name, what yields rows; endless, or as many as there are.
        request: What a row stands for.
        compile: Compiles a row.
        kernel: The kernel of a row, as numbers, given whether its table is of the compiler that estimates are for;
            None for rows whose registers say nothing.
        method: How a group of kernels is fitted.
    """

    tables: tuple[str, ...]
    targets: Mapping[str, str]
    draws: Mapping[str, Callable[[Wanted], Iterator[Row]]]
    request: Callable[[Row], Request]
    compile: Callable[[Row], CompiledKernel]
    kernel: Callable[[Row, bool], SampledKernel | None]
    method: Method


def is_spilling(spill_bytes: int, registers: int, limit: int) -> bool:
    """Whether registers ran out, rather than the compiler trading a few for occupancy."""
    return spill_bytes > LIGHT_SPILL_BYTES or (spill_bytes > 0 and registers >= limit - NEAR_LIMIT)


def read_table(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The compiler of a table, `triton 3.9.0`, and its rows."""
    with path.open() as file:
        compiler = file.readline().removeprefix("# compiled, not measured: ").split(",")[0].strip()
        return compiler, list(csv.DictReader(file))


def read_kernels(sample: Sample, folder: Path) -> tuple[tuple[str, ...], list[SampledKernel]]:
    """The compilers of the recorded tables, and every kernel of them whose registers say anything."""
    tables = [read_table(folder / name) for name in sample.tables]
    compilers = tuple(dict.fromkeys(compiler for compiler, _ in tables))
    kernels = (sample.kernel(row, compiler == compilers[0]) for compiler, rows in tables for row in rows)
    return compilers, [kernel for kernel in kernels if kernel is not None]


def draw(
    sample: Sample, target: str, numbers: Mapping[str, int], seed: int, *, fix: Mapping[str, int] | None = None,
    table: Path | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Distinct rows for a target, at most so many of each draw."""
    rng = random.Random(f"{target} {seed}")
    seen: set[str] = set()
    for name, number in numbers.items():
        left = number
        rows = sample.draws[name](Wanted(target, number, rng, fix or {}, table)) if left else iter(())
        for row in rows:
            if str(row) not in seen:
                seen.add(str(row))
                yield {"kind": name, **row}
                left -= 1
            if not left:
                break


def compile_rows(load: Callable[[], Sample], rows: list[Row], jobs: int) -> Iterator[Row]:
    """Rows with what they take as compiled, once all are.

    Args:
        load: Gives the sample in another process: a function of a module.
        rows: What to compile.
        jobs: How many processes; one that a row hangs or crashes goes on with the next row, up to 50 times.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def blame(number: int, outcome: Outcome) -> None:
            error = GIVEN_UP if outcome == Outcome.TIMED_OUT else "the compiler crashed"
            (folder / f"{number}.json").write_text(json.dumps({"error": error}))

        arguments = (jobs, load, rows, folder)
        processes = Processes(folder, compile_share, jobs, blame, arguments=arguments, patience_s=PATIENCE_S)
        try:
            while not processes.poll():
                print(f"\r{len(list(folder.glob('*.json')))}/{len(rows)}    ", end="", file=sys.stderr)
                time.sleep(1)
        finally:
            processes.stop()
        for number, row in enumerate(rows):
            path = folder / f"{number}.json"
            told = json.loads(path.read_text()) if path.exists() else {"error": "not compiled"}
            yield {**row, **dict.fromkeys(RESULTS, ""), **told}


def compile_share(
    beat: Beat, worker: int, num_workers: int, load: Callable[[], Sample], rows: list[Row], folder: Path
) -> None:
    """Compile every `num_workers`-th row, those that are not done; runs in a process of its own."""
    sample = load()
    for number in range(worker, len(rows), num_workers):
        path = folder / f"{number}.json"
        if path.exists():
            continue
        beat.at(number)
        try:
            compiled = sample.compile(rows[number])
        except ConstrintError as error:
            told: dict[str, Any] = {"error": str(error)[-120:]}
        else:
            registers = compiled.registers_per_thread, compiled.accumulator_registers, compiled.spill_bytes
            told = dict(zip(RESULTS, (compiled.smem_bytes, *registers, compiled.instruction), strict=False))
        path.write_text(json.dumps(told))


def write_table(rows: Iterator[Row], columns: list[str], out: Path, command: str) -> None:
    """Write a table."""
    import triton

    with out.open("w", newline="") as file:
        file.write(f"# compiled, not measured: triton {triton.__version__}, by {command}\n")
        writer = csv.DictWriter(file, [*columns, *RESULTS], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
