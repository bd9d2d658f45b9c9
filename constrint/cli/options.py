"""Options that commands share: the problem, the sizes of its kernel, limits of time and memory.

Kernels differ in their sizes, so `KernelCommand` builds the size options of the kernel that the arguments name, before
the arguments are parsed. This file names no kernel.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

import typer

from constrint.cli.completing import complete_where
from constrint.cli.completion import (
    complete_backend,
    complete_dialect,
    complete_dtype,
    complete_gpu,
    complete_kernel,
    complete_setting,
)
from constrint.errors import ConstrintError, UsageError
from constrint.kernels.registry import DEFAULT_KERNEL

if TYPE_CHECKING:
    from constrint.select import Operation, Size

#: Prefix of the parameters of size options.
SIZE = "size_"
GPU_HELP = "GPU name (see `constrint gpus`) or a path to a model's YAML file."
Gpu = Annotated[str, typer.Option("--gpu", help=GPU_HELP, autocompletion=complete_gpu)]
#: For commands that take several GPUs.
Gpus = Annotated[
    list[str] | None,
    typer.Option("--gpu", help=f"{GPU_HELP} May be repeated.", autocompletion=complete_gpu),
]
Backend = Annotated[
    str,
    typer.Option(
        "--backend",
        help="Solver: auto, native, numpy, brute, cpsat or python-constraint.",
        autocompletion=complete_backend,
    ),
]
MaxSeconds = Annotated[
    str | None,
    typer.Option(
        "--max-seconds", metavar="SECONDS", help="Stop after this time and say what is known by then; like Ctrl-C."
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        help="Memory for tables, such as 2GB or 512MiB; half of what is free if left out.",
    ),
]
Plot = Annotated[
    bool, typer.Option("--plot", help="Draw the roofline and the heat map in the terminal, in plain letters.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (`constrint docs json` describes it).")]
#: Options that name a problem in a file instead of a kernel.
FILE_OPTIONS = ("--problem", "--space")
#: Fields of `ProblemOptions` about files, and about rules that the user adds.
OF_FILES, OF_RULES = ("problem", "space", "dialect", "implicit_variables"), ("set_", "where", "strict")


@dataclass(frozen=True)
class ProblemOptions:
    """The options that name a problem: a kernel on a `gpu`, a `problem` file (with or without one), a `space` file."""

    gpu: Annotated[str | None, typer.Option("--gpu", help=GPU_HELP, autocompletion=complete_gpu)] = None
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel",
            help="A kernel of `constrint kernels`, one of its implementations (gemm.pointer), or FILE.py:NAME. "
            f"[default: {DEFAULT_KERNEL}]",
            autocompletion=complete_kernel,
        ),
    ] = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE[,VALUE]",
            help="Fix a parameter; may be repeated.",
            autocompletion=complete_setting,
        ),
    ] = None
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="RULE",
            help='Extra rule such as "tile_k <= gpu.warp_size"; may be repeated.',
            autocompletion=complete_where,
        ),
    ] = None
    problem: Annotated[
        Path | None,
        typer.Option(
            "--problem",
            help="A text problem (`constrint docs language`) instead of a kernel; --gpu gives its numbers names.",
        ),
    ] = None
    space: Annotated[
        Path | None,
        typer.Option("--space", help="A JSON file of params and restrictions instead of a kernel's space."),
    ] = None
    strict: Annotated[
        bool | None, typer.Option("--strict", help="Leave out what breaks an estimated rule (spills), too.")
    ] = None
    dialect: Annotated[
        str | None,
        typer.Option(
            "--dialect",
            help="How the text is read: standard, or constrint (`%` splits terms).",
            autocompletion=complete_dialect,
        ),
    ] = None
    implicit_variables: Annotated[
        bool | None,
        typer.Option("--implicit-variables", help="A name that the text does not declare is a positive integer."),
    ] = None


@dataclass(frozen=True)
class Choice(ProblemOptions):
    """The parsed options that name a problem.

    Args:
        dtype: The operands' type; the kernel's default if None.
        sizes: Sizes and options of the workload that were typed.
        operation: The operation that `kernel` names; None for a file.
        gpus: All named GPUs, for a command that takes several; `gpu` is the first.
    """

    dtype: str | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    operation: Operation | None = None
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelCommand:
    """A command whose options depend on the kernel.

    Args:
        function: Takes a `Choice` first, then its own options.
        takes_files: Whether it also answers about a text problem or a file of params and restrictions.
        takes_rules: Whether `--set`, `--where` and `--strict` can narrow the space.
        takes_gpus: Whether it answers about several GPUs.
        reads: Brings the typed words behind the command's name into the form that the options have.
    """

    function: Callable[..., None]
    takes_files: bool = True
    takes_rules: bool = True
    takes_gpus: bool = False
    reads: Callable[[list[str]], list[str]] = list

    @classmethod
    def taking(
        cls,
        *,
        files: bool = True,
        rules: bool = True,
        gpus: bool = False,
        reads: Callable[[list[str]], list[str]] = list,
    ) -> Callable[[Callable[..., None]], KernelCommand]:
        """A decorator that makes a `KernelCommand` of a function."""
        return lambda function: cls(function, files, rules, gpus, reads)

    def with_options_of(self, operation: Operation | None) -> Callable[..., None]:
        """The function for the command line library, which reads the options from its signature."""
        own = list(inspect.signature(self.function, eval_str=True).parameters.values())[1:]
        hints = get_type_hints(ProblemOptions, include_extras=True).items()
        without = (*(() if self.takes_files else OF_FILES), *(() if self.takes_rules else OF_RULES))
        fixed = [_option(name, hint) for name, hint in hints if name not in without]
        if self.takes_gpus:
            fixed = [p.replace(annotation=Gpus) if p.name == "gpu" else p for p in fixed]
        sizes = _size_options(operation, {"--" + p.name.strip("_").replace("_", "-") for p in (*own, *fixed)})
        types = "Operand type." if operation is None else f"Operand type: {', '.join(operation.dtypes)}."
        dtype_option = typer.Option("--dtype", help=types, autocompletion=complete_dtype)
        dtype = _option("dtype", Annotated[str | None, dtype_option])

        def command(**options: Any) -> None:
            values = {p.name: options.pop(p.name) for p in (*fixed, dtype)}
            numbers = {name: options.pop(p.name) for name, p in sizes.items()}
            numbers = {name: number for name, number in numbers.items() if number is not None}
            gpus = tuple(values["gpu"] or ()) if self.takes_gpus else ()
            values["gpu"] = next(iter(gpus), None) if self.takes_gpus else values["gpu"]
            with kernel_file_errors(values["kernel"]):
                self.function(Choice(**values, sizes=numbers, operation=operation, gpus=gpus), **options)

        shown = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *fixed, *sizes.values(), dtype]
        return as_command(self.function, command, shown)


def as_command(
    function: Callable[..., None], command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give a wrapper of a command the help of the command and the options that `parameters` state."""
    functools.update_wrapper(command, function)
    # typer reads these two; through `__wrapped__` it would find the function's own signature.
    del command.__wrapped__  # type: ignore[attr-defined]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def with_counts(arguments: Sequence[str], options: Mapping[str, int]) -> list[str]:
    """Insert the omitted number of options such as `--compile`, which means `--compile=10`."""
    words = list(arguments)
    for place in reversed(range(len(words))):
        option = words[place]
        if option in options:
            following = words[place + 1] if place + 1 < len(words) else ""
            is_number = following.removeprefix("-").isdigit()
            words[place : place + 1 + is_number] = [f"{option}={following if is_number else options[option]}"]
    return words


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the output is one JSON document."""
    return "--json" in arguments or (_value_of(arguments, "--format") or "").lower() == "json"


def named_operation(arguments: Sequence[str], *, may_load_files: bool = True) -> Operation | None:
    """The kernel that the arguments name; None if they name a problem file.

    Args:
        arguments: The arguments.
        may_load_files: Whether `FILE.py:NAME` may be loaded, which runs the file; otherwise such a kernel is ignored.

    Raises:
        UsageError: When the kernel is unknown.
    """
    from constrint.kernels.registry import load_kernel

    if any(_value_of(arguments, option) is not None for option in FILE_OPTIONS):
        return None
    named = _value_of(arguments, "--kernel")
    name = DEFAULT_KERNEL if named is None else named
    if ":" in name and not may_load_files:
        return None
    with kernel_file_errors(name):
        return load_kernel(name)


def size_mistake(arguments: Sequence[str], option: str, operation: Operation | None) -> str:
    """The message about an unknown option that is a size of another kernel; empty for other options."""
    from constrint.kernels.registry import list_kernels

    name = option.removeprefix("--").replace("-", "_")
    if not any(_has_size(kernel, name) for kernel in list_kernels()):
        return ""
    if operation is not None:
        has = ", ".join(size.name for size in operation.sizes)
        return f"kernel {operation.name!r} has no size {name!r}; it has {has}."
    named = next(o for o in FILE_OPTIONS if _value_of(arguments, o) is not None)
    return f"{named} takes no {option}; it belongs to a kernel on a --gpu."


@contextmanager
def kernel_file_errors(kernel: str | None, option: str = "--kernel ") -> Iterator[None]:
    """Turn any exception of a user's kernel file into one sentence with the file and the reason.

    Args:
        kernel: `FILE.py:NAME`; for any other text exceptions pass unchanged.
        option: The option that named it, which begins the sentence.

    Raises:
        UsageError: For every exception that is not one of constrint's own.
    """
    path, colon, _ = (kernel or "").rpartition(":")
    if not colon or not path.endswith(".py"):
        yield
        return
    try:
        yield
    except (ConstrintError, OSError, typer.Exit):
        raise
    except Exception as error:
        raise UsageError(
            f"{option}{kernel}: {_place(error, path)}{one_line(f'{type(error).__name__}: {error}')}"
        ) from error


def one_line(text: str) -> str:
    """A message with all its white space as single spaces."""
    return " ".join(text.split())


def _place(error: Exception, path: str) -> str:
    """The deepest line of the kernel's file in the traceback: `line 12: `."""
    import traceback

    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: "
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == Path(path).resolve()]
    return f"line {lines[-1]}: " if lines else ""


def _value_of(arguments: Sequence[str], option: str) -> str | None:
    """The last value of an option, written `--option VALUE` or `--option=VALUE`."""
    value = None
    for argument, following in zip(arguments, (*arguments[1:], None), strict=True):
        if argument == option:
            value = following
        elif argument.startswith(f"{option}="):
            value = argument.removeprefix(f"{option}=")
    return value


def _sizes_of(operation: Operation) -> Mapping[str, Size]:
    return {size.name: size for size in (*operation.sizes, *operation.options)}


def _has_size(kernel: str, size: str) -> bool:
    """Whether a kernel has a size; False if its package cannot be imported."""
    from constrint.kernels.registry import load_kernel

    try:
        return size in _sizes_of(load_kernel(kernel))
    except ImportError:
        return False


def _option(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _size_options(operation: Operation | None, taken: set[str]) -> dict[str, inspect.Parameter]:
    """The options of a kernel's sizes by name; the prefix `SIZE` keeps their parameters apart from other options."""
    options: dict[str, inspect.Parameter] = {}
    for name, size in ({} if operation is None else _sizes_of(operation)).items():
        option = "--" + name.replace("_", "-")
        if operation is not None and option in taken | {"--dtype"}:
            raise UsageError(f"kernel {operation.name!r} has a size {name!r}, which is an option already; rename it.")
        text = f"{size.meaning[:1].upper()}{size.meaning[1:]}. [default: {size.default}]"
        options[name] = _option(f"{SIZE}{name}", Annotated[int | None, typer.Option(option, help=text)])
    return options


_UNITS: Final = {
    "": 1,
    "b": 1,
    **{f"{letter}{end}": 1000**power for power, letter in enumerate("kmgt", 1) for end in ("", "b")},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def seconds_of(text: str | None) -> float | None:
    """The limit of `--max-seconds` in seconds; None without a limit."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise UsageError(f"--max-seconds takes a number of seconds above 0, such as 2.5, got {text!r}.")
    return seconds


def bytes_of(text: str | None) -> int | None:
    """The limit of `--max-memory` in bytes; None without a limit.

    GB is 10^9 bytes, GiB is 2^30 bytes; a number without a unit counts bytes.
    """
    if text is None:
        return None
    match = _SIZE.fullmatch(text)
    unit = None if match is None else _UNITS.get(match[2].lower())
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise UsageError(f"--max-memory takes a size above 0, such as 2GB, 512MiB or 100000000, got {text!r}.")
    return int(float(match[1]) * unit)
