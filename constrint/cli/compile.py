"""`constrint compile`: any Triton kernel compiled for named GPUs: its resources, occupancy and instructions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from constrint.answers.compiled import CompiledRow, Setting, page_of
from constrint.answers.table import Page
from constrint.cli.compiling import show_progress
from constrint.cli.completing import complete_kernel_of_file, one_of
from constrint.cli.completion import complete_gpu
from constrint.cli.kernel_file import load_function, own_configs
from constrint.cli.output import Output, printing
from constrint.cli.run import Progress
from constrint.cli.thresholds import read_baseline, read_thresholds
from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.units import TENSOR_MEMORY_COLUMNS
from constrint.select.compiled import problem_of, taken_by
from constrint.tune.assembly import assembly_of
from constrint.tune.compile import BuiltKernel, build_triton
from constrint.tune.signature import option_names, read_value, split_commas, triton_source


@printing
def compile(
    kernel: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py:FUNCTION",
            help="A function of triton.jit. The file is imported.",
            autocompletion=complete_kernel_of_file,
        ),
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
            "a number is compiled in; NAME=TYPE names one, *_ptr=TYPE all that fit. Left out: says which it needs.",
        ),
    ] = "",
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
    configs: Annotated[
        int | None, typer.Option("--configs", min=1, help="Compile the first N of the file's own list alone.")
    ] = None,
    asm: Annotated[
        str | None,
        typer.Option(
            "--asm",
            metavar="FORM",
            help="Print ptx, sass, amdgcn, ttir, ttgir or llir instead.",
            autocompletion=one_of("ptx", "sass", "amdgcn", "ttir", "ttgir", "llir"),
        ),
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the assembly to a file, beside the table.")
    ] = None,
    max_spill: Annotated[
        int | None, typer.Option("--max-spill", metavar="BYTES", min=0, help="Fail where a thread spills more.")
    ] = None,
    min_occupancy: Annotated[
        str | None, typer.Option("--min-occupancy", metavar="SHARE", help="Fail below this: 0.5, or 50%.")
    ] = None,
    max_smem: Annotated[
        int | None, typer.Option("--max-smem", metavar="BYTES", min=0, help="Fail where a block takes more.")
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="Fail where registers, spills or shared memory are more than in this earlier output of --json.",
        ),
    ] = None,
    *,
    output: Output,
) -> None:
    """Compile a Triton kernel for GPUs that need not be here, and say what it takes and what it is made of.

    Ends with exit code 1 where the compiler refuses the kernel, the GPU could not launch it, a threshold is broken, or
    it takes more than in the baseline.
    """
    if output_file is not None and asm is None:
        raise UsageError("--output takes the assembly; say which, for example --asm ptx.")
    thresholds = read_thresholds(max_spill, min_occupancy, max_smem)
    before = None if baseline is None else read_baseline(baseline)
    gpus = [load_gpu(name) for name in gpu]
    options = read_options(option or (), num_warps=num_warps, num_stages=num_stages)
    fixed = read_values(constants or (), "--constants")
    stated = combinations(fixed, options)
    jobs = [job for one in gpus for job in _jobs(kernel, one, gpus, fixed, stated, configs)]
    rows = compile_rows(jobs, signature)
    page = thresholds.judged(page_of(rows), before)
    if asm is not None:
        _give_assembly(rows, asm, output_file)
    if asm is None or output_file is not None:
        output.show(page)
        if output.is_table and page.differences:
            Output().show(Page(page.table_of_differences, above=["", "different from the baseline"]))
    thresholds.report(page)
    if page.failures or any(row.taken is None or not row.taken.blocks_per_sm for row in rows):
        raise typer.Exit(1)


@dataclass(frozen=True)
class CompilerJob:
    """A kernel to compile for a GPU with a setting."""

    gpu: GpuModel
    function: Any
    setting: Setting


def _jobs(
    named: str,
    gpu: GpuModel,
    gpus: Sequence[GpuModel],
    fixed: Mapping[str, Any],
    stated: Sequence[Setting],
    most: int | None,
) -> list[CompilerJob]:
    """The kernels to compile for a GPU: each given setting, over each configuration that the file has for this GPU.

    `most` bounds their number: the first ones are taken.
    """
    function = load_function(named, gpu)
    given = [Setting(one.constants, options_of(gpu, gpus, one.options)) for one in stated]
    own = own_configs(function, fixed)[:most] or [Setting({}, {})]
    if len(own) * len(given) > MOST:
        raise UsageError(f"these are {len(own) * len(given):,} kernels for {gpu.name}; at most {MOST} are compiled.")
    return [
        CompilerJob(gpu, function, Setting({**of_file.constants, **one.constants}, {**of_file.options, **one.options}))
        for of_file in own
        for one in given
    ]


def compile_rows(jobs: Sequence[CompilerJob], signature: str) -> list[CompiledRow]:
    """Compile every job.

    Raises:
        UsageError: When the signature or the constants are not the function's.
    """
    rows: list[CompiledRow] = []
    progress = Progress("compiling")
    for job in jobs:
        show_progress(progress, len(rows), len(jobs))
        rows.append(_compiled(job, signature))
    progress.close()
    return rows


def _compiled(job: CompilerJob, signature: str) -> CompiledRow:
    gpu, setting = job.gpu, job.setting
    # Triton refuses a launch with an option that its back-end does not have; a file's own list may hold some.
    if unknown := setting.options.keys() - option_names(gpu):
        problem = f"has the option {min(unknown)}, which Triton's back-end {gpu.maker.triton_backend} does not have"
        return CompiledRow(gpu, setting, None, None, "", problem)
    source = triton_source(job.function, signature, setting.constants, setting.options)
    try:
        built = build_triton(gpu, source)
    except UnsupportedError as error:
        return CompiledRow(gpu, setting, None, None, str(error.__cause__ or error), str(error))
    return _judged(gpu, setting, built)


def _judged(gpu: GpuModel, setting: Setting, built: BuiltKernel) -> CompiledRow:
    """A compiled kernel with its occupancy and its problem on a GPU."""
    taken = taken_by(gpu, built.threads, built.taken)
    if built.tensor_memory_columns > TENSOR_MEMORY_COLUMNS:
        none = replace(taken, blocks_per_sm=0, limited_by="tensor memory")
        problem = f"takes {built.tensor_memory_columns} columns of tensor memory, an SM has {TENSOR_MEMORY_COLUMNS}"
        return CompiledRow(gpu, setting, built, none, "", problem)
    return CompiledRow(gpu, setting, built, taken, "", problem_of(gpu, taken))


def _give_assembly(rows: Sequence[CompiledRow], form: str, output: Path | None) -> None:
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


#: Most kernels of a command; each takes about a second.
MOST = 256


def read_values(texts: Sequence[str], option: str) -> dict[str, list[Any]]:
    """The values by name in texts such as `BLOCK_M=64,128,BLOCK_N=128`.

    Raises:
        UsageError: When a text does not begin with a name.
    """
    values: dict[str, list[Any]] = {}
    for text in texts:
        name = ""
        for part in split_commas(text):
            before, equals, after = part.partition("=")
            if equals and before.strip().isidentifier():
                name = before.strip()
                values[name] = []
            if not name:
                raise UsageError(f"{option} takes NAME=VALUE[,VALUE][,NAME=VALUE], got {text!r}.")
            values[name].append(read_value(after.strip() if equals else part))
    return values


def read_options(texts: Sequence[str], **numbers: str | None) -> dict[str, list[Any]]:
    """The values of Triton's options: `NAME=VALUE` texts, and options of their own.

    Raises:
        UsageError: When a text is not `NAME=VALUE`, or warps or stages are not positive integers.
    """
    values: dict[str, list[Any]] = {}
    for name, text in numbers.items():
        if text is not None:
            values |= read_values([f"{name}={text}"], "--option")
            if not all(type(value) is int and value > 0 for value in values[name]):
                raise UsageError(
                    f"--{name.replace('_', '-')} takes a whole number from 1, or several: 4,8; got {text!r}."
                )
    return values | read_values(texts, "--option")


def combinations(constants: Mapping[str, list[Any]], options: Mapping[str, list[Any]]) -> list[Setting]:
    """Every combination of values, the last name's values varying first.

    Raises:
        UsageError: When the combinations are too many.
    """
    names = [*constants, *options]
    number = 1
    for values in (*constants.values(), *options.values()):
        number *= len(values)
    if number > MOST:
        raise UsageError(f"these are {number:,} kernels to compile, about a second each; at most {MOST} are compiled.")
    every = product(*constants.values(), *options.values())
    return [
        Setting({n: v for n, v in chosen if n in constants}, {n: v for n, v in chosen if n in options})
        for chosen in (list(zip(names, values, strict=True)) for values in every)
    ]


def options_of(gpu: GpuModel, gpus: Sequence[GpuModel], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a GPU's back-end; options that only another GPU's back-end has are left out.

    Raises:
        UnknownNameError: When no back-end has an option.
    """
    names_by_gpu = {one.name: option_names(one) for one in gpus}
    every = frozenset().union(*names_by_gpu.values())
    for name in options:
        if name not in every:
            backends = " and ".join(dict.fromkeys(str(one.maker.triton_backend) for one in gpus))
            raise UnknownNameError("option", name, every, f"Triton's back-end {backends} does not have it.")
    return {name: value for name, value in options.items() if name in names_by_gpu[gpu.name]}
