"""The figure of `constrint evaluate`: the rubric, pass@1 and fast_1 of every kernel in one programming model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from constrint.answers.table import counted
from constrint.report.drawing import SYMBOLS, Drawing, FigureColumn, FigureTable, axis, filled, lines


@dataclass(frozen=True)
class ScoreFacts:
    """The scores of one kernel; a range has its least and its most, and None is what was not judged.

    Args:
        kernel: The kernel's name.
        num_suggestions: The suggestions.
        rubric: The rubric, 0 to 1.
        level: The rubric in words.
        pass_1: pass@1.
        interval: The interval of 95 % of pass@1.
        fast_1: The share that is right and faster than plain PyTorch.
    """

    kernel: str
    num_suggestions: int
    rubric: tuple[float, float]
    level: str
    pass_1: tuple[float, float]
    interval: tuple[float, float]
    fast_1: float | None


def draw_scores(model: str, scores: Sequence[ScoreFacts], note: str) -> Drawing:
    """Bars of the rubric with pass@1 and its interval, and fast_1 where it was judged.

    Args:
        model: The programming model.
        scores: The kernels in the order of the figure.
        note: Where the gates were judged.
    """
    kernels = counted(len(scores), "kernel")
    mean = [sum(one.rubric[end] for one in scores) / len(scores) for end in (0, 1)]
    mean_text = f"{mean[0]:.2f}" if mean[0] == mean[1] else f"{mean[0]:.2f} to {mean[1]:.2f}"
    data = [_bars(scores), *_open(scores), _shares("pass@1", 1, scores, [one.pass_1[0] for one in scores])]
    if any(one.fast_1 is not None for one in scores):
        data.append(_shares("fast_1", 2, scores, [one.fast_1 for one in scores]))
    return Drawing(
        name=f"scores-{model}",
        title=f"Scores in {model}",
        says=f"The mean rubric of {kernels} is {mean_text}.",
        alt=f"Bars of the rubric for {kernels} in {model}, with marks at pass@1 and its interval.",
        data=data,
        layout={
            "barmode": "stack",
            "bargap": 0.4,
            "xaxis": axis("", type="category", showgrid=False),
            "yaxis": axis("score", range=[-0.03, 1.05], tickvals=[0, 0.25, 0.5, 0.75, 1]),
            "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
        },
        table=_table(model, scores),
        note=f"{note} Rubric: 0 non-knowledge, 0.25 novice, 0.5 learner, 0.75 proficient, 1 expert. Lines are "
        "intervals of 95 %.",
    )


def _bars(scores: Sequence[ScoreFacts]) -> dict[str, Any]:
    return {
        "type": "bar",
        "name": "rubric",
        "x": [one.kernel for one in scores],
        "y": [one.rubric[0] for one in scores],
        "marker": filled(0),
        "hoverinfo": "text",
        "hovertext": [lines(f"{one.kernel}: {one.level}", f"{one.num_suggestions} suggestions") for one in scores],
    }


def _open(scores: Sequence[ScoreFacts]) -> list[dict[str, Any]]:
    """The share that undecided suggestions may add to the rubric."""
    rest = [one.rubric[1] - one.rubric[0] for one in scores]
    if not any(rest):
        return []
    bars = {"type": "bar", "name": "undecided", "x": [one.kernel for one in scores], "y": rest}
    return [bars | {"marker": {**filled(1), "opacity": 0.45}, "hoverinfo": "skip"}]


def _shares(name: str, at: int, scores: Sequence[ScoreFacts], values: Sequence[float | None]) -> dict[str, Any]:
    marks: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [one.kernel for one in scores],
        "y": list(values),
        "marker": {"symbol": SYMBOLS[at], "size": 11, "color": "--ink"},
    }
    if name == "pass@1":
        marks["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, one.interval[1] - one.pass_1[0]) for one in scores],
            "arrayminus": [max(0.0, one.pass_1[0] - one.interval[0]) for one in scores],
            "color": "--ink",
        }
    return marks


def _table(model: str, scores: Sequence[ScoreFacts]) -> FigureTable:
    columns = (
        FigureColumn("kernel", is_text=True),
        FigureColumn("suggestions"),
        FigureColumn("rubric", places=2, meaning="the least, where some suggestions are undecided"),
        FigureColumn("level", is_text=True),
        FigureColumn("pass@1", places=2),
        FigureColumn("from", places=2, meaning="lower end of the interval of 95 %"),
        FigureColumn("to", places=2, meaning="upper end of the interval of 95 %"),
        FigureColumn("fast_1", places=2, meaning="right, and faster than plain PyTorch"),
    )
    rows = tuple(
        (one.kernel, one.num_suggestions, one.rubric[0], one.level, one.pass_1[0], *one.interval, one.fast_1)
        for one in scores
    )
    return FigureTable(f"Scores in {model}", columns, rows)
