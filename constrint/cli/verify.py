"""`constrint verify`: compile the best configurations for a GPU that need not be here, predicted beside compiled.

The configurations are ranked again by what the compiler says. A configuration that `--set` states completely is
compiled even if it breaks rules, which are then named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer

from constrint.answers.question import Question, StatedProblem
from constrint.answers.verdict import Verified, VerifiedConfig, verified_page
from constrint.cli.compiling import LATE, compile_shown
from constrint.cli.options import Choice, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.output import Output, printing
from constrint.cli.question import question_of
from constrint.cli.run import Run
from constrint.cli.solve import MAX_COMPILED, rank_question
from constrint.errors import InfeasibleError, UnsupportedError, UsageError
from constrint.model import Var
from constrint.select import Candidate
from constrint.select.compiled import CompileJob as ToCompile
from constrint.select.compiled import judge, modelled
from constrint.select.ranking import runs
from constrint.solve import why_not

SCHEMA = "constrint.verify/2"


@KernelCommand.taking(files=False)
@printing
def verify(
    choice: Choice,
    top: Annotated[
        int, typer.Option("--top", min=1, max=MAX_COMPILED, help="Number of the best configurations to compile.")
    ] = 10,
    max_seconds: MaxSeconds = None,
    max_memory: MaxMemory = None,
    *,
    output: Output,
) -> None:
    """Compile the best configurations for a GPU (no GPU needed), compare them with the model, rank them again."""
    run = Run("verifying", max_seconds, max_memory)
    question = _that_compile(question_of(choice))
    with run:
        every = _verified(question, _candidates(question, top, run), run)
    verified, why = [one for one in every if LATE not in one.problem], run.reason()
    is_whole = len(verified) == len(every)
    stopped = {} if is_whole else {"stopped": {"num_compiled": len(verified), "num_asked": len(every), "why": why}}
    gpu = question.requests[0].gpu

    def document(shown: Sequence[Verified]) -> dict[str, Any]:
        head = {"schema": SCHEMA, "gpu": gpu.name, "target": gpu.arch.target}
        return {**head, "results": list(map(VerifiedConfig.of, shown)), **stopped}

    if verified or output.is_json:
        output.show(replace(verified_page(question, verified), document=document))
    if stopped:
        print(f"stopped after {len(verified)} of {len(every)} kernels: {why}", file=sys.stderr)
    if run.signal or stopped:
        run.leave()
    if any(one.problem for one in verified):
        raise typer.Exit(1)


def _that_compile(question: Question) -> Question:
    """The question about the implementations that are single kernels; others have nothing to compile."""
    if question.operation is None:
        raise UsageError("say what to compile for: --gpu NAME (for example mi300x; `constrint gpus` lists them).")
    others = {a.kernel: "it is no single kernel: nothing to compile" for a in question.problems if not _is_kernel(a)}
    kernels = tuple(stated for stated in question.problems if stated.kernel not in others)
    if not kernels:
        raise UnsupportedError(f"{', '.join(others)}: nothing to compile, it is no single kernel.")
    return replace(question, problems=kernels, refusals={**question.refusals, **others}, several=len(kernels) > 1)


def _is_kernel(stated: StatedProblem) -> bool:
    r, v = stated.request, {name: Var(name) for name in stated.problem.variables}
    return r is not None and r.spec.use(r.gpu, r.workload, v) is not None


def _candidates(question: Question, top: int, run: Run) -> Sequence[Candidate]:
    """The best configurations by prediction; if none is valid, the configuration that the user states completely."""
    try:
        return rank_question(question, top, run=run).candidates
    except InfeasibleError:
        named = [candidate for stated in question.problems for candidate in _named(stated)]
        if not named:
            raise
        return named


def _named(stated: StatedProblem) -> list[Candidate]:
    """The configuration that `--set` states completely, with its broken rules as the problem."""
    request = stated.request
    config = {
        name: int(rule.because.partition("=")[2])
        for rule in stated.own
        for name in rule.variables
        if rule.name == f"set_{name}" and rule.because.partition("=")[2].isdigit()
    }
    if request is None or config.keys() != stated.problem.variables.keys():
        return []
    spec, gpu, workload = request.spec, request.gpu, request.workload
    rules = [rule for rule in why_not(stated.problem, config) if rule.constraint is not None]
    broken = "; ".join(f"breaks {rule.constraint.name}: {rule.seen}" for rule in rules if rule.constraint is not None)
    return [replace(modelled(spec, gpu, workload, config, stated.problem), problem=broken)]


def _verified(question: Question, candidates: Sequence[Candidate], run: Run) -> list[Verified]:
    """The candidates as compiled, the best first."""
    requests = {r.spec.full_name: r for r in question.requests}
    kernels = [candidate for candidate in candidates if candidate.resources is not None]
    jobs = [ToCompile(r.spec, r.gpu, r.workload, c.config) for c in kernels for r in (requests[c.kernel],)]
    verified = []
    results = zip(kernels, jobs, compile_shown(jobs, run=run), strict=True)
    for place, (before, one, result) in enumerate(results, 1):
        after = judge(before, one, result)
        problems = [text for text in (before.problem, after.problem) if text]
        verified.append(Verified(place, before, replace(after, problem="; ".join(problems))))
    return sorted(verified, key=lambda one: (not runs(one.after), one.after.cost.seconds))
