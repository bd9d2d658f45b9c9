"""`why`: the complete decision for any kernel by name; `check_config`: the reason why a configuration is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from constrint.choose.decide import decide
from constrint.choose.decision import BACKWARD, FORWARD, Decision, Request
from constrint.errors import UsageError
from constrint.hwmodels import GpuModel, load_gpu
from constrint.kernels.registry import DEFAULT_KERNEL, contributor, is_known, load_kernel
from constrint.model import Problem
from constrint.select.candidate import Config
from constrint.select.spec import Operation
from constrint.select.workload import Workload, workload_of

#: Names under which operations are called, where they are not the operation's own.
ALIASES = {"matmul": DEFAULT_KERNEL}


def why(
    kernel: str,
    gpu: str | Path | GpuModel,
    workload: Workload | None = None,
    *,
    dtype: str | None = None,
    config: Config | None = None,
    directions: tuple[str, ...] = (),
    activation: str | None = None,
    **sizes: int,
) -> Decision:
    """The decision for a workload on a named GPU, with everything that was passed over; it prints as an explanation.

    print(constrint.why("matmul", "h200", m=4096, n=4096, k=4096, dtype="bf16", activation="gelu"))

    Args:
        kernel: An operation (`matmul`, `lstm`), one of its implementations (`gemm.pointer`), or `FILE.py:NAME`.
        gpu: A name (`h200`), the path of a model's YAML file, or a model.
        workload: The workload, in place of sizes and dtype.
        dtype: Type of the operands; that of the default workload if None.
        config: The only configuration that may run; needs one implementation.
        directions: ("forward",) or ("forward", "backward"); by default both where the operation has both.
        activation: Activation of a product.
        sizes: Sizes and options by name; the default workload has the others.

    Raises:
        InfeasibleError: When nothing is valid; carries a minimal conflict.
        UnknownNameError: When there is no such kernel, GPU, size or dtype; names the nearest.
        UsageError: When a number is malformed, or `config` is not valid: names each rule that it breaks.
    """
    model = gpu if isinstance(gpu, GpuModel) else load_gpu(gpu)
    name = ALIASES.get(kernel, kernel)
    operation = load_kernel(name)
    if workload is None:
        workload = workload_of(operation, model, sizes, dtype)
    base, _, implementation = ("", "", "") if ":" in name else name.partition(".")
    # One implementation of an operation that brings its own candidates competes by that operation's rules.
    is_own = bool(base) and contributor(base).__name__ != contributor(operation.name).__name__
    request = Request(
        base if is_own else operation.name if ":" not in name else _name_of(operation),
        workload,
        model,
        directions=directions or _directions(base or operation.name),
        kernel=implementation if is_own else "",
        config=config,
    )
    return explained(with_activation(request, activation))


def _name_of(operation: Operation) -> str:
    """The operation's name where a file names all of its implementations, a cell's say; else that of its first one."""
    every = load_kernel(operation.name).implementations
    is_whole = len(every) > 1 and len(every) == len(operation.implementations)
    return operation.name if is_whole else operation.implementations[0].full_name


def _directions(operation: str) -> tuple[str, ...]:
    """Both directions where the operation has a backward twin."""
    return (FORWARD, BACKWARD) if is_known(f"{operation}-{BACKWARD}") else (FORWARD,)


def with_activation(request: Request, activation: str | None) -> Request:
    """The same request for a product that ends in an activation.

    Raises:
        UsageError: When the operation has no activation.
    """
    if activation is None:
        return request
    module: Any = contributor(request.operation)
    if not hasattr(module, "with_activation"):
        raise UsageError(f"{request.operation!r} takes no activation; products do.")
    ended: Request = module.with_activation(request, activation)
    return ended


def explained(request: Request) -> Decision:
    """The decision with every candidate complete: `decide` leaves out the configurations that no launch needs."""
    decision = decide(request)
    module: Any = contributor(request.operation)
    if hasattr(module, "alternatives"):
        return Decision(request, decision.program, tuple(module.alternatives(decision)))
    return decision


def check_config(kernel: str, gpu: GpuModel, workload: Workload, problem: Problem, config: Config) -> None:
    """Raise for a configuration that is not valid.

    Raises:
        UsageError: When a parameter is missing or unknown, or a rule is broken: names each, with the values
            that break it, and the single changes that would mend it.
    """
    from constrint.solve import why_not  # loaded where a caller names a configuration

    lists = {
        "missing": [name for name in problem.variables if name not in config],
        "unknown": [name for name in config if name not in problem.variables],
    }
    if any(lists.values()):
        wrong = "; ".join(f"{word} {', '.join(names)}" for word, names in lists.items() if names)
        raise UsageError(f"a configuration of {kernel} has the parameters {', '.join(problem.variables)}: {wrong}.")
    answer = why_not(problem, config)
    if answer:
        values = " ".join(f"{name}={value}" for name, value in config.items())
        raise UsageError(f"{kernel} {values} is not valid on {gpu.name} for {workload}:\n{answer}")
