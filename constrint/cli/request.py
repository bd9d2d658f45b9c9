"""What `solve` and `explain` are asked for: GPU, kernel, workload, and the user's own rules, checked and combined."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from constrint.errors import ParseError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from constrint.hwmodels import GpuModel
    from constrint.model import Problem
    from constrint.select import KernelSpec, Workload

Gpu = Annotated[str, typer.Option("--gpu", help="GPU name (see `constrint gpus`) or a path to a model's YAML file.")]
Kernel = Annotated[str | None, typer.Option("--kernel", help="Kernel; all of them if none is named.")]
Size = Annotated[int | None, typer.Option(help="Size of the workload.")]
Dtype = Annotated[str | None, typer.Option("--dtype", help="Operand type: fp16, bf16, fp8, tf32 or int8.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE[,VALUE]", help="Fix a parameter; may be repeated.")
]
Where = Annotated[
    list[str] | None, typer.Option("--where", metavar="RULE", help='Extra rule such as "tile_k <= 64"; may be repeated.')
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md describes it).")]


@dataclass(frozen=True)
class Request:
    """One kernel's space with the user's rules in it."""

    spec: KernelSpec
    gpu: GpuModel
    workload: Workload
    problem: Problem


def requests(
    gpu_name: str,
    kernel: str | None,
    sizes: dict[str, int | None],
    dtype: str | None,
    settings: list[str] | None,
    rules: list[str] | None,
) -> list[Request]:
    """One request per kernel asked for."""
    from constrint.hwmodels import load_gpu
    from constrint.kernels.registry import list_kernels, load_kernel

    specs = [load_kernel(name) for name in ((kernel,) if kernel else list_kernels())]
    gpu = load_gpu(gpu_name)
    return [_request(spec, gpu, sizes, dtype, settings or [], rules or []) for spec in specs]


def _request(
    spec: KernelSpec,
    gpu: GpuModel,
    sizes: dict[str, int | None],
    dtype: str | None,
    settings: list[str],
    rules: list[str],
) -> Request:
    workload = _workload(spec, gpu, sizes, dtype)
    spec.check_workload(gpu, workload)
    problem = spec.problem(gpu, workload)
    for text in settings:
        _apply_setting(problem, text)
    for text in rules:
        _apply_rule(problem, text)
    return Request(spec, gpu, workload, problem)


def _workload(spec: KernelSpec, gpu: GpuModel, sizes: dict[str, int | None], dtype: str | None) -> Workload:
    from constrint.select import Workload

    default = spec.default_workload(gpu)
    given = {name: size for name, size in sizes.items() if size is not None}
    for name in given.keys() - set(spec.size_names):
        raise UsageError(f"kernel {spec.name!r} has no size {name!r}; it has {', '.join(spec.size_names)}.")
    return Workload(spec.name, {**default.sizes, **given}, dtype.lower() if dtype else default.dtype)


def _apply_setting(problem: Problem, text: str) -> None:
    from constrint.model import Var, is_in

    name, equals, value_text = text.partition("=")
    name = name.strip()
    if not equals:
        raise UsageError(f"--set takes NAME=VALUE, for example --set tile_m=128; got {text!r}.")
    if name not in problem.variables:
        raise UnknownNameError("parameter", name, problem.variables)
    domain = problem.variables[name]
    values = []
    for part in value_text.split(","):
        try:
            value = int(part.strip())
        except ValueError:
            raise UsageError(f"--set {name}: expected an integer, got {part.strip()!r}.") from None
        if value not in domain:
            near = sorted(domain, key=lambda v: (abs(v - value), v))[:2]
            raise UsageError(
                f"--set {name}={value}: {name} takes {', '.join(str(v) for v in sorted(domain))} "
                f"({domain.because}). Nearest: {' or '.join(str(v) for v in sorted(near))}."
            )
        values.append(value)
    because = f"asked for by --set {text}"
    rule = Var(name) == values[0] if len(values) == 1 else is_in(Var(name), values)
    problem.add(rule, name=f"set_{name}", because=because)


def _apply_rule(problem: Problem, text: str) -> None:
    from constrint.model import parse_constraint

    try:
        rule = parse_constraint(text)
    except ParseError as error:
        raise UsageError(f"--where is not a rule: {error}\nA rule looks like: tile_k <= 64") from None
    for name in sorted(rule.variables - set(problem.variables)):
        near = difflib.get_close_matches(name, list(problem.variables), n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(
            f"--where {text!r}: there is no parameter {name!r}.{hint} Parameters: {', '.join(problem.variables)}."
        )
    problem.add(rule, name="where", because=f"asked for by --where {text!r}")
