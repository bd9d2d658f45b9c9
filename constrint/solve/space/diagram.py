"""A decision diagram as a part of a search space: solutions are paths through layers of states, one variable per layer.

Partial assignments that leave the same to be decided are one state, so `x0 + ... + x199 <= 3` over 0/1 variables takes
791 states where a table would list 1,333,501 rows. Counts on the states answer what counts on tables answer elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.solve.space.axes import Rows, check_listing, ranges, total_type
from constrint.solve.space.tree import aggregate


@dataclass(frozen=True, slots=True)
class DiagramLayer:
    """The arcs of one variable, in order of their source and of the variable's positions.

    Attributes:
        name: The variable.
        num_states: How many states the layer starts from; each has at least one arc.
        source: The state that each arc leaves.
        place: The position that the variable takes on it.
        target: The state of the next layer that it leads to.
    """

    name: str
    num_states: int
    source: NDArray[Any]
    place: NDArray[Any]
    target: NDArray[Any]


class DiagramPart:
    """The solutions of one component as paths from the only state of the first layer to the only one after the last."""

    def __init__(self, layers: Sequence[DiagramLayer], sizes: Mapping[str, int]) -> None:
        self.layers = tuple(layers)
        self.names: tuple[str, ...] = tuple(layer.name for layer in layers)
        self.sizes = {name: sizes[name] for name in self.names}
        self._type = total_type(math.prod(self.sizes.values()))
        self._starts = [np.searchsorted(x.source, np.arange(x.num_states + 1)) for x in self.layers]
        #: Number of paths from every state, layer by layer and after the last.
        self._paths: list[NDArray[Any]] = [np.ones(1, dtype=self._type)]
        for layer, starts in zip(reversed(self.layers), reversed(self._starts), strict=True):
            self._paths.insert(0, np.add.reduceat(self._paths[0][layer.target], starts[:-1]))
        self.count = int(self._paths[0][0])
        # Every state lies on a path, so all numbers of one layer together are at most the number of solutions.
        self._type = total_type(self.count)
        self._paths = [paths.astype(self._type, copy=False) for paths in self._paths]

    def _before(self, level: int) -> NDArray[Any]:
        """Number of paths by earlier arcs of a layer."""
        below = self._paths[level + 1][self.layers[level].target]
        return np.asarray(np.cumsum(below, dtype=self._type) - below)

    def groups(self, level: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Per layer: first arc of each state, solutions from each state, and solutions behind all earlier arcs."""
        return self._starts[level], self._paths[level], self._before(level)

    def take(self, indices: NDArray[Any]) -> Rows:
        """Positions of the solutions with these indices: at every state the arc that the index falls to."""
        rest = np.asarray(indices, dtype=self._type)
        state = np.zeros(len(rest), dtype=np.intp)
        rows: Rows = {}
        for level, layer in enumerate(self.layers):
            before = self._before(level)
            rest = rest + before[self._starts[level][state]]
            arc = np.searchsorted(before, rest, side="right") - 1
            rest = rest - before[arc]
            rows[layer.name] = layer.place[arc]
            state = layer.target[arc].astype(np.intp)
        return rows

    def expand(self, values: Mapping[str, NDArray[Any]]) -> Rows:
        """Values of all solutions in index order: every beginning of a path is repeated for each of its ends."""
        check_listing(self.count)
        columns: Rows = {}
        state = np.zeros(1, dtype=np.intp)
        for level, layer in enumerate(self.layers):
            starts = self._starts[level]
            _, arcs = ranges(starts[state], (starts[1:] - starts[:-1])[state])
            state = layer.target[arcs].astype(np.intp)
            ends = self._paths[level + 1][state].astype(np.int64)
            columns[layer.name] = np.repeat(values[layer.name][layer.place[arcs]], ends)
        return columns

    def has(self, positions: Mapping[str, int]) -> bool:
        """Whether one row of positions is a solution: it has an arc at every state."""
        state = 0
        for layer, starts in zip(self.layers, self._starts, strict=True):
            start, end = int(starts[state]), int(starts[state + 1])
            arc = start + int(np.searchsorted(layer.place[start:end], positions[layer.name]))
            if arc == end or layer.place[arc] != positions[layer.name]:
                return False
            state = int(layer.target[arc])
        return True

    def ranks(self, rows: Rows) -> NDArray[Any]:
        """Index of the solution in each row of positions; -1 where it is none."""
        num_rows = len(next(iter(rows.values())))
        rank: NDArray[Any] = np.zeros(num_rows, dtype=self._type)
        state = np.zeros(num_rows, dtype=np.int64)
        missing = np.zeros(num_rows, dtype=bool)
        for level, layer in enumerate(self.layers):
            size = self.sizes[layer.name]
            keys = layer.source.astype(np.int64) * size + layer.place
            places = state * size + rows[layer.name]
            arc = np.minimum(np.searchsorted(keys, places), len(keys) - 1)
            missing |= keys[arc] != places
            before = self._before(level)
            rank = rank + before[arc] - before[self._starts[level][state]]
            state = layer.target[arc].astype(np.int64)
        rank[missing] = -1
        return rank

    def moves(self, rows: Rows) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.bool_]]]:
        """Whether each row of positions is a solution, and with which single positions exchanged it is one."""
        num_rows = len(next(iter(rows.values())))
        fits: dict[str, NDArray[np.bool_]] = {}
        for name, size in self.sizes.items():
            check_listing(num_rows * size)
            changed = {n: np.repeat(rows[n], size) for n in self.names}
            changed[name] = np.tile(np.arange(size), num_rows)
            fits[name] = np.asarray(self.ranks(changed) >= 0, dtype=bool).reshape(num_rows, size)
        return np.asarray(self.ranks(rows) >= 0, dtype=bool), fits

    def project(self, keep: Sequence[str]) -> tuple[Rows, NDArray[Any]]:
        """Distinct combinations of `keep` and how many solutions each stands for."""
        names = set(keep)
        state = np.zeros(1, dtype=np.intp)
        counts: NDArray[Any] = np.ones(1, dtype=self._type)
        columns: Rows = {}
        # The counts of the layers below these variables are known.
        depth = max((i + 1 for i, name in enumerate(self.names) if name in names), default=0)
        for level, layer in enumerate(self.layers):
            if level == depth:
                break
            starts = self._starts[level]
            source, arcs = ranges(starts[state], (starts[1:] - starts[:-1])[state])
            columns = {n: column[source] for n, column in columns.items()}
            if layer.name in names:
                columns[layer.name] = layer.place[arcs]
            # The state is a column too until its rows are added up; its name cannot clash.
            sizes = {**self.sizes, "": len(self._paths[level + 1])}
            columns, counts = aggregate({"": layer.target[arcs], **columns}, sizes, counts[source])
            state = columns.pop("").astype(np.intp)
        counts = counts * self._paths[depth][state]
        return aggregate({n: columns[n] for n in keep}, self.sizes, counts)

    def first(self, order: Sequence[str]) -> dict[str, int]:
        """Positions of the lexicographically first solution, variables taken in this order."""
        if tuple(order) == self.names:
            return {n: int(column[0]) for n, column in self.take(np.zeros(1, dtype=np.int64)).items()}
        positions: dict[str, int] = {}
        part: DiagramPart = self
        for name in order:
            positions[name] = int(part.project([name])[0][name][0])
            left = part.restrict({name: np.array([positions[name]])})
            assert left is not None
            part = left
        return positions

    def restrict(self, allowed: Mapping[str, NDArray[Any]]) -> DiagramPart | None:
        """The solutions in which each of these variables has one of these positions; None if there is none."""
        if not any(n in self.sizes for n in allowed):
            return self
        reached = np.ones(1, dtype=bool)
        masks: list[NDArray[np.bool_]] = []
        for level, layer in enumerate(self.layers):
            mask = reached[layer.source]
            if layer.name in allowed:
                mask = mask & np.isin(layer.place, allowed[layer.name])
            masks.append(mask)
            reached = np.zeros(len(self._paths[level + 1]), dtype=bool)
            reached[layer.target[mask]] = True
        layers: list[DiagramLayer] = []
        number: NDArray[Any] = np.where(reached, 0, -1)
        for layer, mask in zip(reversed(self.layers), reversed(masks), strict=True):
            is_left = mask & (number[layer.target] >= 0)
            states, source = np.unique(layer.source[is_left], return_inverse=True)
            target = number[layer.target[is_left]]
            layers.insert(0, DiagramLayer(layer.name, len(states), source.reshape(-1), layer.place[is_left], target))
            number = np.full(layer.num_states, -1)
            number[states] = np.arange(len(states))
        return DiagramPart(layers, self.sizes) if len(layers[0].source) else None
