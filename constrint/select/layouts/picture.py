"""The worst phase of an access to a tile: which bank serves which lane in which clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from constrint.hwmodels.bank_accesses import TileAccess
from constrint.hwmodels.banks import BankConflicts
from constrint.select.layouts.layout import SharedLayout


@dataclass(frozen=True)
class WorstPhase:
    """The phase of an access that takes the most clocks.

    Args:
        instruction, phase: Its place.
        lanes: The lanes that are served together.
        degree: Its clocks.
        banks: The first bank of each cell; a cell is as wide as the access is aligned.
        served: For each cell the lanes that it serves, a clock behind the other; `+` where others want the same word.
    """

    instruction: int
    phase: int
    lanes: tuple[int, ...]
    degree: int
    banks: tuple[int, ...]
    served: tuple[tuple[str, ...], ...]


def worst_phase(layout: SharedLayout, access: TileAccess, found: BankConflicts) -> WorstPhase:
    """The worst phase of an access to a tile in a layout, whose clocks were counted."""
    how, clocks = found.access, found.clocks
    instruction, phase = (int(at) for at in np.unravel_index(np.argmax(clocks), clocks.shape))
    lanes = tuple(how.phases[phase])
    unit = max(how.bank_width_bytes, how.alignment_bytes)
    cells = how.banks * how.bank_width_bytes // unit
    places = layout.places(access)[instruction]
    served = _served(places, lanes, unit, cells, max(1, how.width_bits // 8 // unit))
    banks = tuple(cell * unit // how.bank_width_bytes for cell in range(cells))
    return WorstPhase(instruction, phase, lanes, int(clocks.max()), banks, served)


def _served(places: Any, lanes: Sequence[int], unit: int, cells: int, each: int) -> tuple[tuple[str, ...], ...]:
    words: list[dict[int, list[int]]] = [{} for _ in range(cells)]
    for lane in lanes:
        for piece in range(each):
            word = int(places[lane]) // unit + piece
            words[word % cells].setdefault(word, []).append(lane)
    return tuple(tuple(f"{wanting[0]}{'+' if len(wanting) > 1 else ''}" for wanting in cell.values()) for cell in words)


def lanes_text(lanes: Sequence[int]) -> str:
    """Lanes in runs: `0-3 20-23`."""
    parts: list[list[int]] = []
    for lane in lanes:
        if parts and lane == parts[-1][-1] + 1:
            parts[-1][-1] = lane
        else:
            parts.append([lane, lane])
    return " ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)
