"""`constrint solve`: the ranked configurations of a kernel on a named GPU, or the solutions of a problem."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from constrint.cli.config_columns import ConfigColumns, named_values
from constrint.cli.kernel_options import Backend, Choice, Json, KernelCommand
from constrint.cli.output import fitting, print_json, print_table, say, wrap
from constrint.cli.question import Question
from constrint.cli.request import check_backend, question_of
from constrint.errors import UsageError
from constrint.select import Candidate, Ranking, ResourceUse
from constrint.select.rank import rank_requests

SCHEMA = "constrint.solve/1"
#: More candidates than any table is read for; `--all` lists everything.
MAX_TOP = 1_000_000
#: More kernels than anybody waits for.
MAX_COMPILED = 1000
#: `bound_by` as the table has room for it; --json prints the full names.
SHORT_PARTS = {
    "matrix units": "matrix",
    "vector units": "vector",
    "shared memory": "smem",
    "load issue": "issue",
    "wave quantisation": "waves",
    "last-level cache": "LLC",
}


@KernelCommand
def solve(
    choice: Choice,
    top: Annotated[int, typer.Option("--top", help="How many configurations to print.")] = 10,
    all_: Annotated[
        bool, typer.Option("--all", help="Print every valid configuration, unranked; with --json one per line.")
    ] = False,
    compile_: Annotated[
        int,
        typer.Option(
            "--compile", metavar="[=N]", help="Compile the N best (10) for the GPU, rank again by what they take."
        ),
    ] = 0,
    backend: Backend = "native",
    json: Json = False,
) -> None:
    """Rank the configurations of a kernel that fit a GPU, with no device present; or solve a problem."""
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top must be between 1 and {MAX_TOP:,}, got {top}.")
    if not 0 <= compile_ <= MAX_COMPILED:
        raise UsageError(f"--compile takes a number between 1 and {MAX_COMPILED}, got {compile_}.")
    if compile_ and (all_ or choice.gpu is None):
        raise UsageError("--compile goes with a ranking of a kernel's configs on a --gpu, not with --all or a file.")
    check_backend(backend)
    if all_ or choice.gpu is None:
        from constrint.cli.solutions import print_all, print_best  # loaded for these alone

        if all_:
            print_all(question_of(choice), backend, as_json=json)
        else:
            print_best(question_of(choice), top, backend, as_json=json)
        return
    if backend != "native":
        raise UsageError("a kernel's configs are ranked by the native back-end; --all or count take another --backend.")
    question = question_of(choice)
    ranking = rank_question(question, top, compile_)
    if json:
        print_json({"schema": SCHEMA, "results": [as_document(ranking)]})
    else:
        print_ranking(question, ranking)


def rank_question(question: Question, top: int, number: int = 0) -> Ranking:
    """The best configurations of all kernels that were asked about, `number` of them compiled.

    Raises:
        InfeasibleError: When nothing is valid.
        UsageError: When there is nothing to compile with.
    """
    from constrint.cli.compiling import compile_shown

    if question.operation is None:
        raise UsageError("only configurations of a kernel are ranked; name a --gpu.")
    operation, refusals = question.operation, question.refusals
    return rank_requests(
        operation,
        question.requests,
        refusals,
        top=top,
        started=question.started,
        compile=number,
        compile_all=compile_shown,
    )


def as_document(ranking: Ranking) -> dict[str, Any]:
    """The ranking in the form that docs/json.md describes."""
    options = {"options": dict(ranking.workload.options)} if ranking.workload.options else {}
    return {
        "kernel": ranking.operation.name,
        "gpu": ranking.gpu.name,
        "target": ranking.gpu.arch.target,
        "sizes": dict(ranking.workload.sizes),
        **options,
        "dtype": ranking.workload.dtype,
        "figures": "compiled" if any(is_compiled(candidate) for candidate in ranking.candidates) else "modelled",
        "num_product": ranking.num_product,
        "num_valid": ranking.num_valid,
        "seconds": ranking.seconds,
        "roofline_s": ranking.roofline_s,
        "assumptions": list(ranking.assumptions),
        "kernels": [asdict(space) for space in ranking.spaces],
        "candidates": [_candidate(ranking, candidate) for candidate in ranking.candidates],
    }


def is_compiled(candidate: Candidate) -> bool:
    """Whether the candidate's resources are what a compiler says."""
    return candidate.resources is not None and candidate.resources.compiled is not None


def _candidate(ranking: Ranking, candidate: Candidate) -> dict[str, Any]:
    use, cost = candidate.resources, candidate.cost
    operations, moved_bytes = ranking.work_of(candidate)
    compiled = None if use is None or use.compiled is None else asdict(use.compiled)
    return {
        "kernel": candidate.kernel,
        "config": dict(candidate.config),
        "num_variants": candidate.num_variants,
        "threads_per_block": use and use.threads,
        "registers_per_thread": use and use.registers_per_thread,
        "smem_bytes_per_block": use and use.smem_bytes,
        "blocks_per_sm": use and use.blocks_per_sm,
        "limited_by": use and use.limited_by,
        "spill_chance": use and use.spill_chance,
        "registers_error_percent": use and use.error_percent,
        "compiled": compiled,
        "problem": candidate.problem,
        "predicted_s": cost.seconds,
        "op_per_s": operations / cost.seconds if operations else None,
        "bytes_per_s": moved_bytes / cost.seconds,
        "roofline_share": cost.roofline_share,
        "bound_by": cost.bound_by,
        "parts_s": dict(cost.parts_s),
    }


def print_ranking(question: Question, ranking: Ranking) -> None:
    """Print what was asked, how many configurations there are, and the best of them."""
    gpu, columns = ranking.gpu, ConfigColumns(ranking.candidates, question.requests)
    title = question.title_of({candidate.kernel for candidate in ranking.candidates})
    say(f"{title} ({gpu.arch.target}, {gpu.device.sm_count} {gpu.terms.sms})")
    say(
        f"{ranking.num_product:,} configs in the full product, {ranking.num_valid:,} valid, "
        f"ranked in {ranking.seconds * 1e3:.0f} ms"
    )
    say()
    rate = ranking.rate_unit
    headers = [
        "#",
        *columns.titles,
        gpu.terms.smem_column,
        "regs",
        "spill",
        "blk",
        "limit",
        "us",
        rate,
        "roof",
        "bound",
    ]
    rows = [
        [place, *columns.cells(candidate), *_figures(ranking, candidate)]
        for place, candidate in enumerate(ranking.candidates, 1)
    ]
    text = (*columns.text, "limit", "bound")
    spare = ["limit", *(columns.short.get(name, name) for name in reversed(columns.others))]
    headers, rows, hidden = fitting(headers, rows, spare)
    print_table(headers, rows, left=text, whole=text)
    say()
    for line in _lines_below(question, ranking, columns, hidden):
        say(wrap(line))


def _lines_below(question: Question, ranking: Ranking, columns: ConfigColumns, hidden: list[str]) -> list[str]:
    """What stands below the table: the best in full, what the table leaves out, and how to read and check it."""
    gpu, best = ranking.gpu, ranking.candidates[0]
    named = f"{best.kernel} " if columns.kernel or not best.config else ""
    lines = [f"best: {named}{named_values(best.config)}".rstrip(), columns.same_text()]
    lines += [
        f"row {place} {candidate.problem}" for place, candidate in enumerate(ranking.candidates, 1) if candidate.problem
    ]
    if hidden:
        names = ", ".join(columns.legend.get(title, title) for title in hidden)
        lines.append(f"too wide for this terminal: {names} (--json has all)")
    equal = max(c.num_variants for c in ranking.candidates)
    if equal > 1:
        lines.append(f"each row stands for up to {equal} configs that the model cannot tell apart")
    lines += question.notes
    lines += [
        f"not {space.kernel}: no config satisfies every rule (constrint explain says why)"
        for space in ranking.spaces
        if not space.refusal and not space.num_valid
    ]
    legend = _legend(ranking, columns, hidden)
    lines.append("columns: " + ", ".join(f"{short} = {long}" for short, long in legend.items()))
    if ranking.assumptions:
        lines.append("assumed: " + "; ".join(ranking.assumptions))
    others = [c for c in ranking.candidates if c.resources is not None and not is_compiled(c)]
    is_estimated = any(c.resources is not None and c.resources.error_percent for c in others)
    estimated = f" (~: off by more than {_error(others)} one time in ten)" if is_estimated else ""
    lines.append(f"times are modelled, not measured; resources are compiled or estimated{estimated}.")
    if others:
        command = shlex.join(("constrint", "verify", *question.arguments))
        lines.append(f"to compile them (no GPU needed): {command}")
    lines.append(f"docs/checking.md says how to time them on a {gpu.name}.")
    return [line for line in lines if line]


def _error(candidates: Sequence[Candidate]) -> str:
    """The error bands of the estimates: `18 %`, or `18 to 32 %`."""
    errors = sorted({c.resources.error_percent for c in candidates if c.resources is not None} - {0})
    return f"{errors[0]} %" if len(errors) == 1 else f"{errors[0]} to {errors[-1]} %"


def _figures(ranking: Ranking, candidate: Candidate) -> list[object]:
    """The cells behind a configuration; an implementation that is no single kernel has no resources."""
    use, cost = candidate.resources, candidate.cost
    resources: list[object] = [None] * 5
    if use is not None:
        # Shortened, since the table has to fit 80 columns.
        limit = use.limited_by.replace("registers", "regs").replace("shared memory", "smem")
        mark = "" if use.compiled is not None or not use.error_percent else "~"
        registers = f"{mark}{use.registers_per_thread}"
        resources = [use.smem_bytes, registers, spill_text(use), use.blocks_per_sm, limit]
    bound = SHORT_PARTS.get(cost.bound_by, cost.bound_by)
    rate = f"{ranking.rate_of(candidate):.{0 if ranking.rate_of(candidate) >= 100 else 1}f}"
    return [*resources, f"{cost.seconds * 1e6:.1f}", rate, f"{cost.roofline_share:.0%}", bound]


def spill_text(use: ResourceUse) -> str:
    """What the table says of spills: the chance, or what was compiled."""
    if use.compiled is not None:
        return f"{use.compiled.spill_bytes} B" if use.compiled.spill_bytes else "no"
    if not use.error_percent:
        return "no"
    return "<1%" if use.spill_chance < 0.01 else f"{use.spill_chance:.0%}"


def _legend(ranking: Ranking, columns: ConfigColumns, hidden: list[str]) -> dict[str, str]:
    """What the titles and the short words in the table stand for."""
    terms = ranking.gpu.terms
    legend = {short: name for short, name in columns.legend.items() if short not in hidden}
    legend |= {terms.smem_column: "bytes a block", "regs": "registers a thread, ~ where estimated"}
    legend |= {"spill": "the chance that registers go to memory; no, or bytes a thread, where compiled"}
    legend |= {"blk": f"blocks {terms.a_sm}"} | ({} if "limit" in hidden else {"limit": "what limits them"})
    legend |= {"roof": "share of the roofline", "bound": "what binds"}
    bounds = dict.fromkeys(c.cost.bound_by for c in ranking.candidates)
    return legend | {SHORT_PARTS[b]: b for b in bounds if b in SHORT_PARTS}
