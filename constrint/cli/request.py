"""Reads what a command is asked about: a kernel on a GPU, a text problem, or a file of parameters and restrictions.

`Choice` holds the options that say so; `Choice.question` checks them and states the problems, with the user's own
rules in them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from constrint.cli.question import Asked, KernelQuestion, Question
from constrint.cli.rules import OwnRules, shown_warnings
from constrint.errors import ConstrintError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.model import Problem
    from constrint.select import KernelSpec, Operation, Workload

Gpu = Annotated[str, typer.Option("--gpu", help="GPU name (see `constrint gpus`) or a path to a model's YAML file.")]
Backend = Annotated[str, typer.Option("--backend", help="Solver: native, numpy, brute, cpsat or python-constraint.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md describes it).")]


@dataclass(frozen=True)
class Choice:
    """The options that name a problem; exactly one of `gpu`, `problem` and `space` is given.

    Args:
        sizes: Sizes and options of the workload, as far as they are given.
        operation: What `kernel` names; None where a file is meant.
    """

    gpu: str | None = None
    kernel: str | None = None
    dtype: str | None = None
    problem: Path | None = None
    space: Path | None = None
    dialect: str | None = None
    set_: list[str] | None = None
    where: list[str] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    operation: Operation | None = None

    def question(self) -> Question:
        """States every problem asked about: one per kernel, or the one of the file."""
        self._check()
        started = time.perf_counter()
        own = OwnRules(self.set_ or (), self.where or (), self.dialect or "standard")
        if self.gpu is not None and self.operation is not None:
            from constrint.hwmodels import load_gpu

            gpu = load_gpu(self.gpu)
            return _ask_kernels(self.operation, gpu, self._workload(self.operation, gpu), own, started)
        path = self.problem or self.space
        problem = load_problem(path, self.dialect) if path is self.problem and path else _load_space(path)
        added = own.add_to(problem)
        return Question(str(path), (Asked(str(path), problem, added),), started=started)

    def _workload(self, operation: Operation, gpu: GpuModel) -> Workload:
        default = operation.default_workload(gpu)
        sizes = {name: self.sizes.get(name, value) for name, value in default.sizes.items()}
        preset = {option.name: option.default for option in operation.options}
        chosen = {**preset, **default.options, **{n: v for n, v in self.sizes.items() if n in preset}}
        options = {name: value for name, value in chosen.items() if value != preset.get(name)}
        return replace(default, sizes=sizes, options=options, dtype=self.dtype.lower() if self.dtype else default.dtype)

    def _check(self) -> None:
        given = {"--gpu": self.gpu, "--problem": self.problem, "--space": self.space}
        named = [option for option, value in given.items() if value is not None]
        if not named:
            raise UsageError(
                "say what to look at: --gpu NAME (for example mi300x; `constrint gpus` lists them), --problem FILE "
                "or --space FILE.json."
            )
        if len(named) > 1:
            raise UsageError(f"{' and '.join(named)} exclude each other; give one of them.")
        extra = [option for option, v in (("--kernel", self.kernel), ("--dtype", self.dtype)) if v is not None]
        if extra and self.gpu is None:
            raise UsageError(f"{named[0]} takes no {', '.join(extra)}; these belong to a kernel on a --gpu.")
        if self.dialect is not None:
            from constrint.model.text.parse import DIALECTS

            if self.dialect not in DIALECTS:
                raise UnknownNameError("dialect", self.dialect, DIALECTS)


def _ask_kernels(operation: Operation, gpu: GpuModel, workload: Workload, own: OwnRules, started: float) -> Question:
    """The spaces of all kernels that can take the workload, with the user's own rules in them."""
    from constrint.select.rank import requests

    able, refusals = requests(operation, gpu, workload)
    refused = [s for s in operation.implementations if s.full_name in refusals and _runs_on(s, gpu)]
    several = len(able) + len(refused) > 1
    added, lacking = own.add_to_kernels({request.spec.full_name: request.problem for request in able})
    asked = tuple(
        Asked(
            f"{_titled(workload, r.spec.full_name if several else operation.name)} on {gpu.name}",
            r.problem,
            added[r.spec.full_name],
            r,
        )
        for r in able
        if r.spec.full_name in added
    )
    notes = [f"not {spec.full_name}: {_plain(spec, workload, refusals[spec.full_name])}" for spec in refused]
    notes += [f"not {name}: {reason}" for name, reason in lacking.items()]
    kernels = KernelQuestion(operation, gpu, workload, {**refusals, **lacking}, tuple(notes), several)
    return Question(f"{_titled(workload, operation.name)} on {gpu.name}", asked, kernels, started)


def _titled(workload: Workload, name: str) -> str:
    return str(replace(workload, operation=name))


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
    from constrint.solve import list_backends

    if name not in list_backends():
        raise UnknownNameError("back-end", name, list_backends())


def load_problem(path: Path, dialect: str | None = None) -> Problem:
    """Read and parse a problem file; warnings of the parser go to stderr."""
    from constrint.model import parse
    from constrint.model.text.lexer import MAX_TEXT

    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the problem file {path}: {reason}.") from None
    with shown_warnings():
        return parse(text, dialect=dialect, source=str(path))


def _load_space(path: Path | None) -> Problem:
    from constrint.model.python.restrictions import load_space

    if path is None:
        raise UsageError("name a file with --space FILE.json.")
    return load_space(path)
