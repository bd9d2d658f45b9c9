"""`constrint compare`: the best configuration of a kernel on several GPUs, side by side.

The GPUs are columns. Where a terminal is too narrow for all of them, the table goes on below with the next ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import typer

from constrint.answers.ranking import registers_cell, spill_text, time_text
from constrint.answers.table import EXTRA, Cell, Column, Page, Table
from constrint.answers.terminal import break_text, say, terminal_width, width_of, wrap
from constrint.cli.asked.kernel_options import Choice, KernelCommand
from constrint.cli.completion.values import complete_gpu
from constrint.cli.output import Output, printing
from constrint.cli.ranking.answers import Answer, answers_of, command_of
from constrint.cli.ranking.solve import rank_question
from constrint.errors import UsageError
from constrint.select import Candidate, Ranking

SCHEMA = "constrint.compare/1"
#: More GPUs than there are models.
MAX_GPUS = 64
#: Columns of the terminal in which the reason stands why a GPU has no answer.
REASON_WIDTH, LEAST_REASON = 24, 12
GAP = 2
#: The reason has no row of its own on a terminal: it runs down the GPU's column.
REFUSAL = Column("refusal", meaning="why the GPU has no answer", is_text=True, importance=EXTRA)


@KernelCommand.taking(files=False, gpus=True)
@printing
def compare(
    choice: Choice,
    gpus: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="GPU...", help="GPU names (see `constrint gpus`) or paths.", autocompletion=complete_gpu
        ),
    ] = None,
    *,
    output: Output,
) -> None:
    """Set the best configuration of a kernel on several GPUs side by side: time, bound, occupancy and limits."""
    named = (*(gpus or ()), *choice.gpus)
    if not 1 <= len(named) <= MAX_GPUS:
        raise UsageError("name the GPUs to compare: constrint compare h200 mi300x b200 (`constrint gpus` lists them).")
    answers = answers_of(replace(choice, gpus=named), partial(rank_question, top=1))
    table = _table(answers)
    if output.sort:
        table = table.sorted_by(output.sort)
    output.show(Page(table, _document, draw=lambda _: _print(choice, table, output)))
    if not any(answer.ranking is not None for answer in answers):
        raise typer.Exit(1)


def _document(answers: Sequence[Answer]) -> dict[str, Any]:
    return {"schema": SCHEMA, "results": [answer.document() for answer in answers]}


def _table(answers: Sequence[Answer]) -> Table:
    """A row for each GPU."""
    ranked = [answer.ranking for answer in answers if answer.ranking is not None]
    parameters = list(dict.fromkeys(name for ranking in ranked for name in ranking.candidates[0].config))
    columns = _columns(ranked, parameters)
    rows = []
    for answer in answers:
        cells: dict[str, Any] = {"gpu": answer.gpu.name, "refusal": answer.refusal or None}
        if answer.ranking is not None:
            cells |= _cells(answer.ranking, answer.ranking.candidates[0])
            cells["speed"] = ranked[0].candidates[0].cost.seconds / answer.ranking.candidates[0].cost.seconds
        rows.append([cells.get(column.key) for column in columns])
    return Table(columns, rows, items=answers)


def _columns(ranked: Sequence[Ranking], parameters: Sequence[str]) -> tuple[Column, ...]:
    units = {ranking.rate_unit for ranking in ranked}
    rate = next((unit for unit in units if unit != "GB/s"), "op/s")
    has_rate, has_bandwidth = (60 if some else EXTRA for some in (units - {"GB/s"}, units & {"GB/s"}))
    return (
        Column("gpu", is_text=True),
        Column("target", meaning="what compilers call its architecture", is_text=True),
        Column("sm_count", "SMs (CUs)"),
        Column("kernel", is_text=True, show=lambda name: name.rpartition(".")[2]),
        *(Column(name, joined="tile" if name.startswith("tile_") else "") for name in parameters),
        Column("predicted_s", "time, us", meaning="modelled time", show=time_text),
        Column("op_per_s", rate, importance=has_rate, show=partial(_scaled, 1e12)),
        Column("bytes_per_s", "GB/s", importance=has_bandwidth, show=partial(_scaled, 1e9)),
        Column("speed", meaning="the time on the first GPU over this time", show=lambda times: f"{times:.2f}"),
        Column("roofline_share", "of the roofline", show=lambda share: f"{share:.0%}"),
        Column("bound_by", "bound by", is_text=True),
        Column("registers_per_thread", "registers", meaning="registers of a thread"),
        Column("spill_chance", "spill chance"),
        Column("smem_bytes_per_block", "smem, bytes", show=lambda size: f"{size:,}"),
        Column("blocks_per_sm", "blocks an SM (CU)"),
        Column("occupancy", meaning="resident warps over those that fit", show=lambda share: f"{share:.0%}"),
        Column("limited_by", "limited by", is_text=True),
        Column("num_valid", "valid configs", show=lambda number: f"{number:,}"),
        REFUSAL,
    )


def _scaled(unit: float, rate: float) -> str:
    return f"{rate / unit:,.0f}" if rate >= 100 * unit else f"{rate / unit:.1f}"


def _cells(ranking: Ranking, best: Candidate) -> dict[str, Any]:
    gpu, use, cost = ranking.gpu, best.resources, best.cost
    operations, moved_bytes = ranking.work_of(best)
    cells: dict[str, Any] = {"target": gpu.arch.target, "sm_count": gpu.device.sm_count, "kernel": best.kernel}
    cells |= best.config
    cells |= {"predicted_s": cost.seconds, "roofline_share": cost.roofline_share, "bound_by": cost.bound_by}
    cells |= {"op_per_s": operations / cost.seconds or None, "bytes_per_s": moved_bytes / cost.seconds}
    if use is not None:
        warps = -(-use.threads // gpu.sm.warp_size) * use.blocks_per_sm
        cells |= {
            "registers_per_thread": registers_cell(use),
            "spill_chance": Cell(use.spill_chance, spill_text(use)),
            "smem_bytes_per_block": use.smem_bytes,
            "blocks_per_sm": use.blocks_per_sm,
            "occupancy": warps / gpu.sm.max_warps_per_sm,
            "limited_by": use.limited_by,
        }
    return cells | {"num_valid": ranking.num_valid}


def _print(choice: Choice, table: Table, output: Output) -> None:
    """What a person reads: the table with GPUs as columns."""
    answers: Sequence[Answer] = table.items
    ranked = [answer.ranking for answer in answers if answer.ranking is not None]
    assert choice.operation is not None
    if not ranked:
        say(wrap(f"{choice.operation.name}: no GPU has an answer"))
        for answer in answers:
            say()
            say(wrap(f"{answer.gpu.name}: {answer.refusal}"))
        return
    what = replace(ranked[0].workload, operation=choice.operation.name)
    say(wrap(f"{what}: the best configuration of each GPU"))
    say()
    wanted = output.wanted
    chosen = [c for c in table.columns if c.importance > EXTRA or wanted.is_wide]
    _print_turned(table, [c for c in table.named(wanted.columns) or chosen if c.key not in ("gpu", "refusal")])
    say()
    if len(ranked) > 1 and not wanted.columns:
        say(wrap("speed: the time on the first GPU that has an answer over the time on this one"))
    say(wrap("times are modelled, not measured; registers with ~, and the chance that they spill, are estimated"))
    say(wrap(f"ranked, with what was assumed: {command_of(answers, 'solve')} --legend"))


def _print_turned(table: Table, columns: Sequence[Column]) -> None:
    """Print a table with its rows as columns: as many beside each other as there is room for, the others below."""
    titles, cells = _turned(table, columns)
    headers = [answer.gpu.name for answer in table.items]
    left = max(map(width_of, titles), default=0)
    widths = [max(map(width_of, (header, *column))) for header, column in zip(headers, cells, strict=True)]
    width, start = terminal_width(), 0
    while start < len(headers):
        end = start + 1
        while end < len(headers) and (
            width is None or left + sum(GAP + wide for wide in widths[start : end + 1]) <= width
        ):
            end += 1
        if start:
            say()
        for title, *line in [("", *headers[start:end]), *zip(titles, *cells[start:end], strict=True)]:
            if any(cell not in ("", "-") for cell in line):
                padded = [_padded(cell, place + start, table, widths) for place, cell in enumerate(line)]
                say((title + " " * (left - width_of(title)) + "".join(padded)).rstrip())
        start = end


def _padded(cell: str, place: int, table: Table, widths: Sequence[int]) -> str:
    """A cell in its column: numbers stand at the right, the reason why there are none at the left."""
    spaces = " " * (widths[place] - width_of(cell))
    return " " * GAP + (spaces + cell if table.items[place].ranking is not None else cell + spaces)


def _turned(table: Table, columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """The titles of the lines, and the cells of each GPU; the reason why one has none runs down its column."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        groups.setdefault(column.joined or column.key, []).append(column)
    titles = [_title(name, group) for name, group in groups.items()]
    room = (terminal_width() or REASON_WIDTH * 3) - max(map(width_of, titles), default=0) - GAP
    reason = max(LEAST_REASON, min(REASON_WIDTH, room))
    cells = []
    for place, answer in enumerate(table.items):
        if answer.ranking is None:
            cells.append(break_text(f"none: {' '.join(answer.refusal.split())}", reason))
        else:
            texts = [[column.text(table.cells(column)[place]) for column in group] for group in groups.values()]
            cells.append(["-" if set(text) == {"-"} else "x".join(text) for text in texts])
    height = max(len(titles), *map(len, cells))
    return titles + [""] * (height - len(titles)), [column + [""] * (height - len(column)) for column in cells]


def _title(name: str, group: Sequence[Column]) -> str:
    if len(group) == 1:
        return group[0].name
    return f"{name} {'x'.join(column.key.removeprefix(f'{name}_') for column in group)}"
