"""`constrint compile`: any Triton kernel compiled for named GPUs: its resources, occupancy and instructions."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from constrint.answers.compiled import CompiledRow, Setting, page_of
from constrint.cli.compiling import show_progress
from constrint.cli.completion import complete_gpu
from constrint.cli.options import kernel_file_errors
from constrint.cli.output import Output, printing
from constrint.cli.run import Progress
from constrint.errors import UnknownNameError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.gemm.units import TENSOR_MEMORY_COLUMNS
from constrint.select.compiled import problem_of, taken_by
from constrint.tune.assembly import assembly_of
from constrint.tune.compile import BuiltKernel, build_triton, require_triton
from constrint.tune.pool import as_if_here
from constrint.tune.signature import option_names, read_value, split_commas, triton_source


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
    fixed = read_values(constants or (), "--constants")
    stated = combinations(fixed, options)
    # A configuration of the kernel's own list is overridden by the given values.
    settings = [
        Setting({**own.constants, **given.constants}, {**own.options, **given.options})
        for own in own_configs(function, fixed)
        for given in stated
    ]
    rows = compile_rows(function, signature, gpus, settings or stated)
    if asm is not None:
        _give_assembly(rows, asm, output_file)
    if asm is None or output_file is not None:
        output.show(page_of(rows))
    if any(row.taken is None or not row.taken.blocks_per_sm for row in rows):
        raise typer.Exit(1)


def compile_rows(
    function: Any, signature: str, gpus: Sequence[GpuModel], settings: Sequence[Setting]
) -> list[CompiledRow]:
    """Compile every setting for every GPU.

    Raises:
        UsageError: When the signature or the constants are not the function's.
    """
    rows: list[CompiledRow] = []
    progress = Progress("compiling")
    for gpu in gpus:
        for setting in settings:
            show_progress(progress, len(rows), len(gpus) * len(settings))
            options = options_of(gpu, gpus, setting.options)
            source = triton_source(function, signature, setting.constants, options)
            try:
                built = build_triton(gpu, source)
            except UnsupportedError as error:
                rows.append(CompiledRow(gpu, setting, None, None, str(error.__cause__ or error), str(error)))
                continue
            rows.append(_judged(gpu, setting, built))
    progress.close()
    return rows


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


def own_configs(function: Any, constants: Mapping[str, list[Any]]) -> Iterator[Setting]:
    """The configurations of a kernel's `triton.autotune`; none if the given constants set one of their parameters.

    Args:
        function: The kernel.
        constants: The given values.
    """
    while function is not None and not hasattr(function, "configs"):
        function = getattr(function, "fn", None)
    for config in getattr(function, "configs", ()):
        options = {n: v for n, v in config.all_kwargs().items() if n not in config.kwargs}
        if constants.keys() & config.kwargs.keys():
            return
        yield Setting(dict(config.kwargs), options)


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


_INTERPRET = "TRITON_INTERPRET"


def load_function(named: str, gpu: GpuModel) -> Any:
    """The function that `FILE.py:FUNCTION` names, or the only triton.jit function of `FILE.py`.

    The file is imported, with its output on stderr. Triton's driver reports the GPU as present; tensors have no data.

    Raises:
        UsageError: When the file or the function is missing, or the import fails; names the place and the reason.
    """
    path, _, name = named.rpartition(":")
    if not path or named.endswith(".py"):
        path, name = named, ""
    if not path.endswith(".py"):
        raise UsageError(f"{named}: a kernel is named FILE.py:FUNCTION.")
    with kernel_file_errors(f"{path}:{name}", ""), contextlib.redirect_stdout(sys.stderr), _compiled_not_interpreted():
        require_triton()
        with as_if_here(gpu):
            module = _imported(Path(path), named)
    jitted = [one for one, value in vars(module).items() if _is_jitted(value, module.__name__)]
    if name:
        if not hasattr(module, name):
            raise UnknownNameError("function", name, jitted, f"Of {path}, those of triton.jit are known.")
        return getattr(module, name)
    if len(jitted) != 1:
        has = f"has several: {', '.join(jitted)}" if jitted else "has none"
        raise UsageError(f"{path}: name a function of triton.jit, {path}:NAME; the file {has}.")
    return getattr(module, jitted[0])


@contextlib.contextmanager
def _compiled_not_interpreted() -> Iterator[None]:
    """Switch off Triton's interpreter, which the user may have on for other programs."""
    interpreter = os.environ.pop(_INTERPRET, None)
    try:
        yield
    finally:
        if interpreter is not None:
            os.environ[_INTERPRET] = interpreter


def _imported(path: Path, named: str) -> Any:
    from constrint.kernels.registry import load_file

    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)  # for the file's imports of its neighbours
    try:
        return load_file(path, named)
    except SystemExit as ended:
        guard = 'put what it runs under `if __name__ == "__main__":`'
        raise UsageError(f"{named}: the file ended the program when it was imported ({ended.code}); {guard}.") from None
    finally:
        sys.path.remove(folder)


def _is_jitted(value: Any, module: str) -> bool:
    """Whether a value is a kernel that the module defines rather than imports."""
    while hasattr(value, "fn") and not hasattr(value, "params"):
        value = value.fn
    return hasattr(value, "params") and hasattr(value, "is_gluon") and getattr(value, "__module__", "") == module
