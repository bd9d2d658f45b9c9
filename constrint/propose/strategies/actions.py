"""Macro actions: tile, fuse, pipeline, reorder, vectorise and split, each one step of one parameter.

Which parameters an action moves is said by a kernel (`KernelSpec.actions`), or told by the parameters' names. One
action is applied at a time, so that what it did is known when its result is measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, get_args

from constrint.errors import UsageError
from constrint.propose.records import (
    Action,
    ActionProposal,
    Config,
    KernelFacts,
    ParamFacts,
    SpaceProposal,
    StrategyProposal,
    Values,
)
from constrint.select import KernelSpec

ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
#: What the name of a parameter looks like that an action moves; the first action that it fits takes it.
_NAMES: Final[Mapping[Action, re.Pattern[str]]] = {
    "split": re.compile(r"split|cluster|placement|depth_groups"),
    # What is fetched ahead of its use, or held where it is used.
    "pipeline": re.compile(r"stage|prefetch|pipeline|register|stream|window|probe|^chunk$"),
    "vectorise": re.compile(r"warp|waves|vector|lane|pack|nonkdim"),
    "fuse": re.compile(r"fuse|recompute|persistent|subtile|epilogue"),
    "reorder": re.compile(r"^group_|chunk|order|swizzle"),
    "tile": re.compile(r"tile|block|unit"),
}


def actions_of(spec: KernelSpec, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Which of a kernel's parameters each action moves; actions that move none are left out.

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
    found = stated | {action: tuple(moved) for action, moved in by_name.items()}
    return {action: found[action] for action in ACTIONS if found.get(action)}


def applied_to_config(action: ActionProposal, config: Config, kernel: KernelFacts) -> SpaceProposal:
    """The configuration that an action leads to, as a space of one.

    Raises:
        UsageError: When the parameter cannot go further in that direction, or has that value already.
    """
    param = moved_by(action, kernel)
    value = _moved(action, (config[param.name],), param)
    values = [Values(parameter=name, values=(old,)) for name, old in config.items() if name != param.name]
    return SpaceProposal(
        kernel=kernel.name,
        values=(Values(parameter=param.name, values=(value,), because=f"{action.action} {action.direction}"), *values),
        because=action.because or f"{action.action}: {param.name} = {value} instead of {config[param.name]}",
    )


def applied_to_strategy(action: ActionProposal, strategy: StrategyProposal, kernel: KernelFacts) -> StrategyProposal:
    """A strategy with one parameter's values moved, and everything else as it was.

    Raises:
        UsageError: When the parameter cannot go further in that direction, or has that value already.
    """
    param = moved_by(action, kernel)
    before = {part.parameter: part.values for part in strategy.values}.get(param.name, ())
    value = _moved(action, before or (param.values[0],), param)
    kept = tuple(part for part in strategy.values if part.parameter != param.name)
    because = action.because or f"{action.action} {action.direction}"
    return StrategyProposal(
        name=f"{strategy.name}, {param.name} = {value}"[:100],
        text=strategy.text,
        kernel=strategy.kernel,
        values=(*kept, Values(parameter=param.name, values=(value,), because=because)),
        rules=strategy.rules,
        preferences=strategy.preferences,
        zones=strategy.zones,
        parents=(strategy.name,),
    )


def moved_by(action: ActionProposal, kernel: KernelFacts) -> ParamFacts:
    """The parameter that an action moves.

    Raises:
        UsageError: When the kernel has none that this action moves.
    """
    names = kernel.actions.get(action.action, ())
    name = action.parameter or (names[0] if names else "")
    found = next((param for param in kernel.params if param.name == name), None)
    if found is None or name not in names:
        raise UsageError(f"{kernel.name} has no parameter {name!r} that `{action.action}` moves.")
    return found


def _moved(action: ActionProposal, before: Sequence[int], param: ParamFacts) -> int:
    """The parameter's new value."""
    if action.value is not None:
        if tuple(before) == (action.value,):
            raise UsageError(f"{param.name} is {action.value} already; an action changes something.")
        return action.value
    if action.direction == "more":
        further = [value for value in param.values if value > max(before)]
        extreme = "largest"
    else:
        further = [value for value in param.values if value < min(before)]
        extreme = "smallest"
    if not further:
        raise UsageError(f"{param.name} has its {extreme} value already: {', '.join(map(str, before))}.")
    return min(further) if action.direction == "more" else max(further)


def _action_of(name: str, is_order: bool) -> Action | None:
    if is_order:
        return "reorder"
    return next((action for action, pattern in _NAMES.items() if pattern.search(name)), None)
