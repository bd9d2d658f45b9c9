"""Answers a shell that asks for completions; whatever goes wrong, it gets no word rather than a traceback.

The questions come in the environment, in the form of the command line library's own scripts
(`constrint --show-completion`), whose answers are used: only the command that is typed is loaded for them.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from constrint.errors import ConstrintError, UnknownNameError, UsageError

#: The environment variable with which the scripts ask, by the name of the command.
REQUEST = "_CONSTRINT_COMPLETE"
#: Signs at which bash begins a new word.
_BREAKS = "=:"


def answer(application: Callable[[Sequence[str]], Any]) -> int:
    """Print the words that fit.

    Args:
        application: Makes the command line for the words that were typed before the one to complete.

    Returns:
        The exit code.
    """
    instruction = os.environ[REQUEST]
    prefix, code = "", 0
    out = io.StringIO()
    # Warnings, and what a broken kernel package prints, would end up in the line that is typed.
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        try:
            completion: Any = import_module("typer.completion")
            completion.completion_init()
            before, prefix = _typed(instruction)
            application(before)(prog_name="constrint", standalone_mode=True)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except (Exception, KeyboardInterrupt):  # noqa: BLE001 - another's kernel package may raise anything
            return 1
    words = [word for word in out.getvalue().splitlines() if word]
    shown = [word.removeprefix(prefix) for word in words] if prefix else words
    sys.stdout.write("".join(f"{word}\n" for word in shown))
    return code


def _typed(instruction: str) -> tuple[list[str], str]:
    """The words before the one to complete, and what bash has of that one already."""
    if instruction.endswith("bash") and "COMP_WORDS" in os.environ:
        words, prefix = _joined(os.environ["COMP_WORDS"].split("\n"), int(os.environ["COMP_CWORD"]))
        os.environ["COMP_WORDS"] = shlex.join(words)
        os.environ["COMP_CWORD"] = str(len(words) - 1)
        return words[1:-1], prefix
    typed = os.environ.get("_TYPER_COMPLETE_ARGS", "")
    try:
        words = shlex.split(typed)
    except ValueError:  # an open quote
        words = typed.split()
    return words[1:] if typed.endswith(" ") else words[1:-1], ""


def _joined(words: Sequence[str], at: int) -> tuple[list[str], str]:
    """Puts together what bash split at `=` and `:`: `--set tile_m = 1` is `--set tile_m=1`.

    Returns:
        The words up to the one to complete, and the part of that one that bash keeps before what is completed.
    """
    joined: list[str] = []
    glued = False
    kept = ""
    for place, word in enumerate([*words[: at + 1], *([""] if at >= len(words) else [])]):
        is_break = bool(word) and set(word) <= set(_BREAKS)
        if joined and (is_break or glued):
            kept = joined[-1] if not is_break else joined[-1] + word
            joined[-1] += word
        else:
            joined.append(word)
            kept = ""
        glued = is_break and place < at
    return joined, kept


SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
#: Stands for the shell that the command was called from.
THIS_SHELL = "this"


def show(shell: str | None) -> None:
    """Print the script of a shell."""
    if shell is not None:
        script = _library().get_completion_script(prog_name="constrint", complete_var=REQUEST, shell=_named(shell))
        typer.echo(script)
        raise typer.Exit


def install(shell: str | None) -> None:
    """Write the script of a shell where the shell finds it."""
    if shell is not None:
        try:
            name, path = _library().install(_named(shell), prog_name="constrint", complete_var=REQUEST)
        except OSError as error:
            raise UsageError(
                f"completion cannot be installed: {error.filename}: {error.strerror}. "
                "`constrint --show-completion` prints the script, to be put where your shell reads it."
            ) from None
        typer.echo(f"{name} completion is installed in {path}; start a new shell to use it.")
        raise typer.Exit


def _library() -> Any:
    """The module of the command line library that has the scripts; it has no types for them."""
    return import_module("typer.completion")


def _named(shell: str) -> str:
    if shell == THIS_SHELL:
        return _detected()
    if shell.lower() not in SHELLS:
        raise UnknownNameError("shell", shell, SHELLS)
    return shell.lower()


def _detected() -> str:
    """The shell that the command was called from.

    Raises:
        UsageError: When it cannot be told.
    """
    found = ""
    try:
        found = import_module("shellingham").detect_shell()[0]
    except (ImportError, OSError):  # no such package, or no shell that it knows
        found = ""
    if found not in SHELLS:
        raise UsageError(f"say for which shell: {', '.join(SHELLS)}, as in `constrint --show-completion bash`.")
    return str(found)


#: A GPU to take parameters of where none is named yet.
USUAL_GPU = "h200"
#: A problem file larger than this is not read while somebody types.
MAX_PROBLEM_BYTES = 100_000
#: Of a variable with more values none is offered.
MAX_VALUES = 64
Words = Iterable["str | tuple[str, str]"]


def complete_gpu(incomplete: str) -> Words:
    """Names of GPUs in lower case, but for what was typed otherwise."""
    from constrint.hwmodels import list_gpus

    return [incomplete + name[len(incomplete) :] for name in _begun(map(str.lower, list_gpus()), incomplete.lower())]


def complete_kernel(incomplete: str) -> Words:
    """Operations; their implementations once an operation and its dot are there."""
    from constrint.kernels.registry import list_kernels, load_kernel

    operation, dot, _ = incomplete.lower().partition(".")
    if not dot or operation not in list_kernels():
        return _begun(list_kernels(), incomplete.lower())
    specs = load_kernel(operation).implementations
    return [(spec.full_name, spec.summary) for spec in specs if spec.full_name.startswith(incomplete.lower())]


def complete_dtype(ctx: typer.Context, incomplete: str) -> Words:
    """The types that the kernel takes."""
    operation = _operation(ctx)
    return [] if operation is None else _begun(operation.dtypes, incomplete.lower())


def complete_setting(ctx: typer.Context, incomplete: str) -> Words:
    """`NAME=` of the parameters that fit, and `NAME=VALUE` once there is only one: shells put a space behind a word."""
    name, equals, value = incomplete.partition("=")
    known = dict(_parameters(ctx))
    if not equals:
        fitting = {word: meaning for word, (_, meaning) in known.items() if word.startswith(name)}
        if len(fitting) != 1 or not known[next(iter(fitting))][0]:
            return [(f"{word}=", meaning) for word, meaning in fitting.items()]
        name = next(iter(fitting))
    *before, last = value.split(",")
    head = "".join(f"{word}," for word in before)
    values = known.get(name, ((), ""))[0]
    return [f"{name}={head}{word}" for word in map(str, sorted(values)) if word.startswith(last) and word not in before]


def complete_backend(incomplete: str) -> Words:
    """Names of solvers."""
    from constrint.solve import list_backends

    return _begun(list_backends(), incomplete.lower())


def complete_format(incomplete: str) -> Words:
    """Names of output formats."""
    from constrint.answers.registry import PAGES

    return _begun(PAGES.built_in, incomplete.lower())


def complete_export(incomplete: str) -> Words:
    """Names of what `--export` writes."""
    from constrint.export import list_formats

    return _begun(list_formats(), incomplete.lower())


def complete_dialect(incomplete: str) -> Words:
    """Names of dialects."""
    from constrint.model.text.parse import DIALECTS

    return _begun(DIALECTS, incomplete.lower())


def _begun(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]


def _operation(ctx: typer.Context) -> Any:
    """The kernel that was named so far; None where a file is, which may hold code."""
    from constrint.kernels.registry import DEFAULT_KERNEL, load_kernel

    named = ctx.params.get("kernel") or DEFAULT_KERNEL
    if ctx.params.get("problem") or ctx.params.get("space") or ":" in named:
        return None
    try:
        return load_kernel(named)
    except ConstrintError:
        return None


def _parameters(ctx: typer.Context) -> Iterator[tuple[str, tuple[Sequence[int], str]]]:
    """Parameters by name, with their values and what they mean."""
    operation = _operation(ctx)
    if operation is None:
        if ctx.params.get("problem"):
            yield from _variables(Path(ctx.params["problem"]))
        return
    gpu = _gpu(ctx)
    workload = operation.default_workload(gpu)
    for spec in operation.implementations:
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError:
            continue
        for param in spec.params(gpu, workload):
            yield param.name, (param.values, param.meaning)


def _gpu(ctx: typer.Context) -> Any:
    from constrint.hwmodels import load_gpu

    given = ctx.params.get("gpu")
    try:
        return load_gpu((given[0] if isinstance(given, list | tuple) else given) or USUAL_GPU)
    except (ConstrintError, IndexError):
        return load_gpu(USUAL_GPU)


def _variables(path: Path) -> Iterator[tuple[str, tuple[Sequence[int], str]]]:
    """The variables of a problem file, if it is small and right."""
    from constrint.hwmodels import gpu_names, load_gpu
    from constrint.model import parse

    if not path.is_file() or path.stat().st_size > MAX_PROBLEM_BYTES:
        return
    problem = parse(path.read_text(encoding="utf-8"), names=gpu_names(load_gpu(USUAL_GPU)))
    for name, domain in problem.variables.items():
        is_shown = domain.labels is None and domain.size <= MAX_VALUES
        yield name, (tuple(domain.values) if is_shown else (), domain.because)
