"""Tile shapes in the words of CUTLASS: a line of arguments for `cutlass_profiler` per configuration of a GEMM.

A comment above each line uses the notation of nvMatmulHeuristics: `stages(4) cta(128 256 64) splitK(1) cluster(1 1)`.
Parameters without a counterpart in CUTLASS (order of blocks, persistence) are left out; the shapes of warps and
instructions are Triton's choice.
"""

from __future__ import annotations

from typing import Any

from constrint.answers.exported import Export, Row
from constrint.answers.registry import Format
from constrint.answers.text import comment
from constrint.errors import UsageError

#: Parameters that every configuration needs.
TILE = ("tile_m", "tile_n", "tile_k")
#: Types of operands and of sums in the words of CUTLASS.
OPERANDS = {"bf16": "bf16", "fp16": "f16", "tf32": "tf32", "fp32": "f32", "fp64": "f64", "fp8": "e4m3", "int8": "s8"}
SUMS = {"fp64": "f64", "int8": "s32"}


def write(export: Export) -> str:
    """The lines, the best configuration first."""
    lines = [comment(line) for line in export.header]
    lines.append("# Each line is arguments: grep -v '^#' FILE | xargs -L 1 cutlass_profiler")
    problem = _problem(export)
    rows = export.rows()
    # A library among kernels has no tiles and is skipped; alone it is refused by `_shape`.
    for place, row in enumerate([row for row in rows if row.config] or rows, 1):
        shape = _shape(row)
        lines.append(comment(f"{place}: {_heuristics(shape, row)}"))
        lines.append(" ".join(["--operation=Gemm", *problem, *(f"--{name}={value}" for name, value in shape.items())]))
    return "\n".join([*lines, ""])


def _shape(row: Row) -> dict[str, int]:
    """The arguments of one configuration."""
    config = row.config
    missing = [name for name in TILE if type(config.get(name)) is not int]
    if missing:
        raise UsageError(
            f"{row.kernel or 'this space'} has no {', '.join(missing)}: cutlass-like writes the tiles of a GEMM. "
            "Where they have other names, say --rename BLOCK_M=tile_m; json, csv and c-header take any kernel."
        )
    shape = {f"cta_{axis}": config[name] for axis, name in zip("mnk", TILE, strict=True)}
    shape |= {f"cluster_{axis}": _number(config, f"cluster_{axis}") for axis in "mnk"}
    if "num_stages" in config:
        shape["stages"] = _number(config, "num_stages")
    return shape | {"split_k_slices": _number(config, "split_k")}


def _number(config: Any, name: str) -> int:
    """A parameter; 1 if the kernel lacks it."""
    value = config.get(name, 1)
    if type(value) is not int:
        raise UsageError(f"{name} is {value!r}, and CUTLASS takes an integer there.")
    return value


def _heuristics(shape: dict[str, int], row: Row) -> str:
    """The configuration in the notation of nvMatmulHeuristics, with the modelled time."""
    stages = f"stages({shape['stages']}) " if "stages" in shape else ""
    tile = " ".join(str(shape[f"cta_{axis}"]) for axis in "mnk")
    cluster = f"cluster({shape['cluster_m']} {shape['cluster_n']})"
    warps = f", {row.config['num_warps']} warps" if "num_warps" in row.config else ""
    kernel = f", {row.kernel}" if row.kernel else ""
    seconds = "" if row.candidate is None else f", {row.candidate.cost.seconds * 1e6:.1f} us modelled"
    return f"{stages}cta({tile}) splitK({shape['split_k_slices']}) {cluster}{warps}{kernel}{seconds}"


def _problem(export: Export) -> list[str]:
    """The arguments of the problem; empty without a workload of sizes m, n, k."""
    workload = export.workload
    if workload is None or not {"m", "n", "k"} <= workload.sizes.keys():
        return []
    operand = OPERANDS.get(workload.dtype)
    if operand is None:
        raise UsageError(f"cutlass-like has no word for {workload.dtype}; it has them for {', '.join(OPERANDS)}.")
    layouts = {o: "column" if workload.options.get(f"transpose_{o.lower()}") else "row" for o in "AB"}
    words = [f"--{axis}={workload.sizes[axis]}" for axis in "mnk"]
    words += [f"--{name}={operand}:{layout}" for name, layout in layouts.items()]
    words.append(f"--accum={SUMS.get(workload.dtype, 'f32')}")
    batch = workload.options.get("batch", 1)
    return words + ([f"--batch_count={batch}"] if batch > 1 else [])


FORMAT = Format("cutlass-like", "tiles as arguments of cutlass_profiler", write)
