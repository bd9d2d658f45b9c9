"""Which macro actions help against which bottleneck, and an action as a constraint on where to look next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal, TypeAlias

from constrint.propose.records import Action, Config, KernelFacts

Direction: TypeAlias = Literal["more", "less"]
Move: TypeAlias = tuple[Action, Direction]

#: Against each part of a predicted time the moves that lessen it, the most direct one first.
MOVES: Final[Mapping[str, tuple[Move, ...]]] = {
    # Larger tiles use every operand more often; a matrix instruction wants long rows of work.
    "matrix units": (("tile", "more"), ("pipeline", "more"), ("vectorise", "more")),
    "vector units": (("vectorise", "more"), ("tile", "more")),
    "special functions": (("split", "more"), ("vectorise", "more")),
    "shared memory": (("tile", "more"), ("vectorise", "less")),
    "L2 port": (("tile", "more"), ("vectorise", "less")),
    "load issue": (("tile", "more"), ("vectorise", "less")),
    "L2": (("reorder", "more"), ("tile", "more")),
    "last-level cache": (("reorder", "more"), ("tile", "more")),
    "DRAM": (("pipeline", "more"), ("reorder", "more"), ("split", "more")),
    # What waits wants more in flight: deeper pipelines, more blocks, fewer launches.
    "latency": (("pipeline", "more"), ("split", "more"), ("fuse", "more")),
    "wave quantisation": (("tile", "less"), ("split", "more"), ("fuse", "more")),
    "barrier": (("split", "less"), ("tile", "more")),
    "spilling": (("vectorise", "more"), ("tile", "less")),
}
#: What is tried against a part that no line names.
USUAL: Final[tuple[Move, ...]] = (("pipeline", "more"), ("tile", "less"), ("vectorise", "more"))


def moves_against(part: str) -> tuple[Move, ...]:
    """The moves that lessen a part of a time."""
    return MOVES.get(part, USUAL)


def rule_of(move: Move, config: Config, kernel: KernelFacts) -> str:
    """A move from a configuration as a rule: `tile_m > 64 or tile_n > 128`; empty where nothing can move so far."""
    action, direction = move
    return " or ".join(
        f"{name} {'>' if direction == 'more' else '<'} {config[name]}"
        for name, values in _moved(action, kernel)
        if (max(values) > config[name] if direction == "more" else min(values) < config[name])
    )


def near_rule(config: Config, most: int) -> str:
    """The rule that at most so many parameters differ from a configuration's."""
    differ = ", ".join(f"{name} != {value}" for name, value in config.items())
    return f"count({differ}) <= {most}"


def _moved(action: Action, kernel: KernelFacts) -> Iterator[tuple[str, tuple[int, ...]]]:
    for param in kernel.params:
        if param.name in kernel.actions.get(action, ()):
            yield param.name, param.values
