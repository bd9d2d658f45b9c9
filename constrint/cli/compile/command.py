"""`constrint compile`: what a Triton kernel takes on named GPUs, which need not be here, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from constrint.cli.compile.report import page_of
from constrint.cli.compile.settings import Setting, combinations, options_of, own_configs, read_options, read_values
from constrint.cli.compile.source import load_function
from constrint.cli.completion.values import complete_gpu
from constrint.cli.output import Output, printing
from constrint.cli.ranking.compiling import show_progress
from constrint.cli.running.progress import Progress
from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.units import TENSOR_MEMORY_COLUMNS
from constrint.select.facts import problem_of, taken_by
from constrint.select.spec import ResourceUse
from constrint.tune.assembly import assembly_of, count_instructions
from constrint.tune.compile import BuiltKernel, build_triton
from constrint.tune.signature import triton_source


@dataclass(frozen=True)
class Row:
    """One kernel on one GPU: as compiled, or why it does not compile.

    Args:
        gpu: What it was compiled for.
        setting: Its constants and options.
        built: The kernel; None where the compiler refuses it.
        taken: What a block takes, and how many fit; None likewise.
        refusal: What the compiler said, whole.
        problem: What is wrong with it, in a line; empty if nothing is.
    """

    gpu: GpuModel
    setting: Setting
    built: BuiltKernel | None
    taken: ResourceUse | None
    refusal: str
    problem: str

    @property
    def instructions(self) -> Mapping[str, Mapping[str, int]]:
        """Instructions by kind."""
        return {} if self.built is None else count_instructions(self.built)


@printing
def compile(
    kernel: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION", help="A function of triton.jit. The file is imported.")
    ],
    gpu: Annotated[
        list[str],
        typer.Option(
            "--gpu", help="GPU name or a path to a model's YAML file; may be repeated.", autocompletion=complete_gpu
        ),
    ],
    signature: Annotated[
        str,
        typer.Option(
            "--signature",
            metavar="TYPES",
            help='Types of the arguments that are no constants, "*fp16,*fp16,i32:16,1": i32:16 is a multiple of 16, '
            "a number is compiled in; NAME=TYPE names one.",
        ),
    ],
    constants: Annotated[
        list[str] | None,
        typer.Option("--constants", metavar="NAME=VALUE[,...]", help="Compile-time constants; several values: each."),
    ] = None,
    num_warps: Annotated[str | None, typer.Option("--num-warps", help="Warps (waves) of a block; 4,8: each.")] = None,
    num_stages: Annotated[str | None, typer.Option("--num-stages", help="Stages of the pipeline; 2,3: each.")] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE[,...]", help="Another option of Triton, waves_per_eu=2."),
    ] = None,
    asm: Annotated[
        str | None, typer.Option("--asm", metavar="FORM", help="Print ptx, sass, amdgcn, ttir, ttgir or llir instead.")
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the assembly to a file, beside the table.")
    ] = None,
    *,
    output: Output,
) -> None:
    """Compile a Triton kernel for GPUs that need not be here, and say what it takes and what it is made of.

    Ends with exit code 1 where the compiler refuses the kernel, or the GPU could not launch it.
    """
    if output_file is not None and asm is None:
        raise UsageError("--output takes the assembly; say which, for example --asm ptx.")
    gpus = [load_gpu(name) for name in gpu]
    function = load_function(kernel, gpus[0])
    options = read_options(option or (), num_warps=num_warps, num_stages=num_stages)
    given = read_values(constants or (), "--constants")
    settings = [
        _with(own, combined) for own in own_configs(function, given) for combined in combinations(given, options)
    ]
    rows = compile_rows(function, signature, gpus, settings or combinations(given, options))
    if asm is not None:
        _give_assembly(rows, asm, output_file)
    if asm is None or output_file is not None:
        output.show(page_of(rows))
    if any(row.taken is None or not row.taken.blocks_per_sm for row in rows):
        raise typer.Exit(1)


def _with(own: Setting, given: Setting) -> Setting:
    """A configuration of the kernel's own list, under what was given beside it."""
    return Setting({**own.constants, **given.constants}, {**own.options, **given.options})


def compile_rows(function: Any, signature: str, gpus: Sequence[GpuModel], settings: Sequence[Setting]) -> list[Row]:
    """Compile every setting for every GPU.

    Raises:
        UsageError: When the signature or the constants are not the function's.
    """
    rows: list[Row] = []
    progress = Progress("compiling")
    for gpu in gpus:
        for setting in settings:
            show_progress(progress, len(rows), len(gpus) * len(settings))
            options = options_of(gpu, gpus, setting.options)
            source = triton_source(function, signature, setting.constants, options)
            try:
                built = build_triton(gpu, source)
            except UnsupportedError as error:
                rows.append(Row(gpu, setting, None, None, str(error.__cause__ or error), str(error)))
                continue
            rows.append(_judged(gpu, setting, built))
    progress.close()
    return rows


def _judged(gpu: GpuModel, setting: Setting, built: BuiltKernel) -> Row:
    """A compiled kernel, and what is wrong with it on a GPU."""
    taken = taken_by(gpu, built.threads, built.taken)
    if built.tensor_memory_columns > TENSOR_MEMORY_COLUMNS:
        none = replace(taken, blocks_per_sm=0, limited_by="tensor memory")
        problem = f"takes {built.tensor_memory_columns} columns of tensor memory, an SM has {TENSOR_MEMORY_COLUMNS}"
        return Row(gpu, setting, built, none, "", problem)
    return Row(gpu, setting, built, taken, "", problem_of(gpu, taken))


def _give_assembly(rows: Sequence[Row], form: str, output: Path | None) -> None:
    if len(rows) != 1:
        raise UsageError(f"--asm takes one GPU and one value of each constant; these are {len(rows)} kernels.")
    if rows[0].built is None:
        raise UnsupportedError(f"{rows[0].problem}\n{rows[0].refusal}")
    text = assembly_of(rows[0].built, form)
    if output is None:
        typer.echo(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}.") from None
