"""`constrint verify`: compile the first choices for a GPU, without a GPU, and print predicted beside compiled.

They are ranked again by what the compiler says. A configuration that `--set` gives whole is compiled whatever rules it
breaks; what is wrong with it is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import typer

from constrint.cli.compiling import compile_shown
from constrint.cli.config_columns import ConfigColumns
from constrint.cli.kernel_options import Choice, Json, KernelCommand
from constrint.cli.output import fitting, print_json, print_table, say, wrap
from constrint.cli.question import Asked, Question
from constrint.cli.request import question_of
from constrint.cli.solve import MAX_COMPILED, rank_question, spill_text
from constrint.errors import InfeasibleError, UnsupportedError, UsageError
from constrint.model import Var
from constrint.select import Candidate, ResourceUse
from constrint.select.core_space import BlockColumns
from constrint.select.facts import Asked as ToCompile
from constrint.select.facts import judge, runs
from constrint.select.rank import cost_of_row
from constrint.solve import why_not
from constrint.tune.triton_versions import caution, is_verified

SCHEMA = "constrint.verify/2"


@dataclass(frozen=True)
class Verdict:
    """One configuration: its place by prediction, what was predicted, and the same as compiled."""

    place: int
    before: Candidate
    after: Candidate

    @property
    def problem(self) -> str:
        """What is wrong with it; empty if nothing is."""
        return self.after.problem


@partial(KernelCommand, takes_files=False)
def verify(
    choice: Choice,
    top: Annotated[
        int, typer.Option("--top", min=1, max=MAX_COMPILED, help="How many of the best configurations to compile.")
    ] = 10,
    json: Json = False,
) -> None:
    """Compile the best configurations for a GPU (no GPU needed), compare them with the model, rank them again."""
    question = _that_compile(question_of(choice))
    verdicts = _verdicts(question, _candidates(question, top))
    gpu = question.requests[0].gpu
    if json:
        results = [_document(verdict) for verdict in verdicts]
        print_json({"schema": SCHEMA, "gpu": gpu.name, "target": gpu.arch.target, "results": results})
    else:
        _print(question, verdicts)
    if any(verdict.problem for verdict in verdicts):
        raise typer.Exit(1)


def _that_compile(question: Question) -> Question:
    """The same question of the implementations that are kernels of ours; another has nothing to compile."""
    if question.operation is None:
        raise UsageError("say what to compile for: --gpu NAME (for example mi300x; `constrint gpus` lists them).")
    others = {a.kernel: "it is no single kernel: nothing to compile" for a in question.asked if not _is_ours(a)}
    kept = tuple(asked for asked in question.asked if asked.kernel not in others)
    if not kept:
        raise UnsupportedError(f"{', '.join(others)}: nothing to compile, it is no single kernel.")
    return replace(question, asked=kept, refusals={**question.refusals, **others}, several=len(kept) > 1)


def _is_ours(asked: Asked) -> bool:
    r, v = asked.request, {name: Var(name) for name in asked.problem.variables}
    return r is not None and r.spec.use(r.gpu, r.workload, v) is not None


def _candidates(question: Question, top: int) -> Sequence[Candidate]:
    """The best by prediction; where no configuration satisfies every rule, the one that the user names whole."""
    try:
        return rank_question(question, top).candidates
    except InfeasibleError:
        named = [found for asked in question.asked for found in _named(asked)]
        if not named:
            raise
        return named


def _named(asked: Asked) -> list[Candidate]:
    """The configuration that `--set` gives whole, with the rules that it breaks as its problem."""
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
    use = spec.use(gpu, workload, {name: Var(name) for name in config})
    columns: dict[str, Any] = {name: np.array([value]) for name, value in config.items()}
    blocks = BlockColumns.of(gpu, use, columns, asked.problem.estimates)
    cost = spec.cost(gpu, workload, columns, blocks.blocks_per_sm).slowed(blocks.slowdown(gpu))
    estimate = cost_of_row(cost, 0, spec.roofline_s(gpu, workload))
    rules = [rule for rule in why_not(asked.problem, config) if rule.constraint is not None]
    broken = "; ".join(f"breaks {rule.constraint.name}: {rule.seen}" for rule in rules if rule.constraint is not None)
    return [Candidate(spec.full_name, config, blocks.resources(0, config), estimate, 1, broken)]


def _verdicts(question: Question, candidates: Sequence[Candidate]) -> list[Verdict]:
    """The candidates as compiled, the best first."""
    requests = {r.spec.full_name: r for r in question.requests}
    kernels = [candidate for candidate in candidates if candidate.resources is not None]
    asked = [ToCompile(r.spec, r.gpu, r.workload, c.config) for c in kernels for r in (requests[c.kernel],)]
    verdicts = []
    found = zip(kernels, asked, compile_shown(asked), strict=True)
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


def _print(question: Question, verdicts: list[Verdict]) -> None:
    gpu = question.requests[0].gpu
    columns = ConfigColumns([verdict.before for verdict in verdicts], question.requests)
    compiled = [v.after.resources.compiled for v in verdicts if v.after.resources is not None]
    compilers = sorted({found.compiler for found in compiled if found is not None})
    versions = sorted({found.triton_version for found in compiled if found is not None and not found.is_named})
    title = question.title_of({verdict.before.kernel for verdict in verdicts})
    by = f"compiled by {', '.join(compilers)}" if compilers else "not compiled"
    say(wrap(f"{title} ({gpu.arch.target}): modelled / {by}, ranked again"))
    say()
    smem = gpu.terms.smem_column
    headers = ["#", "was", *columns.titles, smem, "regs", "spill", "blk", "us", "compiled to"]
    rows = [
        [at, verdict.place, *columns.cells(verdict.before), *_cells(verdict)] for at, verdict in enumerate(verdicts, 1)
    ]
    spare = [columns.short.get(name, name) for name in reversed(columns.others)]
    headers, rows, hidden = fitting(headers, rows, spare)
    print_table(headers, rows, left=(*columns.text, "compiled to"), whole=columns.text)
    say()
    if columns.same:
        say(wrap(columns.same_text()))
    for at, verdict in enumerate(verdicts, 1):
        if verdict.problem:
            say(wrap(f"row {at}: {verdict.problem}"))
    legend = {short: name for short, name in columns.legend.items() if short not in hidden}
    legend |= {"was": "place by prediction", smem: "bytes a block", "regs": "registers a thread"}
    legend |= {
        "spill": "chance / bytes a thread",
        "blk": f"blocks {gpu.terms.a_sm}",
        "us": "predicted time, still modelled",
    }
    say(wrap("columns: " + ", ".join(f"{short} = {long}" for short, long in legend.items())))
    for text in filter(None, map(caution, versions)):
        say(wrap(text))
    say(wrap(_summary(smem, verdicts)))


def _cells(verdict: Verdict) -> list[object]:
    """Predicted and compiled, in the order of the titles."""
    before, after = verdict.before.resources, verdict.after.resources
    assert before is not None
    assert after is not None
    found = after.compiled
    if found is None:
        return [
            before.smem_bytes,
            before.registers_per_thread,
            spill_text(before),
            before.blocks_per_sm,
            None,
            "refused",
        ]
    pairs = [
        f"{before.smem_bytes}/{found.smem_bytes}" if before.smem_bytes != found.smem_bytes else found.smem_bytes,
        f"{before.registers_per_thread}/{found.registers_per_thread}",
        f"{spill_text(before)}/{spill_text(after)}",
        f"{before.blocks_per_sm}/{after.blocks_per_sm}",
        f"{1e6 * verdict.before.cost.seconds:.1f}/{1e6 * verdict.after.cost.seconds:.1f}",
    ]
    return [*pairs, found.instruction or "no matrix instruction"]


def _summary(smem: str, verdicts: list[Verdict]) -> str:
    """How far the model was off, in one sentence."""
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
