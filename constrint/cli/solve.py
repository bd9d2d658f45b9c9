"""`constrint solve`: the ranked configurations of a kernel on a named GPU, or the solutions of a text problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from constrint.cli.request import Dtype, Json, Kernel, Set, Size, Where, requests
from constrint.errors import UsageError

if TYPE_CHECKING:
    from constrint.select import Ranking

SCHEMA = "constrint.solve/1"


def solve(
    gpu: Annotated[
        str | None, typer.Option("--gpu", help="GPU name (see `constrint gpus`) or a path to a model's YAML file.")
    ] = None,
    kernel: Kernel = None,
    m: Size = None,
    n: Size = None,
    k: Size = None,
    dtype: Dtype = None,
    top: Annotated[int, typer.Option("--top", help="How many configurations to print.")] = 10,
    set_: Set = None,
    where: Where = None,
    problem: Annotated[
        Path | None, typer.Option("--problem", help="Solve this text problem instead of a kernel's space.")
    ] = None,
    json: Json = False,
) -> None:
    """Rank the configurations of a kernel that fit a GPU, with no device present."""
    if top < 1:
        raise UsageError(f"--top must be at least 1, got {top}.")
    if problem is not None:
        from constrint.cli.text_problem import solve_text

        named = [gpu, kernel, m, n, k, dtype, set_, where]
        if any(value is not None for value in named):
            raise UsageError("--problem stands alone: it takes no --gpu, --kernel, sizes, --dtype, --set or --where.")
        solve_text(problem, top, as_json=json)
        return
    if gpu is None:
        raise UsageError("name a GPU, for example --gpu mi300x (`constrint gpus` lists them), or a --problem file.")
    from constrint.select import rank

    rankings = [
        rank(r.spec, r.gpu, r.workload, top=top, problem=r.problem)
        for r in requests(gpu, kernel, {"m": m, "n": n, "k": k}, dtype, set_, where)
    ]
    if json:
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
    from constrint.cli.output import print_table, say, wrap

    gpu, workload = ranking.gpu, ranking.workload
    is_amd = gpu.vendor == "amd"
    say(f"{workload} on {gpu.name} ({gpu.arch.target}, {gpu.device.sm_count} {'CUs' if is_amd else 'SMs'})")
    say(
        f"{ranking.num_product:,} configs in the full product, {ranking.num_valid:,} valid, "
        f"ranked in {ranking.seconds * 1e3:.0f} ms"
    )
    say()
    shared = _same_everywhere(ranking)
    varying = [name for name in ranking.candidates[0].config if name not in shared]
    title, tiles = _tile_column(varying)
    others = [name for name in varying if name not in tiles]
    headers = ["#", *([title] if title else []), *(SHORT.get(o, o) for o in others)]
    headers += ["LDS" if is_amd else "smem", "regs", "blk", "limit", "us", "roof", "bound by"]
    rows = []
    for place, candidate in enumerate(ranking.candidates, 1):
        use, cost = candidate.resources, candidate.cost
        row: list[object] = [place]
        if title:
            row.append("x".join(str(candidate.config[t]) for t in tiles))
        row += [candidate.config[o] for o in others]
        row += [
            use.smem_bytes,
            use.registers_per_thread,
            use.blocks_per_sm,
            _short_limit(use.limited_by),
            f"{cost.seconds * 1e6:.1f}",
            f"{cost.roofline_share:.0%}",
            cost.bound_by,
        ]
        rows.append(row)
    print_table(headers, rows, left=("limit", "bound by", *([title] if title else [])))
    say()
    say(wrap("best: " + " ".join(f"{name}={value}" for name, value in ranking.candidates[0].config.items())))
    if shared:
        say(wrap("the same in all rows: " + " ".join(f"{name}={value}" for name, value in shared.items())))
    equal = max(c.num_variants for c in ranking.candidates)
    if equal > 1:
        say(wrap(f"each row stands for up to {equal} configs that the model cannot tell apart"))
    abbreviated = [f"{SHORT[o]} {o}" for o in others if o in SHORT]
    legend = [*abbreviated, f"{headers[-7]} bytes a block", "regs a thread, estimated"]
    legend += [f"blk blocks a {'CU' if is_amd else 'SM'} and their limit", "roof share of the roofline"]
    say(wrap("columns: " + ", ".join(legend)))
    say(wrap("assumed: " + "; ".join(ranking.assumptions)))
    say(
        wrap(
            f"modelled, not measured. To check: constrint verify --gpu {gpu.name.lower()} compiles them "
            f"(no GPU needed); docs/checking.md says how to time them on a {gpu.name}."
        )
    )


SHORT = {
    "num_warps": "w",
    "num_stages": "st",
    "split_k": "sk",
    "group_m": "gm",
    "persistent": "p",
    "matrix_instr_nonkdim": "mi",
    "xcd_remap": "xcd",
    "waves_per_eu": "eu",
    "kpack": "kp",
}


def _short_limit(limited_by: str) -> str:
    """`registers` -> `regs`: the table has to fit 80 columns."""
    return limited_by.replace("registers", "regs").replace("shared memory", "smem")


def _same_everywhere(ranking: Ranking) -> dict[str, int]:
    """Parameters with one value in all candidates (none if there is a single candidate)."""
    first = ranking.candidates[0].config
    if len(ranking.candidates) == 1:
        return {}
    return {
        name: value
        for name, value in first.items()
        if not name.startswith("tile_") and all(c.config[name] == value for c in ranking.candidates)
    }


def _tile_column(names: list[str]) -> tuple[str, list[str]]:
    """Tile sizes share one column, `tile mxnxk`."""
    tiles = [name for name in names if name.startswith("tile_")]
    return ("tile " + "x".join(t.removeprefix("tile_") for t in tiles), tiles) if tiles else ("", [])
