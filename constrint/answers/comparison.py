"""GPUs side by side: the best configuration of a kernel on each, or the reason why a GPU has none.

Programs get a row per GPU. On a terminal the GPUs are columns; columns that do not fit follow below the first ones.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from constrint.answers.explanation import conflict_document
from constrint.answers.question import Question
from constrint.answers.ranking import RankingResult, figure_cells, time_text
from constrint.answers.table import EXTRA, Column, Table
from constrint.answers.terminal import break_text, terminal_width, width_of
from constrint.errors import ConstrintError
from constrint.hwmodels import GpuModel
from constrint.select import Candidate, Ranking

#: Width of the column of a GPU without an answer, where its reason stands, in columns of the terminal.
REASON_WIDTH, LEAST_REASON = 24, 12
#: Spaces between two GPUs.
GAP = 2


@dataclass(frozen=True)
class GpuAnswer:
    """The answer of one GPU.

    Args:
        gpu: The GPU's model.
        named: The name that the user typed.
        question: The question; None if it cannot be asked of this GPU.
        ranking: The best configurations; None without an answer.
        error: The reason why there is no ranking.
    """

    gpu: GpuModel
    named: str
    question: Question | None = None
    ranking: Ranking | None = None
    error: ConstrintError | None = None

    @property
    def refusal(self) -> str:
        """The reason why there is no ranking; empty with a ranking."""
        return "" if self.error is None else str(self.error)

    def result(self) -> RankingResult | dict[str, Any]:
        """The ranking, or the refusal, in the form of `constrint docs json`."""
        if self.ranking is not None:
            return RankingResult.of(self.ranking)
        refused = {"gpu": self.gpu.name, "target": self.gpu.arch.target, "refusal": self.refusal}
        return refused | conflict_document(self.error)


def command_of(answers: Sequence[GpuAnswer], command: str) -> str:
    """The command line that asks another command the same question of the same GPUs."""
    words = next((answer.question.arguments for answer in answers if answer.question is not None), ())
    gpus = [answer.named for answer in answers]
    if command == "solve":
        gpus = [word for gpu in gpus for word in ("--gpu", gpu)]
    # The first two words are --gpu and its value.
    return shlex.join(("constrint", command, *gpus, *words[2:]))


def comparison_table(answers: Sequence[GpuAnswer]) -> Table:
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
        # On a terminal the reason runs down the GPU's column instead.
        Column("refusal", meaning="why the GPU has no answer", is_text=True, importance=EXTRA),
    )


def _scaled(unit: float, rate: float) -> str:
    return f"{rate / unit:,.0f}" if rate >= 100 * unit else f"{rate / unit:.1f}"


def _cells(ranking: Ranking, best: Candidate) -> dict[str, Any]:
    gpu, use = ranking.gpu, best.resources
    cells = {**best.config, **figure_cells(ranking, best), "num_valid": ranking.num_valid}
    cells |= {"target": gpu.arch.target, "sm_count": gpu.device.sm_count}
    if use is not None:
        warps = -(-use.threads // gpu.sm.warp_size) * use.blocks_per_sm
        cells["occupancy"] = warps / gpu.sm.max_warps_per_sm
    return cells


def turned_lines(table: Table, columns: Sequence[Column]) -> Iterator[str]:
    """The lines of the table with its rows as columns: those GPUs side by side that fit, the others below."""
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
            yield ""
        for title, *line in [("", *headers[start:end]), *zip(titles, *cells[start:end], strict=True)]:
            if any(cell not in ("", "-") for cell in line):
                padded = [_padded(cell, place + start, table, widths) for place, cell in enumerate(line)]
                yield (title + " " * (left - width_of(title)) + "".join(padded)).rstrip()
        start = end


def _padded(cell: str, place: int, table: Table, widths: Sequence[int]) -> str:
    """A cell in its column: figures aligned to the right, the reason without an answer to the left."""
    spaces = " " * (widths[place] - width_of(cell))
    return " " * GAP + (spaces + cell if table.items[place].ranking is not None else cell + spaces)


def _turned(table: Table, columns: Sequence[Column]) -> tuple[list[str], list[list[str]]]:
    """The titles of the lines, and for each GPU its cells: figures, or the lines of the reason why it has none."""
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
