"""`constrint solve`: the ranked configurations of a kernel on a named GPU, or the solutions of a problem."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from constrint.cli.config_columns import ConfigColumns, named_values
from constrint.cli.kernel_options import Backend, Choice, Json, KernelCommand
from constrint.cli.output import fitting, print_json, print_table, say, wrap
from constrint.cli.question import Question
from constrint.cli.request import check_backend, question_of
from constrint.errors import UsageError
from constrint.select import Candidate, Ranking
from constrint.select.rank import rank_requests

SCHEMA = "constrint.solve/1"
#: More candidates than any table is read for; `--all` lists everything.
MAX_TOP = 1_000_000
#: `bound_by` as the table has room for it; --json prints the full names.
SHORT_PARTS = {
    "matrix units": "matrix",
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
    backend: Backend = "native",
    json: Json = False,
) -> None:
    """Rank the configurations of a kernel that fit a GPU, with no device present; or solve a problem."""
    if not 1 <= top <= MAX_TOP:
        raise UsageError(f"--top must be between 1 and {MAX_TOP:,}, got {top}.")
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
    ranking = rank_question(question, top)
    if json:
        print_json({"schema": SCHEMA, "results": [as_document(ranking)]})
    else:
        print_ranking(question, ranking)


def rank_question(question: Question, top: int) -> Ranking:
    """The best configurations of all kernels that were asked about.

    Raises:
        InfeasibleError: When nothing is valid.
    """
    if question.operation is None:
        raise UsageError("only configurations of a kernel are ranked; name a --gpu.")
    operation, refusals = question.operation, question.refusals
    return rank_requests(operation, question.requests, refusals, top=top, started=question.started)


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
        "figures": "modelled",
        "num_product": ranking.num_product,
        "num_valid": ranking.num_valid,
        "seconds": ranking.seconds,
        "roofline_s": ranking.roofline_s,
        "assumptions": list(ranking.assumptions),
        "kernels": [asdict(space) for space in ranking.spaces],
        "candidates": [_candidate(candidate) for candidate in ranking.candidates],
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    use, cost = candidate.resources, candidate.cost
    return {
        "kernel": candidate.kernel,
        "config": dict(candidate.config),
        "num_variants": candidate.num_variants,
        "threads_per_block": use and use.threads,
        "registers_per_thread": use and use.registers_per_thread,
        "smem_bytes_per_block": use and use.smem_bytes,
        "blocks_per_sm": use and use.blocks_per_sm,
        "limited_by": use and use.limited_by,
        "predicted_s": cost.seconds,
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
    headers = ["#", *columns.titles, gpu.terms.smem_column, "regs", "blk", "limit", "us", "roof", "bound"]
    rows = [
        [place, *columns.cells(candidate), *_figures(candidate)]
        for place, candidate in enumerate(ranking.candidates, 1)
    ]
    text = (*columns.text, "limit", "bound")
    spare = [columns.short.get(name, name) for name in reversed(columns.others)]
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
    can_compile = any(candidate.resources is not None for candidate in ranking.candidates)
    check = f"constrint verify --gpu {gpu.name.lower()} compiles them (no GPU needed); " if can_compile else ""
    lines.append(f"modelled, not measured. To check: {check}docs/checking.md says how to time them on a {gpu.name}.")
    return [line for line in lines if line]


def _figures(candidate: Candidate) -> list[object]:
    """The cells behind a configuration; an implementation that is no single kernel has no resources."""
    use, cost = candidate.resources, candidate.cost
    resources: list[object] = [None] * 4
    if use is not None:
        # Shortened, since the table has to fit 80 columns.
        limit = use.limited_by.replace("registers", "regs").replace("shared memory", "smem")
        resources = [use.smem_bytes, use.registers_per_thread, use.blocks_per_sm, limit]
    bound = SHORT_PARTS.get(cost.bound_by, cost.bound_by)
    return [*resources, f"{cost.seconds * 1e6:.1f}", f"{cost.roofline_share:.0%}", bound]


def _legend(ranking: Ranking, columns: ConfigColumns, hidden: list[str]) -> dict[str, str]:
    """What the titles and the short words in the table stand for."""
    terms = ranking.gpu.terms
    legend = {short: name for short, name in columns.legend.items() if short not in hidden}
    legend |= {terms.smem_column: "bytes a block", "regs": "registers a thread, estimated"}
    legend |= {"blk": f"blocks {terms.a_sm}", "limit": "what limits them"}
    legend |= {"roof": "share of the roofline", "bound": "what binds"}
    bounds = dict.fromkeys(c.cost.bound_by for c in ranking.candidates)
    return legend | {SHORT_PARTS[b]: b for b in bounds if b in SHORT_PARTS}
