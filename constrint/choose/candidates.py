"""Candidates of an operation: the contract, and the default for every operation without a module of its own.

An operation contributes by a module, named in `kernels/registry.py`, with one function:

    def candidates(request: Request, refused: Sequence[Refusal]) -> list[Program]: ...

It returns all candidates in the operation's own order: the first one runs; those that cannot run come last, each with
its `refusal`. It raises InfeasibleError where nothing runs. One more function is optional:

    def implementations(request: Request) -> Sequence[KernelSpec]: ...

It returns the kernels that the decision depends on, and decisions for named GPUs are then stored on disk; without the
function they stay in memory. For explanations an operation may have `alternatives(decision)`, complete
candidates that were passed over, and `force_hint(decision)`, how a caller forces another one.

A candidate that takes the best configuration of one implementation asks `decide` for it, by the implementation's full
name: `Request("lstm-backward.cuda", workload, gpu, fixed=...)`. The functions below answer that
request. `decision.of(role)` is its decision, and refusing it changes every decision that contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from constrint.choose.decide import Refusal, care_after, refusals_of
from constrint.choose.decision import Decision, ErrorBand, Evidence, Program, Request, Step
from constrint.errors import InfeasibleError, UsageError
from constrint.hwmodels import GpuModel
from constrint.kernels.registry import load_kernel
from constrint.model import Var
from constrint.model.constraint import CERTAIN
from constrint.select.candidate import Candidate, Config
from constrint.select.limits import SPILLS
from constrint.select.rank import predict, rank_requests, requests
from constrint.select.ranking import Ranking
from constrint.select.spec import KernelSpec, Operation
from constrint.select.winners import Winner, winner

MEASURED_BEST = "measured winner"
#: Configurations that an explanation shows beside the first.
SHOWN = 5


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
    """The measured winner if there is one, else the best configuration of the whole space by predicted time.

    Raises:
        InfeasibleError: When nothing fits; carries the conflict.
        UsageError: When the operation does not take the workload, or there is no model of the GPU.
    """
    operation, gpu = operation_of(request), request.gpu
    if gpu is None:
        raise UsageError(f"{request.operation}: nothing is chosen for a device without a hardware model.")
    if request.config is not None:
        return [_with_config(operation, gpu, request, request.config)]
    entry = winner(operation.implementations, gpu, request.workload, request.fixed)
    if entry is not None and all(refusal.config != entry.config for refusal in refused):
        return [program_of_winner(entry, request)]
    return _ranked(operation, gpu, request, refused, top=1)


def alternatives(decision: Decision) -> list[Program]:
    """The next configurations by predicted time, for an explanation."""
    request, refused = decision.request, refusals_of(decision.request)
    if request.gpu is None:
        return []
    programs = _ranked(operation_of(request), request.gpu, request, refused, top=SHOWN)
    return [p for p in programs if not p.steps or p.steps[0].config != decision.config]


def _ranked(
    operation: Operation, gpu: GpuModel, request: Request, refused: Sequence[Refusal], top: int
) -> list[Program]:
    """The `top` configurations of the whole space; after refusals first without those that are likely to spill, too."""
    for care in range(care_after(refused), 0, -1):
        with suppress(InfeasibleError):
            return _programs(_ranking_with(operation, gpu, request, refused, care, top), request)
    return _programs(_ranking_with(operation, gpu, request, refused, 0, top), request)


def _programs(ranking: Ranking, request: Request) -> list[Program]:
    ranked = [_program_of(candidate, request) for candidate in ranking.candidates]
    return [*ranked, *(Program(space.kernel, refusal=space.refusal) for space in ranking.spaces if space.refusal)]


def _with_config(operation: Operation, gpu: GpuModel, request: Request, config: Config) -> Program:
    """The program of the configuration that a request names.

    Raises:
        UsageError: When the request does not name one of several implementations, or the configuration is not valid.
    """
    from constrint.choose.explain import check_config  # loaded where a caller names a configuration

    if len(operation.implementations) > 1:
        names = ", ".join(spec.full_name for spec in operation.implementations)
        raise UsageError(f"a configuration needs the implementation that it is for; {operation.name!r} has {names}.")
    (spec,) = operation.implementations
    check_config(spec.full_name, gpu, request.workload, spec.problem(gpu, request.workload), config)
    columns = {name: np.array([value], dtype=np.int64) for name, value in config.items()}
    seconds = float(predict(spec, gpu, request.workload, columns).seconds[0])
    step = Step("product", spec.full_name, dict(config), request.workload, dict(request.fixed), seconds)
    return Program(spec.full_name, (step,), note="named by the caller")


def program_of_winner(entry: Winner, request: Request) -> Program:
    """The program of a measured winner, with the evidence, table and error that its look-up states."""
    config = {name: value for name, value in entry.config.items() if isinstance(value, int)}
    band = None if entry.error is None else ErrorBand(None, entry.error, entry.error_source)
    note = "; ".join([MEASURED_BEST, *entry.changes])
    evidence, fixed = Evidence(entry.evidence), dict(request.fixed)
    step = Step("product", entry.kernel, config, request.workload, fixed, entry.seconds, evidence)
    return Program(entry.kernel, (step,), note=note, table=entry.table, band=band)


def _program_of(candidate: Candidate, request: Request) -> Program:
    fixed, seconds = dict(request.fixed), candidate.cost.seconds
    step = Step("product", candidate.kernel, candidate.config, request.workload, fixed, seconds)
    return Program(candidate.kernel, (step,), note=f"bound by {candidate.cost.bound_by}")


def _ranking_with(
    operation: Operation, gpu: GpuModel, request: Request, refused: Sequence[Refusal], care: int, top: int
) -> Ranking:
    able, refusals = requests(operation, gpu, request.workload)
    for stated in able:
        for name, value in request.fixed.items():
            if name in stated.problem.variables:
                stated.problem.add(Var(name) == value, because=request.because)
        if refused:
            _exclude(stated, refused, care)
    return rank_requests(operation, able, refusals, top=top)


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
