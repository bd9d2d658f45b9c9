"""Strategies: short texts with constraints, made of winners nearby and of what binds the model's first choice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from constrint.propose.records import (
    MAX_RULE,
    Action,
    Facts,
    KernelFacts,
    Nearby,
    Ranked,
    Restriction,
    StrategyProposal,
    Values,
    Zone,
)
from constrint.propose.strategies.moves import Direction, Move, moves_against, rule_of
from constrint.propose.strategies.zones import zone_of_part

#: What a move does, as the text of a strategy.
TEXTS: Final[Mapping[tuple[Action, Direction], str]] = {
    ("tile", "more"): "Larger tiles: every operand that was loaded is used more often.",
    ("tile", "less"): "Smaller tiles: more blocks, so that the last wave is fuller.",
    ("fuse", "more"): "Do more in one launch or one pass: less is started and written in between.",
    ("fuse", "less"): "Do less at once: each block is started, done and gone sooner.",
    ("pipeline", "more"): "A deeper pipeline: more loads are in flight while the units compute.",
    ("pipeline", "less"): "A shallower pipeline: more blocks fit on one SM and hide each other's waiting.",
    ("reorder", "more"): "Walk more neighbouring tiles together: what they share is found in the cache.",
    ("reorder", "less"): "Walk fewer tiles together.",
    ("vectorise", "more"): "More warps share a block's work: each thread holds less.",
    ("vectorise", "less"): "Fewer warps: each loads less of what others load too.",
    ("split", "more"): "Split the work of one tile over more blocks: all SMs have something to do.",
    ("split", "less"): "Split less: nothing has to be summed or waited for.",
}
#: Parts of the first choice's time against which strategies are made: the largest ones.
NUM_PARTS: Final = 3


def strategies_nearby(facts: Facts) -> list[StrategyProposal]:
    """What won for the nearest workloads, as far as the kernels have these values for this workload."""
    kernels = {kernel.name: kernel for kernel in facts.kernels}
    found = (_of_winner(nearby, kernels.get(nearby.kernel)) for nearby in facts.nearby)
    return [strategy for strategy in found if strategy is not None]


def strategies_against(choice: Ranked, kernel: KernelFacts) -> list[StrategyProposal]:
    """Strategies against what binds a configuration most, the largest part of its time first."""
    parts = sorted(choice.parts_s, key=lambda name: -choice.parts_s[name])[:NUM_PARTS]
    moves = dict.fromkeys((move, part) for part in parts for move in moves_against(part))
    found: dict[Move, StrategyProposal] = {}
    for move, part in moves:
        rule = rule_of(move, choice.config, kernel)
        if rule and move not in found and len(rule) <= MAX_RULE:
            found[move] = _of_move(move, rule, kernel.name, zone_of_part(part), part)
    return list(found.values())


def zone_of(facts: Facts) -> Zone:
    """Where the model sees the first choice on the roofline; in doubt, it waits."""
    return facts.zone or "latency"


def chosen_by_zone(strategies: list[StrategyProposal], zone: Zone) -> Iterator[StrategyProposal]:
    """Strategies in the order in which they are tried: those for the zone, those for any, then the others."""
    for fits in (lambda s: zone in s.zones, lambda s: not s.zones, lambda s: s.zones and zone not in s.zones):
        yield from filter(fits, strategies)


def _of_winner(nearby: Nearby, kernel: KernelFacts | None) -> StrategyProposal | None:
    if kernel is None:
        return None
    known = {param.name: param.values for param in kernel.params}
    values = [
        Values(parameter=name, values=(value,), because=f"it won for {nearby.workload}")
        for name, value in nearby.config.items()
        if value in known.get(name, ())
    ]
    if not values:
        return None
    return StrategyProposal(
        name=f"as for {nearby.workload}"[:100],
        text=f"What was fastest for {nearby.workload}, {nearby.distance:.1f} powers of two away.",
        kernel=kernel.name,
        values=tuple(values),
    )


def _of_move(move: Move, rule: str, kernel: str, zone: Zone, part: str) -> StrategyProposal:
    action, direction = move
    return StrategyProposal(
        name=f"{action} {direction}, {kernel}",
        text=TEXTS[move],
        kernel=kernel,
        rules=(Restriction(rule=rule, because=f"{part} is a large part of the predicted time"),),
        zones=(zone,),
    )
