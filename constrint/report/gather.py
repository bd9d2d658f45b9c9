"""Gather the facts of a report: rank, count what rules remove, and look up cells, occupancy and measurements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from msgspec.structs import replace

from constrint import __version__
from constrint.answers.facts import (
    SCHEMA,
    CandidateFacts,
    CompiledFacts,
    FigureFacts,
    GpuFacts,
    KernelFacts,
    MeasuredFacts,
    ParamFacts,
    Report,
    RuleFacts,
    TermFacts,
    plain,
    shown_config,
    shown_value,
)
from constrint.answers.question import YOURS, Question
from constrint.answers.ways_out import ways_out
from constrint.errors import InfeasibleError, LimitReachedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.model import Constraint, Problem
from constrint.report.banks import bank_facts
from constrint.report.hardware import curves, roofline_facts
from constrint.report.heat import broken_facts, heat_facts
from constrint.report.measured import of_config
from constrint.select import Candidate, Operation, Ranking
from constrint.select.compiled import Compile, CompileJob, judge
from constrint.select.rank import KernelProblem, KernelSpace, rank_requests, reason_of
from constrint.select.ranking import lateness
from constrint.solve import Limits, RulePruning, count, minimal_conflict, pruning, would_remove


@dataclass(frozen=True)
class Means:
    """The settings and the sources of a report.

    Args:
        top: Configurations to show.
        num_compiled: Best configurations to compile.
        over: The two parameters of the heat map; None for the most telling ones.
        compile_all: Compiles configurations; None compiles nothing.
        measured: Looks up the measurements of a question.
        say: Receives the current activity, for a line of progress.
    """

    top: int = 20
    num_compiled: int = 0
    over: tuple[str, str] | None = None
    compile_all: Compile | None = None
    measured: Callable[[Question], Sequence[MeasuredFacts]] = lambda question: ()
    say: Callable[[str], None] = lambda text: None


def gather(questions: Sequence[Question], means: Means, command: str) -> Report:
    """Gather all facts of a report.

    Args:
        questions: A workload on each GPU.
        means: The settings and sources.
        command: The command line that repeats the report.
    """
    gpus = tuple(_gpu_facts(question, means) for question in questions)
    return Report(
        schema=SCHEMA,
        version=__version__,
        operation=operation_of(questions[0]).name,
        command=command,
        gpus=gpus,
    )


def _gpu_facts(question: Question, means: Means) -> GpuFacts:
    facts = _of_gpu(question)
    if question.refusal:
        return facts
    gpu = gpu_of(question)
    means.say(f"{gpu.name}: ranking")
    try:
        ranking = rank_requests(
            operation_of(question),
            question.requests,
            question.refusals,
            top=max(means.top, means.num_compiled),
        )
    except InfeasibleError:
        kernels = [_of_infeasible(question, request, means) for request in question.requests]
        for name, reason in question.refusals.items():
            kernels.append(KernelFacts(kernel=name, summary=_summary(question, name), refusal=reason))
        return replace(facts, kernels=tuple(kernels))
    means.say(f"{gpu.name}: measurements and compiled kernels")
    measured = tuple(means.measured(question))
    compiled = compiled_by(question, ranking, means)
    candidates = candidate_facts(question, ranking, compiled, measured, means.top)
    return replace(
        facts,
        rate_unit=ranking.rate_unit,
        roofline_s=ranking.roofline_s,
        kernels=tuple(_of_kernel(question, space, ranking, means) for space in ranking.spaces),
        candidates=candidates,
        curves=curves(gpu, candidates),
        roofline=roofline_facts(question.requests[0]),
        banks=bank_facts(gpu, facts.dtype, candidates),
        measured=measured,
        assumptions=ranking.assumptions,
        evidence=tuple(dict.fromkeys(ranking.evidence.values())),
    )


def plotted(question: Question, ranking: Ranking) -> GpuFacts:
    """The facts that `answers.plots` draws of a ranking: candidates, the roofline, and the best kernel's heat map."""
    best = ranking.candidates[0]
    facts = replace(
        _of_gpu(question),
        candidates=candidate_facts(question, ranking, {}, (), len(ranking.candidates)),
        roofline=roofline_facts(question.requests[0]),
    )
    request = next((one for one in question.requests if one.spec.full_name == best.kernel), None)
    if request is None or not request.problem.variables:
        return facts
    heat = heat_facts(request, best, None)
    return replace(facts, kernels=(KernelFacts(kernel=best.kernel, summary=request.spec.summary, heat=heat),))


def _of_gpu(question: Question) -> GpuFacts:
    """The facts of a GPU and its workload before the ranking."""
    gpu, workload = gpu_of(question), question.workload
    terms = gpu.terms
    words = TermFacts(**{name: getattr(terms, name) for name in TermFacts.__struct_fields__})
    typed = dict(pairwise(question.arguments)).get("--gpu", gpu.name)
    return GpuFacts(
        gpu=gpu.name,
        asked=typed,
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


def _of_kernel(question: Question, space: KernelSpace, ranking: Ranking, means: Means) -> KernelFacts:
    """One implementation of a question with valid configurations."""
    request = next((r for r in question.requests if r.spec.full_name == space.kernel), None)
    if request is None:
        return KernelFacts(kernel=space.kernel, summary=_summary(question, space.kernel), refusal=space.refusal)
    if not space.num_valid:
        return _of_infeasible(question, request, means)
    means.say(f"{gpu_of(question).name}: what the rules of {space.kernel} remove")
    facts = _with_rules(question, request)
    if not request.problem.variables:
        return replace(facts, num_product=1, num_valid=1)
    means.say(f"{gpu_of(question).name}: the heat map of {space.kernel}")
    best = next((c for c in ranking.candidates if c.kernel == space.kernel), None)
    heat = heat_facts(request, best, means.over)
    return replace(facts, num_product=space.num_product, num_valid=space.num_valid, heat=heat)


def _of_infeasible(question: Question, request: KernelProblem, means: Means) -> KernelFacts:
    """One implementation without a valid configuration, with the reason."""
    means.say(f"{gpu_of(question).name}: why {request.spec.full_name} has no configuration")
    reason, conflict = reason_of(request.problem)
    facts = _with_rules(question, request)
    return replace(
        facts,
        num_product=prod(domain.size for domain in request.problem.variables.values()),
        conflict=() if conflict is None else broken_facts(request.problem, conflict, own=own_of(question)),
        reason=reason,
        ways_out=_helpful(question, request),
    )


def _with_rules(question: Question, request: KernelProblem) -> KernelFacts:
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
        rules=rule_facts(request, own_of(question)) if request.problem.variables else (),
    )


def _helpful(question: Question, request: KernelProblem) -> tuple[str, ...]:
    """The nearest changes of the user's own rules after which the kernel has a configuration."""
    stated = next(one for one in question.problems if one.request is request)
    if not stated.own:
        return ()
    return tuple(ways_out(stated, minimal_conflict(stated.problem, domains_in_force=True)))


def gpu_of(question: Question) -> GpuModel:
    """The GPU of a report's question.

    Raises:
        UsageError: When the question is about a file.
    """
    if question.gpu is None:
        raise UsageError("a report is about a kernel on a GPU: name one with --gpu.")
    return question.gpu


def operation_of(question: Question) -> Operation:
    """The operation of a report's question.

    Raises:
        UsageError: When the question is about a file.
    """
    if question.operation is None:
        raise UsageError("a report is about a kernel on a GPU, not about a file.")
    return question.operation


def own_of(question: Question) -> set[int]:
    """The rules that the user added, by `id`."""
    return {id(rule) for stated in question.problems for rule in stated.own}


def _summary(question: Question, kernel: str) -> str:
    return next((s.summary for s in operation_of(question).implementations if s.full_name == kernel), "")


def compiled_by(question: Question, ranking: Ranking, means: Means) -> dict[int, Candidate]:
    """The first candidates as compiled, by their index in the ranking."""
    if means.compile_all is None or not means.num_compiled:
        return {}
    by_kernel = {request.spec.full_name: request for request in question.requests}
    places = [p for p, c in enumerate(ranking.candidates) if c.resources is not None][: means.num_compiled]
    chosen = [(by_kernel[ranking.candidates[place].kernel], ranking.candidates[place].config) for place in places]
    jobs = [CompileJob(request.spec, request.gpu, request.workload, config) for request, config in chosen]
    results = means.compile_all(jobs)
    return {
        place: judge(ranking.candidates[place], one, result)
        for place, one, result in zip(places, jobs, results, strict=True)
    }


def candidate_facts(
    question: Question,
    ranking: Ranking,
    compiled: Mapping[int, Candidate],
    measured: Sequence[MeasuredFacts],
    top: int,
) -> tuple[CandidateFacts, ...]:
    """The best configurations by time, compiled if known; configurations that cannot run come last."""
    by_kernel = {request.spec.full_name: request for request in question.requests}
    latest = {place: compiled.get(place, candidate) for place, candidate in enumerate(ranking.candidates)}
    order = list(latest)
    if compiled:
        order.sort(key=lambda place: (lateness(latest[place], ranking.gpu), latest[place].cost.seconds))
    candidates = (
        _candidate(place, by_kernel[latest[place].kernel], ranking, compiled.get(place), measured)
        for place in order[:top]
    )
    return tuple(replace(one, place=at) for at, one in enumerate(candidates, 1))


def _candidate(
    place: int,
    request: KernelProblem,
    ranking: Ranking,
    after: Candidate | None,
    measured: Sequence[MeasuredFacts],
) -> CandidateFacts:
    """One candidate of the ranking: modelled, and compiled if `after` is given."""
    before = ranking.candidates[place]
    operations, moved_bytes = ranking.work_of(before)
    gpu, seconds = request.gpu, (after or before).cost.seconds
    dram_bytes = before.cost.parts_s.get("DRAM", 0.0) * gpu.memory.dram.bandwidth_bytes_per_s or moved_bytes
    config = shown_config(request.spec, before.config)
    return CandidateFacts(
        place=place + 1,
        place_modelled=place + 1,
        kernel=before.kernel,
        config=config,
        num_variants=before.num_variants,
        threads_per_block=None if before.resources is None else before.resources.threads,
        op_per_s=operations / seconds if operations else None,
        bytes_per_s=moved_bytes / seconds,
        op_per_byte=operations / dram_bytes if operations and dram_bytes else None,
        modelled=_figure_facts(before, gpu.sm.warp_size),
        compiled=None if after is None else _compiled(after, gpu.sm.warp_size),
        measured=of_config(measured, before.kernel, config),
    )


def _figure_facts(candidate: Candidate, warp_size: int) -> FigureFacts:
    cost, use = candidate.cost, candidate.resources
    facts = FigureFacts(
        seconds=cost.seconds, bound_by=cost.bound_by, parts_s=dict(cost.parts_s), roofline_share=cost.roofline_share
    )
    if use is None:
        return facts
    return replace(
        facts,
        registers_per_thread=use.registers_per_thread,
        smem_bytes=use.smem_bytes,
        blocks_per_sm=use.blocks_per_sm,
        warps_per_sm=use.blocks_per_sm * -(-use.threads // warp_size),
        limited_by=use.limited_by,
        spill_chance=use.spill_chance,
        registers_error_percent=use.error_percent,
    )


def _compiled(candidate: Candidate, warp_size: int) -> CompiledFacts:
    use = candidate.resources.compiled if candidate.resources is not None else None
    facts = CompiledFacts(figures=_figure_facts(candidate, warp_size), problem=candidate.problem)
    names = ("compiler", "target", "spill_bytes", "instruction")
    return facts if use is None else replace(facts, **{name: getattr(use, name) for name in names})


#: Seconds for counting; without counts a report still lists the rules.
MAX_SECONDS = 10.0


def rule_facts(request: KernelProblem, own: Collection[int]) -> tuple[RuleFacts, ...]:
    """The rules of a kernel's space: pruning rules by what each removes alone, then the estimated ones.

    Args:
        request: The kernel and its space.
        own: The user's own rules, by `id`.
    """
    problem = request.problem
    try:
        limits = Limits(max_seconds=MAX_SECONDS)
        pruned = sorted(pruning(problem, limits), key=lambda effect: -effect.removes_alone)
        left = _left(problem, [effect.constraint for effect in pruned], limits)
        doubted = would_remove(problem, limits)
    except LimitReachedError:
        prune = [_rule(rule, own, prunes=True) for rule in problem.constraints]
        return (*prune, *(_rule(rule, own, prunes=False) for rule in problem.estimates))
    facts = [_rule(one.constraint, own, True, one, after) for one, after in zip(pruned, left, strict=True)]
    return (*facts, *(_rule(one.constraint, own, False, one) for one in doubted))


def _left(problem: Problem, rules: list[Constraint], limits: Limits) -> list[int]:
    """The number of configurations left after each rule and all rules before it."""
    growing = problem.without(*rules)
    left = []
    for rule in rules:
        growing.add(rule)
        left.append(count(growing, limits))
    return left


def _rule(
    rule: Constraint,
    own: Collection[int],
    prunes: bool,
    counted: RulePruning | None = None,
    left: int | None = None,
) -> RuleFacts:
    return RuleFacts(
        name=rule.name or str(rule),
        rule=str(rule),
        kind=YOURS if id(rule) in own else rule.kind,
        because=rule.because,
        prunes=prunes,
        removes_alone=None if counted is None else counted.removes_alone,
        removes_only=None if counted is None else counted.removes_only,
        left=left,
    )
