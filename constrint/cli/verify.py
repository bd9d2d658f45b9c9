"""`constrint verify`: compile the best configurations for a GPU that need not be here, predicted beside compiled.

The configurations are ranked again by what the compiler says. A configuration that `--set` states completely is
compiled even if it breaks rules, which are then named.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from constrint.answers.question import Question, StatedProblem
from constrint.answers.ranking import ConfigColumns, registers_cell, spill_text, time_text
from constrint.answers.table import EXTRA, Cell, Column, Page, Table
from constrint.cli.compiling import LATE, compile_shown
from constrint.cli.options import Choice, KernelCommand, MaxMemory, MaxSeconds
from constrint.cli.output import Output, printing
from constrint.cli.question import question_of
from constrint.cli.run import Run
from constrint.cli.solve import MAX_COMPILED, rank_question
from constrint.errors import InfeasibleError, UnsupportedError, UsageError
from constrint.hwmodels import GpuModel
from constrint.model import Var
from constrint.select import Candidate, ResourceUse
from constrint.select.as_compiled import CompileJob as ToCompile
from constrint.select.as_compiled import judge, modelled, runs
from constrint.solve import why_not
from constrint.tune.triton_versions import caution, is_verified

SCHEMA = "constrint.verify/2"


@dataclass(frozen=True)
class Verdict:
    """One configuration: its place by prediction, the prediction, and the same as compiled."""

    place: int
    before: Candidate
    after: Candidate

    @property
    def problem(self) -> str:
        """The problem of the compiled kernel; empty without one."""
        return self.after.problem

    @property
    def is_late(self) -> bool:
        """Whether the run ended before it was compiled."""
        return LATE in self.after.problem


@KernelCommand.taking(files=False)
@printing
def verify(
    choice: Choice,
    top: Annotated[
        int, typer.Option("--top", min=1, max=MAX_COMPILED, help="How many of the best configurations to compile.")
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
        every = _verdicts(question, _candidates(question, top, run), run)
    verdicts, why = [verdict for verdict in every if not verdict.is_late], run.reason()
    is_whole = len(verdicts) == len(every)
    stopped = {} if is_whole else {"stopped": {"num_compiled": len(verdicts), "num_asked": len(every), "why": why}}
    gpu = question.requests[0].gpu

    def document(shown: Sequence[Verdict]) -> dict[str, Any]:
        head = {"schema": SCHEMA, "gpu": gpu.name, "target": gpu.arch.target}
        return {**head, "results": list(map(_document, shown)), **stopped}

    if verdicts or output.is_json:
        output.show(replace(_page(question, verdicts), document=document))
    if stopped:
        print(f"stopped after {len(verdicts)} of {len(every)} kernels: {why}", file=sys.stderr)
    if run.signal or stopped:
        run.leave()
    if any(verdict.problem for verdict in verdicts):
        raise typer.Exit(1)


def _that_compile(question: Question) -> Question:
    """The question about the implementations that are single kernels; others have nothing to compile."""
    if question.operation is None:
        raise UsageError("say what to compile for: --gpu NAME (for example mi300x; `constrint gpus` lists them).")
    others = {a.kernel: "it is no single kernel: nothing to compile" for a in question.problems if not _is_ours(a)}
    kept = tuple(asked for asked in question.problems if asked.kernel not in others)
    if not kept:
        raise UnsupportedError(f"{', '.join(others)}: nothing to compile, it is no single kernel.")
    return replace(question, problems=kept, refusals={**question.refusals, **others}, several=len(kept) > 1)


def _is_ours(asked: StatedProblem) -> bool:
    r, v = asked.request, {name: Var(name) for name in asked.problem.variables}
    return r is not None and r.spec.use(r.gpu, r.workload, v) is not None


def _candidates(question: Question, top: int, run: Run) -> Sequence[Candidate]:
    """The best configurations by prediction; if none is valid, the configuration that the user states completely."""
    try:
        return rank_question(question, top, run=run).candidates
    except InfeasibleError:
        named = [found for asked in question.problems for found in _named(asked)]
        if not named:
            raise
        return named


def _named(asked: StatedProblem) -> list[Candidate]:
    """The configuration that `--set` states completely, with its broken rules as the problem."""
    request = asked.request
    config = {
        name: int(rule.because.partition("=")[2])
        for rule in asked.own
        for name in rule.variables
        if rule.name == f"set_{name}" and rule.because.partition("=")[2].isdigit()
    }
    if request is None or config.keys() != asked.problem.variables.keys():
        return []
    spec, gpu, workload = request.spec, request.gpu, request.workload
    rules = [rule for rule in why_not(asked.problem, config) if rule.constraint is not None]
    broken = "; ".join(f"breaks {rule.constraint.name}: {rule.seen}" for rule in rules if rule.constraint is not None)
    return [replace(modelled(spec, gpu, workload, config, asked.problem), problem=broken)]


def _verdicts(question: Question, candidates: Sequence[Candidate], run: Run) -> list[Verdict]:
    """The candidates as compiled, the best first."""
    requests = {r.spec.full_name: r for r in question.requests}
    kernels = [candidate for candidate in candidates if candidate.resources is not None]
    asked = [ToCompile(r.spec, r.gpu, r.workload, c.config) for c in kernels for r in (requests[c.kernel],)]
    verdicts = []
    found = zip(kernels, asked, compile_shown(asked, run=run), strict=True)
    for place, (before, one, told) in enumerate(found, 1):
        after = judge(before, one, told)
        problems = [text for text in (before.problem, after.problem) if text]
        verdicts.append(Verdict(place, before, replace(after, problem="; ".join(problems))))
    return sorted(verdicts, key=lambda verdict: (not runs(verdict.after), verdict.after.cost.seconds))


def _document(verdict: Verdict) -> dict[str, Any]:
    before, after = verdict.before.resources, verdict.after.resources
    assert before is not None
    assert after is not None
    compiled = after.compiled
    return {
        "kernel": verdict.before.kernel,
        "config": dict(verdict.before.config),
        "place_modelled": verdict.place,
        "modelled": {
            "smem_bytes_per_block": before.smem_bytes,
            "registers_per_thread": before.registers_per_thread,
            "registers_error_percent": before.error_percent,
            "spill_chance": before.spill_chance,
            "blocks_per_sm": before.blocks_per_sm,
            "predicted_s": verdict.before.cost.seconds,
        },
        "compiled": None
        if compiled is None
        else {
            "target": compiled.target,
            "triton_version": compiled.triton_version,
            "is_verified_version": is_verified(compiled.triton_version),
            "smem_bytes_per_block": compiled.smem_bytes,
            "registers_per_thread": compiled.registers_per_thread,
            "spill_bytes_per_thread": compiled.spill_bytes,
            "blocks_per_sm": after.blocks_per_sm,
            "instruction": compiled.instruction,
            "predicted_s": verdict.after.cost.seconds,
        },
        "problem": verdict.problem,
    }


def _page(question: Question, verdicts: list[Verdict]) -> Page:
    gpu = question.requests[0].gpu
    figures = _figures(gpu)
    config = ConfigColumns([v.before for v in verdicts], question.requests, [column.key for column in figures])
    compiled = [v.after.resources.compiled for v in verdicts if v.after.resources is not None]
    compilers = sorted({found.compiler for found in compiled if found is not None})
    versions = sorted({found.triton_version for found in compiled if found is not None and not found.is_named})
    by = f"compiled by {', '.join(compilers)}" if compilers else "not compiled"
    places = (
        Column("place", "#", meaning="the row's place by the times that follow from what was compiled", importance=100),
        Column("place_modelled", "was", "place by prediction", importance=70),
    )
    rows = [[at, v.place, *config.cells(v.before), *_cells(v)] for at, v in enumerate(verdicts, 1)]
    problems = [f"row {at}: {v.problem}" for at, v in enumerate(verdicts, 1) if v.problem]
    return Page(
        Table((*places, *config.columns, *figures), rows, items=verdicts),
        above=[f"{question.title_of(config.kernels)} ({gpu.arch.target}): modelled / {by}, ranked again"],
        answer=problems,
        below=[*filter(None, map(caution, versions)), _summary(gpu.terms.smem_column, verdicts)],
    )


def _figures(gpu: GpuModel) -> tuple[Column, ...]:
    """Columns of compiled figures, shown beside the predictions; other formats have columns for the predictions."""
    smem, both = gpu.terms.smem_column, "as modelled / as compiled"
    return (
        Column("smem_bytes_per_block", smem, "bytes a block", f"bytes of {smem} that a block takes, {both}"),
        Column("modelled_smem_bytes_per_block", importance=EXTRA),
        Column("registers_per_thread", "regs", meaning=f"registers a thread, {both}", importance=80),
        Column("modelled_registers_per_thread", importance=EXTRA),
        Column("spill_bytes_per_thread", "spill", "chance / bytes a thread", importance=70),
        Column("modelled_spill_chance", importance=EXTRA),
        Column("blocks_per_sm", "blk", f"blocks {gpu.terms.a_sm}", f"blocks {gpu.terms.a_sm}, {both}", importance=55),
        Column("modelled_blocks_per_sm", importance=EXTRA),
        Column("predicted_s", "us", "predicted time, still modelled", importance=92),
        Column("modelled_s", importance=EXTRA, show=time_text),
        Column("instruction", "compiled to", meaning="the matrix instruction", is_text=True, wraps=True, importance=60),
        Column("problem", meaning="what is wrong with it", is_text=True, wraps=True, importance=EXTRA),
    )


def _cells(verdict: Verdict) -> list[Any]:
    """The cells of `_figures`: compiled and predicted in turn."""
    before, after = verdict.before.resources, verdict.after.resources
    assert before is not None
    assert after is not None
    found, problem = after.compiled, verdict.problem or None
    was = (before.smem_bytes, before.registers_per_thread, before.spill_chance, before.blocks_per_sm)
    if found is None:
        shown = (str(was[0]), registers_cell(before).text, spill_text(before), str(was[3]))
        cells = [cell for text, value in zip(shown, was, strict=True) for cell in (Cell(None, text), value)]
        return [*cells, None, verdict.before.cost.seconds, Cell(None, "refused"), problem]
    same_smem = before.smem_bytes == found.smem_bytes
    smem = str(found.smem_bytes) if same_smem else f"{before.smem_bytes}/{found.smem_bytes}"
    times = (verdict.before.cost.seconds, verdict.after.cost.seconds)
    return [
        Cell(found.smem_bytes, smem),
        was[0],
        Cell(found.registers_per_thread, f"{before.registers_per_thread}/{found.registers_per_thread}"),
        was[1],
        Cell(found.spill_bytes, f"{spill_text(before)}/{spill_text(after)}"),
        was[2],
        Cell(after.blocks_per_sm, f"{before.blocks_per_sm}/{after.blocks_per_sm}"),
        was[3],
        Cell(times[1], "/".join(map(time_text, times))),
        times[0],
        Cell(
            found.instruction or None,
            found.instruction or ("as its source says" if found.is_named else "no matrix instruction"),
        ),
        problem,
    ]


def _summary(smem: str, verdicts: list[Verdict]) -> str:
    """The errors of the model in one sentence."""
    pairs: list[tuple[ResourceUse, ResourceUse]] = [
        (v.before.resources, v.after.resources)
        for v in verdicts
        if v.before.resources is not None and v.after.resources is not None and v.after.resources.compiled is not None
    ]
    problems = sum(bool(verdict.problem) for verdict in verdicts)
    if not pairs:
        return f"{problems} of {len(verdicts)} with a problem"
    exact = sum(before.smem_bytes == after.smem_bytes for before, after in pairs)
    errors = sorted(abs(before.registers_per_thread / after.registers_per_thread - 1) for before, after in pairs)
    return (
        f"{smem} exact for {exact} of {len(pairs)}; registers off by {errors[len(errors) // 2]:.0%} (median); "
        f"{sum(before.spill_chance for before, _ in pairs):.1f} expected to spill, "
        f"{sum(after.spill_chance for _, after in pairs):.0f} do; {problems} with a problem"
    )
