"""Which two parameters tell most about the time: the axes of the heat map, found from the space and the cost model.

For every pair of parameters the valid configurations are grouped by their two values; the pair is worth the share of
the variance of log time that lies between the groups. Pairs of tile sizes are preferred unless another pair tells much
more. Which parameters are tile sizes is what a proposal's macro action `tile` moves: no kernel is known by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from constrint.errors import UnknownNameError
from constrint.select.core_space import core_space
from constrint.select.rank import KernelProblem

#: A pair of tile sizes is taken where it explains at least this share of what the most telling pair explains.
TILES_PREFERRED = 0.5


@dataclass(frozen=True)
class Axes:
    """Two parameters, and the share of the variance of log time that they explain, 0 to 1."""

    x: str
    y: str
    share: float


def telling_axes(request: KernelProblem, over: tuple[str, str] | None = None) -> Axes | None:
    """The axes of a kernel's heat map; None where there are no two.

    Args:
        request: The kernel and its space, which has valid configurations.
        over: The two that the user named; a kernel that lacks one of them gets its own.
    """
    columns, logs = _priced(request)
    if not len(logs) or not np.isfinite(logs).any():
        return None
    if over is not None and set(over) <= columns.keys():
        return Axes(*over, _share(columns, logs, over))
    varying = [name for name, column in columns.items() if len(np.unique(column)) > 1]
    shares = {pair: _share(columns, logs, pair) for pair in combinations(varying, 2)}
    if not shares:
        return None
    best = max(shares, key=lambda pair: shares[pair])
    tiles = _tile_names(request, list(columns))
    of_tiles = [pair for pair in shares if set(pair) <= tiles]
    if of_tiles:
        tiled = max(of_tiles, key=lambda pair: shares[pair])
        best = tiled if shares[tiled] >= TILES_PREFERRED * shares[best] else best
    # The first parameter, rows of the output as a rule, goes down the side as it does in a matrix.
    return Axes(best[1], best[0], shares[best])


def check_over(requests: Sequence[KernelProblem], over: tuple[str, str]) -> None:
    """Refuse axes that no kernel has.

    Raises:
        UnknownNameError: When a name is no parameter of any kernel that was asked about.
    """
    for name in over:
        known = {param for request in requests for param in request.problem.variables}
        if name not in known:
            raise UnknownNameError("parameter", name, known)


def _tile_names(request: KernelProblem, names: Sequence[str]) -> set[str]:
    from constrint.propose.strategies.actions import actions_of

    return set(actions_of(request.spec, names).get("tile", ()))


def _priced(request: KernelProblem) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.float64]]:
    """The valid configurations but for the order of blocks and the compiler's knobs, and the log of their times."""
    spec, gpu, workload = request.spec, request.gpu, request.workload
    space = core_space(spec, gpu, workload, request.problem)
    if not space.num_valid or not space.columns:
        return {}, np.zeros(0)
    cost = spec.cost(gpu, workload, space.columns, space.blocks.blocks_per_sm)
    seconds = np.broadcast_to(np.asarray(cost.seconds, dtype=np.float64), space.num_variants.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return space.columns, np.log(seconds * space.blocks.slowdown(gpu))


def _share(columns: Mapping[str, NDArray[Any]], logs: NDArray[np.float64], pair: tuple[str, str]) -> float:
    """The share of the variance that lies between the groups of two parameters' values."""
    known = np.isfinite(logs)
    logs = logs[known]
    total = float(logs.var())
    if total <= 0.0:
        return 0.0
    codes = [np.unique(columns[name][known], return_inverse=True)[1].astype(np.int64) for name in pair]
    groups = np.unique(codes[0] * (int(codes[1].max()) + 1) + codes[1], return_inverse=True)[1]
    numbers = np.bincount(groups)
    means = np.bincount(groups, weights=logs) / numbers
    return float((numbers * (means - logs.mean()) ** 2).sum() / len(logs) / total)
