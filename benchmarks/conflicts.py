"""Bank conflicts of every kernel of the project in Triton and CUDA C++, as compiled; needs no GPU.

    python -m benchmarks.conflicts --gpu h200 a100 mi300x mi355x --out conflicts.csv
    python -m benchmarks.conflicts --gpu mi355x --kernel gemm.pointer --dtype bf16 fp8 --top 3
    python -m benchmarks.conflicts --gpu h200 --kernel lstm.triton --loops    # inner loops alone
    python -m benchmarks.conflicts --gpu h200 --kernel lstm.wgmma gemm.fp32   # kernels in CUDA C++

The best configurations by the model are compiled for each GPU, for each layout of the operands of a product. A row is
an operation on shared memory: its layout (of CUDA C++, its line in the source), how lanes access it, the worst phase
(1: no conflict), and the clocks of all phases over the least. Clocks are modelled: from the addresses that Triton's
layouts give, and in CUDA C++ from the arithmetic on addresses in the PTX, evaluated for all threads of the first block
(`benchmarks/harness/ptx_accesses.py`); those that depend on data are unknown. Copies by the TMA unit and to LDS past
the registers have no lanes of their own; exchanges of layouts through scratch memory (`convert_layout`) are not looked
at.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.ptx_accesses import Block, ptx_accesses
from benchmarks.harness.shared_accesses import SharedAccess, shared_accesses
from benchmarks.harness.table import Table, described
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.launch.cuda import CudaLaunch
from constrint.kernels.launch.cuda.nvrtc import compile_with_ptx
from constrint.kernels.launch.triton import TritonLaunch
from constrint.kernels.registry import list_kernels, load_kernel
from constrint.select import Config, KernelSpec, Workload, rank
from constrint.tune.compile import build_triton

COLUMNS = (
    "gpu", "kernel", "dtype", "options", "config", "operation", "loop", "tile", "layout", "how", "degree",
    "clocks_over_least",
)  # fmt: skip
#: Layouts of a product's operands, as options.
LAYOUTS: tuple[dict[str, int], ...] = ({}, {"transpose_a": 1}, {"transpose_b": 1})
UNKNOWN = "unknown"
#: NVRTC's option for lines of the source in PTX.
LINES = "-lineinfo"


class Compiled(NamedTuple):
    """A configuration whose TTGIR or PTX was read."""

    gpu: GpuModel
    spec: KernelSpec
    workload: Workload
    config: Config
    accesses: tuple[SharedAccess, ...]


def kernels_named(named: Sequence[str]) -> list[KernelSpec]:
    """The implementations with these names, of an operation or of one kernel; all of them without names."""
    every = [spec for name in list_kernels() for spec in load_kernel(name).implementations]
    known = {spec.full_name for spec in every} | set(list_kernels())
    if unknown := [name for name in named if name not in known]:
        sys.exit(f"unknown kernel {unknown[0]!r}: {', '.join(sorted(known))}")
    return [spec for spec in every if not named or spec.full_name in named or spec.full_name.split(".")[0] in named]


def accesses_of(gpu: GpuModel, spec: KernelSpec, workload: Workload, config: Config) -> list[SharedAccess]:
    """The accesses of every launch of a configuration that a compiler here makes; none where it has no such launch."""
    inputs = spec.inputs(gpu, workload)
    found: list[SharedAccess] = []
    for launch in spec.launches(gpu, workload, config, inputs, spec.outputs(gpu, workload, inputs)):
        if isinstance(launch, TritonLaunch):
            found += shared_accesses(build_triton(gpu, launch.source()).asm["ttgir"], gpu)
        elif isinstance(launch, CudaLaunch):
            # Line numbers change no instruction.
            source = replace(launch.source, options=(*launch.source.options, LINES))
            block = Block(launch.block, launch.grid, launch.arguments)
            found += ptx_accesses(compile_with_ptx(gpu, source)[1], block)
    return found


def compiled(gpu: GpuModel, spec: KernelSpec, dtypes: Sequence[str], top: int) -> Iterator[Compiled]:
    """The best configurations of a kernel, with every layout of a product's operands."""
    usual = spec.default_workload(gpu)
    layouts = LAYOUTS if {"transpose_a", "transpose_b"} <= {option.name for option in spec.options} else ({},)
    for dtype in (dtype for dtype in dtypes if dtype in spec.dtypes):
        for options in layouts:
            workload = Workload(usual.operation, usual.sizes, dtype, {**usual.options, **options})
            try:
                candidates = rank(spec, gpu, workload, top=top).candidates
            except ConstrintError as refusal:
                print(f"{gpu.name} {spec.full_name} {dtype} {_pairs(options)}: {_first(refusal)}", file=sys.stderr)
                continue
            for candidate in candidates:
                found = accesses_of(gpu, spec, workload, candidate.config)
                yield Compiled(gpu, spec, workload, candidate.config, tuple(found))


def rows_of(each: Compiled) -> Iterator[dict[str, Any]]:
    """A row for every different access of a configuration."""
    seen: set[tuple[Any, ...]] = set()
    for access in each.accesses:
        try:
            found = access.conflicts(each.gpu)
            degree, over = str(int(found.degree.max())), float(found.clocks.mean())
        except ConstrintError:
            degree, over = UNKNOWN, float("nan")
        key = (access.operation, access.is_in_loop, access.tile, access.layout, access.how, degree, over)
        if key in seen:
            continue
        seen.add(key)
        values = (each.gpu.name, each.spec.full_name, each.workload.dtype, _pairs(each.workload.options))
        place = "loop" if access.is_in_loop else "outside"
        shown = (access.operation, place, access.tile, access.layout, access.how, degree, over)
        yield dict(zip(COLUMNS, (*values, _pairs(each.config), *shown), strict=True))


def _first(refusal: Exception) -> str:
    return str(refusal).splitlines()[0]


def _pairs(values: Any) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def print_summary(rows: Sequence[dict[str, Any]], asked: Sequence[str] = ()) -> None:
    """Numbers of accesses by degree for each GPU and kernel, the conflicts in loops, and kernels without an access.

    Args:
        rows: The accesses.
        asked: Names of the kernels that were compiled.
    """
    groups: dict[tuple[str, str, str], Counter[str]] = {}
    for row in rows:
        groups.setdefault((row["gpu"], row["kernel"], row["loop"]), Counter())[row["degree"]] += 1
    print(f"\n{'GPU':16}{'kernel':24}{'':9}accesses by the degree of the worst phase")
    for (gpu, kernel, place), degrees in groups.items():
        print(f"{gpu:16}{kernel:24}{place:9}" + ", ".join(f"{degree}: {degrees[degree]}" for degree in sorted(degrees)))
    stand = [row for row in rows if row["loop"] == "loop" and row["degree"] not in ("1", UNKNOWN)]
    print(f"\n{len(stand)} accesses with conflicts in loops")
    for row in stand:
        what = f"{row['kernel']} {row['dtype']} {row['options']}: {row['operation']} {row['tile']}, {row['layout']}"
        print(f"  {row['gpu']}: {what}, {row['how']}: {row['degree']}-way, {row['clocks_over_least']:.2f} x the clocks")
        print(f"    {row['config']}")
    seen = {row["kernel"] for row in rows}
    if silent := [name for name in asked if name not in seen]:
        print(f"\nno access of shared memory was looked at in {', '.join(silent)}")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", nargs="+", default=["h200", "mi355x"])
    parser.add_argument("--kernel", nargs="+", default=[], help="kernels or operations; all kernels without it")
    parser.add_argument("--dtype", nargs="+", default=["bf16"])
    parser.add_argument("--top", type=int, default=1, help="configurations of each workload")
    parser.add_argument("--loops", action="store_true", help="leave accesses outside of loops out")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with Table(options.out, COLUMNS, described()) as table:
        for gpu in map(load_gpu, options.gpu):
            for spec in kernels_named(options.kernel):
                try:
                    for each in compiled(gpu, spec, options.dtype, options.top):
                        found = [row for row in rows_of(each) if row["loop"] == "loop" or not options.loops]
                        rows += found
                        for row in found:
                            table.add(**row)
                except (ConstrintError, NotImplementedError) as refusal:
                    print(f"{gpu.name} {spec.full_name}: {_first(refusal)}", file=sys.stderr)
    print_summary(rows, [spec.full_name for spec in kernels_named(options.kernel)])


if __name__ == "__main__":
    main()
