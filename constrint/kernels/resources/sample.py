"""A sample of compiled kernels: drawn from a kernel's space, read from the table that keeps it.

What is drawn, and what a row of the table means, the kernel says in its `KernelSample`.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from constrint.hwmodels import GpuModel
from constrint.kernels.resources.estimate import SampledKernel
from constrint.select.spec import Config, KernelSpec, Workload

if TYPE_CHECKING:
    from constrint.select.compiled import CompiledKernel

#: The cells of a row by column, read from a table or drawn.
Row = Mapping[str, Any]


class SampleRequest(NamedTuple):
    """The configuration that a row stands for."""

    gpu: GpuModel
    spec: KernelSpec
    workload: Workload
    config: Config


class DrawRequest(NamedTuple):
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
class KernelSample:
    """What a kernel tells the kit.

    Args:
        tables: Names of the recorded tables; the first is of the compiler that estimates are for.
        targets: A GPU for each target that is compiled for.
        draws: By name, what yields rows; endless, or as many as there are.
        request: What a row stands for.
        compile: Compiles a row.
        kernel: The kernel of a row, as numbers, given whether its table is of the compiler that estimates are for;
            None for rows whose registers say nothing.
    """

    tables: tuple[str, ...]
    targets: Mapping[str, str]
    draws: Mapping[str, Callable[[DrawRequest], Iterator[Row]]]
    request: Callable[[Row], SampleRequest]
    compile: Callable[[Row], CompiledKernel]
    kernel: Callable[[Row, bool], SampledKernel | None]


def read_table(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The compiler of a table, `triton 3.9.0`, and its rows."""
    with path.open() as file:
        compiler = file.readline().removeprefix("# compiled, not measured: ").split(",")[0].strip()
        return compiler, list(csv.DictReader(file))


def read_kernels(sample: KernelSample, folder: Path) -> tuple[tuple[str, ...], list[SampledKernel]]:
    """The compilers of the recorded tables, and every kernel of them whose registers say anything."""
    tables = [read_table(folder / name) for name in sample.tables]
    compilers = tuple(dict.fromkeys(compiler for compiler, _ in tables))
    kernels = (sample.kernel(row, compiler == compilers[0]) for compiler, rows in tables for row in rows)
    return compilers, [kernel for kernel in kernels if kernel is not None]


def draw(
    sample: KernelSample, target: str, numbers: Mapping[str, int], seed: int, *, fix: Mapping[str, int] | None = None,
    table: Path | None = None,
) -> Iterator[Row]:  # fmt: skip
    """Distinct rows for a target, at most so many of each draw."""
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
