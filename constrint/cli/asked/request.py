"""Reads what a command is asked about: a kernel on a GPU, a text problem, or a file of parameters and restrictions.

`question_of` checks the options that say so and states the problems, with the user's own rules in them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from constrint.answers.question import Asked, Question
from constrint.cli.asked.kernel_options import Choice
from constrint.cli.space.rules import add_own_rules, shown_warnings
from constrint.errors import ConstrintError, UnknownNameError, UsageError
from constrint.hwmodels import GpuModel, gpu_names, load_gpu
from constrint.model import Problem, parse
from constrint.model.text.file import read_text
from constrint.model.text.lexer import MAX_TEXT
from constrint.model.text.numbers import Names
from constrint.model.text.parse import DIALECTS
from constrint.select import KernelSpec, Operation, Workload
from constrint.select.asked import workload_of
from constrint.select.rank import requests
from constrint.solve import list_backends


def question_of(choice: Choice) -> Question:
    """States every problem asked about: one per kernel, or the one of the file."""
    _check(choice)
    started = time.perf_counter()
    if choice.gpu is not None and choice.operation is not None:
        return _ask_kernels(choice, choice.operation, load_gpu(choice.gpu), started)
    path = choice.problem or choice.space
    if path is None:
        raise UsageError("name a file with --space FILE.json.")
    names = None if choice.gpu is None else gpu_names(load_gpu(choice.gpu))
    if choice.problem:
        problem = load_problem(path, choice.dialect, names)
    else:
        from constrint.model.python.restrictions import load_space

        problem = load_space(path)
    added, _ = add_own_rules(choice, {problem.name: problem}, names)
    title = f"{path}" if choice.gpu is None else f"{path} on {load_gpu(choice.gpu).name}"
    return Question(title, (Asked(title, problem, added[problem.name]),), started=started)


def _check(choice: Choice) -> None:
    given = {"--gpu": choice.gpu, "--problem": choice.problem, "--space": choice.space}
    named = [option for option, value in given.items() if value is not None]
    if not named:
        raise UsageError(
            "say what to look at: --gpu NAME (for example mi300x; `constrint gpus` lists them), --problem FILE "
            "or --space FILE.json."
        )
    if len(named) > 1 and named != ["--gpu", "--problem"]:
        raise UsageError(f"{' and '.join(named)} exclude each other; give one of them.")
    of_kernels = {"--kernel": choice.kernel, "--dtype": choice.dtype, "--strict": choice.strict or None}
    extra = [option for option, value in of_kernels.items() if value is not None]
    if extra and (choice.gpu is None or choice.problem):
        raise UsageError(f"{named[-1]} takes no {', '.join(extra)}; these belong to a kernel on a --gpu.")
    if choice.dialect is not None and choice.dialect not in DIALECTS:
        raise UnknownNameError("dialect", choice.dialect, DIALECTS)


def _ask_kernels(choice: Choice, operation: Operation, gpu: GpuModel, started: float) -> Question:
    """The spaces of all kernels that can take the workload, with the user's own rules in them."""
    workload = workload_of(operation, gpu, choice.sizes, choice.dtype)
    able, refusals = requests(operation, gpu, workload)
    refused = [s for s in operation.implementations if s.full_name in refusals and _runs_on(s, gpu)]
    several = len(able) + len(refused) > 1

    def titled(name: str) -> str:
        return f"{replace(workload, operation=name)} on {gpu.name}"

    if choice.strict:
        able = [replace(request, problem=request.problem.strict()) for request in able]
    names = gpu_names(gpu) if choice.where else None
    added, lacking = add_own_rules(choice, {request.spec.full_name: request.problem for request in able}, names)
    asked = tuple(
        Asked(titled(r.spec.full_name if several else operation.name), r.problem, added[r.spec.full_name], r)
        for r in able
        if r.spec.full_name in added
    )
    notes = [f"not {spec.full_name}: {_plain(spec, workload, refusals[spec.full_name])}" for spec in refused]
    notes += [f"not {name}: {reason}" for name, reason in lacking.items()]
    refusals |= lacking
    return Question(
        titled(operation.name),
        asked,
        operation,
        refusals,
        tuple(notes),
        several,
        started,
        arguments=_arguments(choice),
        is_default=choice.kernel is None,
    )


def _arguments(choice: Choice) -> tuple[str, ...]:
    """The arguments that ask the same of another command."""
    given = [f"--gpu {choice.gpu}"] + ([f"--kernel {choice.kernel}"] if choice.kernel else [])
    words = [word for pair in given for word in pair.split(" ", 1)]
    for name, value in choice.sizes.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    words += ["--dtype", choice.dtype] if choice.dtype else []
    for option, texts in (("--set", choice.set_), ("--where", choice.where)):
        words += [word for text in texts or () for word in (option, text)]
    words += ["--dialect", choice.dialect] if choice.dialect else []
    return (*words, *(["--strict"] if choice.strict else []))


def _runs_on(spec: KernelSpec, gpu: GpuModel) -> bool:
    """Whether a kernel can take anything on this GPU; one for other GPUs is not worth a word."""
    try:
        spec.check_workload(gpu, spec.default_workload(gpu))
    except ConstrintError:
        return False
    return True


def _plain(spec: KernelSpec, workload: Workload, refusal: str) -> str:
    if workload.dtype not in spec.dtypes:
        return f"it takes {', '.join(spec.dtypes)}"
    return refusal.removeprefix(f"{spec.full_name}: ").rstrip(".")


def check_backend(name: str) -> None:
    """Raises UnknownNameError for a back-end that there is not."""
    if name not in list_backends():
        raise UnknownNameError("back-end", name, list_backends())


def load_problem(path: Path, dialect: str | None = None, names: Names | None = None) -> Problem:
    """Read and parse a problem file that may use these numbers of a GPU; warnings of the parser go to stderr."""
    text = read_text(path, "the problem file", MAX_TEXT)
    with shown_warnings():
        return parse(text, dialect=dialect, source=str(path), names=names)
