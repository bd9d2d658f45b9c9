"""Splits a problem: independent components, and within each a tree of small overlapping groups of variables.

The tree comes from eliminating variables one by one, cheapest resulting group first. Every constraint's
variables lie together in at least one group, and the groups that share a variable are connected in the tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Bag:
    """A group of variables; `parent` is the position of the group it hangs on, -1 for the root."""

    names: frozenset[str]
    parent: int = -1
    children: list[int] = field(default_factory=list)


def components(names: Iterable[str], scopes: Iterable[frozenset[str]]) -> list[list[str]]:
    """Groups variables that are linked, directly or not, by some scope."""
    leader = {name: name for name in names}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for scope in scopes:
        first, *rest = scope
        for other in rest:
            leader[find(other)] = find(first)
    groups: dict[str, list[str]] = {}
    for name in leader:
        groups.setdefault(find(name), []).append(name)
    return list(groups.values())


def _eliminate(
    names: Sequence[str], scopes: Sequence[frozenset[str]], sizes: Mapping[str, float]
) -> tuple[list[str], dict[str, frozenset[str]]]:
    """Elimination order and, per variable, the group that its elimination forms."""
    linked: dict[str, set[str]] = {name: set() for name in names}
    for scope in scopes:
        for name in scope:
            linked[name] |= scope
    for name in names:
        linked[name].discard(name)
    weight = {n: sizes[n] + sum(sizes[m] for m in linked[n]) for n in names}
    order: list[str] = []
    groups: dict[str, frozenset[str]] = {}
    while linked:
        name = min(linked, key=lambda n: (weight[n], len(linked[n])))
        near = linked.pop(name)
        order.append(name)
        groups[name] = frozenset(near | {name})
        for other in near:
            linked[other] |= near
            linked[other] -= {name, other}
        for other in near:
            weight[other] = sizes[other] + sum(sizes[m] for m in linked[other])
    return order, groups


def _home(name: str, merged: Mapping[str, str]) -> str:
    """Follows merged groups to the one that is left."""
    while name in merged:
        name = merged[name]
    return name


def _merge(order: Sequence[str], groups: dict[str, frozenset[str]], parent: Mapping[str, str | None]) -> dict[str, str]:
    """Merges a group that lies inside its parent's group, or contains it, with that one."""
    merged: dict[str, str] = {}
    for name in order:
        above = parent[name]
        if above is None:
            continue
        above = _home(above, merged)
        if groups[name] <= groups[above]:
            merged[name] = above
        elif groups[above] <= groups[name]:
            groups[above] = groups[name]
            merged[name] = above
    return merged


def tree(names: Sequence[str], scopes: Sequence[frozenset[str]], sizes: Mapping[str, float]) -> list[Bag]:
    """Builds the tree of groups of one component.

    Args:
        names: The variables of the component.
        scopes: The variable sets of its constraints.
        sizes: Logarithm of the number of values of each variable.

    Returns:
        Groups in an order in which every parent stands before its children.
    """
    order, groups = _eliminate(names, scopes, sizes)
    rank = {name: i for i, name in enumerate(order)}
    parent: dict[str, str | None] = {}
    for name in order:
        later = [n for n in groups[name] if rank[n] > rank[name]]
        parent[name] = min(later, key=lambda n: rank[n]) if later else None
    merged = _merge(order, groups, parent)
    bags: list[Bag] = []
    position: dict[str, int] = {}
    for name in reversed(order):
        if name in merged:
            continue
        above = parent[name]
        up = -1 if above is None else position[_home(above, merged)]
        position[name] = len(bags)
        if up >= 0:
            bags[up].children.append(len(bags))
        bags.append(Bag(groups[name], up))
    return bags
