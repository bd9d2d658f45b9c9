"""`constrint solve`: the ranked configurations of a kernel on a named GPU, or the solutions of a problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.request import Asked, Backend, Choice, Json, check_backend, takes_choice
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.select import Ranking

SCHEMA = "constrint.solve/1"
#: More candidates than any table is read for; `--all` lists everything.
MAX_TOP = 1_000_000


@takes_choice
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
        from constrint.cli.solutions import print_all, print_best

        if all_:
            print_all(choice.one(), backend, as_json=json)
        else:
            print_best(choice.one(), top, backend, as_json=json)
        return
    if backend != "native":
        raise UsageError("a kernel's configs are ranked by the native back-end; --all or count take another --backend.")
    _rank(choice.asked(), top, as_json=json)


def _rank(found: list[Asked], top: int, *, as_json: bool) -> None:
    from constrint.select import rank

    rankings = [
        rank(r.spec, r.gpu, r.workload, top=top, problem=r.problem) for r in (a.request for a in found) if r is not None
    ]
    if as_json:
        from constrint.cli.output import print_json

        print_json({"schema": SCHEMA, "results": [as_document(ranking) for ranking in rankings]})
        return
    for ranking in rankings:
        print_ranking(ranking)


def as_document(ranking: Ranking) -> dict[str, Any]:
    """The ranking in the form that docs/json.md describes."""
    return {
        "kernel": ranking.workload.kernel,
        "gpu": ranking.gpu.name,
        "target": ranking.gpu.arch.target,
        "sizes": dict(ranking.workload.sizes),
        "dtype": ranking.workload.dtype,
        "figures": "modelled",
        "num_product": ranking.num_product,
        "num_valid": ranking.num_valid,
        "seconds": ranking.seconds,
        "roofline_s": ranking.roofline_s,
        "assumptions": list(ranking.assumptions),
        "candidates": [
            {
                "config": dict(c.config),
                "num_variants": c.num_variants,
                "threads_per_block": c.resources.threads,
                "registers_per_thread": c.resources.registers_per_thread,
                "smem_bytes_per_block": c.resources.smem_bytes,
                "blocks_per_sm": c.resources.blocks_per_sm,
                "limited_by": c.resources.limited_by,
                "predicted_s": c.cost.seconds,
                "roofline_share": c.cost.roofline_share,
                "bound_by": c.cost.bound_by,
                "parts_s": dict(c.cost.parts_s),
            }
            for c in ranking.candidates
        ],
    }


def print_ranking(ranking: Ranking) -> None:
    """Print what was asked, how many configurations there are, and the best of them."""
    from constrint.cli.config_columns import ConfigColumns
    from constrint.cli.output import print_table, say, wrap

    gpu, workload = ranking.gpu, ranking.workload
    is_amd = gpu.vendor == "amd"
    say(f"{workload} on {gpu.name} ({gpu.arch.target}, {gpu.device.sm_count} {'CUs' if is_amd else 'SMs'})")
    say(
        f"{ranking.num_product:,} configs in the full product, {ranking.num_valid:,} valid, "
        f"ranked in {ranking.seconds * 1e3:.0f} ms"
    )
    say()
    columns = ConfigColumns.of([candidate.config for candidate in ranking.candidates])
    headers = ["#", *columns.titles]
    headers += ["LDS" if is_amd else "smem", "regs", "blk", "limit", "us", "roof", "bound"]
    rows = []
    for place, candidate in enumerate(ranking.candidates, 1):
        use, cost = candidate.resources, candidate.cost
        row: list[object] = [place, *columns.cells(candidate.config)]
        row += [
            use.smem_bytes,
            use.registers_per_thread,
            use.blocks_per_sm,
            _short_limit(use.limited_by),
            f"{cost.seconds * 1e6:.1f}",
            f"{cost.roofline_share:.0%}",
            SHORT_PARTS.get(cost.bound_by, cost.bound_by),
        ]
        rows.append(row)
    text = ("limit", "bound", columns.title)
    print_table(headers, rows, left=text, whole=text)
    say()
    say(wrap("best: " + " ".join(f"{name}={value}" for name, value in ranking.candidates[0].config.items())))
    if columns.same:
        say(wrap(columns.same_text()))
    equal = max(c.num_variants for c in ranking.candidates)
    if equal > 1:
        say(wrap(f"each row stands for up to {equal} configs that the model cannot tell apart"))
    legend = columns.legend | {headers[-7]: "bytes a block", "regs": "registers a thread, estimated"}
    legend |= {"blk": f"blocks {'a CU' if is_amd else 'an SM'}", "limit": "what limits them"}
    legend |= {"roof": "share of the roofline", "bound": "what binds"}
    bounds = dict.fromkeys(c.cost.bound_by for c in ranking.candidates)
    legend |= {SHORT_PARTS[b]: b for b in bounds if b in SHORT_PARTS}
    say(wrap("columns: " + ", ".join(f"{short} = {long}" for short, long in legend.items())))
    say(wrap("assumed: " + "; ".join(ranking.assumptions)))
    say(
        wrap(
            f"modelled, not measured. To check: constrint verify --gpu {gpu.name.lower()} compiles them "
            f"(no GPU needed); docs/checking.md says how to time them on a {gpu.name}."
        )
    )


#: `bound_by` as the table has room for it; --json prints the full names.
SHORT_PARTS = {
    "matrix units": "matrix",
    "shared memory": "smem",
    "load issue": "issue",
    "wave quantisation": "waves",
    "last-level cache": "LLC",
}


def _short_limit(limited_by: str) -> str:
    """`registers` -> `regs`: the table has to fit 80 columns."""
    return limited_by.replace("registers", "regs").replace("shared memory", "smem")
