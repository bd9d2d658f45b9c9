"""Compiled Triton kernels: a row per kernel and GPU, with resources, occupancy and instructions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from constrint.answers.table import Column, Page, Table
from constrint.hwmodels import GpuModel
from constrint.select.candidate import ResourceUse
from constrint.tune.assembly import count_instructions
from constrint.tune.compile import BuiltKernel

SCHEMA = "constrint.compile/1"
#: Most rows whose instructions a terminal lists; other formats list all.
_MOST_LISTED = 2


@dataclass(frozen=True)
class Setting:
    """The compile-time constants and the compiler options of one kernel."""

    constants: Mapping[str, Any]
    options: Mapping[str, Any]

    @property
    def values(self) -> dict[str, Any]:
        """Constants and options together."""
        return {**self.constants, **self.options}


@dataclass(frozen=True)
class CompiledRow:
    """One kernel compiled for one GPU, or the reason why it does not compile.

    Args:
        gpu: The target GPU.
        setting: The constants and options.
        built: The kernel; None if the compiler refuses it.
        taken: Resources of a block, and blocks per SM; None if the compiler refuses it.
        refusal: The whole message of the compiler.
        problem: The reason in a line why the kernel cannot run or spills; empty without a problem.
    """

    gpu: GpuModel
    setting: Setting
    built: BuiltKernel | None
    taken: ResourceUse | None
    refusal: str
    problem: str

    @property
    def instructions(self) -> Mapping[str, Mapping[str, int]]:
        """Instruction counts by kind and name."""
        return {} if self.built is None else count_instructions(self.built)


#: The columns of a compiled kernel; the keys are those of the JSON document.
FIGURES = (
    Column("target", is_text=True, importance=0, meaning="what Triton compiled for"),
    Column("threads_per_block", "threads", importance=0, meaning="threads of a block, specialised warps included"),
    Column("registers_per_thread", "regs", "registers a thread", importance=90),
    Column("accumulator_registers_per_thread", importance=0, meaning="accumulation registers (AGPRs) among them"),
    Column("spill_bytes_per_thread", "spill", "bytes a thread in memory", importance=90),
    Column("smem_bytes_per_block", "smem", "bytes of shared memory (LDS) a block", importance=90, show="{:,}".format),
    Column("tensor_memory_columns", importance=0, meaning="columns of tensor memory (Blackwell) a block"),
    Column("blocks_per_sm", "blk", "blocks that an SM (CU) holds at once", importance=80),
    Column("occupancy", "occ.", "warps (waves) of what it holds", importance=70, show="{:.0%}".format),
    Column("limited_by", "limited by", is_text=True, importance=70, meaning="what limits the blocks"),
    Column("matrix_instructions", "matrix instructions", is_text=True, importance=60, wraps=True),
    Column("problem", is_text=True, importance=0, meaning="why it cannot be launched or compiled, or that it spills"),
)


def page_of(rows: Sequence[CompiledRow]) -> Page:
    """The page of compiled kernels."""
    names = list(dict.fromkeys(name for row in rows for name in row.setting.values))
    texts = {name for row in rows for name, value in row.setting.values.items() if isinstance(value, str)}
    settings = [Column(name, is_text=name in texts, is_shared=True, importance=95) for name in names]
    # A number names a row in the lines below, in whatever order the rows are printed.
    numbers = [Column("row", importance=98)] if len(rows) > 1 else []
    columns = (*numbers, Column("gpu", "GPU", is_text=True, importance=100), *settings, *FIGURES)
    documents = [_document(row) for row in rows]
    cells = []
    for at, (row, document) in enumerate(zip(rows, documents, strict=True), 1):
        values = (_plain(row.setting.values.get(name)) for name in names)
        cells.append([*([at] if numbers else []), row.gpu.name, *values, *_figures(row, document)])
    compilers = dict.fromkeys(row.built.taken.compiler for row in rows if row.built is not None)
    above = [f"compiled by {', '.join(compilers)}; no GPU was used"] if compilers else []
    few = len(rows) <= _MOST_LISTED
    below = [line for row in rows for line in _instruction_lines(row, several=len(rows) > 1)] if few else []
    table = Table(columns, cells, items=documents)
    return Page(
        table,
        lambda items: {"schema": SCHEMA, "kernels": list(items)},
        above=above,
        answer=[line for at, row in enumerate(rows, 1) for line in _problem_lines(row, at, len(rows))],
        below=below,
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | None) else str(value)


def _figures(row: CompiledRow, document: Mapping[str, Any]) -> list[Any]:
    """The cells of `FIGURES`."""
    compiled = document["compiled"] or {}
    matrix = document["instructions"].get("matrix", {})
    values = {
        **compiled,
        "target": document["target"],
        "limited_by": "+".join(compiled.get("limited_by", ())) or "refused",
        "matrix_instructions": ", ".join(f"{count} {name}" for name, count in matrix.items()) or None,
        "problem": row.problem or None,
    }
    return [values.get(column.key) for column in FIGURES]


def _document(row: CompiledRow) -> dict[str, Any]:
    """A kernel as `constrint docs compile` describes it."""
    taken, built = row.taken, row.built
    constants, options = ({n: _plain(v) for n, v in of.items()} for of in (row.setting.constants, row.setting.options))
    request = {"gpu": row.gpu.name, "target": row.gpu.compiler_target, "constants": constants, "options": options}
    if taken is None or built is None:
        return {**request, "compiled": None, "instructions": {}, "problem": row.problem, "refusal": row.refusal}
    sm, use = row.gpu.sm, built.taken
    warps = taken.blocks_per_sm * -(-taken.threads // sm.warp_size)
    compiled = {
        "triton_version": use.triton_version,
        "threads_per_block": taken.threads,
        "registers_per_thread": use.registers_per_thread,
        "accumulator_registers_per_thread": use.accumulator_registers,
        "spill_bytes_per_thread": use.spill_bytes,
        "smem_bytes_per_block": use.smem_bytes,
        "tensor_memory_columns": built.tensor_memory_columns,
        "blocks_per_sm": taken.blocks_per_sm,
        "occupancy": warps / sm.max_warps_per_sm,
        "limited_by": taken.limited_by.split("+"),
    }
    return {**request, "compiled": compiled, "instructions": row.instructions, "problem": row.problem, "refusal": ""}


def _problem_lines(row: CompiledRow, at: int, number: int) -> Iterator[str]:
    if row.problem:
        yield f"row {at}: {row.problem}" if number > 1 else row.problem
    if row.refusal and number <= _MOST_LISTED:
        yield row.refusal


def _instruction_lines(row: CompiledRow, *, several: bool) -> Iterator[str]:
    """The kernel's instructions: a line each, below their kind."""
    if not row.instructions:
        return
    of = f" for {row.gpu.name}" if several else ""
    yield f"instructions in the code{of}, each counted once however often it runs"
    for kind, counts in row.instructions.items():
        yield f"  {kind}"
        for name, count in counts.items():
            yield f"  {count:6,}  {name}"
