"""Macro actions: tile, fuse, pipeline, reorder, vectorise and split. Each moves one parameter by one step.

A kernel states which parameters each action moves (`KernelSpec.actions`); the parameters' names decide where it states
nothing. One action at a time is applied, so that its effect is known when the result is measured. `MOVES` says which
actions help against which bottleneck.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from constrint.errors import UsageError
from constrint.select import KernelSpec
from constrint.tune.search.llm.records import (
    Action,
    ActionProposal,
    Config,
    SpaceProposal,
    StrategyProposal,
    TaskKernel,
    Values,
    Zone,
)

Direction: TypeAlias = Literal["more", "less"]
Move: TypeAlias = tuple[Action, Direction]

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
#: Names of the parameters that each action moves; the first action whose pattern matches takes the parameter.
_NAMES: Final[Mapping[Action, re.Pattern[str]]] = {
    "split": re.compile(r"split|cluster|placement|depth_groups|programs|^steps$"),
    # Data fetched ahead of its use, or held where it is used.
    "pipeline": re.compile(r"stage|prefetch|pipeline|register|stream|window|probe|^chunk$|evict|steps_per_launch"),
    "vectorise": re.compile(r"warp|waves|vector|lane|pack|nonkdim"),
    "fuse": re.compile(r"fuse|recompute|persistent|subtile|epilogue"),
    "reorder": re.compile(r"^group_|chunk|order|swizzle|^by_"),
    "tile": re.compile(r"tile|block|unit"),
}
#: Moves that lessen each part of a predicted time, the most direct one first.
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
    # Latency is hidden by more work in flight: deeper pipelines, more blocks, fewer launches.
    "latency": (("pipeline", "more"), ("split", "more"), ("fuse", "more")),
    "wave quantisation": (("tile", "less"), ("split", "more"), ("fuse", "more")),
    "barrier": (("split", "less"), ("tile", "more")),
    "spilling": (("vectorise", "more"), ("tile", "less")),
}
#: Moves against a part that `MOVES` does not name.
USUAL: Final[tuple[Move, ...]] = (("pipeline", "more"), ("tile", "less"), ("vectorise", "more"))
#: Parts of cost models that are arithmetic, and those that are bytes; every other part is latency.
_COMPUTE: Final = frozenset({"matrix units", "vector units", "special functions"})
_MEMORY: Final = frozenset({"shared memory", "L2 port", "L2", "last-level cache", "DRAM"})


def actions_of(spec: KernelSpec, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The parameters that each action moves, by action; actions that move none are absent.

    Args:
        spec: The kernel.
        names: Its parameters on this GPU, for this workload.
    """
    stated = {action: tuple(n for n in moved if n in names) for action, moved in spec.actions.items()}
    taken = {name for moved in stated.values() for name in moved}
    by_name: dict[str, list[str]] = {}
    for name in names:
        action = _action_of(name, name in spec.order_params)
        if name not in taken and action is not None and action not in stated:
            by_name.setdefault(action, []).append(name)
    whole = stated | {action: tuple(moved) for action, moved in by_name.items()}
    return {action: whole[action] for action in ACTIONS if whole.get(action)}


def applied_to_config(action: ActionProposal, config: Config, kernel: TaskKernel) -> SpaceProposal:
    """The configuration that an action leads to, as a space of one.

    Raises:
        UsageError: When the parameter has no further value in that direction, or has the new value already.
    """
    name, value = _moved(action, kernel, {name: (old,) for name, old in config.items()})
    rest = [Values(parameter=other, values=(old,)) for other, old in config.items() if other != name]
    because = action.because or f"{action.action}: {name} = {value} instead of {config[name]}"
    moved = Values(parameter=name, values=(value,), because=f"{action.action} {action.direction}")
    return SpaceProposal(kernel=kernel.name, values=(moved, *rest), because=because)


def applied_to_strategy(action: ActionProposal, strategy: StrategyProposal, kernel: TaskKernel) -> StrategyProposal:
    """A strategy with the values of one parameter moved and every other constraint unchanged.

    Raises:
        UsageError: When the parameter has no further value in that direction, or has the new value already.
    """
    name, value = _moved(action, kernel, {part.parameter: part.values for part in strategy.values})
    because = action.because or f"{action.action} {action.direction}"
    moved = Values(parameter=name, values=(value,), because=because)
    values = (*(part for part in strategy.values if part.parameter != name), moved)
    called = f"{strategy.name}, {name} = {value}"[:100]
    return msgspec.structs.replace(strategy, name=called, values=values, parents=(strategy.name,))


def _moved(action: ActionProposal, kernel: TaskKernel, start: Mapping[str, Sequence[int]]) -> tuple[str, int]:
    """The parameter that an action moves, and its new value; `start` has the values that it starts from.

    Raises:
        UsageError: When the action moves no parameter of that name, or leads nowhere.
    """
    names = kernel.actions.get(action.action, ())
    name = action.parameter or (names[0] if names else "")
    param = next((param for param in kernel.params if param.name == name), None)
    if param is None or name not in names:
        raise UsageError(f"{kernel.name} has no parameter {name!r} that `{action.action}` moves.")
    before = tuple(start.get(name) or param.values[:1])
    if action.value is not None:
        if before == (action.value,):
            raise UsageError(f"{name} is {action.value} already; an action changes something.")
        return name, action.value
    is_more = action.direction == "more"
    further = [value for value in param.values if (value > max(before) if is_more else value < min(before))]
    if not further:
        extreme = "largest" if is_more else "smallest"
        raise UsageError(f"{name} has its {extreme} value already: {', '.join(map(str, before))}.")
    return name, min(further) if is_more else max(further)


def moves_against(part: str) -> tuple[Move, ...]:
    """The moves that lessen a part of a predicted time."""
    return MOVES.get(part, USUAL)


def rule_of(move: Move, config: Config, kernel: TaskKernel) -> str:
    """A move from a configuration as a rule: `tile_m > 64 or tile_n > 128`; empty where no parameter can move."""
    action, direction = move
    return " or ".join(
        f"{name} {'>' if direction == 'more' else '<'} {config[name]}"
        for name, values in ((param.name, param.values) for param in kernel.params)
        if name in kernel.actions.get(action, ())
        and (max(values) > config[name] if direction == "more" else min(values) < config[name])
    )


def near_rule(config: Config, most: int) -> str:
    """The rule that at most `most` parameters differ from a configuration's."""
    differ = ", ".join(f"{name} != {value}" for name, value in config.items())
    return f"count({differ}) <= {most}"


def zone_of_part(part: str) -> Zone:
    """The roofline zone of a part of a predicted time: bound by arithmetic, by memory, or by latency."""
    if part in _COMPUTE:
        return "compute"
    return "memory" if part in _MEMORY else "latency"


def bound_by(parts_s: Mapping[str, float]) -> str:
    """The largest part of a predicted time; empty where the model names none."""
    return max(parts_s, key=lambda name: parts_s[name]) if parts_s else ""


def _action_of(name: str, is_order: bool) -> Action | None:
    if is_order:
        return "reorder"
    return next((action for action, pattern in _NAMES.items() if pattern.search(name)), None)
