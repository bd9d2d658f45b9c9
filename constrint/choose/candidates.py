"""How an operation contributes candidates, and the contribution of every operation that brings none of its own.

An operation contributes by a module, named in `kernels/registry.py`, with one function:

    def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]: ...

It returns every candidate in order: the first one runs; those that cannot run come last, each with its `refusal`. The
order is the operation's own comparison. Where nothing runs it raises InfeasibleError. One more function is optional:

    def implementations(request: Request) -> Sequence[KernelSpec]: ...

These are the kernels that the decision depends on; with them, decisions for named GPUs are stored on disk. Without the
function they are kept in memory alone.

A candidate that takes the best configuration of one implementation asks `decide` for it, by the implementation's full
name: `Request("lstm-backward.cuda", workload, gpu, fixed=...)`. The functions below answer that, `decision.of(role)` is
that very decision, and refusing it changes every decision that contains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from constrint.choose.decision import Evidence, Program, Step
from constrint.choose.refusals import Refusal, care_after
from constrint.choose.request import Request
from constrint.errors import InfeasibleError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel
from constrint.model import Var
from constrint.model.constraint import CERTAIN
from constrint.select.limits import SPILLS
from constrint.select.rank import rank_requests, requests
from constrint.select.ranking import Ranking
from constrint.select.spec import Candidate, KernelSpec, Operation
from constrint.select.tuned import TunedEntry, tuned_path
from constrint.select.winners import SHIPPED, winner

MEASURED_BEST = "measured winner"


def operation_of(request: Request) -> Operation:
    """The operation, or the one implementation, that a request names.

    Raises:
        UnknownNameError: When there is no such kernel.
    """
    operation = load_kernel(request.operation)
    if not request.kernel:
        return operation
    spec = operation.spec(f"{operation.name}.{request.kernel}")
    return Operation(spec.full_name, (spec,))


def implementations(request: Request) -> Sequence[KernelSpec]:
    """The implementations that compete."""
    return operation_of(request).implementations


def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]:
    """The measured winner, if there is one, then the best configurations of the whole space by predicted time.

    Raises:
        InfeasibleError: When nothing fits; carries the conflict.
        UsageError: When the workload is none of the operation's, or there is no model of the GPU.
    """
    operation, gpu = operation_of(request), request.gpu
    if gpu is None:
        raise UsageError(f"{request.operation}: nothing is chosen for a device without a hardware model.")
    entry = winner(operation.implementations, gpu, request.workload, request.fixed)
    if entry is not None and all(refusal.config != entry.config for refusal in refused):
        return [program_of_winner(entry, gpu, request)]
    ranking = _ranking(operation, gpu, request, refused)
    ranked = [_program_of(candidate, request) for candidate in ranking.candidates]
    unable = [Program(space.kernel, refusal=space.refusal) for space in ranking.spaces if space.refusal]
    return [*ranked, *unable]


def program_of_winner(entry: TunedEntry, gpu: GpuModel, request: Request, role: str = "product") -> Program:
    """The program of a measured winner."""
    config = {name: value for name, value in entry.config.items() if isinstance(value, int)}
    step = Step(role, entry.kernel, config, request.workload, dict(request.fixed), entry.seconds, Evidence.MEASURED)
    return Program(entry.kernel, (step,), note=MEASURED_BEST, table=tuned_path(SHIPPED, gpu.name).name)


def _program_of(candidate: Candidate, request: Request) -> Program:
    numbers: Mapping[str, Any] = {"config": candidate.config, "seconds": candidate.cost.seconds}
    step = Step("product", candidate.kernel, workload=request.workload, fixed=dict(request.fixed), **numbers)
    return Program(candidate.kernel, (step,), note=f"bound by {candidate.cost.bound_by}")


def _ranking(operation: Operation, gpu: GpuModel, request: Request, refused: Sequence[Refusal]) -> Ranking:
    """Rank the whole spaces, at first without what is likely to spill as others did."""
    for care in range(care_after(refused), 0, -1):
        with suppress(InfeasibleError):
            return _ranking_with(operation, gpu, request, refused, care)
    return _ranking_with(operation, gpu, request, refused, 0)


def _ranking_with(
    operation: Operation, gpu: GpuModel, request: Request, refused: Sequence[Refusal], care: int
) -> Ranking:
    able, refusals = requests(operation, gpu, request.workload)
    for stated in able:
        for name, value in request.fixed.items():
            if name in stated.problem.variables:
                stated.problem.add(Var(name) == value, because=request.because)
        if refused:
            _exclude(stated, refused, care)
    return rank_requests(operation, able, refusals, top=1)


def _exclude(stated: Any, refused: Sequence[Refusal], care: int) -> None:
    """Add the rules that follow from refusals to the problem of one implementation."""
    problem, spec = stated.problem, stated.spec
    for rule in problem.estimates if care else ():
        if rule.name == SPILLS:
            problem.add(rule, kind=CERTAIN)
    use = spec.use(stated.gpu, stated.workload, {name: Var(name) for name in problem.variables})
    for refusal in refused:
        if use is not None and refusal.kernel == spec.full_name and refusal.config.keys() <= problem.variables.keys():
            rule = refusal.rule(stated.gpu, use, together=spec.resident_params, is_wary=care > 1)
            problem.add(rule, because=str(refusal))
