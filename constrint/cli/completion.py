"""Completion in a shell: the answer to a shell's request, the scripts to install, and the words of each option.

Requests come in the environment, in the form of the command line library's own scripts (`constrint --show-completion`),
and the library answers them; only the typed sub-command is loaded. After any failure a shell gets no word instead of a
traceback. No kernel is compiled and no file with code is loaded.
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

#: The environment variable of a request; the scripts derive it from the command's name.
REQUEST = "_CONSTRINT_COMPLETE"
#: Characters at which bash begins a new word.
_BREAKS = "=:"


def answer(application: Callable[[Sequence[str]], Any]) -> int:
    """Print the words that complete the last typed word.

    Args:
        application: Makes the command line for the words before it.

    Returns:
        The exit code.
    """
    instruction = os.environ[REQUEST]
    prefix, code = "", 0
    out = io.StringIO()
    # Warnings and the output of a broken kernel package would end up in the typed line.
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
    """The words before the one to complete, and the part of that word that bash keeps."""
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
    """Join the words that bash split at `=` and `:`: `--set tile_m = 1` becomes `--set tile_m=1`.

    Returns:
        The words up to the one to complete, and the part of that word that bash keeps.
    """
    joined: list[str] = []
    glued = False
    prefix = ""
    for place, word in enumerate([*words[: at + 1], *([""] if at >= len(words) else [])]):
        is_break = bool(word) and set(word) <= set(_BREAKS)
        if joined and (is_break or glued):
            prefix = joined[-1] if not is_break else joined[-1] + word
            joined[-1] += word
        else:
            joined.append(word)
            prefix = ""
        glued = is_break and place < at
    return joined, prefix


SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")
#: Stands for the calling shell.
THIS_SHELL = "this"


def show(shell: str) -> None:
    """Print the completion script of a shell."""
    typer.echo(_library().get_completion_script(prog_name="constrint", complete_var=REQUEST, shell=_named(shell)))


def install(shell: str) -> None:
    """Install the completion script of a shell."""
    try:
        name, path = _library().install(_named(shell), prog_name="constrint", complete_var=REQUEST)
    except OSError as error:
        raise UsageError(
            f"completion cannot be installed: {error.filename}: {error.strerror}. "
            "`constrint --show-completion` prints the script, to be put where your shell reads it."
        ) from None
    typer.echo(f"{name} completion is installed in {path}; start a new shell to use it.")


def _library() -> Any:
    """The command line library's module with the scripts, which has no types."""
    return import_module("typer.completion")


def _named(shell: str) -> str:
    if shell == THIS_SHELL:
        return _detected()
    if shell.lower() not in SHELLS:
        raise UnknownNameError("shell", shell, SHELLS)
    return shell.lower()


def _detected() -> str:
    """The calling shell.

    Raises:
        UsageError: When it cannot be detected.
    """
    shell = ""
    try:
        shell = import_module("shellingham").detect_shell()[0]
    except (ImportError, OSError):  # the package is missing, or the shell is unknown to it
        shell = ""
    if shell not in SHELLS:
        raise UsageError(f"say for which shell: {', '.join(SHELLS)}, as in `constrint --show-completion bash`.")
    return str(shell)


#: The GPU whose parameters complete a word before a GPU is typed.
USUAL_GPU = "h200"
#: Largest problem file that is read for a completion.
MAX_PROBLEM_BYTES = 100_000
#: Most values of a variable that are offered.
MAX_VALUES = 64
Words = Iterable["str | tuple[str, str]"]


def complete_gpu(incomplete: str) -> Words:
    """Names of GPUs in lower case; the typed part stays as it is."""
    from constrint.hwmodels import list_gpus
    from constrint.hwmodels.files import user_index

    known = dict.fromkeys(map(str.lower, (*list_gpus(), *user_index().files)))
    return [incomplete + name[len(incomplete) :] for name in begun(known, incomplete.lower())]


def complete_page(incomplete: str) -> Words:
    """Pages of the documentation, with their titles."""
    from constrint.cli.pages import pages, title_of

    return [(name, title_of(path)) for name, path in pages().items() if name.startswith(incomplete.lower())]


def complete_family(incomplete: str) -> Words:
    """Architectures of the GPUs, in lower case."""
    from constrint.hwmodels import load_all

    return begun(sorted({model.arch.family.lower() for model in load_all()}), incomplete.lower())


def complete_kernel(incomplete: str) -> Words:
    """Names of operations; of implementations once an operation and its dot are typed."""
    from constrint.kernels.registry import list_kernels, load_kernel

    operation, dot, _ = incomplete.lower().partition(".")
    if not dot or operation not in list_kernels():
        return begun(list_kernels(), incomplete.lower())
    specs = load_kernel(operation).implementations
    return [(spec.full_name, spec.summary) for spec in specs if spec.full_name.startswith(incomplete.lower())]


def complete_dtype(ctx: typer.Context, incomplete: str) -> Words:
    """Operand types of the typed kernel."""
    operation = _operation(ctx)
    return [] if operation is None else begun(operation.dtypes, incomplete.lower())


def complete_setting(ctx: typer.Context, incomplete: str) -> Words:
    """`NAME=` for several matching parameters, `NAME=VALUE` for a single one, since shells add a space to a word."""
    name, equals, value = incomplete.partition("=")
    parameters = dict(parameters_of(ctx))
    if not equals:
        fitting = {word: meaning for word, (_, meaning) in parameters.items() if word.startswith(name)}
        if len(fitting) != 1 or not parameters[next(iter(fitting))][0]:
            return [(f"{word}=", meaning) for word, meaning in fitting.items()]
        name = next(iter(fitting))
    *before, last = value.split(",")
    head = "".join(f"{word}," for word in before)
    values = parameters.get(name, ((), ""))[0]
    return [f"{name}={head}{word}" for word in map(str, sorted(values)) if word.startswith(last) and word not in before]


def complete_backend(incomplete: str) -> Words:
    """Names of the solver's back-ends."""
    from constrint.solve import list_backends

    return begun(list_backends(), incomplete.lower())


def complete_format(incomplete: str) -> Words:
    """Formats of printed pages."""
    from constrint.answers.registry import PAGES

    return begun(PAGES.built_in, incomplete.lower())


def complete_export(incomplete: str) -> Words:
    """Formats of `solve --export`."""
    from constrint.export import list_formats

    return begun(list_formats(), incomplete.lower())


def complete_tool(incomplete: str) -> Words:
    """Tools of `tune --export`."""
    from constrint.tune.export import EXPORTS

    return begun(EXPORTS, incomplete.lower())


def complete_dialect(incomplete: str) -> Words:
    """Languages of problem files."""
    from constrint.model.text.parse import DIALECTS

    return begun(DIALECTS, incomplete.lower())


def begun(words: Iterable[str], incomplete: str) -> list[str]:
    """The words that begin with what is typed."""
    return [word for word in words if word.startswith(incomplete)]


def _operation(ctx: typer.Context) -> Any:
    """The typed kernel; None for a file, which may hold code."""
    from constrint.kernels.registry import DEFAULT_KERNEL, load_kernel

    named = ctx.params.get("kernel") or DEFAULT_KERNEL
    if ctx.params.get("problem") or ctx.params.get("space") or ":" in named:
        return None
    try:
        return load_kernel(named)
    except ConstrintError:
        return None


def parameters_of(ctx: typer.Context) -> Iterator[tuple[str, tuple[Sequence[int], str]]]:
    """Names of parameters with their values and meanings."""
    operation = _operation(ctx)
    if operation is None:
        if ctx.params.get("problem"):
            yield from _variables(Path(ctx.params["problem"]))
        return
    gpu = typed_gpu(ctx)
    workload = operation.default_workload(gpu)
    for spec in operation.implementations:
        try:
            spec.check_workload(gpu, workload)
        except ConstrintError:
            continue
        for param in spec.params(gpu, workload):
            yield param.name, (param.values, param.meaning)


def typed_gpu(ctx: typer.Context) -> Any:
    """The model of the typed GPU; of a usual one before there is any."""
    from constrint.hwmodels import load_gpu

    typed = ctx.params.get("gpu")
    try:
        return load_gpu((typed[0] if isinstance(typed, list | tuple) else typed) or USUAL_GPU)
    except (ConstrintError, IndexError):
        return load_gpu(USUAL_GPU)


def _variables(path: Path) -> Iterator[tuple[str, tuple[Sequence[int], str]]]:
    """The variables of a problem file, if it is small."""
    from constrint.hwmodels import gpu_names, load_gpu
    from constrint.model import parse

    if not path.is_file() or path.stat().st_size > MAX_PROBLEM_BYTES:
        return
    problem = parse(path.read_text(encoding="utf-8"), names=gpu_names(load_gpu(USUAL_GPU)))
    for name, domain in problem.variables.items():
        is_shown = domain.labels is None and domain.size <= MAX_VALUES
        yield name, (tuple(domain.values) if is_shown else (), domain.because)
