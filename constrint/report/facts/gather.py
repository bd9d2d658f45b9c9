"""Gathers what a report says: ranks, counts what rules remove, and looks at cells, occupancy and measurements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from constrint import __version__
from constrint.errors import InfeasibleError
from constrint.report.asked import GpuQuestion, Means
from constrint.report.facts.candidates import candidate_facts, compiled_by
from constrint.report.facts.heat import broken_facts, heat_facts
from constrint.report.facts.occupancy import curves
from constrint.report.facts.records import SCHEMA, GpuFacts, KernelFacts, ParamFacts, Report, TermFacts
from constrint.report.facts.roofline import roofline_facts
from constrint.report.facts.rules import rule_facts
from constrint.report.facts.values import plain, shown_value
from constrint.select import Candidate, Ranking
from constrint.select.rank import KernelProblem, KernelSpace, rank_requests, reason_of


def gather(questions: Sequence[GpuQuestion], means: Means, command: str) -> Report:
    """All facts of a report.

    Args:
        questions: A workload on each GPU.
        means: What the facts are gathered with.
        command: The command that asks, to be repeated.
    """
    gpus = tuple(_gpu_facts(question, means) for question in questions)
    return Report(
        schema=SCHEMA,
        version=__version__,
        operation=questions[0].operation.name,
        command=command,
        gpus=gpus,
    )


def _gpu_facts(question: GpuQuestion, means: Means) -> GpuFacts:
    facts = _of_gpu(question)
    if question.refusal:
        return facts
    name = question.gpu.name
    means.say(f"{name}: ranking")
    try:
        ranking = rank_requests(
            question.operation,
            list(question.requests),
            question.refusals,
            top=max(means.top, means.num_compiled),
        )
    except InfeasibleError:
        kernels = tuple(_of_infeasible(question, request, means) for request in question.requests)
        return _changed(facts, kernels=(*kernels, *_refused(question)))
    means.say(f"{name}: measurements and compiled kernels")
    measured = tuple(means.measured(question))
    compiled = compiled_by(question, ranking, means)
    candidates = candidate_facts(question, ranking, compiled, measured, means.top)
    return _changed(
        facts,
        rate_unit=ranking.rate_unit,
        roofline_s=ranking.roofline_s,
        kernels=tuple(_of_kernel(question, space, ranking, means) for space in ranking.spaces),
        candidates=candidates,
        curves=curves(question.gpu, candidates),
        roofline=roofline_facts(question.requests[0]),
        measured=measured,
        assumptions=ranking.assumptions,
    )


def _of_gpu(question: GpuQuestion) -> GpuFacts:
    """What is known before anything is ranked."""
    gpu, terms, workload = question.gpu, question.gpu.terms, question.workload
    words = TermFacts(sm=terms.sm, sms=terms.sms, a_sm=terms.a_sm, warp=terms.warp, warps=terms.warps, smem=terms.smem)
    asked = dict(pairwise(question.arguments)).get("--gpu", gpu.name)
    return GpuFacts(
        gpu=gpu.name,
        asked=asked,
        title=question.title,
        target=gpu.arch.target,
        sm_count=gpu.device.sm_count,
        max_warps_per_sm=gpu.sm.max_warps_per_sm,
        max_registers_per_thread=gpu.sm.max_registers_per_thread,
        max_smem_bytes_per_block=gpu.sm.max_smem_bytes_per_block,
        terms=words,
        sizes=dict(workload.sizes) if workload else {},
        options=dict(workload.options) if workload else {},
        dtype=workload.dtype if workload else "",
        arguments=question.arguments,
        refusal=question.refusal,
        notes=question.notes,
    )


def _changed(facts: GpuFacts, **changes: object) -> GpuFacts:
    import msgspec

    return msgspec.structs.replace(facts, **changes)


def _of_kernel(question: GpuQuestion, space: KernelSpace, ranking: Ranking, means: Means) -> KernelFacts:
    """One implementation of a question that something fits."""
    request = next((r for r in question.requests if r.spec.full_name == space.kernel), None)
    if request is None:
        return KernelFacts(kernel=space.kernel, summary=_summary(question, space.kernel), refusal=space.refusal)
    if not space.num_valid:
        return _of_infeasible(question, request, means)
    means.say(f"{question.gpu.name}: what the rules of {space.kernel} remove")
    facts = _with_rules(question, request)
    if not request.problem.variables:
        return _kernel_changed(facts, num_product=1, num_valid=1)
    means.say(f"{question.gpu.name}: the heat map of {space.kernel}")
    heat = heat_facts(request, _best(ranking, request), means.over)
    return _kernel_changed(facts, num_product=space.num_product, num_valid=space.num_valid, heat=heat)


def _best(ranking: Ranking, request: KernelProblem) -> Candidate | None:
    return next((c for c in ranking.candidates if c.kernel == request.spec.full_name), None)


def _of_infeasible(question: GpuQuestion, request: KernelProblem, means: Means) -> KernelFacts:
    """One implementation without a valid configuration, and why."""
    means.say(f"{question.gpu.name}: why {request.spec.full_name} has no configuration")
    reason, conflict = reason_of(request.problem)
    facts = _with_rules(question, request)
    product = 1
    for domain in request.problem.variables.values():
        product *= domain.size
    return _kernel_changed(
        facts,
        num_product=product,
        conflict=() if conflict is None else broken_facts(request.problem, conflict, own=question.own),
        reason=reason,
        ways_out=tuple(question.ways_out(request.spec.full_name)),
    )


def _kernel_changed(facts: KernelFacts, **changes: object) -> KernelFacts:
    import msgspec

    return msgspec.structs.replace(facts, **changes)


def _with_rules(question: GpuQuestion, request: KernelProblem) -> KernelFacts:
    """The parameters and the rules of an implementation."""
    spec = request.spec
    params = tuple(
        ParamFacts(
            name=param.name,
            values=tuple(plain(shown_value(spec, param.name, value)) for value in param.values),
            meaning=param.meaning,
            because=param.because,
        )
        for param in spec.params(request.gpu, request.workload)
    )
    return KernelFacts(
        kernel=spec.full_name,
        summary=spec.summary,
        params=params,
        rules=rule_facts(request, question.own) if request.problem.variables else (),
    )


def _refused(question: GpuQuestion) -> tuple[KernelFacts, ...]:
    return tuple(
        KernelFacts(kernel=name, summary=_summary(question, name), refusal=reason)
        for name, reason in question.refusals.items()
    )


def _summary(question: GpuQuestion, kernel: str) -> str:
    return next((s.summary for s in question.operation.implementations if s.full_name == kernel), "")
