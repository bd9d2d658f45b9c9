"""What a command is asked about: a kernel on a GPU, a text problem, or a file of parameters and restrictions.

`Choice` holds the options that say so, `takes_choice` gives them to a command, and `Choice.asked` checks them and
states the problem, with the user's own rules in it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from constrint.cli.rules import apply_rule, apply_setting, shown_warnings
from constrint.errors import InfeasibleError, LimitReachedError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.model import Problem
    from constrint.select import KernelSpec, Workload
    from constrint.solve import SearchSpace

Gpu = Annotated[str, typer.Option("--gpu", help="GPU name (see `constrint gpus`) or a path to a model's YAML file.")]
AnyGpu = Annotated[
    str | None, typer.Option("--gpu", help="GPU name (see `constrint gpus`) or a path to a model's YAML file.")
]
Kernel = Annotated[str | None, typer.Option("--kernel", help="gemm (if none is named), lstm, lstm-backward, gru, ...")]
Size = Annotated[int | None, typer.Option(help="Size of the workload.")]
Dtype = Annotated[
    str | None, typer.Option("--dtype", help="Operand type: fp16, bf16, tf32, fp8, int8; recurrent kernels: fp32 too.")
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE[,VALUE]", help="Fix a parameter; may be repeated.")
]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", metavar="RULE", help='Extra rule such as "tile_k <= 64"; may be repeated.'),
]
ProblemFile = Annotated[
    Path | None, typer.Option("--problem", help="A text problem (docs/language.md) instead of a kernel's space.")
]
SpaceFile = Annotated[
    Path | None, typer.Option("--space", help="A JSON file of params and restrictions instead of a kernel's space.")
]
Dialect = Annotated[
    str | None, typer.Option("--dialect", help="How the text is read: standard, or constrint (`%` splits terms).")
]
Backend = Annotated[str, typer.Option("--backend", help="Solver: native, numpy, brute, cpsat or python-constraint.")]
#: Sizes of any kernel's workload.
SIZES = ("m", "n", "k", "batch", "time", "heads", "head_dim")
Json = Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md describes it).")]


@dataclass(frozen=True)
class Request:
    """One kernel's space with the user's rules in it."""

    spec: KernelSpec
    gpu: GpuModel
    workload: Workload
    problem: Problem


@dataclass(frozen=True)
class Asked:
    """A problem to answer about; `request` is there when it is a kernel's space."""

    title: str
    problem: Problem
    request: Request | None = None

    def space(self, backend: str = "native") -> SearchSpace:
        """All solutions.

        Raises:
            InfeasibleError: When there is none; carries the conflict.
        """
        from constrint.solve import enumerate_space

        check_backend(backend)
        space = enumerate_space(self.problem, backend=backend)
        if space.size == 0:
            raise self.infeasible()
        return space

    def infeasible(self) -> InfeasibleError:
        """Says why there is no solution."""
        from constrint.select.rank import infeasible
        from constrint.solve import minimal_conflict

        try:
            if self.request is not None:
                return infeasible(self.request.spec, self.request.gpu, self.request.workload, self.problem)
            conflict = minimal_conflict(self.problem)
        except LimitReachedError as error:
            return InfeasibleError(f"{self.title} has no solution; why could not be narrowed down: {error}")
        return InfeasibleError(f"{self.title} has no solution. {conflict}", conflict)


@dataclass(frozen=True)
class Choice:
    """The options that name a problem; exactly one of `gpu`, `problem` and `space` is given."""

    gpu: AnyGpu = None
    kernel: Kernel = None
    m: Size = None
    n: Size = None
    k: Size = None
    batch: Size = None
    time: Size = None
    heads: Size = None
    head_dim: Size = None
    dtype: Dtype = None
    problem: ProblemFile = None
    space: SpaceFile = None
    dialect: Dialect = None
    set_: Set = None
    where: Where = None

    def asked(self) -> list[Asked]:
        """States every problem asked about: one per kernel, or the one of the file."""
        self._check()
        if self.gpu is not None:
            found = requests(self.gpu, self.kernel, self._sizes(), self.dtype, self.set_, self.where, self.dialect)
            return [Asked(f"{r.workload} on {r.gpu.name}", r.problem, r) for r in found]
        path = self.problem or self.space
        problem = load_problem(path, self.dialect) if path is self.problem and path else _load_space(path)
        _add_rules(problem, self.set_, self.where, self.dialect)
        return [Asked(str(path), problem)]

    def one(self) -> Asked:
        """The only problem asked about; with several kernels one has to be named."""
        found = self.asked()
        if len(found) > 1:
            names = ", ".join(a.request.spec.name for a in found if a.request)
            raise UsageError(f"name one kernel with --kernel: {names}.")
        return found[0]

    def _sizes(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in SIZES}

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
        kernel_only = {"--kernel": self.kernel, "--dtype": self.dtype} | {
            f"--{n.replace('_', '-')}": v for n, v in self._sizes().items()
        }
        extra = [option for option, value in kernel_only.items() if value is not None]
        if extra and self.gpu is None:
            raise UsageError(f"{named[0]} takes no {', '.join(extra)}; these belong to a kernel on a --gpu.")
        if self.dialect is not None:
            from constrint.model.text.parse import DIALECTS

            if self.dialect not in DIALECTS:
                raise UnknownNameError("dialect", self.dialect, DIALECTS)


def takes_choice(function: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of `Choice`; the function gets them as its first argument."""
    hints = get_type_hints(Choice, include_extras=True)
    shared = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=hints[f.name])
        for f in fields(Choice)
    ]
    signature = inspect.signature(function, eval_str=True)
    own = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in list(signature.parameters.values())[1:]]

    @functools.wraps(function)
    def command(**options: Any) -> None:
        chosen = Choice(**{p.name: options.pop(p.name) for p in shared})
        function(chosen, **options)

    # typer reads these; `__wrapped__` would lead it back to the function's own signature.
    del command.__wrapped__
    command.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return command


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


def _add_rules(problem: Problem, settings: list[str] | None, rules: list[str] | None, dialect: str | None) -> None:
    for text in settings or []:
        apply_setting(problem, text)
    for text in rules or []:
        apply_rule(problem, text, dialect or "standard")


def requests(
    gpu_name: str,
    kernel: str | None,
    sizes: dict[str, int | None],
    dtype: str | None,
    settings: list[str] | None,
    rules: list[str] | None,
    dialect: str | None = None,
) -> list[Request]:
    """One request per kernel asked for."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import DEFAULT_KERNEL, load_kernel

    specs = [load_kernel(kernel or DEFAULT_KERNEL)]
    gpu = load_gpu(gpu_name)
    found = []
    for spec in specs:
        workload = _workload(spec, gpu, sizes, dtype)
        spec.check_workload(gpu, workload)
        problem = spec.problem(gpu, workload)
        _add_rules(problem, settings, rules, dialect)
        found.append(Request(spec, gpu, workload, problem))
    return found


def _workload(spec: KernelSpec, gpu: GpuModel, sizes: dict[str, int | None], dtype: str | None) -> Workload:
    from constrint.select import Workload

    default = spec.default_workload(gpu)
    given = {name: size for name, size in sizes.items() if size is not None}
    for name in given.keys() - set(spec.size_names):
        raise UsageError(f"kernel {spec.name!r} has no size {name!r}; it has {', '.join(spec.size_names)}.")
    return Workload(spec.name, {**default.sizes, **given}, dtype.lower() if dtype else default.dtype)
