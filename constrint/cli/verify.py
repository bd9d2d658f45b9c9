"""`constrint verify`: compile the first choices for a GPU, without a GPU, and print predicted beside compiled."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

import typer

from constrint.cli.config_columns import ConfigColumns
from constrint.cli.kernel_options import Choice, Json, KernelCommand
from constrint.cli.output import print_json, print_table, say, wrap
from constrint.cli.question import Asked, Question
from constrint.cli.request import question_of
from constrint.cli.solve import rank_question
from constrint.errors import UnsupportedError, UsageError
from constrint.hwmodels import GpuModel, occupancy
from constrint.model import Var
from constrint.select import Candidate, ResourceUse
from constrint.select.rank import Request
from constrint.tune import CompiledKernel
from constrint.tune.triton_versions import caution, is_verified

SCHEMA = "constrint.verify/1"


@dataclass(frozen=True)
class Verdict:
    """One configuration: what was predicted, what was compiled, and what that means."""

    candidate: Candidate
    predicted: ResourceUse
    compiled: CompiledKernel | None
    blocks_per_sm: int | None
    problem: str


@partial(KernelCommand, takes_files=False)
def verify(
    choice: Choice,
    top: Annotated[int, typer.Option("--top", min=1, help="How many of the best configurations to compile.")] = 10,
    json: Json = False,
) -> None:
    """Compile the best configurations for a GPU (no GPU needed) and compare them with the model."""
    question = _that_compile(question_of(choice))
    atexit.register(_mute)
    ranking = rank_question(question, top)
    verdicts = _verdicts(ranking.candidates, {r.spec.full_name: r for r in question.requests})
    if json:
        results = [_document(verdict, question.several) for verdict in verdicts]
        print_json({"schema": SCHEMA, "gpu": ranking.gpu.name, "results": results})
    else:
        _print(question, ranking.gpu, verdicts, ConfigColumns(ranking.candidates, question.requests))
    if any(v.compiled is None or not v.blocks_per_sm for v in verdicts):
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


def _verdicts(candidates: Sequence[Candidate], requests: dict[str, Request]) -> list[Verdict]:
    """Compile the candidates one after the other."""
    verdicts = []
    for done, candidate in enumerate(candidates, 1):
        if candidate.resources is None:
            continue
        if sys.stderr.isatty():
            print(f"\rcompiling {done} of {len(candidates)}", end="", file=sys.stderr)
        request = requests[candidate.kernel]
        try:
            compiled = request.spec.compile(request.gpu, request.workload, candidate.config)
        except UnsupportedError as error:
            verdicts.append(Verdict(candidate, candidate.resources, None, None, str(error)))
        else:
            verdicts.append(_judge(request.gpu, candidate, candidate.resources, compiled))
    if sys.stderr.isatty():
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return verdicts


def _mute() -> None:
    """Say nothing more: Triton 3.9's bindings list pages of objects that a Gluon kernel leaves behind at the end."""
    sys.stderr.flush()
    with suppress(OSError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 2)


def _judge(gpu: GpuModel, candidate: Candidate, predicted: ResourceUse, compiled: CompiledKernel) -> Verdict:
    limit = gpu.sm.max_smem_bytes_per_block
    if compiled.smem_bytes > limit:
        return Verdict(candidate, predicted, compiled, 0, f"over the {limit:,} bytes of shared memory")
    blocks = int(
        occupancy(
            gpu,
            threads_per_block=predicted.threads,
            registers_per_thread=compiled.registers_per_thread,
            smem_bytes_per_block=compiled.smem_bytes,
        ).blocks_per_sm
    )
    problem = f"spills {compiled.spill_bytes} bytes a thread" if compiled.spill_bytes else ""
    # A kernel whose cost model keeps the matrix units busy is meant to use them.
    if not compiled.instruction and candidate.cost.parts_s.get("matrix units", 0.0) > 0:
        problem = problem or "no matrix instruction"
    return Verdict(candidate, predicted, compiled, blocks, problem if blocks else "cannot be launched: registers")


def _document(verdict: Verdict, names_kernel: bool) -> dict[str, Any]:
    use, compiled = verdict.predicted, verdict.compiled
    return {
        **({"kernel": verdict.candidate.kernel} if names_kernel else {}),
        "config": dict(verdict.candidate.config),
        "modelled": {
            "smem_bytes_per_block": use.smem_bytes,
            "registers_per_thread": use.registers_per_thread,
            "blocks_per_sm": use.blocks_per_sm,
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
            "blocks_per_sm": verdict.blocks_per_sm,
            "instruction": compiled.instruction,
        },
        "problem": verdict.problem,
    }


def _print(question: Question, gpu: GpuModel, verdicts: list[Verdict], columns: ConfigColumns) -> None:
    versions = {v.compiled.triton_version for v in verdicts if v.compiled}
    compiler = f"triton {', '.join(sorted(versions))}"
    title = question.title_of({v.candidate.kernel for v in verdicts})
    say(f"{title} ({gpu.arch.target}): modelled / compiled by {compiler}")
    say()
    smem = gpu.terms.smem_column
    rows = []
    for place, verdict in enumerate(verdicts, 1):
        use, compiled = verdict.predicted, verdict.compiled
        # What the model calls valid does not spill: 0 bytes.
        predicted = (use.smem_bytes, use.registers_per_thread, 0, use.blocks_per_sm)
        row: list[object] = [place, *columns.cells(verdict.candidate)]
        if compiled is None:
            rows.append([*row, *predicted, verdict.problem])
            continue
        actual = (compiled.smem_bytes, compiled.registers_per_thread, compiled.spill_bytes, verdict.blocks_per_sm)
        row += [f"{one}/{other}" for one, other in zip(predicted, actual, strict=True)]
        rows.append([*row, verdict.problem or compiled.instruction or "no matrix instruction, as predicted"])
    headers = ["#", *columns.titles, smem, "regs", "spill", "blk", "compiled to"]
    print_table(headers, rows, left=(*columns.text, "compiled to"))
    say()
    if columns.same:
        say(wrap(columns.same_text()))
    legend = columns.legend | {smem: "bytes a block", "regs": "registers a thread", "spill": "bytes a thread"}
    legend |= {"blk": f"blocks {gpu.terms.a_sm}"}
    say(wrap("columns: " + ", ".join(f"{short} = {long}" for short, long in legend.items())))
    for text in filter(None, map(caution, sorted(versions))):
        say()
        say(wrap(text))
    if versions:
        say()
        say(wrap(_summary(smem, verdicts)))


def _summary(smem: str, verdicts: list[Verdict]) -> str:
    """How far the model was off, in one sentence."""
    pairs = [(v.predicted, v.compiled) for v in verdicts if v.compiled]
    exact = sum(use.smem_bytes == compiled.smem_bytes for use, compiled in pairs)
    errors = sorted(abs(use.registers_per_thread / compiled.registers_per_thread - 1) for use, compiled in pairs)
    return (
        f"{smem} exact for {exact} of {len(pairs)}; registers off by {errors[len(errors) // 2]:.0%} (median); "
        f"{sum(bool(v.problem) for v in verdicts)} with a problem"
    )
