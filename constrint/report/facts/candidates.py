"""The best configurations as facts: modelled, and for the first ones what a compiler makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from constrint.report.asked import GpuQuestion, Means
from constrint.report.facts.measured import of_config
from constrint.report.facts.records import CandidateFacts, CompiledFacts, FigureFacts, MeasuredFacts
from constrint.report.facts.values import shown_config
from constrint.select import Candidate, Ranking
from constrint.select.as_compiled import CompileJob, judge, runs
from constrint.select.rank import KernelProblem


def compiled_by(question: GpuQuestion, ranking: Ranking, means: Means) -> dict[int, Candidate]:
    """The first candidates as compiled, by their place in the ranking."""
    if means.compile_all is None or not means.num_compiled:
        return {}
    by_kernel = {request.spec.full_name: request for request in question.requests}
    places = [p for p, c in enumerate(ranking.candidates) if c.resources is not None][: means.num_compiled]
    asked = []
    for place in places:
        candidate = ranking.candidates[place]
        request = by_kernel[candidate.kernel]
        asked.append(CompileJob(request.spec, request.gpu, request.workload, candidate.config))
    told = means.compile_all(asked)
    return {
        place: judge(ranking.candidates[place], one, found)
        for place, one, found in zip(places, asked, told, strict=True)
    }


def candidate_facts(
    question: GpuQuestion,
    ranking: Ranking,
    compiled: Mapping[int, Candidate],
    measured: Sequence[MeasuredFacts],
    top: int,
) -> tuple[CandidateFacts, ...]:
    """The best configurations, by the time of what is compiled where it is; those that cannot run come last."""
    by_kernel = {request.spec.full_name: request for request in question.requests}
    latest = {place: compiled.get(place, candidate) for place, candidate in enumerate(ranking.candidates)}
    if compiled:
        order = sorted(latest, key=lambda place: (not runs(latest[place]), latest[place].cost.seconds))
    else:
        order = list(latest)
    made = (
        _facts(place, by_kernel[latest[place].kernel], ranking, compiled.get(place), measured) for place in order[:top]
    )
    return tuple(msgspec.structs.replace(one, place=at) for at, one in enumerate(made, 1))


def _facts(
    place: int,
    request: KernelProblem,
    ranking: Ranking,
    after: Candidate | None,
    measured: Sequence[MeasuredFacts],
) -> CandidateFacts:
    """One candidate of the ranking, as it was before it was compiled and perhaps after."""
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
        modelled=_figures(before, gpu.sm.warp_size),
        compiled=None if after is None else _compiled(after, gpu.sm.warp_size),
        measured=of_config(measured, before.kernel, config),
    )


def _figures(candidate: Candidate, warp_size: int) -> FigureFacts:
    cost, use = candidate.cost, candidate.resources
    timed = {"seconds": cost.seconds, "bound_by": cost.bound_by, "parts_s": dict(cost.parts_s)}
    if use is None:
        return FigureFacts(**timed, roofline_share=cost.roofline_share)  # type: ignore[arg-type]
    return FigureFacts(
        **timed,  # type: ignore[arg-type]
        roofline_share=cost.roofline_share,
        registers_per_thread=use.registers_per_thread,
        smem_bytes=use.smem_bytes,
        blocks_per_sm=use.blocks_per_sm,
        warps_per_sm=use.blocks_per_sm * -(-use.threads // warp_size),
        limited_by=use.limited_by,
        spill_chance=use.spill_chance,
        registers_error_percent=use.error_percent,
    )


def _compiled(candidate: Candidate, warp_size: int) -> CompiledFacts:
    found = candidate.resources.compiled if candidate.resources is not None else None
    figures = _figures(candidate, warp_size)
    if found is None:
        return CompiledFacts(figures=figures, problem=candidate.problem)
    return CompiledFacts(
        figures=figures,
        compiler=found.compiler,
        target=found.target,
        spill_bytes=found.spill_bytes,
        instruction=found.instruction,
        problem=candidate.problem,
    )
