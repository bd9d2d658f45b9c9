"""A waterfall per kernel: what each rule removes, from the full product to the valid configurations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from constrint.answers.facts import GpuFacts, KernelFacts, RuleFacts
from constrint.answers.table import counted
from constrint.report.drawing import (
    Drawing,
    FigureColumn,
    FigureTable,
    axis,
    draws_gpu,
    escaped,
    filled_with,
    lines,
    percent,
)

#: Longest title of a bar; hover label and table have it whole.
MAX_TITLE = 22
#: Share of valid configurations below which the axis is logarithmic.
LOG_BELOW = 0.02
#: The position of 0 on a logarithmic axis.
LEAST = 0.7
#: Rules that remove configurations, each with the number before it.
Taking = Sequence[tuple[RuleFacts, int]]
#: Colour, pattern and meaning of a bar by the kind of its rule.
KINDS = {
    "certain": ("--c1", "", "certain: what breaks it cannot run"),
    "redundant": ("--c2", "/", "redundant: what breaks it does the work of another configuration"),
    "yours": ("--c4", "x", "yours: asked for"),
    "": ("--c3", ".", "a rule of the kernel"),
}


@draws_gpu(40)
def draw(gpu: GpuFacts) -> Iterator[Drawing]:
    """A waterfall per kernel with rules, the best candidate's kernel first."""
    best = gpu.candidates[0].kernel if gpu.candidates else ""
    kernels = [kernel for kernel in gpu.kernels if any(rule.prunes for rule in kernel.rules)]
    for kernel in sorted(kernels, key=lambda kernel: kernel.kernel != best):
        is_open = kernel.kernel == best or not best
        yield _of_kernel(kernel, is_open=is_open)


def _of_kernel(kernel: KernelFacts, *, is_open: bool) -> Drawing:
    pruning = [rule for rule in kernel.rules if rule.prunes]
    # A rule that removes nothing beyond the rules before it would have no bar.
    before = [kernel.num_product, *(rule.left or 0 for rule in pruning)]
    taking = [
        (rule, was) for rule, was in zip(pruning, before, strict=False) if rule.left is not None and rule.left < was
    ]
    is_counted = all(rule.left is not None for rule in pruning)
    share = kernel.num_valid / kernel.num_product if kernel.num_product else 0.0
    silent = len(pruning) - len(taking)
    return Drawing(
        name=f"removed-{kernel.kernel}",
        title=f"What each rule removes: {kernel.kernel}",
        short="Rules",
        says=f"Of {kernel.num_product:,} configurations in the full product {kernel.num_valid:,} are valid "
        f"({percent(share)})." + (f" {_most(taking)}" if taking else ""),
        alt=f"Bars from the full product of {kernel.num_product:,} configurations down to {kernel.num_valid:,} valid "
        f"ones, one step for each of {len(taking)} rules.",
        data=list(_bars(kernel, taking)) if is_counted and taking else [],
        layout=_layout(kernel, taking),
        height=130 + 26 * (len(taking) + 2),
        table=_table(kernel),
        note=_note(kernel, is_counted, len(taking), silent),
        is_open=is_open,
    )


def _note(kernel: KernelFacts, is_counted: bool, num_taking: int, num_silent: int) -> str:
    if not is_counted:
        return "What the rules remove could not be counted in the time there is; the table has the rules."
    if not num_taking:
        return ""
    scale = " The axis is logarithmic." if _is_log(kernel) else ""
    rest = f" {counted(num_silent, 'rule')} more: nothing is left for them to remove; the table has them."
    return (
        f"The rules are applied in turn, the one that removes most by itself first.{scale}{rest if num_silent else ''}"
    )


def _most(taking: Taking) -> str:
    rule, _ = taking[0]
    return f"{rule.name} removes most by itself: {rule.because}."


def _layout(kernel: KernelFacts, taking: Taking) -> dict[str, Any]:
    titles = ["full product", *(_title(rule) for rule, _ in taking), "valid"]
    most = kernel.num_product
    across = {"type": "log", "range": [-0.2, math.log10(most) + 0.1], "dtick": 1, "tickangle": 0, "nticks": 8}
    return {
        "barmode": "overlay",
        "xaxis": axis("configurations left", **(across if _is_log(kernel) else {"range": [0, 1.02 * most]})),
        "yaxis": axis(
            "", tickvals=list(range(len(titles))), ticktext=titles, range=[len(titles) - 0.4, -0.6], showgrid=False
        ),
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0},
    }


def _is_log(kernel: KernelFacts) -> bool:
    return kernel.num_valid < LOG_BELOW * kernel.num_product


def _title(rule: RuleFacts) -> str:
    return escaped(rule.name if len(rule.name) <= MAX_TITLE else f"{rule.name[: MAX_TITLE - 1]}…")


def _bars(kernel: KernelFacts, taking: Taking) -> Iterator[dict[str, Any]]:
    """Bars from the number after a rule to the number before it; on a logarithmic axis 0 stands a little below 1."""
    least = LEAST if _is_log(kernel) else 0.0
    numbers = [kernel.num_product, kernel.num_valid]
    yield {
        "type": "bar",
        "orientation": "h",
        "width": 0.75,
        "y": [0, len(taking) + 1],
        "x": [max(number, least) for number in numbers],
        "name": "all that are left",
        "marker": {"color": "--muted"},
        "hoverinfo": "text",
        "hovertext": [f"{end}: {number:,}" for end, number in zip(("full product", "valid"), numbers, strict=True)],
        "text": [f"{number:,}" for number in numbers],
        "textposition": "auto",
    }
    for kind, (colour, pattern, meaning) in KINDS.items():
        some = [(at, rule, was) for at, (rule, was) in enumerate(taking, 1) if _kind(rule) == kind]
        if some:
            yield {
                "type": "bar",
                "orientation": "h",
                "width": 0.75,
                "y": [at for at, _, _ in some],
                "base": [max(rule.left or 0, least) for _, rule, _ in some],
                "x": [was - max(rule.left or 0, least) for _, rule, was in some],
                "name": meaning.partition(":")[0],
                "marker": filled_with(colour, pattern),
                "hoverinfo": "text",
                "hovertext": [_hover(rule, was) for _, rule, was in some],
            }


def _kind(rule: RuleFacts) -> str:
    return rule.kind if rule.kind in KINDS else ""


def _hover(rule: RuleFacts, was: int) -> str:
    left = rule.left or 0
    return lines(f"{rule.name} ({rule.kind or 'rule'}): {was:,} to {left:,}, {1 - left / was:.1%} fewer", rule.because)


def _table(kernel: KernelFacts) -> FigureTable:
    columns = (
        FigureColumn("rule", is_text=True, is_code=True),
        FigureColumn("kind", is_text=True),
        FigureColumn("alone %", places=1, meaning="share of the full product that breaks it"),
        FigureColumn("only it", meaning="configurations that break no other rule"),
        FigureColumn("left", meaning="what is left after it and the rules before it"),
        FigureColumn("because", is_text=True),
    )
    rows = []
    for rule in kernel.rules:
        alone = None if rule.removes_alone is None else 100.0 * rule.removes_alone / kernel.num_product
        rows.append((rule.name, rule.kind or "rule", alone, rule.removes_only, rule.left, rule.because))
    marked = frozenset(at for at, rule in enumerate(kernel.rules) if not rule.prunes)
    return FigureTable("Every rule; estimated ones rank and leave nothing out", columns, tuple(rows), marked)
