"""The words that complete what was begun: GPUs, kernels, dtypes, parameters and their values, back-ends.

The command line library calls these with what was typed so far. No kernel is compiled and no file with code is loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer

from constrint.errors import ConstrintError

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
