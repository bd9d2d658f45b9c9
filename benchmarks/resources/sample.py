"""Samples of compiled kernels: drawn from a kernel's space, or read from the table that records them.

A kernel's `KernelSample` defines the draws and the meaning of a row.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.resources.estimate import SampledKernel
from constrint.hwmodels import GpuModel
from constrint.select.candidate import Config
from constrint.select.spec import KernelSpec
from constrint.select.workload import Workload

if TYPE_CHECKING:
    from constrint.select.candidate import CompiledKernel

#: The cells of a row by column, read from a table or drawn.
Row = Mapping[str, Any]


class SampleRequest(NamedTuple):
    """The configuration of a row, with its GPU, kernel and workload."""

    gpu: GpuModel
    spec: KernelSpec
    workload: Workload
    config: Config


class DrawRequest(NamedTuple):
    """A request to draw rows.

    Args:
        target: A target of the sample.
        number: The number of rows.
        rng: The random generator.
        fix: Parameters with fixed values.
        table: A table to choose from, for draws that need one.
    """

    target: str
    number: int
    rng: random.Random
    fix: Mapping[str, int]
    table: Path | None = None


@dataclass(frozen=True)
class KernelSample:
    """A kernel's sample: its tables, targets and draws, and the meaning of a row.

    Args:
        tables: Names of the recorded tables; the first is of the compiler that estimates are for.
        targets: A GPU for each target that is compiled for.
        draws: Generators of rows by name; a generator may be endless.
        request: Returns the configuration of a row.
        compile: Compiles a row.
        kernel: Returns the kernel of a row as numbers, given whether the row's compiler is the one of the estimates;
            None for rows without a meaningful register count.
    """

    tables: tuple[str, ...]
    targets: Mapping[str, str]
    draws: Mapping[str, Callable[[DrawRequest], Iterator[Row]]]
    request: Callable[[Row], SampleRequest]
    compile: Callable[[Row], CompiledKernel]
    kernel: Callable[[Row, bool], SampledKernel | None]


def read_table(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The compiler of a table, `triton 3.9.0`, and its rows, each of which names it as `compiler`."""
    with path.open() as file:
        compiler = file.readline().removeprefix("# compiled, not measured: ").split(",")[0].strip()
        return compiler, [{**row, "compiler": compiler} for row in csv.DictReader(file)]


def read_kernels(sample: KernelSample, folder: Path) -> tuple[tuple[str, ...], list[SampledKernel]]:
    """Read the compilers of the recorded tables, and all kernels with a meaningful register count."""
    tables = [read_table(folder / name) for name in sample.tables]
    compilers = tuple(dict.fromkeys(compiler for compiler, _ in tables))
    kernels = (sample.kernel(row, compiler == compilers[0]) for compiler, rows in tables for row in rows)
    return compilers, [kernel for kernel in kernels if kernel is not None]


def draw(
    sample: KernelSample, target: str, numbers: Mapping[str, int], seed: int, *, fix: Mapping[str, int] | None = None,
    table: Path | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Draw distinct rows for a target, at most `numbers[name]` of each draw."""
    rng = random.Random(f"{target} {seed}")
    seen: set[str] = set()
    for name, number in numbers.items():
        left = number
        rows = sample.draws[name](DrawRequest(target, number, rng, fix or {}, table)) if left else iter(())
        for row in rows:
            if str(row) not in seen:
                seen.add(str(row))
                yield {"kind": name, **row}
                left -= 1
            if not left:
                break
