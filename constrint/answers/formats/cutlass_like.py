"""Tile shapes in the words of CUTLASS: a line of arguments for `cutlass_profiler` per configuration of a GEMM.

Above each line stands a comment in the notation that nvMatmulHeuristics prints: `stages(4) cta(128 256 64) splitK(1)
cluster(1 1)`. Only what a configuration says is written: our kernels leave the shapes of warps and instructions to
Triton, and what has no counterpart in CUTLASS (order of blocks, persistence) is left out.
"""

from __future__ import annotations

from typing import Any

from constrint.answers.exported import Export, Row
from constrint.answers.registry import Format
from constrint.answers.text import comment
from constrint.errors import UsageError

#: What a configuration needs, under our names.
TILE = ("tile_m", "tile_n", "tile_k")
#: Our types of operands, and of sums, in the words of CUTLASS.
OPERANDS = {"bf16": "bf16", "fp16": "f16", "tf32": "tf32", "fp32": "f32", "fp64": "f64", "fp8": "e4m3", "int8": "s8"}
SUMS = {"fp64": "f64", "int8": "s32"}


def write(found: Export) -> str:
    """The lines, the best configuration first."""
    lines = [comment(line) for line in found.header]
    lines.append("# Each line is arguments: grep -v '^#' FILE | xargs -L 1 cutlass_profiler")
    asked = _asked(found)
    rows = found.rows()
    # A library among kernels has nothing to say here; alone, it is told so.
    for place, row in enumerate([row for row in rows if row.config] or rows, 1):
        shape = _shape(row)
        lines.append(comment(f"{place}: {_heuristics(shape, row)}"))
        lines.append(" ".join(["--operation=Gemm", *asked, *(f"--{name}={value}" for name, value in shape.items())]))
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
    """A parameter that is 1 where the kernel has no such thing."""
    value = config.get(name, 1)
    if type(value) is not int:
        raise UsageError(f"{name} is {value!r}, and CUTLASS takes an integer there.")
    return value


def _heuristics(shape: dict[str, int], row: Row) -> str:
    """The configuration as nvMatmulHeuristics prints one, as far as it is known, and our modelled time."""
    stages = f"stages({shape['stages']}) " if "stages" in shape else ""
    tile = " ".join(str(shape[f"cta_{axis}"]) for axis in "mnk")
    cluster = f"cluster({shape['cluster_m']} {shape['cluster_n']})"
    warps = f", {row.config['num_warps']} warps" if "num_warps" in row.config else ""
    kernel = f", {row.kernel}" if row.kernel else ""
    seconds = "" if row.candidate is None else f", {row.candidate.cost.seconds * 1e6:.1f} us modelled"
    return f"{stages}cta({tile}) splitK({shape['split_k_slices']}) {cluster}{warps}{kernel}{seconds}"


def _asked(found: Export) -> list[str]:
    """The problem's arguments, where a workload says them."""
    workload = found.workload
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
